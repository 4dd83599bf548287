"""Which checkpoint and which dictionaries a folder stands for."""

import pytest

from fairseq_casrnn.errors import UserError
from fairseq_casrnn.models.hub import find_checkpoint, find_dictionaries


def test_the_best_checkpoint_then_a_model_then_the_last_one(tmp_path):
    names = ["checkpoint_best.pt", "model.pt", "checkpoint_last.pt", "checkpoint1.pt"]
    for name in names:
        (tmp_path / name).touch()
    for name in names[:3]:
        assert find_checkpoint(tmp_path, None) == tmp_path / name
        assert find_checkpoint(tmp_path, "checkpoint1.pt") == tmp_path / "checkpoint1.pt"
        (tmp_path / name).unlink()
    assert find_checkpoint(tmp_path / "checkpoint1.pt", None) == tmp_path / "checkpoint1.pt"
    with pytest.raises(UserError, match=r"no checkpoint at .* \(checkpoint_best.pt or model.pt"):
        find_checkpoint(tmp_path, None)


def test_dictionaries_beside_the_model_before_those_of_its_training(tmp_path):
    parts = ("input0", "label")
    beside, trained = tmp_path / "beside", tmp_path / "trained"
    for folder in (beside, trained):
        for part in parts:
            (folder / part).mkdir(parents=True)
            (folder / part / "dict.txt").touch()
    assert find_dictionaries(beside, None, str(trained), parts) == str(beside)
    assert find_dictionaries(beside, str(trained), "elsewhere", parts) == str(trained)
    (beside / "label" / "dict.txt").unlink()
    assert find_dictionaries(beside, None, str(trained), parts) == str(trained)
    with pytest.raises(UserError, match=r"input0/dict.txt, label/dict.txt not found in .*beside"):
        find_dictionaries(beside, str(beside), str(trained), parts)
    with pytest.raises(UserError, match=r"^dict.txt not found in .*beside; name the folder"):
        find_dictionaries(beside, str(beside), str(trained), (".",))
