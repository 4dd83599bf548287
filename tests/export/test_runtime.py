"""run.py, which runs exported models, beside fairseq and the models themselves."""

import json

import numpy as np
import pytest
import torch
from fairseq.sequence_generator import SequenceGenerator
from models import taggers
from models.common import TARGET, dictionary
from test_graphs import CAS, classifier, language_model, tagger, translation
from tiers import mostly_full

from fairseq_casrnn.data.bpe import apply_bpe, learn_joint_bpe
from fairseq_casrnn.data.sentencepiece_units import apply_pieces, learn_pieces
from fairseq_casrnn.data.text import detokenize_lines, tokenize_lines
from fairseq_casrnn.export import runtime, write
from fairseq_casrnn.export.command import describe
from fairseq_casrnn.export.graphs import graphs

pytest.importorskip("onnxruntime")
LINES = ["w4 w7 w12", "w9", "w18 w5 w5 w6 w11", ""]


def exported(model, task, folder):
    """The model as ``run.py`` loads it."""
    parts = graphs(model, task)
    for name, graph in parts.items():
        write.write_onnx(graph, folder / f"{name}.onnx")
    about = describe(model, task, folder) | {"graphs": list(parts)}
    (folder / "export.json").write_text(json.dumps(about))
    return runtime.load(folder)


def encoded(words, lines=LINES):
    """The lines ``(B, T)`` as fairseq has them, padded on the right."""
    rows = [words.encode_line(line, add_if_not_exist=False).long() for line in lines]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=words.pad())


@pytest.mark.parametrize("spread", mostly_full([1.0, 4.0], 4.0))
def test_translations_are_those_of_fairseq(spread, tmp_path):
    """All hypotheses and their scores; also with a beam wider than the vocabulary."""
    model, task = translation(CAS)
    with torch.no_grad():
        model.decoder.vocabulary[0].mul_(spread)  # so that hypotheses end at all steps
    ours = exported(model, task, tmp_path)
    tokens = encoded(task.source_dictionary)
    sample = {"net_input": {"src_tokens": tokens, "src_lengths": tokens.ne(1).sum(1)}}
    text = task.target_dictionary.string
    for beam, length in ((1, 6), (3, 6), (30, 4)):
        options = {"beam_size": beam, "max_len_a": 0, "max_len_b": length}
        with torch.no_grad():
            theirs = SequenceGenerator([model], task.target_dictionary, **options)(sample)
        for found, expected in zip(ours.translate(LINES, beam, length), theirs, strict=True):
            assert [words for _, words in found] == [text(one["tokens"]) for one in expected]
            scores = [float(one["score"]) for one in expected]
            assert np.allclose([score for score, _ in found], scores, atol=1e-5)
        best = [text(one[0]["tokens"]) for one in theirs]
        assert ours.answers(LINES, beam, length) == best


@pytest.mark.full
def test_log_probabilities(tmp_path):
    model, task = language_model()
    ours = exported(model, task, tmp_path)
    words = task.source_dictionary
    for line, found in zip(LINES, ours.answers(LINES), strict=True):
        target = encoded(words, [line])
        source = torch.cat([target.new_tensor([[words.eos()]]), target[:, :-1]], dim=1)
        with torch.no_grad():
            table = model.get_normalized_probs(model(source), log_probs=True)
        expected = table.gather(-1, target.unsqueeze(-1)).sum()
        assert float(found) == pytest.approx(float(expected), abs=1e-3)


@pytest.mark.full
def test_classes(tmp_path):
    model, task = classifier(pairs=True)
    ours = exported(model, task, tmp_path)
    pairs = [f"{line}\t{other}" for line, other in zip(LINES, reversed(LINES), strict=True)]
    tokens = encoded(task.source_dictionary)
    with torch.no_grad():
        rows = model(tokens, encoded(task.source_dictionary, LINES[::-1])).softmax(-1)
    expected = [f"{task.classes[row.argmax()]}\t{float(row.max()):.4f}" for row in rows]
    assert ours.answers(pairs) == expected


@pytest.mark.full
def test_tags(tmp_path):
    """Also of a word without a tag's worth of letters, and of a sentence without words."""
    model, task = tagger()
    ours = exported(model, task, tmp_path)
    tokens = encoded(task.source_dictionary)
    spelling = torch.full((len(LINES), 5, 3), task.characters.pad())
    letters = task.characters
    for row, line in zip(spelling, LINES, strict=True):
        for place, word in enumerate(line.split()):
            row[place, : len(word)] = torch.tensor([letters.index(letter) for letter in word])
    with torch.no_grad():
        emissions, _ = model(tokens, spelling)
    rows = model.best(emissions, torch.tensor([len(line.split()) for line in LINES]))
    assert ours.answers(LINES) == [" ".join(task.classes[tag] for tag in row) for row in rows]


def test_words_are_looked_up_as_in_training_and_spelt_as_written(tmp_path):
    task = taggers.make_task()
    task.state.text.update(lowercase=True, zero_digits=True)
    about = describe(taggers.tagger("cas_lstm", task), task, tmp_path) | {"graphs": []}
    ours = runtime.Tagger(tmp_path, about)
    assert ours.normalised("W4 w17") == ["w0", "w00"]
    (row,) = ours.spelling([["w4", "W5"]])
    letters = task.characters
    assert row.tolist() == [[letters.index(x) for x in word] for word in ("w4", "W5")]
    task.cfg.lowercase = False
    assert not describe(taggers.tagger("cas_lstm", task), task, tmp_path)["lowercase"]


@pytest.mark.full
def test_the_command_line(tmp_path, monkeypatch, capsys):
    model, task = language_model()
    exported(model, task, tmp_path)
    monkeypatch.setattr("sys.stdin", [f"{line}\n" for line in LINES])
    runtime.main([str(tmp_path), "--batch-size", "3"])
    found = capsys.readouterr().out.splitlines()
    assert found == runtime.load(tmp_path).answers(LINES)


RAW = ['Der "Hund" schläft -- um 8.30 Uhr.', "Well-known U.S.", "", "a  b\tc"]


@pytest.mark.parametrize("units", ["bpe.codes", "sentencepiece.model"])
def test_raw_text_is_preprocessed_like_the_training_text(units, tmp_path):
    text = tokenize_lines(RAW * 5, "de")
    raw = {"source_lang": "de", "target_lang": "en", "tokenizer": "moses_lowercase"}
    if units == "bpe.codes":
        learn_joint_bpe([text], 20, tmp_path / units)
        wanted = apply_bpe(tokenize_lines(RAW, "de"), tmp_path / units)
    else:
        (tmp_path / units).write_bytes(learn_pieces(text, 60))
        wanted = apply_pieces(tokenize_lines(RAW, "de"), (tmp_path / units).read_bytes())
    ours = runtime.RawText(tmp_path, {"kind": "translation", "raw": {**raw, "subwords": units}})
    found = [ours.encode(line) for line in RAW]
    assert found == wanted
    joined = tokenize_lines(RAW, "de")
    assert [ours.decode(line) for line in found] == detokenize_lines(joined, "en")


def test_tokenised_text_has_no_raw_form(tmp_path):
    for about in ({"kind": "tagger"}, {"kind": "translation"}):
        with pytest.raises(SystemExit, match=r"error: .* has no subword units for --raw"):
            runtime.RawText(tmp_path, about)


def test_unknown_words_cause_one_warning(tmp_path, capsys):
    model = runtime.Model.__new__(runtime.Model)
    dictionary(TARGET).save(str(tmp_path / "dict.txt"))
    model.words, model.about = runtime.Dictionary(tmp_path / "dict.txt"), {}
    assert not runtime.warn_unknown(model, ["w5 w5 w5 never", ""], 1)
    assert capsys.readouterr().err == ""
    assert runtime.warn_unknown(model, ["w5", "w5 w5 never", "never"], 7)
    error = capsys.readouterr().err
    assert error.startswith("warning: 1 of 3 words in line 8 are unknown, and others may be, too; ")
    assert error.count("\n") == 1


def test_words_are_numbered_as_fairseqs(tmp_path):
    words = dictionary(TARGET)
    words.save(str(tmp_path / "dict.txt"))
    ours = runtime.Dictionary(tmp_path / "dict.txt")
    assert ours.symbols == words.symbols
    assert ours.encode(["w5", "never", "<unk>"]) == [words.index("w5"), words.unk(), words.unk()]
