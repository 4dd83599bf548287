"""Hooks before, around and after functions of fairseq, and the table of patches."""

import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import fairseq
import pytest

from fairseq_casrnn import cli
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.patches import install
from fairseq_casrnn.patches.patch import KINDS, Patch
from fairseq_casrnn.patches.table import TABLE

ROOT = Path(__file__).resolve().parents[2]


# Hooks; the fixture ``patched`` resolves their names.
def doubled(original, value):
    return 2 * original(value)


def increased(original, value):
    return original(value) + 1


def refuse_zero(value):
    if value == 0:
        raise UserError("give another number")


def as_text(result, value):
    return f"{result} of {value}"


@pytest.fixture
def patched(monkeypatch):
    """A function that patches ``target`` in a module of fairseq with hooks of this file."""
    monkeypatch.setattr(install, "_hook", lambda path: globals()[path])
    module = ModuleType("fairseq.invented")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(fairseq, "invented", module, raising=False)

    def patch(target, original, *hooks, kind="fix"):
        *owner, name = target.split(".")
        setattr(getattr(module, owner[0]) if owner else module, name, original)
        for _ in range(2):
            install.apply(
                Patch(f"fairseq.invented.{target}", kind, hook, "it must", when)
                for hook, when in hooks
            )
        return module

    return patch


def test_order_of_hooks(patched):
    module = patched(
        "function",
        abs,
        ("as_text", "after"),
        ("doubled", "around"),
        ("refuse_zero", "before"),
        ("increased", "around"),
    )
    assert module.function(-3) == "8 of -3"
    with pytest.raises(UserError):
        module.function(0)
    assert module.function.__wrapped__ is abs
    assert module.function.__name__ == "abs"


def test_methods(patched):
    class Owner:
        pass

    def method(self, value):
        return value, self

    globals()["typed"] = lambda original, self, value: (original(self, value), type(self))
    module = patched("Owner", Owner)
    patched("Owner.method", method, ("typed", "around"))
    patched("Owner.static", staticmethod(abs), ("doubled", "around"))
    owner = module.Owner()
    assert owner.method(4) == ((4, owner), Owner)
    assert module.Owner.static(-4) == owner.static(-4) == 8


def test_inherited_methods_are_not_patched(patched, caplog):
    class Owner(list):
        pass

    module = patched("Owner", Owner)
    install.apply([Patch("fairseq.invented.Owner.append", "fix", "doubled", "it must")])
    assert "fairseq has no fairseq.invented.Owner.append, which" in caplog.text
    assert module.Owner.append is list.append


@pytest.mark.parametrize("target", ["fairseq.invented.function", "fairseq.nowhere.function"])
def test_missing_target(patched, caplog, target):
    """Another version of fairseq may lack it; that is a warning, or an error for safety patches."""
    message = rf"fairseq has no {re.escape(target)}, which .*\(it must\).*fairseq-fixed 0\.12\.3\.1"
    install.apply([Patch(target, "fix", "doubled", "it must")])
    assert re.search(message, caplog.text)
    with pytest.raises(UserError, match=message):
        install.apply([Patch(target, "safety", "doubled", "it must")])


def test_another_version_of_fairseq_warns_once(monkeypatch, caplog):
    install.check_version.cache_clear()
    install.check_version()
    assert not caplog.text
    monkeypatch.setattr(fairseq, "__version__", "0.13")
    install.check_version.cache_clear()
    install.check_version()
    install.check_version()
    assert (
        caplog.text.count(
            "fairseq 0.13 is untested: the patches of fairseq_casrnn are for 0.12.3.1"
        )
        == 1
    )
    install.check_version.cache_clear()


@pytest.mark.parametrize(
    ("value", "omitted"),
    [
        ("", set()),
        ("-speed", {"speed"}),
        ("-speed, -fix", {"speed", "fix"}),
        ("-checkpoint_files.check_archive", {"checkpoint_files.check_archive"}),
    ],
)
def test_omitted_names(monkeypatch, value, omitted):
    monkeypatch.setenv("CASRNN_PATCHES", value)
    assert install.omitted_names() == omitted


@pytest.mark.parametrize(
    "value", ["speed", "-sped", "-speed -fix", "-", "+speed", "-check_archive"]
)
def test_invalid_omissions(monkeypatch, value):
    monkeypatch.setenv("CASRNN_PATCHES", value)
    with pytest.raises(UserError, match=r"CASRNN_PATCHES is '.*'; give the kinds to leave out, s"):
        install.omitted_names()


# Compares all functions and methods of fairseq's modules before and after registration.
CHANGES = """
import sys
from types import ModuleType
sys.argv = ["/usr/bin/fairseq-PROGRAM"]
from fairseq_casrnn.patches import install  # before fairseq, so that nothing is registered yet
from fairseq_casrnn.patches.table import TABLE
import fairseq, fairseq_cli.PROGRAM

def classes(owner, module):
    for kind in list(vars(owner).values()):
        if isinstance(kind, type) and kind.__module__ == module and "." not in kind.__qualname__:
            yield kind
            inside = kind.__qualname__ + "."
            yield from (inner for inner in vars(kind).values()
                        if isinstance(inner, type) and inner.__qualname__.startswith(inside))

def owners():
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] in ("fairseq", "fairseq_cli") and isinstance(module, ModuleType):
            yield module
            yield from classes(module, name)

def plain(value):
    return getattr(value, "__func__", value)

def wanted(patch):
    return patch.when != "call" and patch.kind not in OMITTED and patch.belongs_in(program)

program = "PROGRAM" if "PROGRAM" in ("train", "interactive", "preprocess", "eval_lm") else "any"
originals = {}
for patch in TABLE:
    if patch.when != "call":
        owner, name, _ = install.find(patch.target)
        originals[id(owner), name] = plain(vars(owner)[name])
for owner in owners():
    for name, value in vars(owner).items():
        if callable(plain(value)):
            originals[id(owner), name] = plain(value)

import fairseq_casrnn
fairseq_casrnn.register()
expected = {}
for patch in filter(wanted, TABLE):
    owner, name, now = install.find(patch.target)
    expected.setdefault((id(owner), name), (owner, []))[1].append(patch)
for (place, name), (owner, patches) in expected.items():
    now = plain(vars(owner)[name])
    assert now._patches == tuple(patches), (name, now._patches)
    assert now.__wrapped__ is originals[place, name], name
more = [f"{owner.__name__}.{name}" for owner in owners() for name, value in vars(owner).items()
        if (id(owner), name) in originals and (id(owner), name) not in expected
        and plain(value) is not originals[id(owner), name]]
assert not more, more
print(len(expected))
"""


@pytest.mark.parametrize(
    ("program", "omitted"),
    [
        ("train", ()),
        pytest.param("generate", (), marks=pytest.mark.full),
        pytest.param("interactive", (), marks=pytest.mark.full),
        pytest.param("preprocess", (), marks=pytest.mark.full),
        pytest.param("eval_lm", ("speed", "message"), marks=pytest.mark.full),
    ],
)
def test_exactly_the_listed_functions_are_changed(program, omitted):
    """Each of them has one wrapper."""
    code = CHANGES.replace("PROGRAM", program).replace("OMITTED", repr(omitted))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env={**os.environ, "CASRNN_PATCHES": ",".join(f"-{kind}" for kind in omitted)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-1]) > 40


def test_patch_names_are_unique():
    """Each name stands for one hook, which may change several functions."""
    hooks = {patch.hook for patch in TABLE}
    assert len({patch.name for patch in TABLE}) == len(hooks)


def test_omitting_a_single_patch():
    code = (
        "import fairseq_casrnn; fairseq_casrnn.register(); from fairseq import checkpoint_utils\n"
    )
    code += "from fairseq_casrnn.patches.install import patches_of\n"
    code += "print(*(p.name for p in patches_of(checkpoint_utils.load_checkpoint)))"
    for omitted in ("", "-checkpoint_files.check_before_resuming"):
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code],
            env={**os.environ, "CASRNN_PATCHES": omitted},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        names = done.stdout.split()
        assert "save_dir_lock.claim_save_dir" in names
        assert ("checkpoint_files.check_before_resuming" in names) == (omitted == "")


def test_every_patch_is_complete():
    for patch in TABLE:
        assert patch.kind in KINDS
        assert patch.when in ("before", "after", "around", "replace", "call")
        assert callable(install._hook(patch.hook)), patch.hook
        assert patch.why
        assert not patch.why.endswith(".")
    assert len({(patch.target, patch.hook) for patch in TABLE}) == len(TABLE)


def test_command_lists_omitted_patches(monkeypatch, capsys):
    cli.main(["patches"])
    printed = capsys.readouterr().out
    assert "left out" not in printed
    assert "(off)" not in printed
    monkeypatch.setenv("CASRNN_PATCHES", "-speed")
    cli.main(["patches"])
    count = sum(patch.kind == "speed" for patch in TABLE)
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == f"left out by CASRNN_PATCHES: speed ({count} of {len(TABLE)} changes)"
    assert sum(" speed (off) " in line for line in lines) == count


def test_omitted_patches_are_logged_once(monkeypatch, caplog):
    monkeypatch.setattr(install, "apply", list)
    install.report_omitted.cache_clear()
    monkeypatch.setenv("CASRNN_PATCHES", "-feature,-speed")
    with caplog.at_level("INFO"):
        install.install()
        install.install()
    logged = [r.getMessage() for r in caplog.records if "left out" in r.getMessage()]
    count = sum(patch.kind in ("feature", "speed") for patch in TABLE)
    assert logged == [
        f"left out by CASRNN_PATCHES: feature, speed ({count} of {len(TABLE)} changes)"
    ]


@pytest.mark.full
def test_invalid_variable_is_one_error_message():
    """A real fairseq program stops before it registers anything."""
    done = subprocess.run(
        [sys.executable, "-m", "fairseq_cli.train", "x", "--user-dir", "fairseq_casrnn"],
        env={**os.environ, "CASRNN_PATCHES": "-sped"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("error: environment variable CASRNN_PATCHES")
    assert "Traceback" not in done.stderr
