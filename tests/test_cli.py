"""The ``casrnn`` command: its subcommands, options and errors. It does not import torch."""

import subprocess
import sys

import pytest

from fairseq_casrnn import cli

SCRIPT = """
import sys
from fairseq_casrnn import cli
try:
    cli.main(sys.argv[1:])
except SystemExit:
    pass
print("loaded:", sorted({"torch", "fairseq", "numpy"} & set(sys.modules)))
"""


@pytest.mark.parametrize(
    "words", [["user-dir"], ["patches"], ["--help"], ["--version"], ["analyze", "--help"]]
)
def test_quick_commands_do_not_import_torch(words):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *words], capture_output=True, text=True, check=True
    )
    assert done.stdout.endswith("loaded: []\n")


def test_help_of_a_command_does_not_import_torch():
    """It would take seconds."""
    script = """
import sys
from fairseq_casrnn import cli
for name in cli.COMMANDS:
    try:
        cli.main([*name.split(), "--help"])
    except SystemExit:
        pass
    loaded = {"torch", "fairseq"} & set(sys.modules)
    assert not loaded, f"{name} --help loads {loaded}"
"""
    subprocess.run([sys.executable, "-c", script], stdout=subprocess.DEVNULL, check=True)


@pytest.mark.parametrize("words", [[], *([group] for group in sorted(cli.GROUPS))])
def test_without_a_command_help_is_printed(words, capsys):
    with pytest.raises(SystemExit):
        cli.main([*words, "--help"])
    wanted = capsys.readouterr().out
    assert cli.main(words) == 2
    captured = capsys.readouterr()
    assert captured.err == wanted
    assert not captured.out


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_each_command_has_help(name, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main([*name.split(), "--help"])
    assert stop.value.code == 0
    assert f"casrnn {name}" in capsys.readouterr().out


def test_user_error(tmp_path, capsys):
    assert cli.main(["average", "--output", str(tmp_path / "average.pt")]) == 2
    assert capsys.readouterr().err == "error: give either --run DIR or the checkpoint files\n"


def test_fairseq_options_without_dashes_before_them(capsys):
    with pytest.raises(SystemExit, match="2"):
        cli.main(["train", "classification", "data", "--max-epoch", "2"])
    assert capsys.readouterr().err == (
        "error: unrecognized arguments: --max-epoch 2; options of fairseq-train go after --; "
        "see --help\n"
    )
