"""Checkpoints of version 0.1.0 load and compute the same; make.py wrote them."""

from pathlib import Path

import pytest
import torch
from fairseq import checkpoint_utils
from helpers import SINGLE, unpack_golden

import fairseq_casrnn

fairseq_casrnn.register()

ARCHIVES = sorted(Path(__file__).parent.glob("*.tar.xz"))


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name.partition(".")[0])
def test_golden_checkpoint(archive, tmp_path):
    unpack_golden(archive.name, tmp_path)
    (model,), _, task = checkpoint_utils.load_model_ensemble_and_task(
        [str(tmp_path / "out" / "checkpoint_best.pt")],
        arg_overrides={"data": str(tmp_path / "data")},
    )
    expected = torch.load(tmp_path / "expected.pt", weights_only=True)
    with torch.no_grad():
        output = model.eval()(**expected["arguments"])[0]
    torch.testing.assert_close(output, expected["output"], **SINGLE)
    assert task.source_dictionary is not None


def test_every_role_has_a_checkpoint():
    assert len(ARCHIVES) == 4
