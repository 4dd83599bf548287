"""Log-probabilities of single sentences; those of common prefixes are computed once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fairseq_casrnn.console.progress import progress_bar
from fairseq_casrnn.data.batches import split_batches
from fairseq_casrnn.data.symbols import escape
from fairseq_casrnn.inference.lm_inputs import padded, reads_bos

BATCH_TOKENS = 2048


def encode(sentence: str, dictionary, end: bool) -> tuple[int, ...]:
    """Indices of the words, followed by ``</s>`` if ``end``."""
    words = [dictionary.index(word) for word in escape(sentence.split())]
    return (*words, dictionary.eos()) if end else tuple(words)


def score(model, dictionary, sentences: Sequence[str], end: bool = True) -> dict[str, float]:
    """Log-probability of each sentence after ``</s>``, in nats.

    Sentences with a common prefix share probabilities: the softmax over the vocabulary, the
    expensive part, is computed once for each different prefix in a batch.

    Args:
        model: a language model in ``eval()``.
        dictionary: its dictionary.
        sentences: words separated by spaces.
        end: whether the end of the sentence counts.
    """
    encoded = {sentence: encode(sentence, dictionary, end) for sentence in sentences}
    different = sorted(set(encoded.values()))  # sorted: common prefixes come together
    found: dict[tuple[int, ...], float] = {}
    shown = progress_bar(different, len(different), "sentences")
    for batch in split_batches(shown, map(len, different), BATCH_TOKENS):
        found.update(zip(batch, score_batch(model, dictionary, batch), strict=True))
    return {sentence: found[tokens] for sentence, tokens in encoded.items()}


def prefix_ids(batch: Sequence[tuple[int, ...]], steps: int) -> np.ndarray:
    """``(B, T)``: a number for the tokens before position t, equal for equal prefixes."""
    ids: dict[tuple[int, int], int] = {}
    table = np.zeros((len(batch), steps), dtype=np.int64)
    for row, sentence in enumerate(batch):
        prefix = 0
        for t, token in enumerate(sentence[:-1]):
            prefix = ids.setdefault((prefix, token), len(ids) + 1)
            table[row, t + 1] = prefix
    return table


def score_batch(model, dictionary, batch: Sequence[tuple[int, ...]]) -> list[float]:
    """Log-probabilities of the sentences of a batch."""
    import torch

    device, bos = next(model.parameters()).device, reads_bos(model)
    source, target = padded([torch.tensor(sentence) for sentence in batch], dictionary, bos)
    target = target[:, int(bos) :]
    real = target.ne(dictionary.pad())
    with torch.no_grad():
        # (B, T, H). Transformers require encoder_out; others ignore it.
        features = model.extract_features(source.to(device), encoder_out=None)[0]
        features = features[:, int(bos) :]
        ids = torch.from_numpy(prefix_ids(batch, target.size(1)))[real]
        different, inverse = ids.unique(return_inverse=True)
        first = torch.zeros(len(different), dtype=torch.long)  # one position of each prefix
        first[inverse.flip(0)] = torch.arange(len(inverse)).flip(0)
        rows = features[real.to(device)][first.to(device)].unsqueeze(0)
        table = model.get_normalized_probs((model.output_layer(rows), None), log_probs=True)[0]
        found = table[inverse.to(device), target[real].to(device)].double().cpu()
    scores = torch.zeros(target.shape, dtype=torch.float64)
    scores[real] = found
    return scores.sum(1).tolist()
