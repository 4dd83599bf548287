"""Further fixes of generation and evaluation."""

from __future__ import annotations

import torch

from fairseq_casrnn.errors import UserError


def no_repeat_ngram(original, self, tokens, lprobs, bsz, beam_size, step):
    """``--no-repeat-ngram-size`` on the CPU.

    fairseq compares with the end of the rows, which is padding, and so forbids nothing.
    """
    size = self.no_repeat_ngram_size
    for row, words in enumerate(tokens[:, 1 : step + 1].tolist()):  # without the first, </s>
        starts = range(step - size + 1)
        last = words[len(starts) :]
        forbidden = [words[at + size - 1] for at in starts if words[at : at + size - 1] == last]
        if forbidden:
            before = lprobs[row, forbidden]
            lprobs[row, forbidden] = -torch.inf
            if not lprobs[row].isfinite().any():  # --prefix-size may leave only one word
                lprobs[row, forbidden] = before
    return lprobs


def step_with_batch_positions(
    original, self, step, lprobs, scores, prev=None, original_batch_idxs=None
):
    """``DiverseBeamSearch.step`` with positions in the batch.

    fairseq 0.12.3 passes the sentences' indices in the data set.
    """
    if original_batch_idxs is not None:
        if step == 0:
            self.first_batch_idxs = original_batch_idxs
        same = original_batch_idxs.unsqueeze(1) == self.first_batch_idxs
        original_batch_idxs = same.long().argmax(1)
    return original(self, step, lprobs, scores, prev, original_batch_idxs)


def check_tokens_evaluated(results, *args, **kwargs):
    """Raise UserError if no token was evaluated; fairseq reports a perplexity of 1."""
    if not torch.is_tensor(results["loss"]):
        raise UserError(
            "no token was evaluated: all text is longer than the model's --max-target-positions, "
            "or --num-shards leaves no batch to this --shard-id; raise the one or lower the other"
        )
    return results


def score_empty_translations(cfg, trainer, stats, *args, **kwargs) -> None:
    """Report ``--eval-bleu`` as 0 if all translations are empty, as at the start of a training.

    fairseq 0.12.3 reports no BLEU, and fails if BLEU is the metric of the best checkpoint.
    """
    task = getattr(trainer, "task", None)
    if getattr(getattr(task, "cfg", None), "eval_bleu", False):
        stats.setdefault("bleu", 0.0)
