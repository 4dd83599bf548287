"""Explain errors of fairseq and torch that users' mistakes cause, in one sentence each.

Each rule in ``RULES`` has exception types and a function that returns the sentence, or None if the
rule does not apply. To explain another mistake, write a function in the appropriate module
of :mod:`fairseq_casrnn.diagnostics` and add it to the rules there. A sentence names the file or
option and the remedy.
"""

import contextlib
import re
from collections.abc import Iterator

from fairseq_casrnn.diagnostics import (
    checkpoints,
    data,
    files,
    lengths,
    names,
    numbers,
    options,
)
from fairseq_casrnn.diagnostics.frames import Rules, crossed_user_code
from fairseq_casrnn.errors import UserError, one_sentence


def explain(error: BaseException) -> str | None:
    """The sentence for ``error`` or its ``__cause__``; None if it is not a known mistake.

    Errors in a user's own code, such as a model in ``--user-dir``, are never explained.
    """
    link: BaseException | None = error
    while link is not None:
        if not isinstance(link, UserError) and crossed_user_code(link):
            return None
        for kind, sentence in RULES:
            if isinstance(link, kind) and (text := sentence(link)):
                return one_sentence(" ".join(text.split()))
        link = link.__cause__
    return None


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Context manager that turns errors that can be explained into a UserError."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        sentence = explain(error)
        if sentence is None:
            raise
        raise UserError(sentence) from error


def _in_a_worker(error: Exception) -> str | None:
    """A UserError in a worker process of distributed training, of which only the text is known."""
    found = re.search(r"^[\w.]*\bUserError: (.+)", str(error), re.MULTILINE)
    return found[1] if found and "Process" in type(error).__name__ else None


def fairseq_message(error: Exception) -> str | None:
    """A message that fairseq itself has for users, raised as Exception or AssertionError."""
    traceback = error.__traceback__
    if type(error) not in (Exception, AssertionError) or traceback is None or not str(error):
        return None
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    module = traceback.tb_frame.f_globals.get("__name__", "")
    words = re.findall(r"(?<!\S)[A-Za-z]{2,}(?=[,:;!?.]*(?:\s|$))", str(error))
    is_text = len(words) >= 2 and len(str(error)) < 300
    return str(error) if is_text and module.split(".")[0] in ("fairseq", "fairseq_cli") else None


RULES: Rules = (
    (Exception, checkpoints.unsuitable_language_model),
    (UserError, str),
    *files.RULES,
    *checkpoints.RULES,
    *names.RULES,
    *data.RULES,
    *lengths.RULES,
    *options.RULES,
    *numbers.RULES,
    ((MemoryError, RuntimeError, OSError), files.out_of_memory),
    # General rules come last.
    ((ValueError, AssertionError, NotImplementedError), names.message_about_option),
    (Exception, _in_a_worker),
    (OSError, files.system_error),
    (Exception, fairseq_message),
)
