"""What fairseq needs from outside to work safely with today's torch; installed at registration."""

import argparse
import collections
import logging
import os
import shutil
import sys
import threading
import time
import types
import typing
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import numpy
import omegaconf
import torch

from fairseq_casrnn import (
    allocation,
    beam,
    checkpoint_files,
    checks,
    divergence,
    exclusive,
    generation,
    next_words,
    output,
    precision,
    vocabularies,
)
from fairseq_casrnn.batching import keep_batches_on_resume, keep_last_batch
from fairseq_casrnn.explain import explain, explained
from fairseq_casrnn.files import replacing
from fairseq_casrnn.mistakes.names import shorten_choices
from fairseq_casrnn.patience import keep_patience_on_resume, wait_for_the_first_success
from fairseq_casrnn.resumption import keep_meanings, keep_task_state
from fairseq_casrnn.safe_loading import allow_checkpoint_globals
from fairseq_casrnn.wrapping import is_hydra_train, program, wrap


def install() -> None:
    """Make fairseq load its own checkpoints safely, save them whole, and explain user mistakes."""
    allow_checkpoint_globals()
    hand_checkpoints_on()
    keep_numpy_names()
    join_parts_of_a_split()
    save_whole_files()
    keep_last_batch()
    keep_batches_on_resume()
    keep_patience_on_resume()
    wait_for_the_first_success()
    keep_task_state()
    keep_meanings()
    score_empty_translations()
    start_without_gpus()
    vocabularies.install()
    generation.install()
    checks.install()
    checkpoint_files.install()
    divergence.install()
    exclusive.install()
    if is_fairseq_program(sys.argv[0] if sys.argv else ""):
        allocation.keep_freed_memory()
        precision.flush_denormals()
        beam.install()
        next_words.install()
        explain_mistakes()
        output.prepare()
        output.flush_at_exit()
        divergence.drop_numbers()
        checks.install_for_program(sys.argv[0])
        generation.install_for_program(sys.argv[0])
        silence_libraries()
    precision.install()  # last: its mistakes are explained as well


def hand_checkpoints_on() -> None:
    """Let the first of several processes give the others a checkpoint that it has loaded.

    fairseq does so through ``torch.save`` and ``torch.load`` in memory, when the options are a
    container of OmegaConf already and tensors are placeholders. Safe loading does not know these
    classes; they are allowed for that one load, and not for files.
    """
    from fairseq.distributed import utils as distributed

    allowed = [
        *(collections.defaultdict, dict, float, int, list, str, typing.Any),
        *(omegaconf.DictConfig, omegaconf.ListConfig, omegaconf.nodes.AnyNode),
        *(omegaconf.base.ContainerMetadata, omegaconf.base.Metadata),
        distributed._TensorPlaceholder,
    ]

    def broadcast(original, *args, **kwargs):
        with torch.serialization.safe_globals(allowed):
            return original(*args, **kwargs)

    wrap(distributed, "_broadcast_object_slow", broadcast)


def keep_numpy_names() -> None:
    """Give numpy back the name and the keyword that fairseq needs and numpy 2.4 no longer has.

    Without the name ``--sample-break-mode eos`` and sampling from a language model fail, without
    the keyword ``--num-batch-buckets``. What else numpy 2 dropped only fairseq's audio data sets
    and examples use, and a layer of its non-autoregressive models.
    """
    from fairseq.data import bucket_pad_length_dataset, data_utils

    if not hasattr(numpy, "compat"):
        numpy.compat = types.SimpleNamespace(long=int)

    def get_buckets(original, sizes, num_buckets):
        percents = numpy.linspace(0, 100, num_buckets + 1)
        return numpy.unique(numpy.percentile(sizes, percents, method="lower")[1:])

    for module in (bucket_pad_length_dataset, data_utils):
        wrap(module, "get_buckets", get_buckets)


def join_parts_of_a_split() -> None:
    """Let the first part of a split in several (train, train1, …) be read once, not -1 times.

    That is fairseq's default for ``--upsample-primary``.
    """
    from fairseq.data import ConcatDataset

    def init(original, self, datasets, sample_ratios=1):
        if isinstance(sample_ratios, list):
            sample_ratios = [1 if ratio == -1 else ratio for ratio in sample_ratios]
        original(self, datasets, sample_ratios)

    wrap(ConcatDataset, "__init__", init)


def save_whole_files() -> None:
    """Make fairseq write a checkpoint completely or not at all.

    fairseq copies the new checkpoint over ``checkpoint_last.pt`` in place, so a full disk or a
    kill in that moment destroys the file that a resumed training starts from; and a failed save
    is tried again at the position in the file where the first attempt broke off.
    """
    from fairseq import checkpoint_utils
    from fairseq.file_io import PathManager

    def save(original, obj, filename, async_write=False):
        if async_write or not PathManager.supports_rename(filename):
            return original(obj, filename, async_write=async_write)
        with replacing(filename) as temporary, open(temporary, "wb") as file:
            torch.save(obj, file)

    def copy(original, src_path: str, dst_path: str, overwrite: bool = False):
        if PathManager.path_requires_pathmanager(src_path + dst_path):
            return original(src_path, dst_path, overwrite=overwrite)
        with replacing(dst_path) as temporary:
            shutil.copyfile(src_path, temporary)
        return dst_path

    wrap(checkpoint_utils, "torch_persistent_save", save)
    wrap(PathManager, "copy", copy)


def score_empty_translations() -> None:
    """Let ``--eval-bleu`` give 0 where all translations are empty, as at the start of a training.

    fairseq 0.12.3 gives no BLEU then, and ends when it is what the best checkpoint is chosen by.
    """

    def get_valid_stats(original, cfg, trainer, stats, *args, **kwargs):
        task = getattr(trainer, "task", None)
        if getattr(getattr(task, "cfg", None), "eval_bleu", False):
            stats.setdefault("bleu", 0.0)
        return original(cfg, trainer, stats, *args, **kwargs)

    wrap(program("train"), "get_valid_stats", get_valid_stats)


def start_without_gpus() -> None:
    """Let ``torchrun`` start fairseq's processes on a machine that has no GPU.

    fairseq divides by their number.
    """
    from fairseq.distributed import utils as distributed

    def infer(original, cfg):
        if torch.cuda.device_count():
            original(cfg)
            return
        cfg.distributed_init_method = "env://"
        cfg.distributed_world_size = int(os.environ["WORLD_SIZE"])
        cfg.distributed_rank = int(os.environ["RANK"])
        cfg.distributed_no_spawn, cfg.device_id = True, 0  # and not the rank, LOCAL_RANK

    wrap(distributed, "_infer_torch_distributed_launch_init", infer)


def silence_libraries() -> None:
    """No warnings of fairseq's libraries about each other, of which no user can do anything."""
    # Six lines about hydra's own past and future before each run's first line.
    warnings.filterwarnings("ignore", category=UserWarning, module=r"hydra\.")
    warnings.filterwarnings("ignore", message=r"\s*'config' is validated against ConfigStore")
    # fairseq pins memory and names autocast as older versions of torch had it, with no GPU too.
    warnings.filterwarnings("ignore", message="'pin_memory' argument is set as true but no")
    warnings.filterwarnings("ignore", message=r"`torch\.cuda\.amp\.autocast\(args")


def is_fairseq_program(program: str) -> bool:
    """Whether ``sys.argv[0]`` is a command line of fairseq, also as ``python -m fairseq_cli.x``."""
    path = Path(program)
    return path.name.startswith("fairseq-") or path.parent.name == "fairseq_cli"


def explain_mistakes() -> None:
    """Print ``error: <one sentence>`` for mistakes that ``explain`` knows, else the traceback.

    Of Ctrl-C, which is none, that the program was interrupted.
    ``CASRNN_TRACEBACK=1`` in the environment shows every traceback.
    """
    from fairseq.distributed import utils as distributed

    if getattr(sys.excepthook, "_explains", False):
        return
    explained_worker.original = distributed.distributed_main
    sys.excepthook = _explaining(sys.excepthook)
    argparse.ArgumentParser.error = _option_error
    distributed.distributed_main = explained_worker
    logging.getLogger("fairseq.dataclass.utils").addFilter(_without_all_options)
    if is_hydra_train():
        # hydra prints a shortened traceback itself and exits unless told to let errors through.
        os.environ.setdefault("HYDRA_FULL_ERROR", "1")


def _without_all_options(record: logging.LogRecord) -> bool:
    """Drops the line of 12,000 characters with every option that comes before a mistake in one."""
    return os.environ.get("CASRNN_TRACEBACK") == "1" or not str(record.msg).startswith(
        "Error when composing"
    )


def explained_worker(*args):
    """Replaces fairseq's ``distributed_main``, which runs in one process for each GPU.

    Of an error there, the first process learns no more than the traceback's text. So what can be
    explained becomes a UserError, whose sentence it finds in that text.
    """
    with explained():
        explained_worker.original(*args)


def _explaining(previous: Callable) -> Callable:
    def hook(kind, error, traceback):
        sentence = None
        if os.environ.get("CASRNN_TRACEBACK") != "1":
            known = explain(error)
            stopped = issubclass(kind, KeyboardInterrupt)
            sentence = "interrupted" if stopped else known and f"error: {known}"
        if sentence is None:
            previous(kind, error, traceback)
        else:
            if sys.stdout is not None:
                output.flush()
            print(sentence, file=sys.stderr)
        wait_for_batches()

    hook._explains = True
    return hook


def wait_for_batches(seconds: float = 2.0) -> None:
    """Wait until fairseq's threads that collate batches ahead are done, or their queues are full.

    Python stops such a thread at its end; inside torch that aborts the process.
    """
    from fairseq.data.iterators import BackgroundConsumer

    end = time.monotonic() + seconds
    for thread in threading.enumerate():
        if isinstance(thread, BackgroundConsumer):
            while thread.is_alive() and not thread._queue.full() and time.monotonic() < end:
                thread.join(0.01)


def _option_error(parser: argparse.ArgumentParser, message: str) -> NoReturn:
    """Replaces ``ArgumentParser.error``, which prints fairseq's hundreds of options first."""
    parser.exit(2, f"error: {shorten_choices(message)} (--help lists every option)\n")
