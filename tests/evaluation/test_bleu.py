"""BLEU of tokenized and detokenized translations, and files of translations."""

import json
import math

import pytest
import torch

from fairseq_casrnn.errors import UserError
from fairseq_casrnn.evaluation import bleu

REFERENCES = ["the cat sat on the mat .", "a dog &apos;s house is red .", "he sees it ."]
HYPOTHESES = ["the cat sat on a mat .", "a dog &apos;s house is blue .", "he sees it ."]


def fairseq_bleu(hypotheses, references):
    from fairseq.data import Dictionary
    from fairseq.scoring.bleu import BleuConfig, Scorer

    dictionary = Dictionary()
    scorer = Scorer(BleuConfig(dictionary.pad(), dictionary.eos(), dictionary.unk()))
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        ids = [dictionary.encode_line(x, line_tokenizer=str.split) for x in (reference, hypothesis)]
        scorer.add(*(x.type(torch.IntTensor) for x in ids))
    return scorer.score()


def test_tokenized_bleu_by_hand():
    # lengths 4 and 5: precisions 4/4, 3/3, 2/2, 1/1, brevity penalty exp(1 - 5/4)
    score = bleu.tokenized_bleu(["a b c d"], ["a b c d e"])
    assert score == pytest.approx(100 * math.exp(-0.25))


def test_tokenized_bleu_is_that_of_fairseq_score():
    expected = fairseq_bleu(HYPOTHESES, REFERENCES)
    assert 40 < expected < 90
    assert bleu.tokenized_bleu(HYPOTHESES, REFERENCES) == pytest.approx(expected, abs=1e-3)


def test_no_matching_four_gram_gives_zero():
    assert bleu.tokenized_bleu(["a b c x"], ["a b c d"]) == 0


def test_tokenized_bleu_is_case_sensitive():
    assert bleu.tokenized_bleu(["a-b c! d e"], ["a - b c ! d e"]) < 100
    assert bleu.tokenized_bleu(["A b c d"], ["a b c d"]) < 100


def test_detokenized_bleu_ignores_case_and_tokenises_itself():
    score, signature = bleu.detokenized_bleu(
        ["the cat's house, (red)."], ["The cat's house, (Red)."]
    )
    assert score == pytest.approx(100)
    assert "case:lc" in signature
    assert "tok:13a" in signature


@pytest.mark.parametrize(
    ("text", "tokenizer"),
    [
        (["Sie sagt „Nǐ hǎo“ (你好)."], None),
        (["오늘은 날씨가 좋다."], None),
        (["我在IBM工作了3年。", "他很好!"], "zh"),
        (["今日はとても良い天気です。"], "char"),
        (["วันนี้อากาศดีมาก"], "char"),
        ([""], None),
    ],
    ids=["German", "Korean", "Chinese", "Japanese", "Thai", "nothing"],
)
def test_tokenizer_for_text_without_spaces(text, tokenizer):
    assert bleu.character_tokenizer(text) == tokenizer


def test_bleu_of_text_without_spaces():
    """One of 8 characters differs: precisions 7/8, 5/7, 3/6, 2/5."""
    reference, hypothesis = "我在那里工作了。", "我在哪里工作了。"
    expected = 100 * (7 / 8 * 5 / 7 * 3 / 6 * 2 / 5) ** 0.25
    assert bleu.tokenized_bleu([hypothesis], [reference]) == pytest.approx(expected)
    score, signature = bleu.detokenized_bleu([hypothesis], [reference])
    assert score == pytest.approx(expected)
    assert "tok:zh" in signature


def test_tokenized_bleu_of_segmented_chinese():
    """Words stay whole: one of 5 differs."""
    expected = 100 * (4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** 0.25
    found = bleu.tokenized_bleu(["他们 在 那里 工作 吗"], ["他们 在 那里 工作 呢"])
    assert found == pytest.approx(expected)


@pytest.mark.parametrize("score", [bleu.tokenized_bleu, bleu.detokenized_bleu])
def test_unequal_lengths_are_refused(score):
    with pytest.raises(UserError, match="2 lines"):
        score(["a", "b"], ["a"])


def generated(tmp_path, *lines):
    path = tmp_path / "generated.txt"
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


def test_hypotheses_are_read_in_test_order(tmp_path):
    path = generated(
        tmp_path,
        "S-1\tquelle", "T-1\tziel", "H-1\t-0.5\ttwo words", "D-1\t-0.5\tother", "P-1\t-0.1 -0.2",
        "H-1\t-0.9\tsecond best", "H-0\t-0.3\t", "H-2\t-0.1\t&quot; x",
        "Generate test with beam=10: BLEU4 = 0.00",
    )  # fmt: skip
    assert bleu.read_generated(path, 3) == ["", "two words", "&quot; x"]


@pytest.mark.parametrize("count", [1, 3])
def test_missing_or_further_sentences_are_an_error(tmp_path, count):
    path = generated(tmp_path, "H-0\t-1\ta", "H-1\t-1\tb")
    with pytest.raises(UserError, match=f"does not hold the {count} translations"):
        bleu.read_generated(path, count)


def test_both_scores_of_a_folder(tmp_path, capsys):
    text = tmp_path / "text"
    text.mkdir()
    (text / "test.tok.en").write_text("the cat &apos;s house .\nit is red .\n")
    (text / "test.raw.en").write_text("The cat's house.\nIt is Red.\n")
    path = generated(tmp_path, "H-1\t-1\tit is red .", "H-0\t-1\tthe cat &apos;s house .")
    scores = bleu.score_generated(path, text, "en")
    assert (scores["bleu"], scores["sacrebleu"], scores["sentences"]) == (100, 100, 2)
    assert bleu.main([str(path), "--text", str(text)]) == 0
    assert '"bleu": 100.0' in capsys.readouterr().out


def test_another_split_and_language(tmp_path, capsys):
    """In French an apostrophe joins words."""
    for name, line in (
        ("test.tok.fr", "autre"), ("test.raw.fr", "Autre"),
        ("valid.tok.fr", "l&apos; eau est claire ."), ("valid.raw.fr", "L'eau est claire."),
    ):  # fmt: skip
        (tmp_path / name).write_text(f"{line}\n")
    path = generated(tmp_path, "H-0\t-1\tl&apos; eau est claire .")
    options = ["--text", str(tmp_path), "--target-lang", "fr", "--split", "valid"]
    assert bleu.main([str(path), *options]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert (scores["bleu"], scores["sacrebleu"]) == (100, 100)


def test_bpe_units_are_refused(tmp_path, capsys):
    """Units must not be compared with whole words; a text may have such words itself."""
    text = tmp_path / "text"
    text.mkdir()
    (text / "test.tok.en").write_text("the cat sat down .\n")
    command = ["--text", str(text)]
    for said in ("the c@@ at sat down .", "the cat sat do@@"):
        path = generated(tmp_path, f"H-0\t-1\t{said}")
        assert bleu.main([str(path), *command]) == 2
        assert capsys.readouterr().err == (
            f"error: {path} holds BPE units (@@), the references whole words; generate it again "
            "with --post-process subword_nmt\n"
        )
    (text / "test.tok.en").write_text("the c@@ at sat down .\n")
    path = generated(tmp_path, "H-0\t-1\tthe c@@ at sat down .")
    assert bleu.score_generated(path, text, "en")["bleu"] == 100
    (text / "test.tok.en").write_text("mail a@@b .\n")
    path = generated(tmp_path, "H-0\t-1\tmail a@@b .")
    assert bleu.score_generated(path, text, "en")["sentences"] == 1
