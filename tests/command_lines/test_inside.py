"""``casrnn analyze gates`` and ``routing`` on models of other kinds than language models."""

import pytest

from fairseq_casrnn import cli
from fairseq_casrnn.analysis import tracing

from .tagging import common as tagging

pytestmark = [  # fairseq's own
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:'pin_memory' argument:UserWarning"),
]


def table(capsys, what, *args):
    assert cli.main(["analyze", what, *map(str, args)]) == 0
    return capsys.readouterr().out.splitlines()


def test_translation(trained, data, capsys):
    """The encoder's words, of the source sentence with its end."""
    path = trained("second_order_lstm") / "checkpoint_best.pt"
    lines = table(capsys, "routing", data, "--path", path, "--subset", "test")
    assert len(lines) == 4
    model, task = tracing.load(path, data)
    readings = list(tracing.readings(model, task, data, "test", 3, seed=None))
    for rows, groups in readings:
        ((first, *_),) = groups
        assert len(first.cells) == len(rows[0])
        assert rows[0][-1] == task.source_dictionary.eos()
    path = trained("cas_lstm") / "checkpoint_best.pt"
    assert table(capsys, "gates", data, "--path", path)[1].startswith("layer 2  ")


def test_taggers(tmp_path, capsys):
    """Both directions of a stack; a tagger's encoder does not read </s>."""
    data = tagging.prepare(tmp_path)
    for name in ("cas_lstm", "second_order_lstm"):
        tagging.train(data, tmp_path / name, name, 1, "--encoder-bidirectional")
    capsys.readouterr()
    lines = table(capsys, "gates", data, "--path", tmp_path / "cas_lstm" / "checkpoint_last.pt")
    assert [line[:17] for line in lines[1:]] == ["layer 2, forward ", "layer 2, backward"]
    path = tmp_path / "second_order_lstm" / "checkpoint_last.pt"
    table(capsys, "routing", data, "--path", path, "--tsv", tmp_path / "words.tsv")
    words = [line.split("\t")[2] for line in (tmp_path / "words.tsv").read_text().splitlines()]
    assert words[0] == "word"
    assert "</s>" not in words
    assert words.count(".") >= 12


def test_pairs(tmp_path, capsys):
    """Two rows of words a pair, each with its own passes."""
    from labelled_corpora import write_sick

    from fairseq_casrnn.data import sick

    from .classification.common import prepare, train

    data = prepare(sick, write_sick(tmp_path / "raw"), tmp_path)
    train(data, tmp_path / "run", "cas_lstm", 1, "--encoder-bidirectional")
    capsys.readouterr()
    path = tmp_path / "run" / "checkpoint_last.pt"
    assert len(table(capsys, "gates", data, "--path", path)) == 3
    model, task = tracing.load(path, data)
    for rows, groups in tracing.readings(model, task, data, "test", 4):
        assert [len(row) for row in rows] == [len(passes[0].gates) for passes in groups]
        assert [len(passes) for passes in groups] == [4, 4]
