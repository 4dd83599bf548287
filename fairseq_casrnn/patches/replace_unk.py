"""``--replace-unk`` of fairseq's programs for generation.

It puts the source word with the most attention in the place of each ``<unk>``, or
that word's entry in the dictionary that is given. fairseq 0.12.3 looks for it in an alignment that
it has not made. The word is that of the raw text, ``fairseq-generate`` asks for ``--dataset-impl
raw``; of binarised text only the numbers in the dictionary are left.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from fairseq_casrnn.data.text import decode_lines, read_bytes
from fairseq_casrnn.errors import UserError


class Alignment(list):
    """What a generator gives as an alignment, with what says which word of the source is attended.

    Args:
        pairs: the alignment itself, for ``--print-alignment``.
        attention: ``(T, S)``, of each token of the hypothesis.
        places: ``(N,)``, where in S the source's words are.
        words: those N words.
    """

    def __init__(self, pairs, attention: Tensor, places: Tensor, words: Sequence[str]):
        super().__init__(pairs)
        self.attention, self.places, self.words = attention, places, words

    def attended(self, step: int) -> str:
        """The word with the most attention."""
        return self.words[int(self.attention[step, self.places].argmax())]


#: The words of the batch that fairseq-interactive is about to translate, by its rows.
_interactive: dict[str, list[list[str]]] = {}


def keep_source_words(original, lines, cfg, *args):
    """Around ``make_batches`` of ``fairseq-interactive``, which keeps only a batch's numbers."""
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
    """The words of raw text go along with a batch, in the order of its rows."""
    if batch and hasattr(dataset.src, "get_original_text"):
        lines = map(dataset.src.get_original_text, batch["id"].tolist())
        batch["source_words"] = [line.split() for line in lines]
    return batch


def add_alignments(hypotheses, generator, models, sample, **kwargs):
    """The attention to the source's words goes along with each hypothesis."""
    words = sample.get("source_words", _interactive.get("words"))
    if words is None:
        return hypotheses
    by_step = hasattr(generator, "softmax_batch")  # the attention of SequenceScorer
    rows = sample["net_input"]["src_tokens"].cpu()
    for row, row_words, found in zip(rows, words, hypotheses, strict=True):
        places = (row.ne(generator.pad) & row.ne(generator.eos)).nonzero().squeeze(1)
        for hypothesis in found:
            attention, pairs = hypothesis["attention"], hypothesis["alignment"]
            if attention is None or attention.dim() != 2:  # of a model without attention
                continue
            if not row_words or len(row_words) != len(places):
                continue
            attention = attention.cpu() if by_step else attention.cpu().t()
            pairs = [] if pairs is None else pairs
            hypothesis["alignment"] = Alignment(pairs, attention, places, row_words)
    return hypotheses


def load_align_dict(original, path: str | None):
    """fairseq's fails over lines of one word, and reads the file in the locale's encoding."""
    if not path:
        return original(path)
    found = {}
    for number, line in enumerate(decode_lines(read_bytes(Path(path)), path), start=1):
        columns = line.split()
        if len(columns) < 2:
            raise UserError(
                f"{path}, line {number} has not two words, that of the source and that of the "
                "target; check --replace-unk"
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
    """As fairseq's, which looks for the alignment of a word after subwords have been joined."""
    from fairseq.data import data_utils

    if align_dict is None or not isinstance(alignment, Alignment):
        rest = (tgt_dict, remove_bpe, extra_symbols_to_ignore)
        return original(hypo_tokens, src_str, alignment, None, *rest)
    ignored, words = {tgt_dict.eos(), tgt_dict.bos(), *(extra_symbols_to_ignore or ())}, []
    for step, token in enumerate(hypo_tokens.tolist()):
        if token == tgt_dict.unk():
            word = alignment.attended(step)
            words.append(align_dict.get(word, word))
        elif token not in ignored:
            words.append(tgt_dict[token])
    text = data_utils.post_process(" ".join(words), remove_bpe)
    return tgt_dict.encode_line(text, add_if_not_exist=True), text, alignment
