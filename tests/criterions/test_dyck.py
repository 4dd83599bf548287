"""``dyck_cross_entropy`` counts closing brackets in validation only."""

from types import SimpleNamespace

import pytest
import torch
from fairseq.data import Dictionary

import fairseq_casrnn

fairseq_casrnn.register()

from fairseq_casrnn.criterions.dyck import DyckCrossEntropy  # noqa: E402

WORDS = Dictionary()
OPEN, CLOSE = (WORDS.add_symbol(token) for token in ("(a", "a)"))
TARGET = torch.tensor([[OPEN, OPEN, CLOSE, CLOSE, WORDS.eos()]])


class Model(torch.nn.Module):
    """Predicts the words ``said`` with high probability."""

    def __init__(self, predicted):
        super().__init__()
        self.predicted = predicted

    def forward(self):
        return 9 * torch.nn.functional.one_hot(self.predicted, len(WORDS)).float(), None

    def get_normalized_probs(self, net_output, log_probs):
        return net_output[0].log_softmax(-1)

    def get_targets(self, sample, net_output):
        return sample["target"]


def test_counts_of_a_batch():
    task = SimpleNamespace(source_dictionary=WORDS, target_dictionary=WORDS)
    criterion = DyckCrossEntropy(task, sentence_avg=False)
    sample = {"net_input": {}, "target": TARGET, "ntokens": 5}
    model = Model(TARGET).eval()
    _, size, logged = criterion(model, sample)
    assert size == 5
    assert logged["closed"] == [(1, 1, 1), (3, 1, 1)]
    loss, _, logged = criterion(model.train(), sample)
    assert "closed" not in logged
    assert loss.item() == pytest.approx(5 * torch.log1p(5 * torch.tensor(-9.0).exp()).item(), 1e-4)
