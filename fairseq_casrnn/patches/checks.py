"""Options, models and data that fairseq would notice late or never, checked before it starts.

Each check raises a UserError; a right input passes unchanged.
"""

import contextlib
from argparse import Namespace
from pathlib import Path

from fairseq_casrnn.diagnostics.binarised import check_binarised
from fairseq_casrnn.diagnostics.option_ranges import check_options
from fairseq_casrnn.diagnostics.task_fit import check_fit
from fairseq_casrnn.diagnostics.text_files import check_dictionaries, check_made, check_text
from fairseq_casrnn.errors import UserError

from .programs import is_hydra_train

# --- options -----------------------------------------------------------------------------------


def check_command_line(parsed, *unused, **kwargs):
    """After ``parse_args_and_arch``, which gives ``parsed``."""
    args = parsed[0] if isinstance(parsed, tuple) else parsed
    # What fairseq's parser puts for an option without a value, and its generator opens as a file.
    if getattr(args, "replace_unk", None) == "@@ ":
        args.replace_unk = ""
    check_options(vars(args))
    if "criterion" in args:
        check_fit(getattr(args, "arch", None), args.task, args.criterion)
    if "beam" in args and args.num_shards > 1:
        # fairseq-generate looks here for them.
        args.distributed_world_size, args.distributed_rank = args.num_shards, args.shard_id
    return parsed


def check_trainer(original, self, cfg, *args, **kwargs):
    """Around ``Trainer.__init__``.

    For ``fairseq-hydra-train``, which parses no command line; it imports plugins late.
    """
    from omegaconf import OmegaConf

    groups = OmegaConf.to_container(cfg) if OmegaConf.is_config(cfg) else {}
    for name in ("common", "dataset", "optimization", "checkpoint", "optimizer", "lr_scheduler"):
        if isinstance(group := groups.get(name), dict):
            check_options(group)
    check_model_name(getattr(cfg, "model", None))
    parts = (getattr(cfg, part, None) for part in ("model", "task", "criterion"))
    check_fit(*(getattr(part, "_name", None) for part in parts))
    original(self, cfg, *args, **kwargs)
    check_training(self)


def check_model_name(cfg) -> None:
    """Raise UserError where ``fairseq-hydra-train`` is given an architecture in place of a model.

    fairseq then builds the architecture's model with the sizes of none.
    """
    from fairseq.models import (
        ARCH_MODEL_NAME_REGISTRY,
        MODEL_DATACLASS_REGISTRY,
        MODEL_REGISTRY,
    )

    name = getattr(cfg, "_name", None)
    model = ARCH_MODEL_NAME_REGISTRY.get(name)
    if is_hydra_train() and name not in MODEL_REGISTRY and model in MODEL_DATACLASS_REGISTRY:
        raise UserError(
            f"{name} is an architecture, whose sizes only fairseq-train --arch knows; name the "
            f"model, model._name={model}, and give its sizes"
        )


def check_training(trainer) -> None:
    """Raise UserError where model, criterion and device do not fit: the first update would fail."""
    from fairseq.criterions.adaptive_loss import AdaptiveLoss

    from fairseq_casrnn.models.head import VocabularyHead

    if trainer.cfg.common.memory_efficient_fp16 and not trainer.cuda:
        raise UserError(
            "--memory-efficient-fp16 needs a GPU, and this training uses none; drop the option"
        )
    decoder = getattr(trainer.get_model(), "decoder", None)
    adaptive = getattr(decoder, "adaptive_softmax", None) is not None
    criterion = isinstance(trainer.get_criterion(), AdaptiveLoss)
    if adaptive and not criterion and isinstance(decoder, VocabularyHead):
        raise UserError(
            "--adaptive-softmax-cutoff needs --criterion adaptive_loss; give that one, or drop "
            "--adaptive-softmax-cutoff"
        )
    if criterion and not adaptive:
        raise UserError(
            "--criterion adaptive_loss needs --adaptive-softmax-cutoff; give that option, or "
            "another criterion"
        )


# --- binarised data ----------------------------------------------------------------------------


def check_dataset(path, impl, fix_lua_indexing=False, dictionary=None) -> None:
    """Before ``make_dataset``."""
    if impl in ("mmap", "lazy", "cached"):
        check_binarised(path, dictionary, impl, int(fix_lua_indexing))


def close_map(original, self) -> None:
    """Around the end of a mapped file."""
    if hasattr(self, "_bin_buffer_mmap"):  # unless the file could not be mapped, which is told
        original(self)


# --- text for fairseq-preprocess ---------------------------------------------------------------


def preprocess(original, args: Namespace):
    """Around ``main`` of ``fairseq-preprocess``."""
    check_options(vars(args))
    check_text(args)
    check_dictionaries(args)
    with _undone_on_failure(Path(args.destdir)):
        result = original(args)
        check_made(args)
        return result


@contextlib.contextmanager
def _undone_on_failure(folder: Path):
    """Remove what was written to ``folder`` if anything fails, a full disk or Ctrl-C say."""
    existed, before = folder.exists(), _versions(folder)
    try:
        yield
    except BaseException:
        for file, version in _versions(folder).items():
            # fairseq appends to a log that was there.
            if before.get(file) != version and (not existed or file.name != "preprocess.log"):
                file.unlink(missing_ok=True)
        if not existed:
            with contextlib.suppress(OSError):  # it has none, or holds what is not ours
                folder.rmdir()
        raise


def _versions(folder: Path) -> dict[Path, int]:
    files = folder.iterdir() if folder.is_dir() else ()
    return {file: file.stat().st_mtime_ns for file in files if file.is_file()}
