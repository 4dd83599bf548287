"""What else fairseq's programs for generation and evaluation promise and do not do."""

from __future__ import annotations

import torch

from fairseq_casrnn.errors import UserError


def no_repeat_ngram(original, self, tokens, lprobs, bsz, beam_size, step):
    """``--no-repeat-ngram-size`` on the CPU.

    fairseq compares with the end of the rows, where there is padding, and so forbids nothing.
    """
    size = self.no_repeat_ngram_size
    for row, words in enumerate(tokens[:, 1 : step + 1].tolist()):  # without the first, </s>
        starts = range(step - size + 1)
        last = words[len(starts) :]
        forbidden = [words[at + size - 1] for at in starts if words[at : at + size - 1] == last]
        if forbidden:
            before = lprobs[row, forbidden]
            lprobs[row, forbidden] = -torch.inf
            if not lprobs[row].isfinite().any():  # --prefix-size leaves one word alone
                lprobs[row, forbidden] = before
    return lprobs


def check_evaluated(results, *args, **kwargs):
    """Raise UserError where there was nothing to read; fairseq gives a perplexity of 1."""
    if not torch.is_tensor(results["loss"]):
        raise UserError(
            "no token was evaluated: all text is longer than the model's --max-target-positions, "
            "or --num-shards leaves no batch to this --shard-id; raise the one or lower the other"
        )
    return results


def score_empty_translations(cfg, trainer, stats, *args, **kwargs) -> None:
    """Let ``--eval-bleu`` give 0 where all translations are empty, as at the start of a training.

    fairseq 0.12.3 gives no BLEU then, and ends when it is what the best checkpoint is chosen by.
    """
    task = getattr(trainer, "task", None)
    if getattr(getattr(task, "cfg", None), "eval_bleu", False):
        stats.setdefault("bleu", 0.0)
