"""Two BLEU scores of a translation: ``python -m fairseq_casrnn.evaluation.bleu``.

* *Tokenised BLEU*, as in the papers, on tokenised, lower-cased text with whole words. This is what
  multi-bleu.perl and ``fairseq-score`` compute. It depends on the tokenisation, so it is only
  comparable between results on data prepared in the same way.
* *Detokenised sacreBLEU*, case-insensitive, against the raw reference, with the signature that
  makes it comparable across systems (Post 2018).

Text without spaces between words, such as Chinese, is scored in characters.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fairseq_casrnn.console.program import Parser, run_main
from fairseq_casrnn.data.text import check_parallel, detokenize_lines, read_lines
from fairseq_casrnn.errors import UserError

if TYPE_CHECKING:
    from sacrebleu.metrics import BLEU

_HYPOTHESIS = re.compile(r"H-([0-9]{1,9})\t[^\t]*\t(.*)")
_BPE_UNIT = re.compile(r"@@( |$)")


def tokenized_metric(tokenizer: str = "none") -> BLEU:
    """Tokenised BLEU, not smoothed, by default of words separated by spaces."""
    from sacrebleu.metrics import BLEU

    return BLEU(tokenize=tokenizer, smooth_method="none", force=True)


def detokenized_metric(references: Sequence[str]) -> BLEU:
    """Case-insensitive sacreBLEU of running text."""
    from sacrebleu.metrics import BLEU

    return BLEU(lowercase=True, tokenize=character_tokenizer(references) or "13a")


def character_tokenizer(lines: Sequence[str]) -> str | None:
    """sacreBLEU's tokenizer for text that is written without spaces between words.

    Returns:
        ``zh`` for Chinese, which splits only Chinese characters; ``char`` for Japanese, Thai, Lao,
        Khmer and Burmese; None if less than half of the letters are of these scripts.
    """
    import regex

    text = "".join(lines)
    scripts = r"\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
    patterns = r"\p{L}", r"\p{Han}", rf"(?V1)[\p{{L}}&&[{scripts}]]"
    letters, han, others = (len(regex.findall(pattern, text)) for pattern in patterns)
    if 2 * (han + others) <= letters:
        return None
    return "char" if others > han / 10 else "zh"


def has_words(lines: Sequence[str]) -> bool:
    """Whether spaces separate words, rather than clauses: tokens have at most 4 letters on average.

    For text of :func:`character_tokenizer`; Chinese words have two on average.
    """
    tokens = [token for line in lines for token in line.split()]
    return sum(map(len, tokens)) <= 4 * len(tokens)


def ngram_counts(metric: BLEU, hypothesis: str, reference: str) -> list[int]:
    """The 10 counts of a sentence whose sums over a corpus decide its BLEU.

    They are the lengths of hypothesis and reference, the numbers of matching 1- to 4-grams, and
    those of all 1- to 4-grams.
    """
    found = metric.corpus_score([hypothesis], [[reference]])
    return [found.sys_len, found.ref_len, *found.counts, *found.totals]


def bleu_of_counts(metric: BLEU, counts: Sequence[int]) -> float:
    """Corpus BLEU (0 to 100) of sums of :func:`ngram_counts`."""
    length, reference, *ngrams = counts
    matching, total = ngrams[:4], ngrams[4:]
    method = metric.smooth_method
    return metric.compute_bleu(matching, total, length, reference, smooth_method=method).score


def tokenized_bleu(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Corpus BLEU (0 to 100) of tokenised lines, split at spaces, like multi-bleu.perl.

    Without smoothing: it is 0 if no 4-gram of the corpus matches. References in a script without
    spaces, in which spaces do not separate words, are split into characters.

    Raises:
        UserError: the two differ in length.
    """
    check_parallel(hypotheses, references, "the translation", "the reference")
    characters = character_tokenizer(references)
    tokenizer = "none" if characters is None or has_words(references) else characters
    return tokenized_metric(tokenizer).corpus_score(list(hypotheses), [list(references)]).score


def detokenized_bleu(hypotheses: Sequence[str], references: Sequence[str]) -> tuple[float, str]:
    """(sacreBLEU, signature) of detokenised text, case-insensitive, as models write lower case.

    Raises:
        UserError: the two differ in length.
    """
    check_parallel(hypotheses, references, "the translation", "the reference")
    bleu = detokenized_metric(references)
    score = bleu.corpus_score(list(hypotheses), [list(references)]).score
    return score, str(bleu.get_signature())


def read_generated(path: str | Path, count: int) -> list[str]:
    """The best hypotheses in the output of ``fairseq-generate``, in the order of the test set.

    Args:
        path: the output, with ``--post-process subword_nmt`` for data with BPE.
        count: required number of sentences.

    Raises:
        UserError: a sentence is missing, for example after an interruption.
    """
    found: dict[int, str] = {}
    for line in read_lines(path):
        match = _HYPOTHESIS.match(line)
        if match:  # with --nbest, the best one comes first
            found.setdefault(int(match[1]), match[2].strip())
    missing = [number for number in range(count) if number not in found]
    if missing or len(found) != count:
        lacking = f"sentence {missing[0]} is missing" if missing else "it has more"
        raise UserError(
            f"{path} does not hold the {count} translations of the test set ({lacking}); "
            "generate it again"
        )
    return [found[number] for number in range(count)]


def has_bpe_units(lines: Sequence[str]) -> bool:
    """Whether a word is split into units in subword-nmt's format: "ca@@ t"."""
    return any(_BPE_UNIT.search(line) for line in lines)


def score_generated(
    generated: str | Path, text: Path, target_lang: str, split: str = "test"
) -> dict[str, object]:
    """Both scores of the output of ``fairseq-generate`` against a prepared folder's ``text``.

    Returns:
        ``bleu`` (tokenised), ``sacrebleu``, ``signature`` and ``sentences``.

    Raises:
        UserError: a sentence is missing, or the words are still in BPE units.
    """
    references = read_lines(text / f"{split}.tok.{target_lang}")
    hypotheses = read_generated(generated, len(references))
    if has_bpe_units(hypotheses) and not has_bpe_units(references):
        raise UserError(
            f"{generated} holds BPE units (@@), the references whole words; generate it again with "
            "--post-process subword_nmt"
        )
    scores: dict[str, object] = {
        "bleu": round(tokenized_bleu(hypotheses, references), 2),
        "sentences": len(references),
    }
    raw = text / f"{split}.raw.{target_lang}"
    if raw.exists():
        running = detokenize_lines(hypotheses, target_lang)
        score, signature = detokenized_bleu(running, read_lines(raw))
        scores |= {"sacrebleu": round(score, 2), "signature": signature}
    return scores


def main(argv: list[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = Parser(
        prog="python -m fairseq_casrnn.evaluation.bleu",
        description=(
            "Compute tokenised BLEU and detokenised sacreBLEU of the output of fairseq-generate."
        ),
    )
    parser.add_argument("generated", type=Path, help="output of fairseq-generate")
    parser.add_argument(
        "--text", required=True, type=Path, help="folder text/ of the prepared data"
    )
    parser.add_argument("--target-lang", default="en")
    parser.add_argument("--split", default="test")
    args = parser.parse_args(argv)

    def score() -> None:
        scores = score_generated(args.generated, args.text, args.target_lang, args.split)
        print(json.dumps(scores))

    return run_main(score)


if __name__ == "__main__":
    sys.exit(main())
