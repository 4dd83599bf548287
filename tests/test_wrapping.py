"""Functions replaced by ones that call them."""

from types import SimpleNamespace

import pytest

from fairseq_casrnn.errors import UserError
from fairseq_casrnn.wrapping import wrap, wrapped


def doubled(original, value):
    """Twice what it was."""
    return 2 * original(value)


def increased(original, value):
    """One more than it was."""
    return original(value) + 1


def test_once_and_around_each_other():
    module = SimpleNamespace(function=abs)
    for _ in range(2):
        wrap(module, "function", doubled)
        wrap(module, "function", increased)
    assert module.function(-3) == 7
    assert wrapped(module.function, f"{__name__}.doubled")
    assert wrapped(module.function, f"{__name__}.increased")
    assert not wrapped(abs, f"{__name__}.doubled")
    assert module.function.__name__ == "abs"


def test_the_same_function_under_two_keys():
    module = SimpleNamespace(function=abs)
    for key in ("one", "other", "one"):
        wrap(module, "function", doubled, key)
    assert module.function(-3) == 12


def test_methods():
    class Owner:
        def method(self, value):
            return value

        @staticmethod
        def static(value):
            return value

    wrap(Owner, "method", lambda original, self, value: (original(self, value), type(self)))
    wrap(Owner, "static", doubled)
    assert Owner().method(4) == (4, Owner)
    assert Owner.static(4) == Owner().static(4) == 8


def test_nothing_to_replace():
    """Of another version of fairseq: what is not there cannot be changed in silence."""
    module = SimpleNamespace(__name__="fairseq.trainer")
    with pytest.raises(UserError, match=r"fairseq\.trainer has no function, .*fairseq-fixed 0\.12"):
        wrap(module, "function", doubled)
