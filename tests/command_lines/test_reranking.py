"""``casrnn rerank score`` gives the scores of fairseq-generate and fairseq-eval-lm."""

import math
import shutil

import pytest
import torch
from reranking.common import nbest_text, rerank, write_nbest

from fairseq_casrnn.evaluation.lm_scores import score_sentences
from fairseq_casrnn.inference.loading import load_language_model
from fairseq_casrnn.reranking import score
from fairseq_casrnn.reranking.nbest import read_nbest, read_scores

from .programs import fairseq, generate, train


@pytest.fixture(scope="module")
def model(trained):
    return trained("cas_lstm") / "checkpoint_last.pt"


@pytest.fixture(scope="module")
def nbest(data, model, tmp_path_factory):
    """Three hypotheses of each sentence of the test set."""
    path = tmp_path_factory.mktemp("nbest") / "list"
    path.write_text(generate(data, model, "--beam", "4", "--nbest", "3").output)
    return path


def scored(capsys, nbest, output, data, path, *flags):
    command = ["score", nbest, "--data", data, "--path", path, "--output", output, *flags]
    assert "scored 27 hypotheses of 9 sentences" in rerank(capsys, *command)
    return read_scores(output, read_nbest(nbest))


def sides(nbest):
    """Return the sources and the hypotheses of all lists."""
    return [list(side) for side in zip(*read_nbest(nbest).pairs(), strict=True)]


def fairseq_scores(folder, data, path, sources, targets, *options):
    """Return the scores that fairseq's programs compute."""
    for suffix, lines in (("xx", sources), ("yy", targets)):
        (folder / f"t.{suffix}").write_text("".join(f"{line}\n" for line in lines))
    fairseq(
        *("preprocess", "-s", "xx", "-t", "yy", "--testpref", folder / "t"),
        *("--srcdict", data / "dict.xx.txt", "--tgtdict", data / "dict.yy.txt"),
        *("--destdir", folder / "bin"),
    )
    done = generate(folder / "bin", path, "--score-reference", *options)
    return [float(value) for _, value, _ in done.lines("H")]


def test_scores_are_those_of_score_reference(
    data, model, trained, nbest, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(score, "BATCH_TOKENS", 50)
    monkeypatch.setattr(score, "CHUNK", 10)
    other = trained("second_order_lstm") / "checkpoint_last.pt"
    both = f"{model}:{other}"
    for number, path in enumerate((other, both)):
        found = scored(capsys, nbest, tmp_path / f"s{number}", data, path)
        folder = tmp_path / str(number)
        folder.mkdir()
        expected = fairseq_scores(folder, data, path, *sides(nbest))
        assert found.scores == pytest.approx(expected, abs=1e-4)
        assert found.tokens == [len(text.split()) + 1 for text in sides(nbest)[1]]
    own = scored(capsys, nbest, tmp_path / "own", data, model)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / model.name).symlink_to(model)
    assert scored(capsys, nbest, tmp_path / "of_run", data, tmp_path / "run").scores == own.scores
    lists = read_nbest(nbest).scores  # the model's own search found these
    assert own.scores == pytest.approx([s for row in lists for s in row], abs=1e-4)


def changed(nbest, path, change):
    """Write the list with each (source, hypothesis) mapped by ``change``."""
    found = read_nbest(nbest)
    sentences = []
    for number, texts in enumerate(found.hypotheses):
        pairs = [change(found.sources[number], text) for text in texts]
        sentences.append((pairs[0][0], None, [(-1.0, text) for _, text in pairs]))
    return write_nbest(path, sentences)


def test_right_to_left_reverses_the_text(data, model, nbest, tmp_path, capsys):
    mirror = changed(nbest, tmp_path / "r", lambda s, t: (s, " ".join(t.split()[::-1])))
    expected = scored(capsys, mirror, tmp_path / "expected", data, model)
    found = scored(capsys, nbest, tmp_path / "found", data, model, "--right-to-left")
    plain = scored(capsys, nbest, tmp_path / "plain", data, model)
    assert found.scores == pytest.approx(expected.scores, abs=1e-4)
    assert max(abs(a - b) for a, b in zip(found.scores, plain.scores, strict=True)) > 0.1


def test_backwards_and_joined_subwords(data, corpus, nbest, tmp_path, capsys):
    """A model from yy to xx scores the source given the hypothesis."""
    prefixes = [part for s in ("train", "valid", "test") for part in (f"--{s}pref", corpus / s)]
    there = tmp_path / "bin"
    fairseq("preprocess", "-s", "yy", "-t", "xx", *prefixes, "--destdir", there)
    train(there, tmp_path, "stacked_lstm_tiny", epochs=1)
    path = tmp_path / "checkpoint_last.pt"
    swapped = [("H" + text, "S" + source) for source, text in zip(*sides(nbest), strict=True)]
    flat = [(text[1:], None, [(-1.0, source[1:])]) for text, source in swapped]
    single = write_nbest(tmp_path / "flat", flat)
    command = ["score", single, "--data", there, "--path", path, "--output", tmp_path / "e"]
    rerank(capsys, *command)
    expected = read_scores(tmp_path / "e", read_nbest(single)).scores
    found = scored(capsys, nbest, tmp_path / "f", there, path, "--backwards")
    assert found.scores == pytest.approx(expected, abs=1e-4)

    split = changed(nbest, tmp_path / "bpe", lambda s, t: (cut(s), cut(t)))
    joined = scored(capsys, split, tmp_path / "j", there, path, "--backwards", "--join-subwords")
    assert joined.scores == found.scores
    command = ["score", nbest, "--data", there, "--path", path, "--output", tmp_path / "n"]
    error = rerank(capsys, *command, status=2)
    assert "words are not in the dictionary of" in error
    assert "--backwards" in error


def cut(text):
    return " ".join(f"{word[:1]}@@ {word[1:]}" for word in text.split())


@pytest.fixture(scope="module")
def language_model(corpus, tmp_path_factory):
    """(data, checkpoint) of a language model for the target language."""
    folder = tmp_path_factory.mktemp("lm")
    prefixes = [part for s in ("train", "valid") for part in (f"--{s}pref", corpus / f"{s}.yy")]
    fairseq("preprocess", "--only-source", *prefixes, "--destdir", folder / "bin")
    fairseq(
        *("train", folder / "bin", "--task", "language_modeling", "--arch", "cas_lstm_lm_tiny"),
        *("--cpu", "--optimizer", "adam", "--lr", "0.01", "--max-tokens", "60", "--max-epoch", "1"),
        *("--tokens-per-sample", "20", "--num-workers", "0", "--save-dir", folder),
    )
    return folder / "bin", folder / "checkpoint_last.pt"


@pytest.mark.parametrize("flags", [(), ("--right-to-left",)])
def test_language_models(language_model, nbest, tmp_path, capsys, flags):
    folder, path = language_model
    found = scored(capsys, nbest, tmp_path / "s", folder, path, "--lm", *flags)
    lm, task = load_language_model(path, folder)
    words = task.source_dictionary
    step = -1 if flags else 1
    sentences = [
        torch.tensor([*(words.index(word) for word in text.split()[::step]), words.eos()])
        for text in sides(nbest)[1]
    ]
    sums = score_sentences(lm, words, sentences).sentences() / math.log(2)
    expected = [total / len(s) for total, s in zip(sums, sentences, strict=True)]
    assert found.scores == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("kept", [15, 19])  # number of scores before the interruption
def test_an_interrupted_call_is_continued(data, model, nbest, tmp_path, capsys, monkeypatch, kept):
    monkeypatch.setattr(score, "CHUNK", 10)
    whole = tmp_path / "whole"
    scored(capsys, nbest, whole, data, model)
    assert not (tmp_path / "whole.part").exists()
    lines = whole.read_text().splitlines()
    lines[1] = "-77.0\t3"  # a false score, which shows that it is not computed again
    (tmp_path / "new.part").write_text("\n".join(lines[: 1 + kept]) + "\n-1.")
    found = scored(capsys, nbest, tmp_path / "new", data, model)
    assert (tmp_path / "new").read_text().splitlines() == lines
    assert found.scores[0] == -77
    command = ["score", nbest, "--data", data, "--path", model, "--output", whole]
    assert "has these scores already" in rerank(capsys, *command)
    # partial or complete output of another model is not reused
    (tmp_path / "other.part").write_text("\n".join(['# {"model": "x"}', *lines[1:]]) + "\n")
    assert scored(capsys, nbest, tmp_path / "other", data, model).scores[0] != -77


def test_mistakes(data, model, nbest, language_model, tmp_path, capsys):
    def error(*command):
        out = ["--output", tmp_path / "out"]
        message = rerank(capsys, "score", *command, *out, status=2)
        assert not list(tmp_path.glob("out*"))
        return message

    given = [nbest, "--data", data]
    folder, lm = language_model
    assert "checkpoint none does not exist; check the path or train" in error(
        *given, "--path", "none"
    )
    assert "not a translation model; give --lm" in error(nbest, "--data", folder, "--path", lm)
    shutil.copytree(data, tmp_path / "lm")
    shutil.copy(folder / "dict.txt", tmp_path / "lm")
    wrong = [nbest, "--data", tmp_path / "lm", "--path", model, "--lm"]
    assert "not a language model" in error(*wrong)
    assert "--backwards is for translation models" in error(*wrong, "--backwards")

    shutil.copytree(data, tmp_path / "d")
    with open(tmp_path / "d" / "dict.yy.txt", "a") as file:
        file.writelines(f"more{n} 1\n" for n in range(8))
    message = error(nbest, "--data", tmp_path / "d", "--path", model)
    assert "the dict.yy.txt of" in message
    assert "is not the dictionary that the model was trained with" in message
    broken = tmp_path / "broken"
    broken.write_text(nbest_text([("a", "b", [(1, "c")])]).replace("H-0\t1\t", "H-0\t1 "))
    assert "broken, line 4 is malformed" in error(broken, "--data", data, "--path", model)
