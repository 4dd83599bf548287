"""Mistakes with checkpoints."""

import re

from fairseq_casrnn.errors import UserError
from fairseq_casrnn.mistakes.frames import Rules, local
from fairseq_casrnn.safe_loading import explain_failure


def _unreadable_checkpoint(error: Exception) -> str | None:
    path = local(error, "load_checkpoint_to_cpu", "path")
    if path is None or local(error, "load", "weights_only") is None:  # not from torch.load
        return None
    return explain_failure(path, error)


def _other_architecture(error: Exception) -> str | None:
    if "Error(s) in loading state_dict" not in str(error):
        return None
    return _mismatch(local(error, "load_model_ensemble_and_task", "filename"), str(error))


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
    path = local(error, "load_checkpoint_to_cpu", "path")
    upgrading = local(error, "_upgrade_state_dict", "state") is not None
    if "Neither args nor cfg exist" in str(error):
        path, upgrading = local(error, "load_model_ensemble_and_task", "filename"), True
    if path is None or not upgrading:
        return None
    return f"{path} is not a checkpoint of fairseq-train; check the path"


def _without_averages(error: KeyError) -> str | None:
    # fairseq would begin with the weights of the checkpoint, but has just dropped them.
    trainer = local(error, "load_checkpoint", "self")
    if error.args != ("model",) or not trainer or not trainer.cfg.ema.store_ema:
        return None
    path = local(error, "load_checkpoint", "filename")
    return (
        f"checkpoint {path} was trained without --store-ema, and averaging cannot begin on the "
        "way; drop --store-ema, or train a new model with it (--ema-start-update says from which "
        "update on it averages)"
    )


def _without_seed(error: KeyError) -> str | None:
    path = local(error, "load_ema_from_checkpoint", "fpath")
    if error.args != ("ema",) or path is None:
        return None
    return (
        f"--ema-seed-model {path} holds no weights averaged in training; give a checkpoint of a "
        "training with --store-ema, or drop the option"
    )


RULES: Rules = (
    (KeyError, _without_seed),
    (KeyError, _without_averages),
    (Exception, _unreadable_checkpoint),
    (RuntimeError, _other_architecture),
    (Exception, _other_architecture_on_resume),
    (Exception, _not_a_model),
)
