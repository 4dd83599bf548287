"""``run.json``, the record that a training writes beside its checkpoints."""

import json
import subprocess

from fairseq_casrnn.runs import record

from .programs import TRAIN, checkpoint, fairseq, train

ARCH = "cas_lstm_tiny"


def test_record_of_a_training(data, tmp_path):
    """run.json has the model, data and validations; a resumed training extends it."""
    assert not train(data, tmp_path, ARCH, epochs=2).records("error")
    first = json.loads((tmp_path / "run.json").read_text())
    assert f"fairseq-train {data} --cpu" in first["training"]
    assert (first["arch"], first["seed"]) == (ARCH, 3)
    model = checkpoint(tmp_path / "checkpoint_last.pt")
    shapes = {id(tensor): tensor.numel() for tensor in model["model"].values()}
    assert 0 < first["parameters"] <= sum(shapes.values())
    assert (first["data"]["train"], first["data"]["valid"]) == (60, 8)
    assert first["data"]["checksum"].count(" ") == 1
    assert (first["device"], first["precision"]) == ("cpu", "highest")
    assert first["machine"]["threads"] == 1
    assert first["versions"]["fairseq-fixed"] == "0.12.3.1"
    assert [scores["epoch"] for scores in first["validation"]] == [1, 2]
    assert first["best"] in first["validation"]
    assert first["best"]["loss"] == min(scores["loss"] for scores in first["validation"])
    assert first["updates"] == model["optimizer_history"][-1]["num_updates"]

    record.update(tmp_path, command="as typed")
    train(data, tmp_path, ARCH, epochs=3)
    second = record.read(tmp_path)
    assert second["validation"][:2] == first["validation"]
    assert [scores["epoch"] for scores in second["validation"]] == [1, 2, 3]
    assert second["command"] == "as typed"
    assert second["seconds"] >= first["seconds"]


def test_a_new_training_discards_old_validations(data, tmp_path):
    train(data, tmp_path, ARCH, epochs=3)
    for path in tmp_path.glob("*.pt"):
        path.unlink()
    train(data, tmp_path, ARCH, epochs=1)
    assert [scores["epoch"] for scores in record.read(tmp_path)["validation"]] == [1]


def test_a_record_that_cannot_be_written_is_a_warning(data, tmp_path):
    (tmp_path / "run.json").write_text("{")
    done = train(data, tmp_path, ARCH, epochs=1)
    assert "the record of the training was not written" in done.log
    assert "run.json is damaged" in done.log
    assert (tmp_path / "checkpoint_last.pt").is_file()


def test_large_data_has_no_checksum(data, tmp_path, monkeypatch):
    monkeypatch.setattr("fairseq_casrnn.runs.training.LARGEST", 1000)
    train(data, tmp_path, ARCH, epochs=1)
    found = record.read(tmp_path)["data"]
    assert found == {"folder": str(data), "train": 60, "valid": 8}


def test_no_record_with_no_save(data, tmp_path):
    options = ("--no-save", "--save-dir", tmp_path, "--arch", ARCH, "--max-epoch", 1)
    fairseq("train", data, *TRAIN, *options)
    assert not (tmp_path / "run.json").exists()


def test_the_commit_of_a_checkout(tmp_path, monkeypatch):
    """The commit of an unrelated repository around an installed package is not recorded."""
    import fairseq_casrnn
    from fairseq_casrnn.runs import environment

    def git(*arguments):
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", tmp_path, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def commit(package):
        monkeypatch.setattr(fairseq_casrnn, "__file__", str(package / "__init__.py"))
        return environment.commit.__wrapped__()

    package, installed = tmp_path / "package", tmp_path / "site" / "package"
    for folder in (package, installed):
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text("")
    git("init")
    git("add", ".")
    git("commit", "-m", "x")
    version = fairseq_casrnn.__version__
    assert commit(package) == {"version": version, "commit": git("rev-parse", "HEAD")}
    assert commit(installed) == {"version": version}
    (package / "new.py").write_text("")  # an untracked file, which does not count as a modification
    assert "modified" not in commit(package)
    (package / "__init__.py").write_text("1")
    assert commit(package)["modified"] is True
