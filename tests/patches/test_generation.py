"""Corrections of fairseq's generation."""

import torch
from fairseq.data import Dictionary
from fairseq.search import DiverseBeamSearch

from fairseq_casrnn.patches import install
from fairseq_casrnn.patches.table import TABLE


def table(batch, rows, size, seed=0):
    generator = torch.Generator().manual_seed(seed)
    lprobs = torch.randn(batch, rows, size, generator=generator).log_softmax(-1)
    return lprobs, -3 * torch.rand(batch, rows, generator=generator)


def test_diverse_beam_search_of_a_later_batch(monkeypatch):
    """fairseq looks overlaps up by the sentences' numbers in the data set."""
    original = DiverseBeamSearch.step
    assert not install.patches_of(original)
    monkeypatch.setattr(DiverseBeamSearch, "step", original)
    install.apply(p for p in TABLE if p.hook == "patches.generation.step_with_batch_positions")
    chosen = []
    for step, numbers in ((original, torch.arange(3)), (DiverseBeamSearch.step, [70, 4, 11])):
        search = DiverseBeamSearch(Dictionary(), 2, 0.5)
        numbers = torch.as_tensor(numbers)
        found = []
        for at in range(3):
            lprobs, scores = table(3, 4, 20, seed=at)
            lprobs[1, :, 7] += 30  # both groups of the second sentence would choose word 7
            if at == 2:  # the first sentence is finished
                lprobs, scores, numbers = lprobs[1:], scores[1:], numbers[1:]
                lprobs.fill_(-9.0)[..., [8, 9]] = torch.tensor([-2.0, -1.0])
            scores = scores.unsqueeze(-1).repeat(1, 1, max(at, 1))
            found += step(search, at, lprobs, scores, None, numbers)
        chosen.append(found)
    assert all(torch.equal(a, b) for a, b in zip(*chosen, strict=True))
