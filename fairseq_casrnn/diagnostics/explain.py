"""Users' mistakes as fairseq and torch raise them, turned into one sentence each.

``RULES`` is the table: a kind of exception and a function that returns the sentence, or None when
the exception is something else after all. To explain one more mistake, write its function in the
module of :mod:`fairseq_casrnn.diagnostics` that it belongs to, and add its line there. A sentence
names the file or option and the remedy.
"""

import contextlib
import re
from collections.abc import Iterator

from fairseq_casrnn.diagnostics import (
    checkpoints,
    data,
    files,
    lengths,
    memory,
    names,
    numbers,
    options,
)
from fairseq_casrnn.diagnostics.frames import Rules, is_of_other_code
from fairseq_casrnn.errors import UserError, one_sentence


def explain(error: BaseException) -> str | None:
    """The sentence for ``error`` or for its declared cause; None if it is no known mistake.

    An error of the user's own code, as of a model in ``--user-dir``, is none.
    """
    link: BaseException | None = error
    while link is not None:
        if not isinstance(link, UserError) and is_of_other_code(link):
            return None
        for kind, sentence in RULES:
            if isinstance(link, kind) and (text := sentence(link)):
                return one_sentence(" ".join(text.split()))
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


def _in_a_worker(error: Exception) -> str | None:
    """A UserError that one of several training processes raised: only its text comes back."""
    found = re.search(r"^[\w.]*\bUserError: (.+)", str(error), re.MULTILINE)
    return found[1] if found and "Process" in type(error).__name__ else None


def said_by_fairseq(error: Exception) -> str | None:
    """A message that fairseq has for its user, raised as the plainest of exceptions."""
    traceback = error.__traceback__
    if type(error) not in (Exception, AssertionError) or traceback is None or not str(error):
        return None
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    module = traceback.tb_frame.f_globals.get("__name__", "")
    words = re.findall(r"(?<!\S)[A-Za-z]{2,}(?=[,:;!?.]*(?:\s|$))", str(error))
    spoken = len(words) >= 2 and len(str(error)) < 300
    return str(error) if spoken and module.split(".")[0] in ("fairseq", "fairseq_cli") else None


RULES: Rules = (
    (Exception, checkpoints.unfit_language_model),
    (UserError, str),
    *files.RULES,
    *checkpoints.RULES,
    *names.RULES,
    *data.RULES,
    *lengths.RULES,
    *options.RULES,
    *numbers.RULES,
    *memory.RULES,
    # The general ones come last.
    ((ValueError, AssertionError, NotImplementedError), names.named_option),
    (Exception, _in_a_worker),
    (OSError, files.system_error),
    (Exception, said_by_fairseq),
)
