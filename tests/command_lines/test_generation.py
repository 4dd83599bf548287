"""fairseq-generate, -interactive and -score, compared with the model's own probabilities."""

import math
import re
import shutil

import pytest
import torch
from fairseq import checkpoint_utils

from fairseq_casrnn.cli import main
from fairseq_casrnn.patches import install
from fairseq_casrnn.patches.table import TABLE

from .programs import USER_DIR, checkpoint, every_cell, fairseq, generate, run, train

COUNT = 9  # number of sentences in the test set
LN2 = math.log(2)


class Model:
    """Log-probabilities and attention of one checkpoint, or the mean of several, in one pass."""

    def __init__(self, *paths):
        self.models, _, self.task = checkpoint_utils.load_model_ensemble_and_task(
            [str(path) for path in paths]
        )
        self.target = self.task.target_dictionary

    def __call__(self, source: str, words: list[int]):
        """Log-probabilities ``(T+1, V)`` and attention ``(T+1, S)`` for T target words."""
        src = self.task.source_dictionary.encode_line(source, add_if_not_exist=False).long()
        prev = torch.tensor([[self.target.eos(), *words]])
        probs, attention = [], []
        with torch.no_grad():
            for model in self.models:
                out = model.eval()(src.unsqueeze(0), torch.tensor([len(src)]), prev)
                probs.append(model.get_normalized_probs(out, log_probs=False)[0])
                attention.append(out[1]["attn"][0][0])
        return torch.stack(probs).mean(0).log(), torch.stack(attention).mean(0)

    def words(self, text: str) -> list[int]:
        return [self.target.index(word) for word in text.split()]

    def scores(self, source: str, words: list[int]) -> list[float]:
        """Log-probabilities, to base 2, of the words and of </s>."""
        lprobs, _ = self(source, words)
        steps = [*words, self.target.eos()]
        return (lprobs[range(len(steps)), steps] / LN2).tolist()


@pytest.fixture
def last(trained):
    """``last(cell)`` returns the path of a trained tiny model."""
    return lambda cell: trained(cell) / "checkpoint_last.pt"


def floats(text: str) -> list[float]:
    return [float(part) for part in text.split()]


def assert_scores_are_the_models(done, model, kind="H"):
    """Compare the scores of all words, and their mean, of hypotheses (H) or references (T)."""
    texts = {number: line[-1] for number, *line in done.lines(kind)}
    sources = dict(done.lines("S"))
    for (number, score, _), (_, positions) in zip(done.lines("H"), done.lines("P"), strict=True):
        expected = model.scores(sources[number], model.words(texts[number]))
        assert floats(positions) == pytest.approx(expected, abs=1e-3)
        assert float(score) == pytest.approx(sum(expected) / len(expected), abs=1e-3)


@every_cell
def test_beam_search(data, last, cell):
    done = generate(data, last(cell), "--beam", "10")
    assert [number for number, *_ in done.lines("H")] == list(range(COUNT))
    assert re.search(r"Generate test with beam=10: BLEU4 = ", done.output)
    # the model has learnt to use the source sentence
    assert len({text for *_, text in done.lines("H")}) > 3
    assert_scores_are_the_models(done, Model(last(cell)))


@pytest.mark.full
def test_shards(data, last):
    """Each shard has some of the sentences, and together they have each sentence once."""
    options = ["--beam", "2", "--batch-size", "2", "--required-batch-size-multiple", "1"]
    whole = generate(data, last("cas_lstm"), *options).lines("H")
    shards = ["--num-shards", "3", "--shard-id"]
    parts = [generate(data, last("cas_lstm"), *options, *shards, n).lines("H") for n in range(3)]
    assert all(parts)
    assert sorted(line for part in parts for line in part) == sorted(whole)


@every_cell
def test_beam_of_one_is_greedy(data, last, cell):
    model, done = Model(last(cell)), generate(data, last(cell), "--beam", "1", "--max-len-b", "9")
    never = [model.target.pad()]
    for (number, source), (same, _, text) in zip(done.lines("S"), done.lines("H"), strict=True):
        words = []
        while len(words) < 9:
            lprobs = model(source, words)[0][-1]
            lprobs[never if words else [*never, model.target.eos()]] = -math.inf
            best = int(lprobs.argmax())
            if best == model.target.eos():
                break
            words.append(best)
        assert number == same
        assert model.words(text) == words


@every_cell
def test_score_reference(data, last, cell):
    done = generate(data, last(cell), "--score-reference")
    assert [line[-1] for line in done.lines("T")] == [line[-1] for line in done.lines("H")]
    assert_scores_are_the_models(done, Model(last(cell)), kind="T")


def test_nbest(data, last):
    done = generate(data, last("cas_lstm"), "--beam", "5", "--nbest", "3")
    assert [number for number, *_ in done.lines("H")] == [n for n in range(COUNT) for _ in range(3)]
    for number in range(COUNT):
        scores, texts = zip(
            *(line[1:] for line in done.lines("H") if line[0] == number), strict=True
        )
        assert [float(s) for s in scores] == sorted(map(float, scores), reverse=True)
        assert len(set(texts)) == 3
    single = generate(data, last("cas_lstm"), "--beam", "5")
    assert done.lines("H")[::3] == single.lines("H")


@pytest.mark.full
def test_sampling(data, last):
    def sample(*options, seed=1):
        options = ["--sampling", "--beam", "2", "--nbest", "2", "--seed", str(seed), *options]
        return generate(data, last("second_order_lstm"), *options)

    first, again, other = sample(), sample(), sample(seed=2)
    assert first.lines("H") == again.lines("H") != other.lines("H")
    assert_unranked_scores_are_the_models(first, Model(last("second_order_lstm")))
    best, greedy = (
        sample("--sampling-topk", "1"),
        generate(data, last("second_order_lstm"), "--beam", "1"),
    )
    assert [line[-1] for line in best.lines("H")[::2]] == [line[-1] for line in greedy.lines("H")]


def assert_unranked_scores_are_the_models(done, model):
    """Compare the scores of all words where a sentence has several, unranked hypotheses."""
    sources = dict(done.lines("S"))
    for (number, _, text), (_, positions) in zip(done.lines("H"), done.lines("P"), strict=True):
        expected = model.scores(sources[number], model.words(text))[: len(positions.split())]
        assert floats(positions) == pytest.approx(expected, abs=1e-3)


def test_prefix(data, last):
    done = generate(data, last("dg_lstm"), "--beam", "4", "--prefix-size", "2")
    free = generate(data, last("dg_lstm"), "--beam", "4")
    starts = [line[-1].split()[:2] for line in done.lines("H")]
    references = [line[-1].split()[:2] for line in done.lines("T")]
    assert starts == references
    assert [line[-1].split()[:2] for line in free.lines("H")] != references
    assert_scores_are_the_models(done, Model(last("dg_lstm")))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("batch", ["1", "8"])
def test_no_repeated_ngrams(data, last, size, batch):
    def repeated(*options):
        options = ["--beam", "3", "--min-len", "8", "--batch-size", batch, *options]
        texts = [line[-1].split() for line in generate(data, last("cas_lstm"), *options).lines("H")]
        ngrams = [list(zip(*(text[i:] for i in range(size)), strict=False)) for text in texts]
        assert all(len(text) >= 8 for text in texts)
        return any(len(found) > len(set(found)) for found in ngrams)

    assert repeated()
    assert not repeated("--no-repeat-ngram-size", str(size))


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("cell", ["cas_lstm", "second_order_lstm"])
def test_soft_alignment_is_the_attention(data, last, cell):
    done = generate(data, last(cell), "--beam", "4", "--print-alignment", "soft")
    model = Model(last(cell))
    lines = zip(done.lines("S"), done.lines("H"), done.lines("A"), strict=True)
    for (_, source), (_, _, text), (_, alignment) in lines:
        rows = torch.tensor([[float(p) for p in row.split(",")] for row in alignment.split()])
        _, attention = model(source, model.words(text))
        torch.testing.assert_close(rows, attention, atol=1e-4, rtol=0)
        torch.testing.assert_close(rows.sum(1), torch.ones(len(rows)), atol=1e-4, rtol=0)


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("options", [["--beam", "4"], ["--score-reference"]])
def test_hard_alignment(data, last, options):
    """Each word of the target is aligned to the word of the source that it attends to most."""
    done = generate(data, last("cas_lstm"), "--print-alignment", *options)
    model = Model(last("cas_lstm"))
    lines = zip(done.lines("S"), done.lines("H"), done.lines("A"), strict=True)
    for (_, source), (_, _, text), (_, alignment) in lines:
        words = model.words(text)
        _, attention = model(source, words)
        best = attention[: len(words), :-1].argmax(1)  # </s> is not aligned, on either side
        assert alignment == " ".join(f"{s}-{t}" for t, s in enumerate(best.tolist()))


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("options", [["--beam", "4"], ["--score-reference"]])
def test_ensemble_of_two_cells(data, last, options):
    paths = last("cas_lstm"), last("second_order_lstm")
    done = generate(data, ":".join(map(str, paths)), *options)
    assert_scores_are_the_models(
        done, Model(*paths), "T" if "--score-reference" in options else "H"
    )
    single = generate(data, paths[0], *options)
    assert [line[1] for line in single.lines("H")] != [line[1] for line in done.lines("H")]


def test_ensemble_of_models_with_different_states(data, last):
    """A GRU, which has no cell state, decodes together with a CAS-LSTM."""
    paths = last("stacked_gru"), last("cas_lstm")
    done = generate(data, ":".join(map(str, paths)), "--beam", "4")
    assert_scores_are_the_models(done, Model(*paths))


@pytest.fixture
def raw(corpus, data, tmp_path):
    """The corpus for --dataset-impl raw, with an unknown word in each source sentence."""
    for side in ("xx", "yy"):
        shutil.copy(data / f"dict.{side}.txt", tmp_path)
        text = (corpus / f"test.{side}").read_text()
        unknown = {"xx": "Zürich ", "yy": ""}[side]
        lines = "".join(unknown + line for line in text.splitlines(keepends=True))
        (tmp_path / f"test.xx-yy.{side}").write_text(lines, "utf-8")
    return tmp_path


def with_attended_words(model, source: str, text: str, entries: dict) -> str:
    """Replace each <unk> by the source word that it attends to most, or by that word's entry."""
    words = text.split()
    _, attention = model(source, model.words(text))
    for step, word in enumerate(words):
        if word == "<unk>":
            found = source.split()[int(attention[step, :-1].argmax())]
            words[step] = entries.get(found, found)
    return " ".join(words)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("program", ["generate", "interactive"])
@pytest.mark.parametrize("entries", [{}, {"Zürich": "ZÜRICH", "bo": "BO!"}], ids=["copy", "file"])
def test_unknown_words_replaced(data, raw, last, program, entries):
    """<unk> is replaced by a word of the raw text, with or without --print-alignment."""
    install.apply(p for p in TABLE if p.hook == "patches.replace_unk.keep_source_words")
    sources = (raw / "test.xx-yy.xx").read_text("utf-8").splitlines()
    (raw / "entries").write_text("".join(f"{a} {b}\n" for a, b in entries.items()), "utf-8")
    options = ["--beam", "2", "--max-len-b", "9", "--unkpen", "-12", "--batch-size", "4", "--cpu"]
    options += ["--path", last("cas_lstm"), "-s", "xx", "-t", "yy"]
    if program == "generate":
        options += ["--dataset-impl", "raw", "--num-workers", "0", raw]
    else:
        options += ["--buffer-size", "9", "--input", raw / "test.xx-yy.xx", data]
    plain = [line[-1] for line in fairseq(program, *options).lines("H")]
    model, replace = Model(last("cas_lstm")), ["--replace-unk", *[raw / "entries"] * bool(entries)]
    expected = [
        with_attended_words(model, source, text, entries)
        for source, text in zip(sources, plain, strict=True)
    ]
    assert any("<unk>" in text for text in plain)
    assert any(entries.get("Zürich", "Zürich") in text for text in expected)
    for alignment in ([], ["--print-alignment"]):
        done = fairseq(program, *replace, *alignment, *options)
        assert [line[-1] for line in done.lines("H")] == expected
        assert len(done.lines("A")) == len(alignment) * len(expected)


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("buffer", ["1", "4"])
def test_interactive(corpus, data, last, buffer):
    options = ["--beam", "4", "--max-len-b", "12", "--batch-size", "1", "--buffer-size", buffer]
    done = fairseq(
        *("interactive", data, "--cpu", "--path", last("cas_lstm"), *options),
        *("--input", corpus / "test.xx", "-s", "xx", "-t", "yy"),
    )
    expected = generate(data, last("cas_lstm"), "--beam", "4")
    assert [line[-1] for line in done.lines("H")] == [line[-1] for line in expected.lines("H")]
    numbers = re.findall(r"^H-(\d+)", done.output, re.MULTILINE)
    assert numbers == [str(n) for n in range(COUNT)]


def test_score(data, last, tmp_path):
    done = generate(data, last("cas_lstm"), "--beam", "4")
    for kind in ("H", "T"):
        lines = [line[-1] for line in done.lines(kind)]
        (tmp_path / kind).write_text("".join(line + "\n" for line in lines))
    scored = fairseq("score", "--sys", tmp_path / "H", "--ref", tmp_path / "T").output
    (expected,) = re.findall(r"BLEU4 = .*", done.output)
    assert re.findall(r"BLEU4 = .*", scored) == [expected]
    perfect = fairseq("score", "--sys", tmp_path / "T", "--ref", tmp_path / "T").output
    assert "BLEU4 = 100.00" in perfect


@every_cell
def test_averaged_checkpoints(data, trained, tmp_path, cell):
    output = tmp_path / "average.pt"
    argv = ["--run", str(trained(cell)), "--which", "last:2", "--output", str(output)]
    assert main(["average", *argv]) == 0
    first, second, mean = (
        checkpoint(path)["model"]
        for path in (trained(cell) / "checkpoint9.pt", trained(cell) / "checkpoint10.pt", output)
    )
    for name, tensor in mean.items():
        is_weight = not name.endswith(".temperature")
        expected = (first[name] + second[name]) / 2 if is_weight else second[name]
        torch.testing.assert_close(tensor, expected, msg=name)
    assert len(generate(data, output, "--beam", "4").lines("H")) == COUNT


@pytest.mark.full
def test_console_scripts(data, last, tmp_path):
    """The installed programs run with --user-dir as the README gives it."""
    options = ["--user-dir", USER_DIR, "--cpu", "--path", last("cas_lstm"), "--beam", "10"]
    done = run("fairseq-generate", data, *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    expected = generate(data, last("cas_lstm"), "--beam", "10", "--max-len-b", "200")
    hypotheses = [line for line in done.stdout.splitlines() if line.startswith("H-")]
    assert sorted(h.split("\t")[2] for h in hypotheses) == sorted(
        line[-1] for line in expected.lines("H")
    )


@pytest.mark.full
def test_models_of_other_shapes(data, tmp_path):
    """Models without input feeding or with other layers train and translate, too."""
    options = ["--no-input-feed", "--encoder-bidirectional", "--decoder-layers", "3"]
    options += ["--decoder-hidden-size", "12", "--share-decoder-input-output-embed"]
    train(data, tmp_path, "highway_lstm_tiny", *options, "--encoder-embed-dim", "9", epochs=1)
    path = tmp_path / "checkpoint_last.pt"
    done = generate(data, path, "--beam", "10")
    assert_scores_are_the_models(done, Model(path))
