"""``casrnn analyze`` for translation models, classifiers and taggers."""

from unittest import mock

import pytest
import torch

from fairseq_casrnn import cli
from fairseq_casrnn.analysis import gates, plots, subspaces
from fairseq_casrnn.inference import loading, tracing

from .tagging import common as tagging

pytestmark = [  # fairseq's own
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:'pin_memory' argument:UserWarning"),
]


def table(capsys, what, *args):
    assert cli.main(["analyze", what, *map(str, args)]) == 0
    return capsys.readouterr().out.splitlines()


def test_translation(trained, data, capsys):
    """The encoder is analysed, which reads the source sentence and </s>."""
    path = trained("second_order_lstm") / "checkpoint_best.pt"
    lines = table(capsys, "routing", data, "--path", path, "--subset", "test")
    assert len(lines) == 4
    model, task = loading.load_model(path, data)
    readings = list(tracing.trace_sentences(model, task, data, "test", 3, seed=None))
    for rows, groups in readings:
        ((first, *_),) = groups
        assert len(first.cells) == len(rows[0])
        assert rows[0][-1] == task.source_dictionary.eos()
    lines = table(capsys, "subspaces", data, "--path", path)
    (own,) = tracing.recurrent_stacks(model.encoder)
    found = gates.by_layer_name(
        {key: subspaces.angles(cells) for key, cells in subspaces.recurrent_matrices(own).items()}
    )
    assert lines == subspaces.table_lines(found)
    path = trained("cas_lstm") / "checkpoint_best.pt"
    assert table(capsys, "gates", data, "--path", path)[1].startswith("layer 2  ")


def attend(*args):
    return plots.main(["attention", *map(str, args)])


def test_attention(trained, data, tmp_path, capsys):
    """``--path`` may be the folder of a training or a checkpoint."""
    run = trained("cas_lstm")
    for number, path in enumerate((run, run / "checkpoint_best.pt")):
        png = tmp_path / f"{number}.png"
        assert attend(path, data, png, "--sentence", "ba do", "--beam", 2) == 0
    images = [(tmp_path / f"{number}.png").read_bytes() for number in range(2)]
    assert images[0] == images[1]
    source, target, weights = plots.translation_attention(run, data, "ba do")
    assert source == ["ba", "do", "</s>"]
    assert (len(weights), len(weights[0])) == (len(target), 3)
    assert capsys.readouterr() == ("", "")


def test_errors_of_analyze_attention(trained, data, tmp_path, capsys):
    run = trained("cas_lstm")
    (tmp_path / "text.pt").write_text("no checkpoint")
    torch.save({}, tmp_path / "empty.pt")
    other = tmp_path / "other"
    other.mkdir()
    for path, folder, named in (
        (run, tmp_path / "absent", f"{tmp_path / 'absent'} is not a folder"),
        (run, other, f"dict.*.txt not found in {other}; name the folder"),
        (tmp_path / "text.pt", data, "text.pt cannot be read"),
        (tmp_path / "empty.pt", data, "empty.pt is not a checkpoint"),
        (other, data, f"there is no checkpoint at {other}"),
    ):
        assert attend(path, folder, tmp_path / "x.png", "--sentence", "ba") == 2
        message = capsys.readouterr().err
        assert message.startswith("error: ")
        assert named in message
        assert message.count("\n") == 1


def test_the_path_of_the_picture_is_checked_first(trained, data, tmp_path, capsys):
    png = tmp_path / "no" / "x.png"
    with mock.patch.object(loading, "load_model") as load:
        assert attend(trained("cas_lstm"), data, png, "--sentence", "ba") == 2
    assert f"cannot write {png}" in capsys.readouterr().err
    assert not load.called


def test_taggers(tmp_path, capsys):
    """Both directions are shown; the encoder of a tagger does not read </s>."""
    data = tagging.prepare(tmp_path)
    for name in ("cas_lstm", "second_order_lstm"):
        tagging.train(data, tmp_path / name, name, 1, "--encoder-bidirectional")
    capsys.readouterr()
    lines = table(capsys, "gates", data, "--path", tmp_path / "cas_lstm" / "checkpoint_last.pt")
    assert [line[:17] for line in lines[1:]] == ["layer 2, forward ", "layer 2, backward"]
    assert attend(tmp_path / "cas_lstm", data, tmp_path / "x.png", "--sentence", "a") == 2
    assert "is a tagger, not a translation model; use casrnn tag" in capsys.readouterr().err
    path = tmp_path / "second_order_lstm" / "checkpoint_last.pt"
    table(capsys, "routing", data, "--path", path, "--tsv", tmp_path / "words.tsv")
    words = [line.split("\t")[2] for line in (tmp_path / "words.tsv").read_text().splitlines()]
    assert words[0] == "word"
    assert "</s>" not in words
    assert words.count(".") >= 12


def test_analysis_does_not_forget_words(tmp_path, capsys):
    """--forget-singletons, here applied to all words, only acts in training."""
    data = tagging.prepare(tmp_path)
    words = [line.split()[0] for line in (data / "input0" / "dict.txt").read_text().splitlines()]
    (data / "input0" / "singletons.txt").write_text("\n".join(words) + "\n")
    tagging.train(data, tmp_path, "second_order_lstm", 1, "--forget-singletons", 0.9)
    capsys.readouterr()
    model, task = loading.load_model(tmp_path / "checkpoint_last.pt", data)
    read = list(tracing.trace_sentences(model, task, data, "train", 1000, seed=None))
    assert task.dictionary.unk() not in {word for rows, _ in read for row in rows for word in row}
    task.load_dataset("train")
    trained = task.dataset("train")
    words = torch.cat([trained[index]["words"] for index in range(len(trained))])
    assert task.dictionary.unk() in words


def test_pairs(tmp_path, capsys):
    """Each pair gives two rows of words, which are encoded separately."""
    from labelled_corpora import write_sick

    from fairseq_casrnn.data.corpora import sick

    from .classification.common import prepare, train

    data = prepare(sick, write_sick(tmp_path / "raw"), tmp_path)
    train(data, tmp_path / "run", "cas_lstm", 1, "--encoder-bidirectional")
    capsys.readouterr()
    path = tmp_path / "run" / "checkpoint_last.pt"
    assert len(table(capsys, "gates", data, "--path", path)) == 3
    model, task = loading.load_model(path, data)
    for rows, groups in tracing.trace_sentences(model, task, data, "test", 4):
        assert [len(row) for row in rows] == [len(passes[0].gates) for passes in groups]
        assert [len(passes) for passes in groups] == [4, 4]
