"""Write the record of a training with each checkpoint."""

from __future__ import annotations

import logging
import math
import time
from pathlib import Path

import torch

from fairseq_casrnn.data.checksum import checksum, contents, training_files
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.runs import environment, record

logger = logging.getLogger(__name__)

LARGEST = 2**31  # maximum bytes of training data for which a checksum is computed; takes seconds
# Numbers of a validation that measure speed or are recorded elsewhere.
NOT_SCORES = {"wps", "wpb", "bsz", "ups", "num_updates", "wall", "train_wall"}


def keep_scores(stats: dict, cfg, trainer, *args, **kwargs) -> dict:
    """After ``get_valid_stats``: keep the first validation set's scores for :func:`write`."""
    tracking_best = args[1] if len(args) > 1 else kwargs.get("tracking_best", True)
    if tracking_best:
        trainer.validation_scores = {
            name: float(value)
            for name, value in stats.items()
            if name not in NOT_SCORES and not name.startswith("best_") and _is_number(value)
        }
    return stats


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float, torch.Tensor)) and math.isfinite(value)


def write(result, cfg, trainer, epoch_itr, val_loss):
    """After ``save_checkpoint``: write ``run.json``; a failure only causes a warning."""
    folder = Path(cfg.save_dir)
    if not cfg.no_save and trainer.is_data_parallel_master and folder.is_dir():
        try:
            _write(folder, trainer, epoch_itr, val_loss)
        except (UserError, OSError) as error:
            logger.warning("the record of the training was not written: %s", error)
    return result


def _write(folder: Path, trainer, epoch_itr, val_loss) -> None:
    """Write the current record, dropping validations of later updates from an earlier run.

    An earlier validation of this update is also dropped, unless this checkpoint has none: after a
    signal, a checkpoint without a validation may follow one with it.
    """
    if not hasattr(trainer, "run_description"):
        trainer.run_description = describe(trainer)
    updates = trainer.get_num_updates()
    earlier = record.read(folder).get("validation", [])
    end = updates + (val_loss is None)
    history = [scores for scores in earlier if scores.get("updates", 0) < end]
    if val_loss is not None:
        scores = getattr(trainer, "validation_scores", {})
        history.append({"epoch": epoch_itr.epoch, "updates": updates, **scores})
    options = trainer.cfg.checkpoint
    record.update(
        folder,
        **trainer.run_description,
        date=time.strftime("%Y-%m-%d"),
        epochs=epoch_itr.epoch,
        updates=updates,
        seconds=round(
            float(trainer.cumulative_training_time()), 1
        ),  # a tensor with several processes
        load=environment.load_average(),
        finished=False,
        best=best(history, options.best_checkpoint_metric, options.maximize_best_checkpoint_metric),
        validation=history,
    )


def best(history: list[dict], metric: str, maximize: bool) -> dict:
    """The validation with the best ``metric``; among equal ones the last, as in fairseq."""
    known = [scores for scores in reversed(history) if metric in scores]
    return (max if maximize else min)(known, key=lambda one: one[metric]) if known else {}


def describe(trainer) -> dict[str, object]:
    """The part of the record that is constant during a training."""
    cfg = trainer.cfg
    half = [name for name in ("fp16", "bf16") if getattr(cfg.common, name)]
    cuda = trainer.device.type == "cuda"
    return {
        "training": environment.command_line(),
        "arch": getattr(cfg.model, "arch", None) or getattr(cfg.model, "_name", None),
        "seed": cfg.common.seed,
        "parameters": sum(parameter.numel() for parameter in trainer.model.parameters()),
        "precision": half[0] if half else torch.get_float32_matmul_precision(),
        "device": torch.cuda.get_device_name(trainer.device) if cuda else trainer.device.type,
        "processes": trainer.data_parallel_world_size,
        "machine": environment.machine(),
        "package": environment.commit(),
        "versions": environment.versions(),
        "data": describe_data(trainer.task),
    }


def describe_data(task) -> dict[str, object]:
    """Folder, checksum and numbers of examples of the training data."""
    options = task.cfg or task.args  # language models have no task.cfg
    folder = getattr(options, "data", None) or ""
    found: dict[str, object] = {"folder": folder}
    first = Path(folder.split(":")[0])
    if folder and first.is_dir():
        files = training_files(first)
        if sum(path.stat().st_size for path in files) <= LARGEST:
            found["checksum"] = checksum(contents(files))
    for part, split in (("train", getattr(options, "train_subset", "train")), ("valid", "valid")):
        if split in task.datasets:
            found[part] = len(task.datasets[split])
    return found


def finish(result, cfg, *args, **kwargs):
    """After ``call_main``: record that the training finished."""
    folder = Path(cfg.checkpoint.save_dir)
    try:
        if cfg.distributed_training.distributed_rank == 0 and record.read(folder):
            record.update(folder, finished=True)
    except (UserError, OSError) as error:
        logger.warning("the record of the training was not written: %s", error)
    return result
