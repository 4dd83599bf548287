"""Sentence classification by fairseq's command lines, ``casrnn predict`` and from Python."""

import contextlib
import io
import json
import re
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from fairseq.data import Dictionary, data_utils
from fairseq.models import MODEL_REGISTRY
from labelled_corpora import sentences, write_mr, write_sick, write_trec
from sklearn.metrics import f1_score

from fairseq_casrnn import cli
from fairseq_casrnn.data import mr, sick, trec
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.evaluation.classify import classify, training_seconds
from fairseq_casrnn.evaluation.evaluate import choose_checkpoint
from fairseq_casrnn.explain import explain
from fairseq_casrnn.models.sentence_hub import cut

from .programs import checkpoint, fairseq

pytestmark = [  # fairseq's own
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:'pin_memory' argument:UserWarning"),
]
TRAIN = [
    *("--task", "sentence_classification", "--criterion", "sentence_classification", "--cpu"),
    *("--batch-size", "8", "--required-batch-size-multiple", "1", "--num-workers", "0"),
    *("--optimizer", "adam", "--lr", "0.01", "--seed", "3", "--dropout", "0"),
    *("--log-format", "json", "--log-interval", "1"),
    *("--best-checkpoint-metric", "accuracy", "--maximize-best-checkpoint-metric"),
]


def prepare(module, raw, out, *argv):
    assert module.main(["--raw", str(raw), "--out", str(out), *map(str, argv)]) == 0
    return out / "data-bin"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mr")
    return prepare(mr, write_mr(folder / "raw", 50), folder)


@pytest.fixture(scope="module")
def pair_data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sick")
    return prepare(sick, write_sick(folder / "raw"), folder)


def train(data, out, name="cas_lstm", epochs=1, *args):
    arch = f"{name}_sentence_encoder_tiny"
    options = ["--arch", arch, "--save-dir", out, "--max-epoch", epochs]
    return fairseq("train", data, *TRAIN, *options, *args)


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    out = tmp_path_factory.mktemp("run")
    train(data, out, "cas_lstm", 8)
    return out


def test_learns_and_keeps_the_confusion_matrix(trained, data):
    result = json.loads((trained / "validation.json").read_text())
    assert result["accuracy"] > 90
    assert result["sentences"] == 10
    rows = result["confusion"]
    right = sum(rows[name][name] for name in rows)
    assert result["accuracy"] == pytest.approx(100 * right / 10)
    assert (trained / "checkpoint_best.pt").exists()
    found = classify(data.parent, trained / "checkpoint_best.pt", "test", batch_size=3)
    truth, predicted, _ = zip(*found["predictions"], strict=True)
    assert found["macro_f1"] == round(100 * f1_score(truth, predicted, average="macro"), 2)
    assert found["sentences"] == 10


def test_validate(trained, data):
    """fairseq-validate finds the accuracy that training logged."""
    done = fairseq(
        "validate", data, "--task", "sentence_classification", "--path",
        trained / "checkpoint_best.pt", "--cpu", "--batch-size", 4, "--num-workers", 0,
        "--log-format", "json",
    )  # fmt: skip
    (record,) = done.records("valid_accuracy")
    best = checkpoint(trained / "checkpoint_best.pt")["extra_state"]["best"]
    assert float(record["valid_accuracy"]) == best


def test_early_stopping_on_accuracy(data, tmp_path):
    done = train(data, tmp_path, "cas_lstm", 40, "--patience", 2)
    assert "early stop since valid performance hasn't improved for last 2 runs" in done.log
    extra = checkpoint(tmp_path / "checkpoint_last.pt")["extra_state"]
    assert extra["train_iterator"]["epoch"] < 20


def test_resumed_training_is_the_uninterrupted_one(data, tmp_path):
    """Also with a fresh mix in each epoch."""
    mix = ["--mix", f"{data}:0.3"]
    train(data, tmp_path / "whole", "cas_lstm", 3, *mix)
    for epochs in (1, 3):
        train(data, tmp_path / "parts", "cas_lstm", epochs, *mix)
    whole, parts = (
        checkpoint(tmp_path / name / "checkpoint_last.pt") for name in ("whole", "parts")
    )
    for name, tensor in whole["model"].items():
        assert tensor.equal(parts["model"][name]), name


def test_training_seconds_are_those_of_all_sessions(data, tmp_path):
    """A session that was killed has left no line on how long it was."""
    run = tmp_path / "cnn" / "seed1"
    train(data, run, "cnn", 1)
    first = training_seconds(run)
    state = torch.load(run / "checkpoint_last.pt", weights_only=False)
    assert 0 < first == round(state["extra_state"]["previous_training_time"], 1)
    state["extra_state"]["previous_training_time"] = 1000.0
    torch.save(state, run / "checkpoint_last.pt")
    train(data, run, "cnn", 2)
    assert 1000 < training_seconds(run) < 1000 + 100


def test_best_checkpoints_are_those_of_the_highest_accuracy(data, tmp_path):
    train(data, tmp_path, "cas_lstm", 5, "--keep-best-checkpoints", 3)
    kept = {float(path.stem.rpartition("_")[2]): path for path in tmp_path.glob("*.best_*")}
    assert len(kept) > 1
    averaged = checkpoint(choose_checkpoint(tmp_path, "best:1", maximize=True))
    best = checkpoint(kept[max(kept)])
    assert all(tensor.equal(averaged["model"][name]) for name, tensor in best["model"].items())


def test_the_training_set_is_classified_as_it_stands(data, tmp_path):
    """All of it and nothing mixed in, in its order."""
    options = ["--mix", f"{data}:0.3", "--forget-singletons", 0.9]
    train(data, tmp_path, "cas_lstm", 1, *options)
    found, again = (
        classify(data.parent, tmp_path / "checkpoint_best.pt", "train")["predictions"]
        for _ in range(2)
    )
    assert found == again
    dictionary = Dictionary.load(str(data / "label" / "dict.txt"))
    labels = data_utils.load_indexed_dataset(str(data / "label" / "train"), dictionary)
    assert [truth for truth, _, _ in found] == [dictionary[int(label[0])] for label in labels]


def test_mixing_in_another_corpus(data, tmp_path, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    raw = other / "raw"
    write_mr(raw, 30)
    with open(raw / "rt-polarity.neg", "ab") as file:
        file.write(b"wholly unheard words\n" * 3)  # shifts the dictionary
    extra = prepare(mr, raw, other)
    done = train(data, tmp_path, "cas_lstm", 1, "--mix", f"{extra}:0.25")
    assert f"mixing in 12 of 49 sentences of {extra}" in done.log


def test_pairs_are_not_mixed_into_single_sentences(data, pair_data, tmp_path):
    with pytest.raises(UserError, match=r"holds pairs of sentences and .* single ones; --mix"):
        train(data, tmp_path, "cas_lstm", 1, "--mix", f"{pair_data}:0.5")


def test_an_unknown_class_in_the_mix(data, tmp_path):
    extra = prepare(trec, write_trec(tmp_path / "raw"), tmp_path / "trec", "--valid-size", 9)
    with pytest.raises(UserError, match=r"sentence 1: NUM is none of the classes seen in train"):
        train(data, tmp_path / "run", "cas_lstm", 1, "--mix", f"{extra}:0.5")


def test_a_validation_sentence_that_is_too_long(data, tmp_path):
    with pytest.raises(Exception, match="Size of sample") as caught:
        train(data, tmp_path, "cas_lstm", 1, "--max-positions", 3)
    assert re.search(r"tokens, more than the model's --max-positions 3", explain(caught.value))


@pytest.mark.parametrize("mix", ["nowhere", "x:0", "x:1.5", ":0.5"])
def test_malformed_mix(data, tmp_path, mix):
    with pytest.raises(UserError, match="--mix is"):
        train(data, tmp_path, "cas_lstm", 1, "--mix", mix)


# --- casrnn predict ----------------------------------------------------------------------------

LINES = [text for text, _ in sentences(5, seed=4)]


def predict(capsys, *args, stdin=None, monkeypatch=None, status=0):
    """Standard output's lines, or the error."""
    if stdin is not None:
        reader = SimpleNamespace(buffer=io.BytesIO(stdin), isatty=lambda: False)
        monkeypatch.setattr(sys, "stdin", reader)
    assert cli.main(["predict", *map(str, args)]) == status
    captured = capsys.readouterr()
    return captured.out.splitlines() if status == 0 else captured.err


def test_predict(trained, capsys, tmp_path, monkeypatch):
    text = "".join(line + "\n" for line in [*LINES, ""])
    (tmp_path / "input").write_text(text)
    path = trained / "checkpoint_best.pt"
    answers = predict(capsys, "--path", path, "--input", tmp_path / "input")
    assert len(answers) == 6
    hub = MODEL_REGISTRY["cas_lstm_sentence_encoder"].from_pretrained(str(trained))
    for answer, found in zip(answers, hub.predict([*LINES, ""]), strict=True):
        label, probability = answer.split("\t")
        assert (label, float(probability)) == (found.label, round(found.probability, 4))
    piped = predict(
        capsys, "--path", trained, "--batch-size", 2, stdin=text.encode(), monkeypatch=monkeypatch
    )
    assert piped == answers
    (tmp_path / "input").write_text(text, encoding="utf-8-sig")  # Windows' mark at the start
    assert predict(capsys, "--path", path, "--input", tmp_path / "input") == answers
    every = predict(capsys, "--path", path, "--input", tmp_path / "input", "--all")
    assert all(row.count("\t") == 1 and "negative:" in row for row in every)


def test_predict_pairs(pair_data, capsys, tmp_path, monkeypatch):
    train(pair_data, tmp_path, "sentence_state_lstm", 1)
    text = b"a good film\ta dull film\nit\tit\n"
    answers = predict(capsys, "--path", tmp_path, stdin=text, monkeypatch=monkeypatch)
    assert len(answers) == 2
    error = predict(
        capsys, "--path", tmp_path, stdin=b"a\tb\nalone\n", monkeypatch=monkeypatch, status=2
    )
    assert error == (
        "error: standard input, line 2 has 1 column(s); this model compares two sentences, so "
        "write SENTENCE<TAB>SENTENCE\n"
    )


def test_wrong_input_of_predict(trained, capsys, tmp_path, monkeypatch):
    def error(*args, **kwargs):
        text = predict(capsys, *args, monkeypatch=monkeypatch, status=2, **kwargs)
        assert text.count("\n") == 1
        return text

    assert "line 2 is not valid UTF-8" in error("--path", trained, stdin=b"a\n\xff\n")
    assert "there is no checkpoint at /nowhere" in error("--path", "/nowhere")
    assert "--batch-size is 0" in error("--path", trained, "--batch-size", "0")
    assert "cannot be read" in error("--path", trained, "--input", "/nowhere")
    torch.save({"weights": torch.zeros(1)}, tmp_path / "other.pt")
    assert "is not a checkpoint" in error("--path", tmp_path / "other.pt", stdin=b"")
    (tmp_path / "broken.pt").write_bytes(b"nothing")
    assert "cannot be read" in error("--path", tmp_path / "broken.pt", stdin=b"")
    with pytest.raises(UserError, match="cannot be read"):
        MODEL_REGISTRY["cas_lstm_sentence_encoder"].from_pretrained(str(tmp_path / "broken.pt"))
    monkeypatch.setattr(sys, "stdin", None)
    assert "standard input is closed; name a file" in predict(capsys, "--path", trained, status=2)


def test_a_model_that_has_diverged(trained, capsys, tmp_path, monkeypatch):
    state = torch.load(trained / "checkpoint_best.pt", weights_only=False)
    state["model"]["encoder.embed_tokens.weight"].fill_(float("nan"))
    torch.save(state, tmp_path / "model.pt")
    error = predict(
        capsys, "--path", tmp_path / "model.pt", stdin=b"a\n", monkeypatch=monkeypatch, status=2
    )
    assert error.startswith("error: the model's outputs are not finite")


def test_a_terminal_is_answered_line_by_line(trained, capsys, monkeypatch):
    """The second line is read when the first has its answer."""
    heard = []

    class Typed(io.BytesIO):
        def __iter__(self):
            for line in (b"a good film\n", b"a dull film\n"):
                heard.append(capsys.readouterr().out.count("\n"))
                yield line

    stdin = SimpleNamespace(buffer=Typed(), isatty=lambda: True)
    monkeypatch.setattr(sys, "stdin", stdin)
    assert cli.main(["predict", "--path", str(trained)]) == 0
    assert heard == [0, 1]


def test_what_is_not_for_a_classifier(data, trained, tmp_path):
    """Generating text, and fairseq's own task on the same folder."""
    where = ("--path", trained / "checkpoint_best.pt", "--task", "sentence_classification")
    with pytest.raises(UserError, match="a sentence classifier generates no text; use casrnn pred"):
        fairseq("generate", data, *where, "--cpu")
    with pytest.raises(Exception, match="Interpolation key") as caught:
        train(data, tmp_path, "cas_lstm", 1, "--task", "sentence_prediction")
    assert "--task and --criterion do not fit: the task needs a crit" in explain(caught.value)


# --- from Python -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hub(trained, data, tmp_path_factory):
    """A folder as one would hand it on: the checkpoint and the dictionaries."""
    folder = tmp_path_factory.mktemp("model")
    shutil.copy(trained / "checkpoint_best.pt", folder / "model.pt")
    for part in ("input0", "label"):
        (folder / part).mkdir()
        shutil.copy(data / part / "dict.txt", folder / part)
    return MODEL_REGISTRY["cas_lstm_sentence_encoder"].from_pretrained(str(folder))


@pytest.mark.parametrize("sentences", ["a good film", [5], [None], [("a", "b")], [("a", 5)]])
def test_what_are_no_sentences(hub, sentences):
    with pytest.raises(UserError):
        hub.predict(sentences)
    with pytest.raises(UserError):
        hub.encode(sentences)


def test_sentences_from_an_iterator(hub):
    torch.testing.assert_close(hub.encode(iter(LINES)), hub.encode(LINES))
    assert hub.predict(iter(LINES)) == hub.predict(LINES)


def test_reader_of_the_answers_that_stops(hub, trained, tmp_path):
    (tmp_path / "input").write_text("good\n" * 20000)  # more answers than a pipe holds
    program = "import sys; from fairseq_casrnn.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", program, "predict", "--path", str(trained)]
    command += ["--input", str(tmp_path / "input")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


def test_answers_do_not_depend_on_the_batch(hub):
    together = hub.probabilities(LINES)
    torch.testing.assert_close(together.sum(-1), torch.ones(5))
    for batch_size in (1, 2):
        torch.testing.assert_close(hub.probabilities(LINES, batch_size), together)
    assert hub.predict(LINES[:1])[0].label == hub.classes[int(together[0].argmax())]
    assert hub.predict([]) == []


def test_encode(hub):
    vectors = hub.encode(LINES)
    assert vectors.shape == (5, hub.model.encoder.output_size)
    torch.testing.assert_close(hub.encode(LINES[3:4])[0], vectors[3])
    logits = hub.model.classifier(vectors)
    torch.testing.assert_close(logits.softmax(-1), hub.probabilities(LINES))


def test_raw_text_is_split_as_in_training(hub):
    tokens = hub.task.encode_text("It's GOOD")
    words = [hub.task.dictionary[int(token)] for token in tokens]
    assert words == ["it", "'s", "good", "</s>"]


@pytest.mark.parametrize(
    ("part", "message"),
    [("label", "lists the classes in another order"), ("input0", "is not the dictionary that the")],
)
def test_training_goes_on_with_its_own_data_only(data, trained, tmp_path, part, message):
    """The numbers of words and classes would mean others; classes may where weights start anew."""
    other = shutil.copytree(data, tmp_path / "other")
    lines = (other / part / "dict.txt").read_text().splitlines()
    (other / part / "dict.txt").write_text("\n".join([*lines[1:], lines[0]]) + "\n")
    run = shutil.copytree(trained, tmp_path / "run")
    with pytest.raises(UserError, match=message):
        train(other, run, "cas_lstm", 9)
    start = ("--finetune-from-model", trained / "checkpoint_best.pt")
    with pytest.raises(UserError, match=message) if part == "input0" else contextlib.nullcontext():
        train(other, tmp_path / "new", "cas_lstm", 1, *start)
    assert (tmp_path / "new" / "checkpoint_best.pt").exists() == (part == "label")
    train(data, run, "cas_lstm", 9)


def test_batches_of_long_sentences_are_small():
    """Padded, they hold 10 tokens at most, unless a single sentence has more."""
    lengths = [1, 1, 1, 1, 4, 5, 6, 30, 2]
    batches = list(cut(list(range(9)), lengths, 3, tokens=10))
    assert batches == [[0, 1, 2], [3, 4], [5], [6], [7], [8]]
    assert list(cut([5, 6], [5, 5], 3, tokens=10)) == [[5, 6]]


def test_wrong_questions(hub):
    with pytest.raises(UserError, match=r"takes single sentences, not \('a', 'b'\)"):
        hub.predict([("a", "b")])
    with pytest.raises(UserError, match="encode takes strings"):
        hub.encode([("a", "b")])


def test_options_that_are_none(trained):
    """Else a slip of the pen would go on with the model as it was."""
    load = MODEL_REGISTRY["cas_lstm_sentence_encoder"].from_pretrained
    with pytest.raises(UserError, match="truncat is no option of this model or its task"):
        load(str(trained), truncat=4)
    assert load(str(trained), truncate=4, engine="eager").task.cfg.truncate == 4
    with pytest.raises(UserError, match="batch_size is 0; it must be at least 1"):
        load(str(trained)).predict(["a"], batch_size=0)


def test_a_folder_without_dictionaries(trained, tmp_path):
    shutil.copy(trained / "checkpoint_best.pt", tmp_path / "model.pt")
    model = MODEL_REGISTRY["cas_lstm_sentence_encoder"]
    assert model.from_pretrained(str(tmp_path)).classes  # those it was trained with
    with pytest.raises(UserError, match=r"input0/dict.txt and label/dict.txt are not in /nowhere"):
        model.from_pretrained(str(tmp_path), data_name_or_path="/nowhere")
