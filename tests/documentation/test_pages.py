"""The documentation covers all commands and variables of the code, and its links work."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fairseq_casrnn import cli

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


def load(path):
    """Import a script of docs/ as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


hooks = load(DOCS / "hooks.py")


def test_generated_pages_are_up_to_date():
    """Pages and tables that docs/reference.py generates are up to date."""
    # in a new process, since other tests register further models
    command = "import json, reference; print(json.dumps(reference.generated()))"
    done = subprocess.run(
        [sys.executable, "-c", command], cwd=DOCS, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    for name, text in json.loads(done.stdout.splitlines()[-1]).items():
        assert text == (DOCS / name).read_text("utf-8"), "run python docs/reference.py"


def commands(parser, name="casrnn"):
    """The commands of a parser, including those of its groups."""
    for action in parser._actions:
        for word, inner in (action.choices or {}).items() if hasattr(action, "add_parser") else ():
            yield from list(commands(inner, f"{name} {word}")) or [f"{name} {word}"]


def test_every_command_is_documented():
    names = list(commands(cli._parser([])))
    assert {"casrnn user-dir", "casrnn run", "casrnn rerank tune"} <= set(names)
    headings = (DOCS / "commands.md").read_text("utf-8").splitlines()
    assert {f"## {name}" for name in names} == {
        line for line in headings if line.startswith("## casrnn")
    }


def test_every_environment_variable_is_documented():
    files = [ROOT / "setup.py", ROOT / "Makefile", *(ROOT / "fairseq_casrnn").rglob("*.py")]
    used = {n for f in files for n in re.findall(r"\bCASRNN_[A-Z0-9_]+\b", f.read_text("utf-8"))}
    described = re.findall(r"^\| `(CASRNN_\w+)`", (DOCS / "options.md").read_text("utf-8"), re.M)
    assert used == set(described)


@pytest.mark.parametrize("document", hooks.documents())
def test_linked_files_exist(document):
    """Files exist; anchors are checked when the documentation is built."""
    missing = [
        link for link, found in hooks.links(document) if not (ROOT / found.split("#")[0]).exists()
    ]
    assert not missing


def test_links_are_found(monkeypatch, tmp_path):
    monkeypatch.setattr(hooks, "ROOT", tmp_path)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "README.md").write_text("x")
    text = (
        '[a](../a) `[b](b)` <img src="c.svg"> [d](https://d)\n```\n[e](e)\n```\n![f](../f.md#g)\n'
    )
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "x.md").write_text(text)
    assert hooks.links("docs/x.md") == [
        ("../a", "a/README.md"),
        ("c.svg", "docs/c.svg"),
        ("../f.md", "f.md"),
    ]
    assert hooks.published("README.md") == "index.md"
    assert hooks.published("docs/x.md") == "x.md"


@pytest.mark.parametrize("name", ["cas_cell", "data_flow", "decoder_step", "speed"])
def test_figures_are_up_to_date(name, monkeypatch):
    monkeypatch.syspath_prepend(DOCS / "figures")
    drawn = load(DOCS / "figures" / f"{name}.py").draw().render()
    assert drawn == (DOCS / "figures" / f"{name}.svg").read_text("utf-8")
