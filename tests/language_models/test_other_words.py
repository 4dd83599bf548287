"""Language models are refused on data with another dictionary."""

import shutil

import pytest
import torch
from command_lines.programs import fairseq

from fairseq_casrnn.errors import UserError
from fairseq_casrnn.inference import loading

from .conftest import preprocess, train

PLAIN_TASK = [  # training with fairseq's own task
    *("--task", "language_modeling", "--tokens-per-sample", 9, "--max-tokens", 99, "--cpu"),
    *("--num-workers", 0, "--arch", "cas_lstm_lm_tiny", "--optimizer", "adam"),
]


def refused():
    return pytest.raises(UserError, match="is not the dictionary that the model was trained with")


@pytest.fixture(scope="module")
def other_words(data, tmp_path_factory):
    """The same text with a reversed dictionary, so that words have other indices."""
    folder = tmp_path_factory.mktemp("other")
    lines = (data / "dict.txt").read_text().splitlines(keepends=True)
    (folder / "dict.txt").write_text("".join(reversed(lines)))
    for split in ("train", "valid", "test"):
        (folder / split).write_text((data.parent / split).read_text())
    return preprocess(folder, "--srcdict", folder / "dict.txt")


@pytest.mark.full
def test_other_words(data, other_words, checkpoint, tmp_path):
    other = other_words
    shutil.copy(checkpoint, tmp_path / "checkpoint_last.pt")
    with refused():
        loading.load_language_model(checkpoint, other)
    with refused():
        train(other, tmp_path, epochs=3)
    # a model of fairseq's own task
    own = [*PLAIN_TASK, "--save-dir", tmp_path / "own"]
    fairseq("train", data, *own, "--max-epoch", 1)
    path = tmp_path / "own" / "checkpoint_last.pt"
    loading.load_language_model(path, data)
    with refused():
        loading.load_language_model(path, other)
    with refused():
        fairseq("train", other, *own, "--max-epoch", 2)
    fairseq("train", data, *own, "--max-epoch", 2)
    plain = ["--task", "language_modeling", "--path", path, "--gen-subset", "valid", "--cpu"]
    plain += ["--num-workers", 0]
    fairseq("eval_lm", data, *plain)
    with refused():
        fairseq("eval_lm", other, *plain)
    # a checkpoint that stores the words outside of the task's state
    saved = torch.load(path)
    saved["extra_state"]["words"] = saved["extra_state"].pop("task")["words"]
    saved["task_state"] = {}
    torch.save(saved, path)
    with refused():
        loading.load_language_model(path, other)
    with refused():
        fairseq("train", other, *own, "--max-epoch", 3)
    fairseq("train", data, *own, "--max-epoch", 3)


def test_translation_model(data, checkpoint, tmp_path):
    """A translation model, whose checkpoint stores the words of both sides, is refused."""
    state = torch.load(checkpoint)
    state["task_state"]["words"] = {"source": 1, "target": 2}
    torch.save(state, tmp_path / "translation.pt")
    with pytest.raises(UserError, match="holds a translation model, but the task and its data are"):
        loading.load_language_model(tmp_path / "translation.pt", data)


@pytest.mark.full
def test_weights_of_a_model_of_other_words(data, other_words, checkpoint, tmp_path):
    """--finetune-from-model compares the dictionaries, in fairseq's own task and in ours."""
    own = [*PLAIN_TASK, "--max-epoch", 1]
    fairseq("train", data, *own, "--save-dir", tmp_path / "own")
    start = ["--finetune-from-model", tmp_path / "own" / "checkpoint_last.pt"]
    with refused():
        fairseq("train", other_words, *own, *start, "--save-dir", tmp_path / "fine")
    fairseq("train", data, *own, *start, "--save-dir", tmp_path / "fine")
    with refused():
        train(other_words, tmp_path / "carried", "--finetune-from-model", checkpoint, epochs=1)
    train(data, tmp_path / "carried", "--finetune-from-model", checkpoint, epochs=1)
