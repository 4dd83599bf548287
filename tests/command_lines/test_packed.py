"""``casrnn pack`` and ``casrnn translate``: models in one file, and their errors."""

import io
import json
import os
import pickle
import shutil
import sys
import zipfile
from types import SimpleNamespace

import pytest
import torch
from fairseq.models import MODEL_REGISTRY
from subword_nmt.learn_bpe import learn_bpe

from fairseq_casrnn import cli
from fairseq_casrnn.data.subwords import learn_joint_bpe
from fairseq_casrnn.diagnostics.explain import explained
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.export.command import copy_subwords
from fairseq_casrnn.inference.loading import read_checkpoint
from fairseq_casrnn.models import packed

from .conftest import WORDS
from .programs import fairseq, train

pytestmark = [  # fairseq's own
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:'pin_memory' argument:UserWarning"),
]
LINES = [" ".join(list(WORDS)[:3]), "", " ".join(list(WORDS)[4:9])]


@pytest.fixture(scope="module")
def run(trained, data, tmp_path_factory):
    """A run whose data is where casrnn prepare puts it, and which was moved with the data."""
    folder = tmp_path_factory.mktemp("moved")
    shutil.copytree(data, folder / "data-bin")
    run = folder / "out" / "cas_lstm_tiny" / "seed1"
    run.mkdir(parents=True)
    state = torch.load(trained("cas_lstm") / "checkpoint_last.pt")
    state["cfg"]["task"]["data"] = "/nowhere"
    torch.save(state, run / "checkpoint_best.pt")
    return run


@pytest.fixture(scope="module")
def model(run):
    assert cli.main(["pack", str(run), "--output", str(run / "x.casrnn")]) == 0
    return run / "x.casrnn"


def translate(capsys, *args, lines=LINES, status=0, monkeypatch=None):
    text = io.BytesIO("".join(f"{line}\n" for line in lines).encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", SimpleNamespace(buffer=text, isatty=lambda: False))
        assert cli.main(["translate", *map(str, args)]) == status
    captured = capsys.readouterr()
    return captured.out.splitlines() if status == 0 else captured.err


def test_translate(run, data, capsys, tmp_path):
    """casrnn translate equals fairseq-interactive, and keeps empty lines."""
    found = translate(capsys, "--path", run, "--beam", 4)
    (tmp_path / "input").write_text("".join(f"{line}\n" for line in LINES if line))
    path = run / "checkpoint_best.pt"
    done = fairseq(
        *("interactive", data, "--path", path, "--cpu", "--beam", "4"),
        *("--input", tmp_path / "input"),
    )
    first, second = (line[-1] for line in done.lines("D"))
    assert found == [first, "", second]
    for options in (("--buffer-size", 1), ("--batch-size", 1), ("--data", data)):
        assert translate(capsys, "--path", path, "--beam", 4, *options) == found
    long = [LINES[0], "", "so " * 1100, LINES[2]]
    with pytest.MonkeyPatch.context() as patch:
        text = io.BytesIO("".join(f"{line}\n" for line in long).encode())
        patch.setattr(sys, "stdin", SimpleNamespace(buffer=text, isatty=lambda: False))
        assert cli.main(["translate", "--path", str(run), "--beam", "4"]) == 2
    captured = capsys.readouterr()
    assert captured.out.splitlines() == [first, ""]  # the translations before the error are written
    assert "line 3 has more than the 1024 tokens that the model accepts; split" in captured.err
    assert "--beam is 0; it must be at least 1" in translate(
        capsys, "--path", run, "--beam", 0, status=2
    )


def test_a_packed_model_needs_nothing_else(model, run, capsys, tmp_path, monkeypatch):
    expected = translate(capsys, "--path", run)
    alone = shutil.copy(model, tmp_path / "model.casrnn")
    monkeypatch.chdir(tmp_path)
    assert translate(capsys, "--path", "model.casrnn") == expected
    hub = MODEL_REGISTRY["cas_lstm"].from_pretrained(str(alone))
    assert hub.translate([LINES[0], LINES[2]], beam=10) == [expected[0], expected[2]]
    with zipfile.ZipFile(alone) as archive:
        assert set(archive.namelist()) == {"casrnn.json", "model.pt", "dict.xx.txt", "dict.yy.txt"}
        state = torch.load(io.BytesIO(archive.read("model.pt")), weights_only=True)
    assert state["last_optimizer_state"] is None
    assert "train_iterator" not in state["extra_state"]
    assert state["cfg"]["task"]["data"] == "data-bin"


@pytest.mark.full
def test_data_for_a_packed_model(model, data, tmp_path, capsys):
    for given in (("--path", model), ("--path", model, "--data", data)):
        assert translate(capsys, *given, "--beam", "2")
    error = translate(capsys, "--path", model, "--data", tmp_path, status=2)
    assert f"txt not found in {tmp_path}; name the folder" in error
    translator = MODEL_REGISTRY["cas_lstm"]
    assert translator.from_pretrained(model, data_name_or_path=str(data))
    with pytest.raises(UserError, match="nowhere does not exist; check the path of data_name_or"):
        translator.from_pretrained(model, data_name_or_path="/nowhere")


def test_export_and_analysis(model, data, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["export", "--path", str(model), "--format", "torch", "--output", "x"]) == 0
    assert cli.main(["analyze", "gates", str(data), "--path", str(model)]) == 0
    assert "layer" in capsys.readouterr().out


def test_fairseq_generate_reads_a_packed_model(model, data):
    found = fairseq("generate", data, "--path", model, "--cpu", "--beam", "4").lines("H")
    path = model.parent / "checkpoint_best.pt"
    assert found == fairseq("generate", data, "--path", path, "--cpu", "--beam", "4").lines("H")


def test_a_packed_model_is_not_trained_or_averaged(model, data, tmp_path, capsys):
    sentence = f"checkpoint {model} is a packed model; give the checkpoint that it was packed from"
    with pytest.raises(UserError) as caught, explained():
        train(data, tmp_path, "cas_lstm_tiny", "--finetune-from-model", model)
    assert str(caught.value) == sentence
    assert cli.main(["average", str(model), "--output", str(tmp_path / "x.pt")]) == 2
    assert capsys.readouterr().err.endswith(f"{sentence}\n")


def test_subword_units_and_tokenizer_are_packed(run, capsys, tmp_path):
    """The options of the data are packed, unless options are given."""
    codes = tmp_path / "codes"
    with open(codes, "w") as file:
        learn_bpe([f"{word} {word}\n" for word in WORDS], file, 8)
    options = ("--bpe-codes", str(codes), "--tokenizer", "moses")
    assert cli.main(["pack", str(run), "--output", str(tmp_path / "a.casrnn"), *options]) == 0
    found = packed.task_options(packed.unpacked(tmp_path / "a.casrnn"))
    with open(found.pop("bpe_codes")) as file:
        assert file.read() == codes.read_text()
    assert found == {
        "source_lang": "xx", "target_lang": "yy", "tokenizer": "moses", "bpe": "subword_nmt",
    }  # fmt: skip
    moved = shutil.copytree(run.parents[2], tmp_path / "moved")
    (moved / "text").mkdir()
    (moved / "data-bin" / "options.json").write_text('{"bpe_operations": 8}')
    run = moved / "out" / "cas_lstm_tiny" / "seed1"
    command = ["pack", str(run), "--output", str(tmp_path / "b.casrnn")]
    assert cli.main(command) == 2
    assert "bpe.codes of the training data does not exist" in capsys.readouterr().err
    shutil.copy(codes, moved / "text" / "bpe.codes")
    assert cli.main(command) == 0
    found = packed.task_options(packed.unpacked(tmp_path / "b.casrnn"))
    assert (found["tokenizer"], found["bpe"]) == ("moses_lowercase", "subword_nmt")
    hub = MODEL_REGISTRY["cas_lstm"].from_pretrained(run)  # as casrnn translate, and as packed
    assert (hub.cfg.tokenizer._name, hub.cfg.bpe._name) == ("moses_lowercase", "subword_nmt")
    other = MODEL_REGISTRY["cas_lstm"].from_pretrained(tmp_path / "b.casrnn")
    assert hub.translate(LINES, beam=2) == other.translate(LINES, beam=2)
    checkpoint = run / "checkpoint_best.pt"
    plain = MODEL_REGISTRY["cas_lstm"].from_pretrained(checkpoint, tokenizer="space")
    assert plain.cfg.tokenizer._name == "space"
    (moved / "data-bin" / "options.json").write_text('{"tokenizer": "chinese"}')
    assert cli.main(command) == 0
    found = packed.task_options(packed.unpacked(tmp_path / "b.casrnn"))
    assert (found["tokenizer"], found["bpe"]) == ("chinese", "subword_nmt")


def rewritten(path, model, change):
    """Copy the archive; ``change`` maps its old content (names to bytes) to the new."""
    with zipfile.ZipFile(model) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    change(content)
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in content.items():
            archive.writestr(name, data)


class Evil:
    def __reduce__(self):
        return os.mkdir, ("evil",)


def manifest(**changes):
    def change(content):
        found = json.loads(content["casrnn.json"]) | changes
        content["casrnn.json"] = json.dumps(found).encode()

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda content: content.pop("model.pt"),
            "is damaged, or not a file of casrnn pack; copy it",
        ),
        (lambda content: content.pop("casrnn.json"), "is damaged, or not a file of casrnn pack"),
        (lambda content: content.update({"../evil": b""}), "it contains '../evil'; do not use it"),
        (
            lambda content: content.update({"casrnn.json": b"[]"}),
            "is damaged: casrnn.json cannot be read",
        ),
        (manifest(format=2), "has format '2', and this version of fairseq-casrnn reads format 1"),
        (manifest(bpe=["x"]), "is damaged: casrnn.json cannot be read; pack the model again"),
        (lambda content: content.update({"model.pt": pickle.dumps(Evil())}), "model.pt "),
        (lambda content: content.update({"model.pt": b"x"}), "model.pt "),
    ],
)
def test_damaged_files(change, message, model, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rewritten(tmp_path / "x.casrnn", model, change)
    error = translate(capsys, "--path", tmp_path / "x.casrnn", status=2)
    assert message in error
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["x.casrnn"]


def test_truncated_and_corrupted_files(model, tmp_path):
    content = bytearray(model.read_bytes())
    path = tmp_path / "x.casrnn"
    for size in (0, 10, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:size])
        with pytest.raises(
            UserError, match=r"x\.casrnn is damaged, or not a file of casrnn pack \("
        ):
            packed.unpacked(path)
    content[len(content) // 2] ^= 1  # in the weights
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"damaged, or not a file of casrnn pack \(Bad CRC-32"):
        packed.unpacked(path)


def test_what_cannot_be_packed(run, model, capsys, tmp_path):
    output = tmp_path / "x.casrnn"
    for command, message in (
        ((run, "--output", tmp_path / "x.zip"), "x.zip; give it a name that ends in .casrnn"),
        ((tmp_path, "--output", output), "there is no checkpoint at"),
        ((model, "--output", output), "x.casrnn is already packed"),
        ((run, "--output", tmp_path / "no" / "x.casrnn"), "there is no folder"),
        ((run, "--output", output, "--data", tmp_path), "dict.*.txt not found in"),
        ((run, "--output", output, "--bpe-codes", tmp_path / "no"), "no does not exist; check"),
    ):
        assert cli.main(["pack", *map(str, command)]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
        assert not list(tmp_path.iterdir())


def test_subword_units_are_exported(run, tmp_path):
    """Codes come from the data's folder or a packed model; models without codes work, too."""
    shutil.copytree(run.parents[2], tmp_path / "x")
    copy = tmp_path / "x" / "out" / "cas_lstm_tiny" / "seed1"
    out = tmp_path / "exported"
    out.mkdir()
    assert "subwords" not in copy_subwords(read_checkpoint(copy), None, out)["raw"]
    learn_joint_bpe([["aa ab aa"], ["ab aa"]], 3, tmp_path / "x" / "data-bin" / "bpe.codes")
    packed = tmp_path / "y.casrnn"
    assert cli.main(["pack", str(copy), "--output", str(packed)]) == 0
    for path in (copy, packed):
        about = copy_subwords(read_checkpoint(path), None, out)
        assert about["raw"]["subwords"] == "bpe.codes"
        assert about["raw"]["source_lang"] == "xx"
        (out / "bpe.codes").unlink()
    shutil.rmtree(tmp_path / "x" / "data-bin")
    assert copy_subwords(read_checkpoint(copy), None, out) == {}


def test_predict_with_a_translation_model(model, capsys):
    assert cli.main(["predict", "--path", str(model)]) == 2
    assert capsys.readouterr().err == (
        f"error: {model} is a translation model, not a sentence classifier; use casrnn translate\n"
    )


def test_a_packed_model_of_another_kind_is_named(model, tmp_path, capsys):
    """The message names the packed file, not the temporary folder in which it was unpacked."""
    (tmp_path / "dict.txt").touch()
    assert cli.main(["perplexity", str(tmp_path), "--path", str(model)]) == 2
    assert capsys.readouterr().err == (
        f"error: {model} is a translation model, not a language model; use casrnn translate\n"
    )
