"""Checks of options, models and data before fairseq starts.

fairseq reports these mistakes late or never. Each check raises a UserError and leaves valid input
unchanged.
"""

import contextlib
import os
from argparse import Namespace
from pathlib import Path

from fairseq_casrnn import precision
from fairseq_casrnn.checks.binarised import check_binarised
from fairseq_casrnn.checks.option_ranges import check_options
from fairseq_casrnn.checks.task_fit import check_fit, check_program
from fairseq_casrnn.checks.text_files import check_dictionaries, check_new_dictionaries, check_text
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.files import add_filename
from fairseq_casrnn.patches.programs import is_hydra_train, program_name

# --- options -----------------------------------------------------------------------------------


def check_command_line(original, *given, **kwargs):
    """Around ``parse_args_and_arch``: check the options that it has parsed."""
    try:
        parsed = original(*given, **kwargs)
    except (KeyError, RuntimeError) as error:
        if error.args not in ((None,), ()):
            raise
        name, example = ("task", "translation") if error.args else ("arch", "cas_lstm")
        sentence = f"--{name} is missing; give it, for example --{name} {example}"
        raise UserError(sentence) from None
    args = parsed[0] if isinstance(parsed, tuple) else parsed
    # fairseq's parser stores "@@ " for --replace-unk without a value; its generator would open a
    # file of this name.
    if getattr(args, "replace_unk", None) == "@@ ":
        args.replace_unk = ""
    check_options(vars(args))
    if program_name() == "train":
        precision.check_training()
    elif program_name():
        precision.check_device(args)
    if program_name():
        check_program(args)
    if "criterion" in args:
        check_fit(getattr(args, "arch", None), args.task, args.criterion)
    if "beam" in args and args.num_shards > 1:
        # fairseq-generate reads the shard from these two.
        args.distributed_world_size, args.distributed_rank = args.num_shards, args.shard_id
    return parsed


def check_trainer(original, self, cfg, *args, **kwargs):
    """Around ``Trainer.__init__``: check options, model, criterion and device.

    This also covers ``fairseq-hydra-train``, which parses no command line.
    """
    from omegaconf import OmegaConf

    precision.check_training()
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
    """Raise UserError if ``fairseq-hydra-train`` gets an architecture instead of a model.

    fairseq would build the model with its default sizes, not with the architecture's.
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
    """Raise UserError if the first update would fail for want of a matching criterion or device."""
    from fairseq.criterions.adaptive_loss import AdaptiveLoss

    from fairseq_casrnn.models.head import VocabularyHead

    common, scheduler = trainer.cfg.common, trainer.cfg.lr_scheduler
    if common.fp16 and not trainer.cuda and not common.fp16_no_flatten_grads:
        option = "--memory-efficient-fp16" if common.memory_efficient_fp16 else "--fp16"
        raise UserError(f"{option} needs a GPU, and this training uses none; drop the option")
    # torch would only warn, and train without it.
    if common.amp and not trainer.cuda:
        raise UserError("--amp needs a GPU, and this training uses none; drop the option")
    total = getattr(scheduler, "total_num_update", None)
    if getattr(scheduler, "_name", None) == "polynomial_decay" and total is not None and total <= 0:
        raise UserError(f"--total-num-update is {total}; it must be at least 1")
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


def check_dataset(original, path, impl, fix_lua_indexing=False, dictionary=None):
    """Around ``make_dataset``: check files that fairseq may return None for."""
    if impl in ("mmap", "lazy", "cached"):
        check_binarised(path, dictionary, impl, int(fix_lua_indexing))
    dataset = original(path, impl, fix_lua_indexing, dictionary)
    binarised = os.path.isfile(f"{path}.idx") and os.path.isfile(f"{path}.bin")
    if dataset is None and (binarised or os.path.isfile(path)):
        raise UserError(f"{path} is not in the format of --dataset-impl {impl}; drop that option")
    return dataset


# --- text for fairseq-preprocess ---------------------------------------------------------------


def preprocess(original, args: Namespace):
    """Around ``main`` of ``fairseq-preprocess``: check its input and its output."""
    check_options(vars(args))
    check_text(args)
    check_dictionaries(args)
    with _removed_on_failure(Path(args.destdir)):
        try:
            result = original(args)
        except FileExistsError as error:
            if error.filename is not None:
                raise
            raise UserError(
                f"{error} exists already; give another --destdir, or use it with --srcdict and "
                "--tgtdict"
            ) from None
        check_new_dictionaries(args)
        return result


@contextlib.contextmanager
def _removed_on_failure(folder: Path):
    """Remove the files written to ``folder`` after any failure, such as a full disk or Ctrl-C."""
    existed, before = folder.exists(), _versions(folder)
    try:
        yield
    except BaseException as error:
        add_filename(error, folder)
        for file, version in _versions(folder).items():
            # fairseq appends to an existing log.
            if before.get(file) != version and (not existed or file.name != "preprocess.log"):
                file.unlink(missing_ok=True)
        if not existed:
            with contextlib.suppress(OSError):  # it was not made, or holds other files
                folder.rmdir()
        raise


def _versions(folder: Path) -> dict[Path, int]:
    files = folder.iterdir() if folder.is_dir() else ()
    return {file: file.stat().st_mtime_ns for file in files if file.is_file()}
