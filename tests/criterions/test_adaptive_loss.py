"""``adaptive_loss`` compared with the log-probabilities of all words."""

from types import SimpleNamespace

import pytest
import torch
from fairseq.criterions.adaptive_loss import AdaptiveLoss
from language_models.common import random_model, random_tokens

PAD = 1
TASK = SimpleNamespace(target_dictionary=SimpleNamespace(pad=lambda: PAD))
CUTOFFS = (8, 15)


@pytest.fixture
def model():
    options = {"adaptive_softmax_cutoff": ",".join(map(str, CUTOFFS)), "decoder_out_embed_dim": 16}
    return random_model("cas_lstm", **options)


def batch(words):
    """Return sentences of 5, 5 and 3 words, the first of which begins with ``words``."""
    target = random_tokens(3, 5, seed=1)
    target[0, : len(words)] = torch.tensor(words)
    target[2, 3:] = PAD
    return {"net_input": {"src_tokens": random_tokens(3, 5)}, "target": target}


@pytest.mark.parametrize("words", [[0, 9, 16, 22], [3, 4, 5, 7]])
@pytest.mark.parametrize("sentence_avg", [False, True])
def test_loss_is_the_sum_over_all_words(model, words, sentence_avg):
    """Some words have the padding's number within their cluster."""
    sample = batch(words)
    loss, size, logged = AdaptiveLoss(TASK, sentence_avg)(model, sample)
    table = model.get_normalized_probs(model(**sample["net_input"]), log_probs=True)
    found = table.gather(-1, sample["target"].unsqueeze(-1)).squeeze(-1)
    expected = -found[sample["target"].ne(PAD)].sum()
    torch.testing.assert_close(loss.squeeze(), expected, check_dtype=False)
    torch.testing.assert_close(logged["loss"].squeeze(), expected, check_dtype=False)
    assert size == logged["sample_size"] == (3 if sentence_avg else 13)
    assert (logged["ntokens"], logged["nsentences"]) == (13, 3)


def test_clusters_without_words(model):
    """If all words are frequent, the clusters of rare words get no gradients."""
    sample = batch([])
    sample["target"] = sample["target"].clamp(max=CUTOFFS[0] - 1)
    AdaptiveLoss(TASK, False)(model.train(), sample)[0].sum().backward()
    softmax = model.decoder.adaptive_softmax
    assert all(p.grad is None or not p.grad.any() for p in softmax.tail.parameters())
    assert softmax.head.weight.grad.any()
