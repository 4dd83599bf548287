"""Build and run fairseq's trainer in this process, as ``fairseq-train`` does, for benchmarks."""

from __future__ import annotations

import argparse
import time
from itertools import cycle, islice

import machine
import torch
from fairseq import options, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.trainer import Trainer

import fairseq_casrnn

fairseq_casrnn.register()

DTYPES = {"float32": [], "fp16": ["--fp16"]}
"""fairseq's options by dtype; its ``--bf16`` works on TPUs only."""


def build(argv: list[str], dtype: str = "float32"):
    """The task and the trainer of a command line ``argv``, on a GPU if there is one."""
    argv = [*argv, *DTYPES[dtype]]
    argv += [] if torch.cuda.is_available() else ["--cpu"]
    args = options.parse_args_and_arch(options.get_training_parser(), argv)
    cfg = convert_namespace_to_omegaconf(args)
    torch.manual_seed(1)
    task = tasks.setup_task(cfg.task)
    model, criterion = task.build_model(cfg.model), task.build_criterion(cfg.criterion)
    return task, Trainer(cfg, task, model, criterion)


def batches(task, trainer, count: int) -> list:
    """``count`` shuffled training batches, repeated if an epoch has fewer."""
    task.load_dataset("train", combine=False, epoch=1)
    iterator = trainer.get_train_iterator(epoch=1, load_dataset=False).next_epoch_itr(shuffle=True)
    return list(islice(cycle(iterator), count))


def train(trainer, samples) -> float:
    """Target words per second over ``samples``."""
    words = sum(sample["ntokens"] for sample in samples)
    machine.synchronize()
    start = time.perf_counter()
    for sample in samples:
        trainer.train_step([sample])
    machine.synchronize()
    return words / (time.perf_counter() - start)


def add_dtype(parser: argparse.ArgumentParser) -> None:
    """Add ``--dtype``, one of ``DTYPES``."""
    parser.add_argument("--dtype", type=dtype, default="float32", help=", ".join(DTYPES))


def dtype(text: str) -> str:
    """One of ``DTYPES``, for argparse; half precision needs a GPU."""
    if text not in DTYPES:
        raise argparse.ArgumentTypeError(f"'{text}' is none of {', '.join(DTYPES)}")
    if text != "float32" and not torch.cuda.is_available():
        raise argparse.ArgumentTypeError(f"{text} needs a GPU, and there is none; use float32")
    return text
