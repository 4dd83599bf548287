"""Several processes on a machine without GPUs."""

from __future__ import annotations

import os

import torch


def start_without_gpus(original, cfg) -> None:
    """Let ``torchrun`` start fairseq's processes where there is no GPU: fairseq divides by them."""
    if torch.cuda.device_count():
        original(cfg)
        return
    cfg.distributed_init_method = "env://"
    cfg.distributed_world_size = int(os.environ["WORLD_SIZE"])
    cfg.distributed_rank = int(os.environ["RANK"])
    cfg.distributed_no_spawn, cfg.device_id = True, 0  # and not the rank, LOCAL_RANK
