"""Distributed training on machines without GPUs."""

from __future__ import annotations

import os

import torch


def start_without_gpus(original, cfg) -> None:
    """Read rank and world size from ``torchrun``; fairseq divides by the number of GPUs, 0."""
    if torch.cuda.device_count():
        original(cfg)
        return
    cfg.distributed_init_method = "env://"
    cfg.distributed_world_size = int(os.environ["WORLD_SIZE"])
    cfg.distributed_rank = int(os.environ["RANK"])
    cfg.distributed_no_spawn = True
    cfg.device_id = 0  # not LOCAL_RANK
