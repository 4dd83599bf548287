"""Users' mistakes as fairseq and torch raise them, turned into one sentence each.

``RULES`` is the table: a kind of exception and a function that returns the sentence, or None when
the exception is something else after all. To explain one more mistake, write its function and add
its line. A sentence names the file or option and the remedy.
"""

import contextlib
import difflib
import errno
import re
from collections.abc import Iterator

from fairseq_casrnn import mistakes
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.mistakes import Sentence, local

DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def explain(error: BaseException) -> str | None:
    """The sentence for ``error`` or for its declared cause; None if it is no known mistake."""
    link: BaseException | None = error
    while link is not None:
        for kind, sentence in RULES:
            if isinstance(link, kind) and (text := sentence(link)):
                return " ".join(text.split())
        link = link.__cause__
    return None


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """What can be explained becomes a UserError; all other errors stay as they are."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        sentence = explain(error)
        if sentence is None:
            raise
        raise UserError(sentence) from error


def _suggestion(choice: object, known) -> str:
    names = sorted(str(name) for name in known)
    close = difflib.get_close_matches(str(choice), names, n=3)
    if close:
        return f"did you mean {' or '.join(close)}?"
    more = f" and {len(names) - 12} more" if len(names) > 12 else ""
    return f"choose from {', '.join(names[:12])}{more}"


def shorten_choices(message: str) -> str:
    """argparse's message about an unknown choice, with the nearest choices instead of all."""
    found = re.fullmatch(r"(.*invalid choice: '(.*)') \(choose from (.*)\)", message, re.DOTALL)
    if not found:
        return message
    choices = [choice.strip(" '") for choice in found[3].split(",")]
    return f"{found[1]}; {_suggestion(found[2], choices)}"


# --- files -------------------------------------------------------------------------------------


def _missing_file(error: FileNotFoundError) -> str | None:
    found = re.fullmatch(r"Dataset not found: (.*) \((.*)\)", str(error))
    if found:
        return (
            f"there is no '{found[1]}' dataset at {found[2]}; check the data folder, "
            "--source-lang, --target-lang and the subset's name"
        )
    name = error.filename or str(error)
    return f"{name} does not exist; check the path" if name else None


def _missing_model(error: OSError) -> str | None:
    found = re.fullmatch(r"Model file not found: (.*)", str(error))
    return f"checkpoint {found[1]} does not exist; check --path" if found else None


def _disk_full(error: Exception) -> str | None:
    # torch's writer fails once more while it closes the file, so look at what came before, too;
    # and it does not know the file's name, which the function that opened it does.
    link: BaseException | None = error
    while link is not None and getattr(link, "errno", None) not in DISK_FULL:
        link = link.__context__
    if link is None:
        return None
    folder = getattr(local(error, "main", "args"), "destdir", None)  # of fairseq-preprocess
    name = link.filename2 or link.filename or local(error, "save", "filename") or folder
    name = str(name or "the output").removesuffix(".tmp")
    reason = link.strerror or "no space left"
    return f"could not write {name} ({reason}); free some space and run the command again"


# --- checkpoints -------------------------------------------------------------------------------


def _unreadable_checkpoint(error: Exception) -> str | None:
    path = local(error, "load_checkpoint_to_cpu", "path")
    if path is None or local(error, "load", "weights_only") is None:  # not from torch.load
        return None
    unsafe = re.search(r"unsupported (?:global|class)\W+(?:GLOBAL )?([\w.]+)", str(error), re.I)
    if unsafe:
        return (
            f"checkpoint {path} was refused because it holds {unsafe[1]}, which could run code "
            "when loaded; use a checkpoint that fairseq-train wrote"
        )
    return (
        f"checkpoint {path} cannot be read: it is truncated or no checkpoint at all; "
        "copy it again or use another one"
    )


def _other_architecture(error: Exception) -> str | None:
    if "Error(s) in loading state_dict" not in str(error):
        return None
    return _mismatch(local(error, "load_model_ensemble_and_task", "filename"), str(error))


def _other_architecture_on_resume(error: Exception) -> str | None:
    found = re.match(r"Cannot load model parameters from checkpoint (.*?); please", str(error))
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


# --- names -------------------------------------------------------------------------------------


def _unknown_choice(error: Exception) -> str | None:
    """fairseq looks a name up in a registry and fails with a KeyError or a bare assertion."""
    from fairseq.models import ARCH_MODEL_REGISTRY
    from fairseq.tasks import TASK_REGISTRY

    option = str(local(error, "build_x", "registry_name")).replace("_", "-")
    for what, choice, known in (
        (option, local(error, "build_x", "choice"), local(error, "build_x", "REGISTRY")),
        ("model", local(error, "build_model", "model_type"), ARCH_MODEL_REGISTRY),
        ("task", local(error, "setup_task", "task_name"), TASK_REGISTRY),
    ):
        if choice is not None and known is not None and choice not in known:
            return f"unknown {what} '{choice}'; {_suggestion(choice, known)}"
    return None


def _unknown_metric(error: KeyError) -> str | None:
    stats, cfg = (local(error, "validate", name) for name in ("stats", "cfg"))
    if not isinstance(stats, dict) or cfg is None:
        return None
    metric = cfg.checkpoint.best_checkpoint_metric
    if metric in stats:
        return None
    known = sorted(set(stats) - {"wps", "wpb", "bsz", "num_updates"})
    return (
        f"validation gives no '{metric}', which --best-checkpoint-metric asks for; it gives "
        f"{', '.join(known)}: choose one of them, or another --criterion"
    )


def _two_versions(error: ImportError) -> str | None:
    found = re.search(r"--user-dir=(.*?) because .* is not globally unique", str(error))
    if not found:
        return None
    import fairseq_casrnn

    return (
        f"--user-dir {found[1]} is another version than the package already imported from "
        f"{fairseq_casrnn.__path__[0]}; use one of them throughout"
    )


def _named_option(error: Exception) -> str | None:
    """fairseq's own complaint about options: "Must specify batch size with --max-tokens or ..."."""
    message = str(error).partition(": {'_name':")[0]  # all options follow
    return message if re.search(r"(^|[\s(])--[a-z]", message) and len(message) < 300 else None


# --- everything --------------------------------------------------------------------------------


def _in_a_worker(error: Exception) -> str | None:
    """A UserError that one of several training processes raised: only its text comes back."""
    found = re.search(r"^[\w.]*\bUserError: (.+)", str(error), re.MULTILINE)
    return found[1] if found and "Process" in type(error).__name__ else None


RULES: tuple[tuple[type | tuple[type, ...], Sentence], ...] = (
    (Exception, mistakes.no_beam),
    (UserError, str),
    (FileNotFoundError, _missing_file),
    (OSError, _missing_model),
    (Exception, _disk_full),
    (Exception, _unreadable_checkpoint),
    (RuntimeError, _other_architecture),
    (Exception, _other_architecture_on_resume),
    ((KeyError, AssertionError), _unknown_choice),
    (KeyError, _unknown_metric),
    (ImportError, _two_versions),
    *mistakes.RULES,
    ((ValueError, AssertionError), _named_option),
    (Exception, _in_a_worker),
    # The general ones come last.
    (OSError, mistakes.system_error),
    (Exception, mistakes.said_by_fairseq),
)
