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
