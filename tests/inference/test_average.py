"""``casrnn average``: means of checkpoints, and checkpoints that cannot be averaged."""

import argparse
import pickle
import resource
import subprocess

import numpy as np
import pytest
import torch

from fairseq_casrnn.cli import main
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.inference import average


def checkpoint(path, weight, counter=0, **more):
    model = {"weight": torch.tensor(weight), "counter": torch.tensor(counter)}
    state = {"model": model, "args": None, "cfg": {"x": argparse.Namespace(a=1)}}
    torch.save({**state, "last_optimizer_state": {"big": torch.ones(9)}, **more}, path)
    return path


def test_the_mean_of_the_weights(tmp_path):
    paths = [
        checkpoint(
            tmp_path / f"checkpoint{n}.pt", [float(n), -n / 2], counter=n, extra_state={"n": n}
        )
        for n in (1, 2, 6)
    ]
    state = average.average(paths)
    assert state["model"]["weight"].tolist() == [3.0, -1.5]
    assert state["model"]["weight"].dtype == torch.float32
    # integers are not averaged, but taken from the last checkpoint
    assert state["model"]["counter"].item() == 6
    assert state["extra_state"] == {"n": 6}
    assert state["last_optimizer_state"] is None
    assert average.load(paths[0])["model"]["weight"].tolist() == [1.0, -0.5]


def test_the_temperature_is_taken_from_the_last(tmp_path):
    for n in (1, 3):
        weights = {
            "rnn.temperature": torch.tensor(1 / n),
            "rnn.temperatures": torch.tensor(1.0 * n),
        }
        torch.save({"model": weights}, tmp_path / f"{n}.pt")
    model = average.average([tmp_path / "1.pt", tmp_path / "3.pt"])["model"]
    assert model["rnn.temperature"] == torch.tensor(1 / 3)
    assert model["rnn.temperatures"] == 2


def test_half_precision_does_not_lose_digits(tmp_path):
    one, small = torch.tensor([1.0]).half(), torch.tensor([2.0**-11]).half()
    paths = []
    for n, weight in enumerate([one, *[small] * 4]):
        paths.append(tmp_path / f"{n}.pt")
        torch.save({"model": {"w": weight}}, paths[-1])
    mean = average.average(paths)["model"]["w"]
    assert mean.dtype == torch.float16
    assert mean.item() == torch.tensor((1 + 4 * 2.0**-11) / 5).half().item()


def test_choice_of_checkpoints(tmp_path):
    for name in (
        "checkpoint9.pt", "checkpoint10.pt", "checkpoint11.pt", "checkpoint_best.pt",
        "checkpoint_last.pt", "checkpoint_1_500.pt", "checkpoint.best_loss_2.5.pt",
        "checkpoint.best_loss_10.25.pt", "checkpoint.best_loss_3.125.pt",
        "checkpoint_avg_last_2.pt",
    ):  # fmt: skip
        checkpoint(tmp_path / name, [1.0])
    names = [path.name for path in average.find_checkpoints(tmp_path, "last:2")]
    assert names == ["checkpoint10.pt", "checkpoint11.pt"]
    names = [path.name for path in average.find_checkpoints(tmp_path, "best:2")]
    assert names == ["checkpoint.best_loss_2.5.pt", "checkpoint.best_loss_3.125.pt"]
    names = [path.name for path in average.find_checkpoints(tmp_path, "best:1", maximize=True)]
    assert names == ["checkpoint.best_loss_10.25.pt"]
    options = {"checkpoint": {"maximize_best_checkpoint_metric": True}}
    checkpoint(tmp_path / "checkpoint.best_loss_2.5.pt", [1.0], cfg=options)
    names = [path.name for path in average.find_checkpoints(tmp_path, "best:1")]
    assert names == ["checkpoint.best_loss_10.25.pt"]  # minimised, according to the run's options
    with pytest.raises(UserError, match=r"3 checkpoints for last:4.*--keep-last-epochs 4"):
        average.find_checkpoints(tmp_path, "last:4")
    (tmp_path / "other").mkdir()
    checkpoint(tmp_path / "other" / "checkpoint3.pt", [1.0])
    with pytest.raises(UserError, match=r"holds 1 checkpoint for last:2"):
        average.find_checkpoints(tmp_path / "other", "last:2")
    for wrong in ("last", "last:0", "worst:3"):
        with pytest.raises(UserError, match=f"'{wrong}' is neither"):
            average.find_checkpoints(tmp_path, wrong)


class Planted:
    def __reduce__(self):
        return (print, ("code ran",))


def test_only_data_is_loaded(tmp_path, capsys):
    path = tmp_path / "planted.pt"
    torch.save({"model": {}, "x": Planted()}, path)
    with pytest.raises(UserError, match=r"planted\.pt was refused because it holds print, "):
        average.load(path)
    assert "code ran" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("cut.pt", None, "cannot be read: it is truncated or not a checkpoint"),
        ("empty.pt", b"", "cannot be read: it is truncated"),
        ("text.pt", b"hello", "cannot be read: it is truncated"),
        ("pickled.pt", pickle.dumps(Planted()), "cannot be read: it is truncated"),
        ("list.pt", [1], "is not a fairseq checkpoint"),
        ("weights.pt", {"weight": torch.ones(2)}, "is not a fairseq checkpoint"),
        ("nothing.pt", {"model": {}}, "is not a fairseq checkpoint"),
        ("none.pt", {"model": None}, "is not a fairseq checkpoint"),
        ("number.pt", {"model": {"weight": 1.0}}, "is not a fairseq checkpoint"),
    ],
)
def test_damaged_files_are_named(tmp_path, capsys, name, content, message):
    path = tmp_path / name
    if isinstance(content, (list, dict)):
        torch.save(content, path)
    elif content is None:
        path.write_bytes(checkpoint(path, [1.0] * 999).read_bytes()[:-2000])
    else:
        path.write_bytes(content)
    assert main(["average", str(path), "--output", str(tmp_path / "mean.pt")]) == 2
    output, error = capsys.readouterr()
    assert error.startswith("error: ")
    assert f"{name} {message}" in error
    assert error.count("\n") == 1
    assert "code ran" not in output
    assert [file.name for file in tmp_path.iterdir()] == [name]


def test_missing_checkpoints(tmp_path):
    with pytest.raises(UserError, match=r"none\.pt does not exist"):
        average.load(tmp_path / "none.pt")
    with pytest.raises(UserError, match=r"there is no folder .*none"):
        average.find_checkpoints(tmp_path / "none", "last:2")


def test_different_models_are_refused(tmp_path):
    paths = [checkpoint(tmp_path / "a.pt", [1.0]), checkpoint(tmp_path / "b.pt", [1.0, 2.0])]
    with pytest.raises(UserError, match=r"b\.pt and .*a\.pt are checkpoints of different models"):
        average.average(paths)


def of_arch(path, arch, holder=dict, **more):
    return checkpoint(path, [1.0], cfg={"model": holder(_name=arch)}, **more)


def test_different_architectures_of_one_shape_are_refused(tmp_path):
    tiny = of_arch(tmp_path / "tiny.pt", "stacked_lstm_lm_tiny")
    sized = of_arch(tmp_path / "sized.pt", "stacked_lstm_lm", argparse.Namespace)
    silent = checkpoint(tmp_path / "silent.pt", [1.0])
    # these are the same model, whose size options may have set
    average.average([tiny, sized, silent])
    for holder in (dict, argparse.Namespace):
        other = of_arch(tmp_path / "other.pt", "normalized_lstm_lm_tiny", holder)
        message = (
            r"other\.pt is a normalized_lstm_lm_tiny, but .*tiny\.pt is a stacked_lstm_lm_tiny; "
        )
        with pytest.raises(UserError, match=message):
            average.average([tiny, other])
    older = checkpoint(tmp_path / "older.pt", [1.0], args=argparse.Namespace(arch="cas_lstm_tiny"))
    with pytest.raises(UserError, match=r"older\.pt is a cas_lstm_tiny, but"):
        average.average([tiny, older])


def test_different_dictionaries_are_refused(tmp_path):
    paths = {
        name: of_arch(tmp_path / f"{name}.pt", "cas_lstm_lm_tiny", **{part: {"words": words}})
        for name, part, words in (
            ("a", "task_state", 5),
            ("older", "extra_state", 5),
            ("b", "task_state", 7),
            ("pair", "task_state", {"source": 5, "target": 7}),
        )
    }
    silent = of_arch(tmp_path / "silent.pt", "cas_lstm_lm_tiny")
    average.average([paths["a"], paths["older"], silent])
    for first, second in (("a", "b"), ("older", "b"), ("a", "pair")):
        message = rf"{second}\.pt and .*{first}\.pt were trained with different dictionaries; "
        with pytest.raises(UserError, match=message):
            average.average([paths[first], paths[second]])


@pytest.mark.parametrize("note", ["classes", "characters"])
def test_different_classes_are_refused(tmp_path, note):
    """If the numbers of classes are equal, so are all shapes, and no error would occur."""
    paths = [
        of_arch(tmp_path / f"{name}.pt", "bicas2", task_state={"words": 5, note: [name, "other"]})
        for name in ("bad", "good")
    ]
    silent = of_arch(tmp_path / "silent.pt", "bicas2", task_state={"words": 5})
    average.average([paths[0], silent, paths[0]])
    message = rf"good\.pt and .*bad\.pt were trained with different {note}; "
    with pytest.raises(UserError, match=message):
        average.average(paths)


def test_options_without_effect_are_refused(tmp_path, capsys):
    path = str(checkpoint(tmp_path / "checkpoint1.pt", [1.0]))
    output, run = ["--output", str(tmp_path / "x.pt")], ["--run", str(tmp_path)]
    for options, message in (
        ([path, "--which", "last:3"], "--which and --maximize choose from --run DIR; drop them"),
        ([path, "--maximize"], "--which and --maximize choose from --run DIR; drop them"),
        ([*run, "--which", "last:1", "--maximize"], "for --which best:N, not last:1; drop it"),
        ([*run, "--maximize"], "for --which best:N, not last:5; drop it"),
    ):
        assert main(["average", *options, *output]) == 2
        assert message in capsys.readouterr().err
    assert main(["average", *run, "--which", "last:1", *output]) == 0


def test_command_line(tmp_path, capsys):
    paths = [checkpoint(tmp_path / f"checkpoint{n}.pt", [float(n)]) for n in (1, 2, 3)]
    out = tmp_path / "avg.pt"
    assert main(["average", "--run", str(tmp_path), "--which", "last:2", "--output", str(out)]) == 0
    assert average.load(out)["model"]["weight"].tolist() == [2.5]
    assert main(["average", *map(str, paths), "--output", str(out)]) == 0
    assert average.load(out)["model"]["weight"].tolist() == [2.0]
    assert main(["average", "--output", str(out)]) == 2
    assert "give either --run DIR or" in capsys.readouterr().err


def test_the_best_checkpoints_by_command(tmp_path):
    """The run's options or --maximize say which is best."""
    out = tmp_path / "out.pt"
    for maximized, options, expected in (
        (False, [], 1.0), (True, [], 2.0), (False, ["--maximize"], 2.0),
    ):  # fmt: skip
        cfg = {"checkpoint": {"maximize_best_checkpoint_metric": maximized}}
        for value in (1.0, 2.0):
            checkpoint(tmp_path / f"checkpoint.best_x_{value}.pt", [value], cfg=cfg)
        command = ["average", "--run", str(tmp_path), "--which", "best:1", "--output", str(out)]
        assert main([*command, *options]) == 0
        assert average.load(out)["model"]["weight"].tolist() == [expected]


def test_ema_fp32_weights_are_preferred(tmp_path):
    """--ema-fp32 stores their single-precision values beside the model's."""
    kept = {"weight": torch.tensor([1.0]).half(), "counter": torch.tensor(3)}
    extra = {"ema": kept, "ema_fp32_params": {"weight": torch.tensor([1.0001])}}
    path = checkpoint(tmp_path / "checkpoint1.pt", [7.0], extra_state=extra)
    state = average.average([path], ema=True)
    assert state["model"]["weight"].equal(torch.tensor([1.0001]))
    assert state["model"]["counter"].item() == 3
    assert state["extra_state"] == {}


@pytest.mark.parametrize("updates", [4, 5])
def test_warning_of_averages_that_have_not_begun(tmp_path, capsys, updates):
    path = checkpoint(
        tmp_path / "checkpoint1.pt",
        [7.0],
        extra_state={"ema": {"weight": torch.tensor([1.0])}},
        cfg={"ema": {"ema_start_update": 5}},
        optimizer_history=[{"num_updates": updates}],
    )
    average.average([path], ema=True)
    said = (
        f"warning: the training of {path} averages weights from update 5 on "
        "(--ema-start-update), but has made only 4: the output has the weights of its last "
        "update, not averages\n"
    )
    assert capsys.readouterr().err == (said if updates == 4 else "")


@pytest.mark.full
def test_the_command_loads_fairseqs_checkpoints(tmp_path):
    """In a new process, nothing else has allowed the numpy types in such checkpoints."""
    counts = np.arange(3)
    path = checkpoint(tmp_path / "checkpoint1.pt", [1.0], extra_state={"bleu_counts": counts})
    out = tmp_path / "avg.pt"
    done = subprocess.run(["casrnn", "average", path, "--output", out], capture_output=True)
    assert done.returncode == 0, done.stderr
    assert average.load(out)["extra_state"]["bleu_counts"].tolist() == [0, 1, 2]


def test_an_output_that_cannot_be_written(tmp_path, capsys):
    """The error comes before the work."""
    checkpoint(tmp_path / "a.pt", [1.0])
    for output, message in (("no/b.pt", "there is no folder"), (".", "it is a folder; name a fil")):
        command = ["average", str(tmp_path / "a.pt"), "--output", str(tmp_path / output)]
        assert main(command) == 2
        assert message in capsys.readouterr().err


def test_a_full_disk_leaves_nothing(tmp_path):
    path = checkpoint(tmp_path / "checkpoint1.pt", [1.0] * 9999)

    def full():
        resource.setrlimit(resource.RLIMIT_FSIZE, (8000, 8000))

    command = ["casrnn", "average", path, "--output", tmp_path / "avg.pt"]
    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=full)
    assert done.returncode == 2
    assert done.stderr == (
        f"error: could not write {tmp_path}/avg.pt (File too large); free some space and run the "
        "command again\n"
    )
    assert [file.name for file in tmp_path.iterdir()] == ["checkpoint1.pt"]
