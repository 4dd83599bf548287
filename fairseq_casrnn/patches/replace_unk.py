"""``--replace-unk`` of fairseq's programs for generation.

Each ``<unk>`` is replaced by the source word with the most attention, or by that word's entry in
the given alignment dictionary. fairseq 0.12.3 reads an alignment that it never computes. The source
words come from raw text, so ``fairseq-generate`` needs ``--dataset-impl raw``: binarised text only
has the words' indices.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from fairseq_casrnn.data.text import read_lines
from fairseq_casrnn.errors import UserError


class Alignment(list):
    """An alignment with the attention and the source words that ``--replace-unk`` needs.

    Args:
        pairs: the alignment itself, for ``--print-alignment``.
        attention: ``(T, S)``, attention of each output token to the source positions.
        positions: ``(N,)``, source positions of words, without padding and </s>.
        words: the N source words.
    """

    def __init__(self, pairs, attention: Tensor, positions: Tensor, words: Sequence[str]):
        super().__init__(pairs)
        self.attention, self.positions, self.words = attention, positions, words

    def most_attended_word(self, step: int) -> str:
        """The source word with the most attention from output token ``step``."""
        return self.words[int(self.attention[step, self.positions].argmax())]


#: Under "words": the source words of fairseq-interactive's current batch, a list per row.
_interactive: dict[str, list[list[str]]] = {}


def keep_source_words(original, lines, cfg, *args):
    """Around ``make_batches`` of ``fairseq-interactive``: keep the words of the current batch."""
    encode = args[-1]
    try:
        for batch in original(lines, cfg, *args):
            if cfg.generation.replace_unk is not None:
                rows = batch.ids.tolist()
                _interactive["words"] = [encode(lines[row]).split() for row in rows]
            yield batch
    finally:
        _interactive.clear()


def add_source_words(batch, dataset, samples, *args, **kwargs):
    """After ``LanguagePairDataset.collater``: add the words of raw text to the batch, by row."""
    if batch and hasattr(dataset.src, "get_original_text"):
        lines = map(dataset.src.get_original_text, batch["id"].tolist())
        batch["source_words"] = [line.split() for line in lines]
    return batch


def add_alignments(hypotheses, generator, models, sample, **kwargs):
    """After ``generate``: make each hypothesis' alignment an :class:`Alignment`."""
    words = sample.get("source_words", _interactive.get("words"))
    if words is None:
        return hypotheses
    steps_first = hasattr(generator, "softmax_batch")  # SequenceScorer: (T, S), others (S, T)
    rows = sample["net_input"]["src_tokens"].cpu()
    for row, row_words, found in zip(rows, words, hypotheses, strict=True):
        positions = (row.ne(generator.pad) & row.ne(generator.eos)).nonzero().squeeze(1)
        for hypothesis in found:
            attention, pairs = hypothesis["attention"], hypothesis["alignment"]
            if attention is None or attention.dim() != 2:  # a model without attention
                continue
            if not row_words or len(row_words) != len(positions):
                continue
            attention = attention.cpu() if steps_first else attention.cpu().t()
            pairs = [] if pairs is None else pairs
            hypothesis["alignment"] = Alignment(pairs, attention, positions, row_words)
    return hypotheses


def load_align_dict(original, path: str | None):
    """Read the alignment dictionary as UTF-8; fairseq uses the locale's encoding.

    Raises:
        UserError: a line has only one word.
    """
    if not path:
        return original(path)
    found = {}
    for number, line in enumerate(read_lines(path, may_be_blank=True), start=1):
        columns = line.split()
        if len(columns) < 2:
            raise UserError(
                f"{path}, line {number} does not hold a source word and a target word; check "
                "--replace-unk"
            )
        found[columns[0]] = columns[1]
    return found


def post_process_prediction(
    original,
    hypo_tokens,
    src_str,
    alignment,
    align_dict,
    tgt_dict,
    remove_bpe=None,
    extra_symbols_to_ignore=None,
):
    """Replace each ``<unk>`` before subwords are joined; fairseq does so afterwards."""
    from fairseq.data import data_utils

    if align_dict is None or not isinstance(alignment, Alignment):
        rest = (tgt_dict, remove_bpe, extra_symbols_to_ignore)
        return original(hypo_tokens, src_str, alignment, None, *rest)
    ignored, words = {tgt_dict.eos(), tgt_dict.bos(), *(extra_symbols_to_ignore or ())}, []
    for step, token in enumerate(hypo_tokens.tolist()):
        if token == tgt_dict.unk():
            word = alignment.most_attended_word(step)
            words.append(align_dict.get(word, word))
        elif token not in ignored:
            words.append(tgt_dict[token])
    text = data_utils.post_process(" ".join(words), remove_bpe)
    return tgt_dict.encode_line(text, add_if_not_exist=True), text, alignment
