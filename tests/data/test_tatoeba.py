"""Tatoeba's English-Chinese pairs: tokens, splits, and invalid files."""

import pytest
from corpora import write_tatoeba

from fairseq_casrnn.data.corpora import tatoeba
from fairseq_casrnn.data.words import chinese_characters
from fairseq_casrnn.errors import UserError


@pytest.mark.parametrize(
    ("raw", "tokens"),
    [
        ("我有3.14元。", "我 有 3.14 元 。"),
        ("Tom在e-mail裡說：“OK！”", "tom 在 e-mail 裡 說 ： “ ok ！ ”"),
        ("你好 吗?", "你 好 吗 ?"),
        ("〇二〇年的カナ", "〇 二 〇 年 的 カ ナ"),
        ("It's 10,000.", "it's 10,000 ."),
    ],
)
def test_tokens_are_characters(raw, tokens):
    assert chinese_characters(raw) == tokens


def test_equal_sources_stay_together():
    keys = [f"s{i % 30}" for i in range(100)]
    train, valid, test, left_out = tatoeba.split_by_source(keys, 5, seed=1)
    sources = [{keys[i] for i in part} for part in (train, valid, test)]
    assert len(sources[1]) == len(valid) == len(sources[2]) == len(test) == 5
    assert not sources[0] & (sources[1] | sources[2])
    assert not sources[1] & sources[2]
    assert all(keys.index(keys[i]) == i for i in valid + test)  # the first sentence of each
    assert len(train) + len(valid) + len(test) + left_out == 100
    assert len(sources[0]) == 20
    assert len(train) == sum(key in sources[0] for key in keys)


def test_splits_depend_on_the_seed():
    keys = [f"s{i}" for i in range(100)]
    first = tatoeba.split_by_source(keys, 10, seed=1)
    assert first == tatoeba.split_by_source(keys, 10, seed=1)
    assert first != tatoeba.split_by_source(keys, 10, seed=2)


@pytest.mark.parametrize("size", [0, 5])
def test_too_few_sources(size):
    with pytest.raises(UserError, match="--eval-size"):
        tatoeba.split_by_source(["a", "b"] * 5, size, seed=1)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("Hi.\t嗨。\nno tab\n", "line 2 is not English<TAB>Chinese"),
        ("Hi.\t \tcredit\n", "line 1 is not"),
        ("嗨。\tHi.\n", "no Chinese in its second column"),
    ],
)
def test_wrong_files(tmp_path, content, message):
    path = tmp_path / "cmn.txt"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=message):
        tatoeba.read_pairs(path)


@pytest.mark.parametrize(
    ("count", "message"),
    [
        (0, "--min-count is 0; it must be at least 1"),
        (999, "no token of zh occurs --min-count times; give a smaller one"),
    ],
)
def test_wrong_count(tmp_path, capsys, count, message):
    raw, out = write_tatoeba(tmp_path / "cmn.txt"), tmp_path / "data"
    options = ["--raw", raw, "--out", out, "--eval-size", 10, "--min-count", count]
    assert tatoeba.main(list(map(str, options))) == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"error: {message}"
    assert not out.exists()


def test_corpus(tmp_path):
    corpus = tatoeba.read_corpus(write_tatoeba(tmp_path / "cmn.txt"), eval_size=10, seed=3)
    assert (corpus.source, corpus.target) == ("zh", "en")
    source = {name: {chinese for chinese, _ in part} for name, part in corpus.splits.items()}
    assert not source["train"] & (source["valid"] | source["test"])
    assert not source["valid"] & source["test"]
    for (chinese, _), (raw, _) in zip(corpus.splits["test"], corpus.raw_test, strict=True):
        assert chinese.replace(" ", "") == raw
    left_out = corpus.notes["further translations of evaluation sources left out"]
    assert sum(map(len, corpus.splits.values())) + left_out == corpus.notes["pairs"] == 165
