"""The checkpoint and the dictionaries that ``from_pretrained`` finds for a folder."""

import pytest
from fairseq.models import MODEL_REGISTRY

from fairseq_casrnn.errors import UserError
from fairseq_casrnn.runs.layout import find_checkpoint, find_data


def test_order_of_checkpoints(tmp_path):
    names = ["checkpoint_best.pt", "model.pt", "checkpoint_last.pt", "checkpoint1.pt"]
    for name in names:
        (tmp_path / name).touch()
    for name in names[:3]:
        assert find_checkpoint(tmp_path) == tmp_path / name
        assert find_checkpoint(tmp_path, "checkpoint1.pt") == tmp_path / "checkpoint1.pt"
        (tmp_path / name).unlink()
    assert find_checkpoint(tmp_path / "checkpoint1.pt") == tmp_path / "checkpoint1.pt"
    with pytest.raises(UserError, match=r"no checkpoint at .* \(checkpoint_best.pt or model.pt"):
        find_checkpoint(tmp_path)


@pytest.mark.parametrize("model", ["cas_lstm", "cas_lstm_lm"])
def test_missing_folders(model, tmp_path):
    load, nowhere = MODEL_REGISTRY[model].from_pretrained, str(tmp_path / "nowhere")
    with pytest.raises(UserError, match="nowhere does not exist; check the path of the model"):
        load(nowhere)
    with pytest.raises(UserError, match="nowhere does not exist; check the path of data_name"):
        load(tmp_path, "checkpoint1.pt", nowhere)


def touch(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def test_dictionaries_beside_the_model_are_preferred(tmp_path):
    beside, trained = tmp_path / "beside", tmp_path / "trained"
    cfg = {
        "task": {"_name": "sequence_tagging", "data": str(trained)},
        "model": {"char_filters": 0},
    }
    for folder in (beside, trained):
        touch(folder, "input0/dict.txt", "label/dict.txt")
    assert find_data(beside, None, cfg) == beside
    assert find_data(beside, str(trained), cfg) == trained
    (beside / "label" / "dict.txt").unlink()
    assert find_data(beside, None, cfg) == trained
    with pytest.raises(UserError, match=r"input0/dict.txt, label/dict.txt not found in .*beside"):
        find_data(beside, str(beside), cfg)
    with pytest.raises(UserError, match=r"spelling/dict.txt not found in .*beside or .*trained or"):
        find_data(beside, None, cfg | {"model": {"char_filters": 30}})


TRANSLATION = {"_name": "translation", "source_lang": "de", "target_lang": "en"}


@pytest.mark.parametrize(
    ("task", "names"),
    [
        ({"_name": "language_modeling"}, ["dict.txt"]),
        (TRANSLATION, ["dict.de.txt", "dict.en.txt"]),
        (
            TRANSLATION | {"source_lang": None},
            ["dict.de.txt", "dict.en.txt", "train.de-en.de.idx"],
        ),
    ],
)
def test_data_in_a_folder_of_casrnn_prepare(tmp_path, task, names):
    """The data are found even if the checkpoint is in the folder that contains them."""
    data = tmp_path / "data-bin"
    touch(data, *names)
    for given, trained_on in ((tmp_path, None), (data, None), (None, data)):
        assert find_data(tmp_path, given, {"task": task | {"data": trained_on}}) == data
    (data / names[0]).unlink()
    with pytest.raises(UserError, match=rf"^{names[0]}.* not found in .*data-bin; name the folder"):
        find_data(tmp_path, tmp_path, {"task": task | {"data": None}})


def test_unknown_languages(tmp_path):
    task = TRANSLATION | {"source_lang": None, "target_lang": None, "data": None}
    with pytest.raises(UserError, match=r"^dict\.\*\.txt not found in"):
        find_data(tmp_path, tmp_path, {"task": task})
