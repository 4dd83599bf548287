"""Plots: the values read from fairseq's logs, and what is drawn."""

import re
import sys
from pathlib import Path
from unittest import mock

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fairseq_casrnn.analysis import plots
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.runs import training_log

SIMPLE = """\
2026-01-01 10:00:00 | INFO | fairseq_cli.train | num. shared model params: 100 (num. trained: 100)
2026-01-01 10:00:01 | INFO | train_inner | epoch 001:     10 / 20 loss=7.279, ppl=155.32, wps=69, num_updates=10, lr=0.003, gnorm=0.88
2026-01-01 10:00:02 | INFO | valid | epoch 001 | valid on 'valid' subset | loss 5.341 | ppl 40.54 | wps 14449.2 | num_updates 20
2026-01-01 10:00:02 | INFO | train | epoch 001 | loss 6.44 | ppl 86.85 | ups 3.83 | num_updates 20 | lr 0.0037
2026-01-01 10:00:03 | INFO | train_inner | epoch 002:     10 / 20 loss=4.5, ppl=22.6, num_updates=30, lr=0.003
2026-01-01 10:00:04 | INFO | valid | epoch 002 | valid on 'valid' subset | loss 3 | ppl 8 | num_updates 40 | best_loss 3
"""  # noqa: E501
JSON = """\
2026-01-01 10:00:01 | INFO | train_inner | {"epoch": 1, "update": 0.5, "loss": "7.279", "ppl": "155.32", "num_updates": "10"}
2026-01-01 10:00:02 | INFO | valid | {"epoch": 1, "valid_loss": "5.341", "valid_ppl": "40.54", "valid_num_updates": "20"}
2026-01-01 10:00:02 | INFO | train | {"epoch": 1, "train_loss": "6.44", "train_ppl": "86.85", "train_num_updates": "20"}
2026-01-01 10:00:03 | INFO | train_inner | {"epoch": 2, "update": 1.5, "loss": "4.5", "num_updates": "30"}
2026-01-01 10:00:04 | INFO | valid | {"epoch": 2, "valid_loss": "3", "valid_num_updates": "40", "valid_best_loss": "3"}
2026-01-01 10:00:05 | INFO | train_inner | {"epoch": 2, "upda
"""  # noqa: E501
CURVES = {
    "train_inner": [(10, 7.279), (30, 4.5)],
    "train": [(20, 6.44)],
    "valid": [(20, 5.341), (40, 3.0)],
}


def bare(log):
    """The log as ``--log-file`` writes it, with messages only."""
    return re.sub(r"^.*? \| INFO \| \S+ \| ", "", log, flags=re.MULTILINE)


def of_hydra(log):
    """The log as ``fairseq-hydra-train`` writes it to ``hydra_train.log``."""
    return re.sub(r"^(.*?) \| INFO \| (\S+) \| ", r"[\1,123][\2][INFO] - ", log, flags=re.MULTILINE)


FORMS = {
    f"{name}-{form.__name__}": form(log)
    for name, log in (("simple", SIMPLE), ("json", JSON))
    for form in (str, bare, of_hydra)
}


def log_file(tmp_path, text):
    path = tmp_path / "train.log"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("text", FORMS.values(), ids=FORMS)
def test_losses_by_update(tmp_path, text):
    assert training_log.read_log(log_file(tmp_path, text))[0] == CURVES


@pytest.mark.parametrize("text", FORMS.values(), ids=FORMS)
def test_other_validation_sets_are_ignored(tmp_path, text):
    other = text.replace("'valid' subset", "'valid1' subset").replace('"valid_', '"valid1_')
    other = other.replace("5.341", "9").replace("[valid]", "[valid1]")
    path = log_file(tmp_path, text + other)
    assert training_log.read_log(path)[0]["valid"] == CURVES["valid"]
    assert training_log.read_metric(path, "loss") == [(1, 5.341), (2, 3.0)]


@pytest.mark.parametrize("text", [SIMPLE, JSON], ids=["simple", "json"])
def test_a_million_updates(tmp_path, text):
    """fairseq writes numbers with six digits."""
    text = re.sub(r'num_updates("?[=: ]+"?)40', r"num_updates\g<1>1.23457e+06", text)
    assert training_log.read_log(log_file(tmp_path, text))[0]["valid"] == [
        (20, 5.341),
        (1234570, 3.0),
    ]


def test_later_values_replace_those_before_resuming(tmp_path):
    again = SIMPLE.replace("loss 5.341", "loss 5.2").replace("loss=4.5", "loss=4.4")
    curves, _ = training_log.read_log(log_file(tmp_path, SIMPLE + again))
    assert curves["valid"] == [(20, 5.2), (40, 3.0)]
    assert curves["train_inner"] == [(10, 7.279), (30, 4.4)]


def test_the_likelihood_is_preferred_to_a_smoothed_loss(tmp_path):
    line = "t | INFO | valid | epoch 001 | valid on 'valid' subset | loss 5.9 | nll_loss 4.7 | ppl 26 | num_updates 3\n"  # noqa: E501
    assert training_log.read_log(log_file(tmp_path, line))[0]["valid"] == [(3, 4.7)]


@pytest.mark.parametrize("text", FORMS.values(), ids=FORMS)
def test_metric_by_epoch(tmp_path, text):
    path = log_file(tmp_path, text)
    assert training_log.read_metric(path, "loss") == [(1, 5.341), (2, 3.0)]
    with pytest.raises(UserError, match="no 'wcpa' of a validation"):
        training_log.read_metric(path, "wcpa")


def test_curves_of_several_runs(tmp_path, capsys):
    logs = []
    for name, seed in (("one", 1), ("one", 2), ("two", 1)):
        folder = tmp_path / name / f"seed{seed}"
        folder.mkdir(parents=True)
        logs.append(str(log_file(folder, SIMPLE)))
    png = tmp_path / "loss.png"
    with mock.patch.object(Axes, "plot", autospec=True, side_effect=Axes.plot) as plot:
        assert plots.main(["metric-curves", "loss", str(png), *logs]) == 0
    drawn = [
        (call.args[1:], call.kwargs["color"], call.kwargs["label"]) for call in plot.mock_calls
    ]
    values = ((1, 2), (5.341, 3.0))
    assert drawn == [(values, "C0", "one"), (values, "C0", None), (values, "C1", "two")]
    assert png.read_bytes().startswith(b"\x89PNG")
    assert capsys.readouterr() == ("", "")
    before = Path(logs[0]).read_text()
    assert plots.main(["metric-curves", "loss", *logs]) == 2  # the name of the picture is missing
    assert f"{logs[0]} does not end in .png" in capsys.readouterr().err
    assert Path(logs[0]).read_text() == before
    assert plots.main(["metric-curves", "wcpa", str(png), *logs]) == 2
    assert "no 'wcpa'" in capsys.readouterr().err


def test_a_log_without_losses_is_refused(tmp_path):
    with pytest.raises(UserError, match="no losses"):
        training_log.read_log(log_file(tmp_path, "nothing here\n"))
    with pytest.raises(UserError, match=r"absent\.log"):
        training_log.read_log(tmp_path / "absent.log")


def pixels(path):
    image = pytest.importorskip("matplotlib.image")
    return image.imread(path)[..., :3]


def test_learning_curve_draws_both_curves(tmp_path):
    png = tmp_path / "curve.png"
    plots.learning_curve(log_file(tmp_path, SIMPLE), png)
    image = pixels(png)
    for color in (plots._TRAIN, plots._VALID):
        rgb = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        assert (abs(image - rgb).max(axis=-1) < 0.02).sum() > 100
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".tmp"] == []


@pytest.mark.parametrize("text", [SIMPLE, JSON], ids=["simple", "json"])
def test_perplexity_is_shown_only_if_it_is_logged(tmp_path, text):
    """The loss of classifiers and taggers is not per token."""
    of_classes = re.sub(r"\| ppl [\d.]+ |ppl=[\d.]+, ", "", text)
    of_classes = re.sub(r'"(train_|valid_)?ppl": "[\d.]+", ', "", of_classes)
    for log, label, title in (
        (text, "loss, bits per token", "Validation perplexity 8 after 40 updates"),
        (of_classes, "loss", "Validation loss 3 after 40 updates"),
    ):
        with mock.patch.object(Figure, "savefig", autospec=True) as save, mock.patch("os.replace"):
            plots.learning_curve(log_file(tmp_path, log), tmp_path / "curve.png")
        (axes,) = save.call_args.args[0].axes
        assert (axes.get_ylabel(), axes.get_title(loc="left")) == (label, title)


def test_attention_is_drawn_with_the_target_down_and_the_source_across(tmp_path):
    png = tmp_path / "attention.png"
    weights = [[0, 0, 1], [0, 0, 0], [0, 0, 0], [0, 0, 0]]
    plots.attention_map(["halb", "vier", "</s>"], ["half", "past", "three", "</s>"], weights, png)
    image = pixels(png)
    blue = (image[..., 2] > 0.3) & (image[..., 0] < 0.1)  # the upper end of the colour map
    rows, columns = blue.nonzero()
    height, width = blue.shape
    assert len(rows) > 1000
    assert columns.min() > width / 2
    assert rows.max() < height / 2


def test_subword_marks_are_not_drawn_as_word_boundaries(tmp_path):
    images = []
    for middle in ("vier", "vier@@"):
        png = tmp_path / f"{middle}.png"
        plots.attention_map([middle, "zehn"], ["a"], [[0.5, 0.5]], png)
        images.append(pixels(png))
    assert images[0].shape == images[1].shape  # the mark itself is not drawn
    assert (images[0] != images[1]).any()  # the line between words is drawn


def test_without_matplotlib_the_remedy_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    log = log_file(tmp_path, SIMPLE)
    assert plots.main(["learning-curve", str(log), str(tmp_path / "curve.png")]) == 2
    message = capsys.readouterr().err
    assert message.startswith("error: ")
    assert "fairseq-casrnn[plots]" in message
    assert not (tmp_path / "curve.png").exists()


def test_mistakes_on_the_command_line_are_one_sentence(tmp_path, capsys):
    png = str(tmp_path / "x.png")
    log = str(log_file(tmp_path, SIMPLE))
    absent, folder = str(tmp_path / "absent"), tmp_path / "folder.png"
    folder.mkdir()
    no_codes = [tmp_path / name for name in ("binary", "text", "version")]
    for path, content in zip(no_codes, (b"\x80\x81", b"a b c\n", b"#version: x\n"), strict=True):
        path.write_bytes(content)
    attention = ["attention", absent, absent, png, "--sentence", "halb vier"]
    for arguments, named in (
        (["learning-curve", absent, png], absent),
        (["learning-curve", log, str(tmp_path / "no" / "x.png")], "x.png"),
        (["metric-curves", "loss", str(folder), log], f"{folder}: it is a folder"),
        (attention, f"checkpoint {absent} does not exist"),
        ([*attention, "--beam", "0"], "--beam is 0; it must be at least 1"),
        ([*attention, "--beam=-1"], "--beam is -1; it must be at least 1"),
        ([*attention, "--bpe-codes", absent], "cannot read the BPE codes"),
        *(
            ([*attention, "--bpe-codes", str(path)], f"{path} holds no merges of subword-nmt")
            for path in no_codes
        ),
    ):
        assert plots.main(arguments) == 2
        message = capsys.readouterr().err
        assert message.startswith("error: ")
        assert named in message
        assert message.count("\n") == 1
