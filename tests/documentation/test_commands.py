"""Commands and programs in the documentation work as printed, on generated data."""

import os
import random
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import fairseq_casrnn

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
WORDS = ["a", "lovely", "dull", "film", "with", "Anna", "Schmidt", "in", "York"]


def blocks(page, heading, kind=""):
    """The code blocks of a section of a page."""
    text = (ROOT / page).read_text("utf-8")
    section = re.split(r"\n##+ ", text.partition(f"# {heading}\n")[2])[0]
    assert section, f"{page} has no section {heading}"
    return re.findall(rf"^```{kind}\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A working folder with text, labels and tags, and the package as in a checkout."""
    path = tmp_path_factory.mktemp("documentation")
    (path / "fairseq_casrnn").symlink_to(Path(fairseq_casrnn.__file__).parent)
    rng = random.Random(1)
    for split, count in (("train", 200), ("valid", 20), ("test", 20)):
        lines = [rng.choices(WORDS, k=rng.randint(2, 6)) for _ in range(count)]
        files = {
            "text": [" ".join(words) for words in lines],
            "label": ["good" if "lovely" in words else "bad" for words in lines],
            "tags": [" ".join("B-PER" if w[0] < "a" else "O" for w in words) for words in lines],
        }
        files |= {"de": files["text"], "en": files["tags"]}
        for ending, content in files.items():
            (path / f"{split}.{ending}").write_text("\n".join(content) + "\n")
    return path


@pytest.fixture
def shell(folder, warm_python, tmp_path):
    """``shell(commands)`` runs them in ``folder`` and returns their output."""
    programs = {
        f"fairseq-{name}": f"fairseq_cli.{name}" for name in ("preprocess", "train", "generate")
    }
    for name, module in {**programs, "casrnn": "fairseq_casrnn.cli"}.items():
        (tmp_path / name).write_text(f'#!/bin/sh\nexec {warm_python} -m {module} "$@"\n')
        (tmp_path / name).chmod(0o755)
    (tmp_path / "python").symlink_to(warm_python)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}

    def run(commands):
        done = subprocess.run(
            ["bash", "-ec", commands], cwd=folder, env=env, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        return done.stdout

    return run


def own_data(heading, name):
    """The commands of a section of docs/own-data.md, with folder names of their own."""
    (commands,) = blocks("docs/own-data.md", heading)
    return commands.replace("DATA", f"{name}-data").replace("CHECKPOINTS", f"{name}-checkpoints")


def python(shell, program):
    """The last line of a program's output."""
    return shell(f"python -c {shlex.quote(program)}").splitlines()[-1]


@pytest.mark.full
def test_translation_of_own_data(shell):
    assert "BLEU4 = " in shell(own_data("Translation", "translation"))


@pytest.mark.full
def test_language_model_of_own_data(shell):
    assert re.search(r"perplexity \d", shell(own_data("Language models", "lm")))


def program_of(page):
    """The Python program of a page."""
    (program,) = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text("utf-8"), re.DOTALL)
    return program


@pytest.mark.full
def test_classification_of_own_data(shell):
    said = shell(own_data("Sentence classification", "sentences"))
    label, _ = said.splitlines()[-1].split("\t")
    program = program_of("sentence-encoders.md")
    program = program.replace("examples/mr/out/bicas2/seed1", "sentences-checkpoints")
    program += "print(model.predict(['a lovely film'])[0].label)\n"
    assert python(shell, program) == label


@pytest.mark.full
def test_tagging_of_own_data(shell):
    said = shell(own_data("Tagging", "tags"))
    assert "\nAnna\tB-PER\nSchmidt\t" in said
    program = program_of("taggers.md").replace(
        "examples/conll03/out/slstm/seed1", "tags-checkpoints"
    )
    program = program.replace("sentence_state_lstm_tagger", "cas_lstm_tagger")
    program += "print([word.text for word in model.tag(['Anna'])[0]])\n"
    assert python(shell, program) == "['Anna']"


@pytest.mark.full
def test_two_processes_by_torchrun(shell, folder):
    """The environment is a real one, in which torchrun starts fairseq-train with Python."""
    commands = own_data("Translation", "parallel").partition("fairseq-train")[0]
    shell(commands)
    (parallel,) = blocks("docs/distributed.md", "Several processes on CPUs")
    parallel = parallel.replace("DATA", "parallel-data").replace("CHECKPOINTS", "parallel")
    env = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"} if sys.platform == "linux" else None
    done = subprocess.run(
        ["bash", "-ec", parallel.replace("--max-epoch 10", "--max-epoch 1")],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    saved = torch.load(folder / "parallel" / "checkpoint_last.pt")
    assert saved["cfg"]["distributed_training"]["distributed_world_size"] == 2


RECIPE = re.compile(r"(\w+=\w+ )?(examples/\S+\.sh|casrnn run \w+ +examples/)")
PAGES = "getting-started language-models recipes sentence-encoders taggers"


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("page", PAGES.split())
def test_commands_of_recipes(page, warm_python, shell):
    """A dry run of each command accepts the options that the page gives it."""
    text = (DOCS / f"{page}.md").read_text("utf-8")
    code = re.findall(r"^```\n(.*?)^```$|`([^`\n]+)`", text, re.DOTALL | re.MULTILINE)
    lines = re.split(r"\n|&&", "\n".join(block or inline for block, inline in code))
    commands = [line.partition("#")[0].strip() for line in lines]
    commands = [line for line in commands if RECIPE.match(line) and "…" not in line]
    assert commands
    dry = [re.sub("( --(?= )|$)", r" --dry-run\1", line, count=1) for line in commands]
    shell("\n".join([f"cd {ROOT}", f"export PYTHON={warm_python}", *dry]))


@pytest.mark.parametrize(
    ("page", "heading"),
    [
        ("README.md", "The layers in five lines"),
        ("docs/getting-started.md", "Layers without fairseq"),
    ],
)
def test_programs_with_layers(page, heading):
    (program,) = blocks(page, heading, "python")
    names = {}
    exec(program, names)
    assert names["output"].shape == (20, 8, 512)
    first = int(names["lengths"][0])
    assert not names["output"][first:, 0].any()
    assert names["output"][first - 1, 0].any()
