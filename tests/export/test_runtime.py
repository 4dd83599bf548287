"""run.py, which runs exported models, compared with fairseq and the models themselves."""

import codecs
import io
import json
import shutil
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from fairseq.sequence_generator import SequenceGenerator
from models import taggers
from models.common import TARGET, dictionary
from test_graphs import CAS, classifier, language_model, tagger, translation
from tiers import mostly_full

from fairseq_casrnn.data import words
from fairseq_casrnn.data.subwords import apply_bpe, apply_pieces, learn_joint_bpe, learn_pieces
from fairseq_casrnn.data.text import detokenize_lines, tokenize_lines
from fairseq_casrnn.export import runtime, write
from fairseq_casrnn.export.command import describe
from fairseq_casrnn.export.graphs import graphs
from fairseq_casrnn.tasks.sequence_tagging import SequenceTaggingTask

pytest.importorskip("onnxruntime")
LINES = ["w4 w7 w12", "w9", "w18 w5 w5 w6 w11", ""]


def exported(model, task, folder):
    """Export the model and load it as ``run.py`` does."""
    parts = graphs(model, task)
    for name, graph in parts.items():
        write.write_onnx(graph, folder / f"{name}.onnx")
    about = describe(model, task, folder) | {"graphs": list(parts)}
    (folder / "export.json").write_text(json.dumps(about))
    return runtime.load(folder)


def encoded(words, lines=LINES):
    """Return the lines as fairseq encodes them: ``(B, T)``, padded on the right."""
    rows = [words.encode_line(line, add_if_not_exist=False).long() for line in lines]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=words.pad())


@pytest.mark.parametrize("spread", mostly_full([1.0, 4.0], 4.0))
def test_translations_equal_fairseqs(spread, tmp_path):
    """All hypotheses and scores agree, also with a beam wider than the vocabulary."""
    model, task = translation(CAS)
    with torch.no_grad():
        model.decoder.vocabulary[0].mul_(spread)  # makes hypotheses end at all steps
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
        best = [
            text(one[0]["tokens"]) if line else "" for line, one in zip(LINES, theirs, strict=True)
        ]
        assert ours.answers(LINES, beam, length) == best


def test_lines_of_a_batch_end_independently(tmp_path):
    """The model's state counts source words, and it writes one word for each."""
    dictionary(TARGET).save(str(tmp_path / "dict.txt"))
    ours = runtime.Translator.__new__(runtime.Translator)
    ours.words = ours.target = words = runtime.Dictionary(tmp_path / "dict.txt")
    ours.about = {"state": ["h"], "hidden_size": 1}

    def run(name, tokens, h=None, feed=None, **source):
        if name == "encoder":
            left, none = (tokens > words.unk).sum(1), np.zeros((len(tokens), 1))
            return {"keys": none, "values": none, "mask": none, "h": left[None, :, None]}
        table = np.full((len(tokens), len(words)), -9.0)
        table[np.arange(len(tokens)), np.where(h[0, :, 0] > 0, 4, words.eos)] = -0.5
        return {"log_probs": table, "new_h": h - 1, "new_feed": feed}

    ours.run = run
    for lines in (["w5", "w6 w7 w8", "w9 w5"], ["w6 w7 w8", "w5"]):
        for beam in (1, 2):
            best = [found[0][1] for found in ours.translate(lines, beam, 6)]
            assert best == [" ".join("w4" for _ in line.split()) for line in lines]


@pytest.mark.parametrize("reads_bos", [pytest.param(False, marks=pytest.mark.full), True])
def test_log_probabilities(reads_bos, tmp_path):
    model, task = language_model()
    model.reads_bos = reads_bos  # as fairseq-train --add-bos-token
    ours = exported(model, task, tmp_path)
    known = task.source_dictionary
    first = [known.bos(), known.eos()] if reads_bos else [known.eos()]
    for line, found in zip(LINES, ours.answers(LINES), strict=True):
        target = encoded(known, [line])
        source = torch.cat([target.new_tensor([first]), target[:, :-1]], dim=1)
        with torch.no_grad():
            table = model.get_normalized_probs(model(source), log_probs=True)
        table = table[:, len(first) - 1 :]
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
    """Words may have fewer letters than a filter, and a sentence may have no words."""
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


def test_normalised_words_and_original_spelling(tmp_path):
    task = taggers.make_task()
    task.normalisation = {"lowercase": True, "zero_digits": True}
    about = describe(taggers.tagger("cas_lstm", task), task, tmp_path) | {"graphs": []}
    ours = runtime.Tagger(tmp_path, about)
    assert ours.normalised("W4 w17") == ["w0", "w00"]
    (row,) = ours.spelling([["w4", "W5"]])
    letters = task.characters
    assert row.tolist() == [[letters.index(x) for x in word] for word in ("w4", "W5")]
    assert ours.answers(["", " "]) == ["", ""]


def test_typographic_quotes_are_looked_up_like_the_tasks(tmp_path):
    """They become plain ones, unless the dictionary or the characters have them."""
    task = taggers.make_task()
    known = task.dictionary = task.source_dictionary
    for symbol in ("it's", "“", '"', "'"):
        known.add_symbol(symbol)
    for letter in ("’", "'", '"'):
        task.characters.add_symbol(letter)
    words = ["It’s", "“", "”", "‘", "w4"]
    about = describe(taggers.tagger("cas_lstm", task), task, tmp_path) | {"graphs": []}
    ours = runtime.Tagger(tmp_path, about | {"lowercase": True})
    task.normalisation, task.index_of, task.uses_characters = {"lowercase": True}, known.index, True
    tokens, letters = SequenceTaggingTask.encode_words(task, words)
    assert ours.tokens([" ".join(words)]).tolist() == [tokens.tolist()]
    (rows,) = ours.spelling([words]).tolist()
    pad = task.characters.pad()
    assert [[letter for letter in row if letter != pad] for row in rows] == [
        row.tolist() for row in letters
    ]


@pytest.mark.full
def test_the_command_line(tmp_path, monkeypatch, capsys):
    model, task = language_model()
    exported(model, task, tmp_path)
    text = "".join(f"{line}\r\n" for line in LINES).encode()
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(text)))
    runtime.main([str(tmp_path), "--batch-size", "3"])
    found = capsys.readouterr().out.splitlines()
    assert found == runtime.load(tmp_path).answers(LINES)
    for size in "1", "3":
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"w4\nw\xff\n")))
        with pytest.raises(SystemExit, match="error: standard input, line 2 is not valid UTF-8"):
            runtime.main([str(tmp_path), "--batch-size", size])
        assert capsys.readouterr().out.splitlines() == runtime.load(tmp_path).answers(["w4"])


def test_lines_before_an_invalid_one_are_in_a_chunk():
    found = []
    with pytest.raises(SystemExit, match="line 4 is not valid UTF-8"):
        found.extend(runtime.chunks(runtime.decoded([b"a", b"b", b"c", b"\xff", b"d"]), 2))
    assert found == [["a", "b"], ["c"]]


def test_a_line_with_more_tokens_than_the_model_accepts(tmp_path):
    model, task = translation(max_source_positions=4)
    about = describe(model, task, tmp_path)
    model = raw_model(runtime.Translator, tmp_path)
    model.about = about
    lines = ["w4 w5 w6", "w4", "w4 w5 w6 w7", "w4"]
    found = []
    wanted = "line 3 has more than the 4 tokens that the model accepts; split it"
    with pytest.raises(SystemExit, match=wanted):
        found.extend(runtime.chunks(runtime.encoded(model, lines, None), 4))
    assert found == [lines[:2]]


@pytest.mark.parametrize("raw", [False, True])
def test_a_line_that_is_no_pair(raw, tmp_path):
    options = {"tokenizer": "penn", "language": "en"}
    model = raw_model(runtime.Classifier, tmp_path, raw=options, pairs=True)
    preprocessing = runtime.raw_text(tmp_path, model) if raw else None
    found = []
    with pytest.raises(SystemExit, match="the line 'w5' has 0 tabs"):
        found.extend(runtime.chunks(runtime.encoded(model, ["w4\tw4", "w5"], preprocessing), 4))
    assert found == [["w4\tw4"]]


def test_a_byte_order_mark_is_no_part_of_the_first_word():
    assert list(runtime.decoded([codecs.BOM_UTF8 + b"w4\r\n", b"w7"])) == ["w4", "w7"]


@pytest.mark.parametrize("option", ["--batch-size", "--beam", "--max-length"])
def test_sizes_are_at_least_one(option, tmp_path, capsys):
    with pytest.raises(SystemExit):
        runtime.main([str(tmp_path), option, "0"])
    assert f"error: argument {option}: 0 is less than 1" in capsys.readouterr().err


def test_a_folder_without_an_export(tmp_path):
    with pytest.raises(SystemExit, match=r"error: .* has no export.json; name a folder that casr"):
        runtime.main([str(tmp_path)])


RAW = ['Der "Hund" schläft -- um 8.30 Uhr.', "Well-known U.S.", "", "a  b\tc"]


def raw_model(kind, folder, **about):
    """Return a model of ``kind`` without graphs, whose folder has a ``words.py``."""
    shutil.copy(words.__file__, folder / "words.py")
    if not (folder / "dict.txt").exists():
        dictionary(TARGET).save(str(folder / "dict.txt"))
    model = kind.__new__(kind)
    model.words, model.about = runtime.Dictionary(folder / "dict.txt"), about
    return model


@pytest.mark.parametrize("units", ["bpe.codes", "sentencepiece.model"])
def test_raw_text_is_preprocessed_like_the_training_text(units, tmp_path):
    text = tokenize_lines(RAW * 5, "de")
    raw = {"source_lang": "de", "target_lang": "en", "tokenizer": "moses_lowercase"}
    if units == "bpe.codes":
        learn_joint_bpe([text], 20, tmp_path / units)
        codes = (tmp_path / units).read_bytes()
        (tmp_path / units).write_bytes(codecs.BOM_UTF8 + codes)  # as some editors save it
        wanted = apply_bpe(tokenize_lines(RAW, "de"), tmp_path / units)
    else:
        (tmp_path / units).write_bytes(learn_pieces(text, 60))
        wanted = apply_pieces(tokenize_lines(RAW, "de"), (tmp_path / units).read_bytes())
    model = raw_model(runtime.Translator, tmp_path, raw={**raw, "subwords": units})
    ours = runtime.raw_text(tmp_path, model)
    found = [ours.encode(line) for line in RAW]
    assert found == wanted
    joined = tokenize_lines(RAW, "de")
    assert [ours.decode("", line) for line in found] == detokenize_lines(joined, "en")


def test_raw_chinese(tmp_path):
    raw = {"source_lang": "zh", "target_lang": "en", "tokenizer": "chinese"}
    ours = runtime.raw_text(tmp_path, raw_model(runtime.Translator, tmp_path, raw=raw))
    assert ours.encode("Tom喜欢 3.5。") == "tom 喜 欢 3.5 。"
    assert ours.decode("", "he likes it .") == "he likes it."


@pytest.mark.parametrize("tokenizer", words.TOKENIZERS)
def test_raw_sentences_are_split_like_the_tasks(tokenizer, tmp_path):
    """They are split as by ``casrnn predict`` and ``casrnn tag``, with any quotation marks."""
    lines = ['He said "no-one can\'t", 3.5% of\u00a0it.', "Don’t — l'été “ja”…", "", "a\tB  c"]
    for marks in ([], ["``", "''"], ["``", '"']):
        known = dictionary(TARGET)
        for mark in marks:
            known.add_symbol(mark)
        known.save(str(tmp_path / "dict.txt"))
        raw = {"tokenizer": tokenizer, "language": "en"}
        for kind in (runtime.Classifier, runtime.Tagger):
            model = raw_model(kind, tmp_path, raw=raw, lowercase=True, pairs=False)
            ours = runtime.raw_text(tmp_path, model)
            for line in lines:
                split = words.words(line, tokenizer, lowercase=True)
                if kind is runtime.Tagger:
                    split = words.words_to_show(line, tokenizer, known)
                assert model.split(ours.encode(line)) == split
                answer = f"{' '.join(split)}\tX" if kind is runtime.Tagger else "X"
                assert ours.decode(ours.encode(line), "X") == answer


def test_raw_pairs(tmp_path):
    raw = {"tokenizer": "penn", "language": "en"}
    model = raw_model(runtime.Classifier, tmp_path, raw=raw, lowercase=True, pairs=True)
    ours = runtime.raw_text(tmp_path, model)
    assert ours.encode("It's so.\tNo!") == "it 's so .\tno !"
    with pytest.raises(SystemExit, match=r"error: the line 'one' has 0 tabs; separate the two"):
        ours.encode("one")


def test_raw_needs_the_options_of_prepare(tmp_path):
    model = raw_model(runtime.LanguageModel, tmp_path)
    with pytest.raises(SystemExit, match=r"error: .* lacks what --raw needs .*; drop --raw and"):
        runtime.raw_text(tmp_path, model)


def test_missing_package_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "nltk.tokenize", None)
    model = raw_model(runtime.Tagger, tmp_path, raw={"tokenizer": "penn", "language": "en"})
    with pytest.raises(SystemExit, match="error: --raw needs nltk; install it with pip install n"):
        runtime.raw_text(tmp_path, model)


def test_sentences_are_truncated_as_in_training(tmp_path):
    model = raw_model(runtime.Classifier, tmp_path, truncate=3)
    rows = model.tokens(["w4 w5 w6 w7", "w4"])
    assert rows.tolist() == [
        [*model.words.encode(["w4", "w5"]), model.words.eos],
        [*model.words.encode(["w4"]), model.words.eos, model.words.pad],
    ]


def test_unknown_words_cause_one_warning(tmp_path, capsys):
    model = raw_model(runtime.Model, tmp_path)
    assert not runtime.warn_unknown(model, ["w5 w5 w5 never", ""], 1)
    assert capsys.readouterr().err == ""
    assert runtime.warn_unknown(model, ["w5", "w5 w5 never", "never"], 7)
    error = capsys.readouterr().err
    assert error.startswith("warning: 1 of 3 words in line 8 are unknown, and others may be, too; ")
    assert error.count("\n") == 1
    assert "--raw" not in error  # this export does not support it
    model = raw_model(runtime.Model, tmp_path, raw={"tokenizer": "penn", "language": "en"})
    assert runtime.warn_unknown(model, ["never"], 1)
    assert capsys.readouterr().err.endswith(", or let --raw do it\n")
    assert runtime.warn_unknown(model, ["never"], 1, raw=True)
    assert "--raw" not in capsys.readouterr().err


def test_dictionary_equals_fairseqs(tmp_path):
    known = dictionary(TARGET)
    known.save(str(tmp_path / "dict.txt"))
    ours = runtime.Dictionary(tmp_path / "dict.txt")
    assert ours.symbols == known.symbols
    assert ours.encode(["w5", "never", "<unk>"]) == [known.index("w5"), known.unk(), known.unk()]
    assert ours.encode(["<s>", "<pad>", "</s>"]) == [known.unk()] * 3
