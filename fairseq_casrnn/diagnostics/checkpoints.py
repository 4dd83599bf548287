"""Explain mistakes with checkpoints."""

import os
import re

from fairseq_casrnn.diagnostics.frames import GENERATE, Rules, frame_local
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.kinds import architecture

UTILS = "fairseq.checkpoint_utils"
ENSEMBLE = "fairseq.checkpoint_utils.load_model_ensemble_and_task"
TRAINER = "fairseq.trainer.Trainer"
CHECK_DIGEST = "fairseq_casrnn.data.dictionaries.check_digest"


def explain_failure(path: str, error: Exception) -> str:
    """Why torch did not load the file at ``path``; torch's message advises unsafe loading."""
    if os.path.splitext(path)[1] == ".casrnn":
        return f"checkpoint {path} is a packed model; give the checkpoint that it was packed from"
    found = re.search(r"unsupported (?:global|class)\W+(?:GLOBAL )?([\w.]+)", str(error), re.I)
    if found is not None:
        return (
            f"checkpoint {path} was refused because it holds {found[1]}, which could run code "
            "when loaded; use a checkpoint that fairseq-train wrote"
        )
    return (
        f"checkpoint {path} cannot be read: it is truncated or not a checkpoint; "
        "copy it again or use another one"
    )


def _unreadable_checkpoint(error: Exception) -> str | None:
    path = frame_local(error, f"{UTILS}.load_checkpoint_to_cpu", "path")
    if path is None or frame_local(error, "torch.serialization.load", "weights_only") is None:
        return None
    return explain_failure(path, error)


def _other_architecture(error: Exception) -> str | None:
    if "Error(s) in loading state_dict" not in str(error):
        return None
    return _mismatch(frame_local(error, ENSEMBLE, "filename"), str(error))


def _other_architecture_on_resume(error: Exception) -> str | None:
    found = re.match(r"Cannot load model parameters from checkpoint (.*?); please", str(error))
    if found and isinstance(error.__context__, UserError):
        return str(error.__context__)
    return _mismatch(found[1], str(error.__context__)) if found else None


def _mismatch(checkpoint: str | None, details: str) -> str:
    first = re.search(r"size mismatch for ([\w.]+)|in state_dict: \"([\w.]+)\"", details)
    name = (first[1] or first[2]) if first else ""
    what = "architecture or with another dictionary" if "embed_tokens" in name else "architecture"
    where = f" (first difference: {name})" if name else ""
    return (
        f"checkpoint {checkpoint or ''} belongs to a model of another {what}{where}; give the "
        "options and data it was trained with, or another --save-dir or --path"
    )


def _not_a_model(error: Exception) -> str | None:
    path = frame_local(error, f"{UTILS}.load_checkpoint_to_cpu", "path")
    upgrading = frame_local(error, f"{UTILS}._upgrade_state_dict", "state") is not None
    if "Neither args nor cfg exist" in str(error):
        path, upgrading = frame_local(error, ENSEMBLE, "filename"), True
    if path is None or not upgrading:
        return None
    return f"{path} is not a checkpoint of fairseq-train; check the path"


def lacks_position(extra_state: object) -> bool:
    """Whether a checkpoint's ``extra_state`` does not say in which epoch the training was."""
    place = extra_state.get("train_iterator") if isinstance(extra_state, dict) else None
    epoch = place.get("epoch") if isinstance(place, dict) else None
    return not (isinstance(epoch, int) and epoch >= 1)


def missing_position_message(checkpoint: str) -> str:
    """The message about a checkpoint that :func:`lacks_position`."""
    return (
        f"checkpoint {checkpoint} does not say how far its training got, so it cannot be resumed; "
        "use another checkpoint, or start from its weights: --finetune-from-model and another "
        "--save-dir"
    )


def _missing_position(error: Exception) -> str | None:
    for load, name in (
        (f"{TRAINER}.load_checkpoint", "filename"),
        (f"{UTILS}.load_checkpoint", "checkpoint_path"),
    ):
        extra_state = frame_local(error, load, "extra_state")
        if extra_state is not None and lacks_position(extra_state):
            return missing_position_message(frame_local(error, load, name))
    return None


def _other_lr_scheduler(error: KeyError) -> str | None:
    """Of fairseq's schedulers, fixed and manual save no best loss, and all others expect it."""
    trainer = frame_local(error, f"{TRAINER}.load_checkpoint", "self")
    if error.args != ("best",) or not trainer:
        return None
    path = frame_local(error, f"{TRAINER}.load_checkpoint", "filename")
    return (
        f"checkpoint {path} was trained with another --lr-scheduler than "
        f"{trainer.cfg.lr_scheduler._name}; give that one, or --reset-lr-scheduler"
    )


def _no_ema(error: KeyError) -> str | None:
    # fairseq would use the checkpoint's weights, but has already deleted them.
    trainer = frame_local(error, f"{TRAINER}.load_checkpoint", "self")
    if error.args != ("model",) or not trainer or not trainer.cfg.ema.store_ema:
        return None
    path = frame_local(error, f"{TRAINER}.load_checkpoint", "filename")
    return (
        f"checkpoint {path} was trained without --store-ema, which cannot be added when resuming; "
        "drop --store-ema, or train a new model with it (--ema-start-update sets the first update "
        "that is averaged)"
    )


def _no_ema_in_seed(error: KeyError) -> str | None:
    path = frame_local(error, f"{UTILS}.load_ema_from_checkpoint", "fpath")
    if error.args != ("ema",) or path is None:
        return None
    return (
        f"--ema-seed-model {path} holds no weights averaged in training; give a checkpoint of a "
        "training with --store-ema, or drop the option"
    )


def unsuitable_language_model(error: Exception) -> str | None:
    """Any error of ``fairseq-generate`` while it loads the model of ``--lm-path``."""
    from fairseq.models import FairseqLanguageModel

    cfg = frame_local(error, GENERATE, "cfg")
    path = getattr(getattr(cfg, "generation", None), "lm_path", None)
    if path is None or frame_local(error, f"{UTILS}.load_model_ensemble", "filenames") != [path]:
        return None
    loaded = frame_local(error, ENSEMBLE, "cfg")
    if loaded is None:  # the checkpoint cannot be read
        return None
    name, model = architecture(loaded.model)
    if model is not object and not issubclass(model, FairseqLanguageModel):
        return (
            f"checkpoint {path} of --lm-path is a {name}, not a language model; give another "
            "checkpoint"
        )
    task = frame_local(error, GENERATE, "task")
    language = getattr(task.cfg or task.args, "target_lang", None)
    dictionary = f"{cfg.task.data}/dict.txt"
    target = f"{cfg.task.data}/dict.{language}.txt" if language else dictionary
    remedy = (
        f"train the language model on data binarised with {target} (fairseq-preprocess "
        f"--only-source --srcdict {target}), and copy that to {dictionary}"
    )
    if not os.path.isfile(dictionary):
        return f"the dictionary {dictionary} of --lm-path {path} does not exist; {remedy}"
    sizes = "Error(s) in loading state_dict" in str(error)
    if not sizes and frame_local(error, CHECK_DIGEST, "trained") is None:
        return None
    return f"--lm-path {path} was trained with another dictionary than {dictionary}; {remedy}"


RULES: Rules = (
    (KeyError, _no_ema_in_seed),
    (KeyError, _no_ema),
    (KeyError, _other_lr_scheduler),
    ((KeyError, TypeError), _missing_position),
    (Exception, _unreadable_checkpoint),
    (RuntimeError, _other_architecture),
    (Exception, _other_architecture_on_resume),
    (Exception, _not_a_model),
)
