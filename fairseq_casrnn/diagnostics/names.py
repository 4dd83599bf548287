"""Explain mistakes with names of components and packages."""

import difflib
import re
from collections.abc import Iterable

from fairseq_casrnn.diagnostics.frames import Rules, frame_local


def suggestion(choice: object, known) -> str:
    """The known names that resemble ``choice`` or, if none does, the first ones."""
    names = sorted(str(name) for name in known)
    close = difflib.get_close_matches(str(choice), names, n=3)
    if close:
        return f"did you mean {' or '.join(close)}?"
    words = set(re.findall(r"[^\W_]+", str(choice)))
    # Names with a word in common come first, as nonsense_lm has with language models.
    names.sort(key=lambda name: not words & set(re.findall(r"[^\W_]+", name)))
    more = f" and {len(names) - 12} more" if len(names) > 12 else ""
    return f"choose from {', '.join(names[:12])}{more}"


def shorten_choices(message: str) -> str:
    """argparse's message about an unknown choice, with the nearest choices instead of all."""
    found = re.fullmatch(r"(.*invalid choice: '(.*)') \(choose from (.*)\)", message, re.DOTALL)
    if not found:
        return message
    choices = [choice.strip(" '") for choice in found[3].split(",")]
    return f"{found[1]}; {suggestion(found[2], choices)}"


def name_unknown_options(message: str, known: Iterable[str]) -> str:
    """argparse's message about unknown arguments, with an option that may have been meant."""
    found = re.fullmatch(r"unrecognized arguments: (.*)", message, re.DOTALL)
    options = re.findall(r"(?:^|\s)(--[\w-]+)", found[1]) if found else []
    choices = list(known)
    near = [difflib.get_close_matches(option, choices, 1) for option in options]
    if not any(near):
        return message
    meant = [
        f"{match[0]} for {option}" for option, match in zip(options, near, strict=True) if match
    ]
    return f"{message}; did you mean {', '.join(meant)}?"


def _unknown_choice(error: Exception) -> str | None:
    """fairseq looks a name up in a registry and fails with a KeyError or a bare assertion."""
    from fairseq.models import ARCH_MODEL_REGISTRY
    from fairseq.tasks import TASK_REGISTRY

    build = "fairseq.registry.setup_registry.<locals>.build_x"
    option, chosen, registry = (
        frame_local(error, build, name) for name in ("registry_name", "choice", "REGISTRY")
    )
    model = frame_local(error, "fairseq.models.build_model", "model_type")
    task = frame_local(error, "fairseq.tasks.setup_task", "task_name")
    for what, choice, known in (
        (str(option).replace("_", "-"), chosen, registry),
        ("model", model, ARCH_MODEL_REGISTRY),
        ("task", task, TASK_REGISTRY),
    ):
        if choice is not None and known is not None and choice not in known:
            plugin = " (or give the plugin that has it: --user-dir)" if what == "model" else ""
            return f"unknown {what} '{choice}'; {suggestion(choice, known)}{plugin}"
    return None


def _two_versions(error: ImportError) -> str | None:
    found = re.search(r"--user-dir=(.*?) because .* is not globally unique", str(error))
    if not found:
        return None
    import fairseq_casrnn

    return (
        f"--user-dir {found[1]} is another version than the package already imported from "
        f"{fairseq_casrnn.__path__[0]}; use one of them throughout"
    )


def _not_installed(error: ImportError) -> str | None:
    """fairseq's own message about a package that an option needs."""
    text = str(error)
    return text if re.search("pip install|[Pp]lease install|is installed", text) else None


def _of_nltk(error: Exception) -> str | None:
    """Data that NLTK lacks, or an interface of NLTK that has changed."""
    data = re.search(r"nltk\.download\('(\w+)'\)", str(error))
    if data:
        return f"NLTK lacks the data '{data[1]}'; run python -m nltk.downloader {data[1]}"
    if "expects pre-tokenized" in str(error):
        return "--scoring meteor does not work with the installed NLTK; give another --scoring"
    return None


def message_about_option(error: Exception) -> str | None:
    """fairseq's own message on options: "Must specify batch size with --max-tokens or ..."."""
    message = str(error).partition(": {'_name':")[0]  # without the list of all options
    return message if re.search(r"(^|[\s(])--[a-z]", message) and len(message) < 300 else None


RULES: Rules = (
    ((KeyError, AssertionError), _unknown_choice),
    (ImportError, _two_versions),
    (ImportError, _not_installed),
    ((LookupError, TypeError), _of_nltk),
)
