"""The answers of each kind of model equal those of the commands and analyses."""

import json
import math
import shutil
import tempfile

import pytest
import torch
from helpers import randomize
from language_models.common import make_task, random_model
from models.sentences import encoder

from fairseq_casrnn import cli
from fairseq_casrnn.analysis import gates, plots
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.evaluation import lm_scores
from fairseq_casrnn.inference import loading, tracing
from fairseq_casrnn.kinds import CLASSIFIER
from fairseq_casrnn.models.sentence_hub import SentenceHub
from fairseq_casrnn.models.tagger_hub import TaggedWord
from fairseq_casrnn.serving.loading import load
from fairseq_casrnn.serving.predict_request import PredictRequest
from fairseq_casrnn.serving.predictors import ClassifierPredictor, LanguageModelPredictor
from fairseq_casrnn.tasks.sentence_classification import (
    SentenceClassificationConfig,
    SentenceClassificationTask,
)

from .common import ROLES, golden, options, unpack


def test_classifier_of_pairs(tmp_path):
    predictor = golden("sentence_encoder", tmp_path)
    assert predictor.pairs
    hub = loading.load_hub(CLASSIFIER, tmp_path / "out", str(tmp_path / "data"))
    pairs = [("the film is good", "the film"), ("", "bad story, café")]
    answers = predictor.predict([PredictRequest(*pair, explain=True) for pair in pairs])
    for pair, answer in zip(pairs, answers, strict=True):
        label, probability = hub.predict([pair])[0]
        assert answer["label"] == label
        assert answer["probability"] == pytest.approx(probability, abs=1e-5)
        values = [one["probability"] for one in answer["classes"]]
        assert values == sorted(values, reverse=True)
        assert sum(values) == pytest.approx(1, abs=1e-5)
        assert {one["label"] for one in answer["classes"]} == set(hub.classes)
        assert answer["sentences"] == []  # a sentence-state LSTM has no gates to show


def test_tagger(tmp_path):
    predictor = golden("tagger", tmp_path)
    texts = ["Anna saw Bad Ems in 1998.", "", "Paris, of"]
    answers = predictor.predict([PredictRequest(text) for text in texts])
    for answer, words in zip(answers, predictor.hub.annotate(texts), strict=True):
        columns = answer["words"], answer["tags"], answer["probabilities"]
        found = [(word.text, word.tag, round(word.probability, 6)) for word in words]
        assert list(zip(*columns, strict=True)) == found


def test_spans_of_tags(tmp_path, monkeypatch):
    predictor = golden("tagger", tmp_path)
    sentence = [
        TaggedWord("Anna", "S-PER", 0.9, 0, 4),
        TaggedWord("saw", "O", 0.8, 5, 8),
        TaggedWord("Bad", "B-LOC", 0.7, 9, 12),
        TaggedWord("Ems", "E-LOC", 0.6, 13, 16),
    ]
    monkeypatch.setattr(predictor.hub, "annotate", lambda texts: [sentence])
    (answer,) = predictor.predict([PredictRequest("Anna saw Bad Ems")])
    names = "type", "start", "end", "text", "probability", "first", "last"
    assert answer["spans"] == [
        dict(zip(names, ("PER", 0, 4, "Anna", 0.9, 0, 0), strict=True)),
        dict(zip(names, ("LOC", 9, 16, "Bad Ems", 0.6, 2, 3), strict=True)),
    ]


def test_packed_language_model_keeps_its_tokenizer(tmp_path, monkeypatch):
    text = tmp_path / "temporary" / "text"
    text.mkdir(parents=True)
    (text / "sentencepiece.model").write_text("somebody else's")
    monkeypatch.setattr(tempfile, "tempdir", str(text.parent))
    given = unpack("language_model", tmp_path)
    prepared = {"tokenizer": "penn", "lowercase": True, "language": "en", "min_count": 2}
    (tmp_path / "data" / "options.json").write_text(json.dumps(prepared))
    file = tmp_path / "x.casrnn"
    assert cli.main(["pack", str(given.path), "--data", given.data, "--output", str(file)]) == 0
    for served in (given, options(path=file)):
        assert load(served).split("Don't go, Al.") == ["do", "n't", "go", ",", "al", "."]


def test_language_model(tmp_path):
    predictor = golden("language_model", tmp_path)
    symbols = predictor.dictionary.symbols
    sentence = [symbols[5], symbols[7], symbols[5], "unheard-of", "<pad>"]
    questions = [PredictRequest(" ".join(sentence), explain=True), PredictRequest(symbols[9])]
    first, second = predictor.predict(questions)
    ids = [predictor._tokens(words) for words in (sentence, [symbols[9]])]
    scores = lm_scores.score_sentences(predictor.model, predictor.dictionary, ids)
    bits = (-scores.log_probs / math.log(2)).tolist()
    assert first["words"] == [*sentence, "</s>"]
    assert first["surprisal"] + second["surprisal"] == pytest.approx(bits, abs=1e-3)
    assert first["unknown"] == [3, 4]  # not read as padding
    assert second["perplexity"] == pytest.approx(2 ** (sum(bits[6:]) / 2), rel=1e-4)
    assert len(first["expected"]) == len(sentence) + 1
    for row, value in zip(first["expected"], first["surprisal"], strict=True):
        values = [one["probability"] for one in row]
        assert values == sorted(values, reverse=True)
        assert values[0] >= 2**-value - 1e-3
    with torch.no_grad():
        output = predictor.model(torch.tensor([[predictor.dictionary.eos()]]))
    best = predictor.model.get_normalized_probs(output, log_probs=False)[0, 0].topk(3).indices
    assert [one["word"] for one in first["expected"][0]] == [symbols[i] for i in best]


def test_language_model_with_an_adaptive_softmax():
    """The expected words are the most probable ones of all clusters, not of the target's alone."""
    model = random_model("cas_lstm", adaptive_softmax_cutoff="8,15", decoder_out_embed_dim=16)
    predictor = LanguageModelPredictor(model, make_task(), str.split)
    words = predictor.dictionary.symbols[5:20:3]
    (answer,) = predictor.predict([PredictRequest(" ".join(words), explain=True)])
    source = torch.tensor([[2, *map(predictor.dictionary.index, words)]])
    with torch.no_grad():
        table = model.get_normalized_probs(model(source), log_probs=False)[0]
    for row, best in zip(answer["expected"], table.topk(3).values.tolist(), strict=True):
        assert [one["probability"] for one in row] == pytest.approx(best, abs=1e-4)


def test_translator(tmp_path, monkeypatch):
    """Answers are the same in a batch, where shorter sources are padded."""
    predictor = golden("translation", tmp_path)
    source = predictor.task.source_dictionary.symbols
    texts = [" ".join(source[i] for i in ids) for ids in ([4], [5, 6, 7, 4, 9])]
    answers = predictor.predict([PredictRequest(text, explain=True, nbest=3) for text in texts])
    for text, answer in zip(texts, answers, strict=True):
        expected = plots.translation_attention(tmp_path / "out", tmp_path / "data", text, beam=5)
        assert (answer["source"], answer["target"]) == expected[:2]
        torch.testing.assert_close(
            torch.tensor(answer["attention"]), torch.tensor(expected[2]), rtol=0, atol=2e-4
        )
        assert answer["translation"] == " ".join(expected[1][:-1])
        scores = [one["score"] for one in answer["hypotheses"]]
        assert len(scores) == 3
        assert scores == sorted(scores, reverse=True)
    blank = {"translation": "", "hypotheses": []}
    mixed = [
        PredictRequest(text, explain=True, nbest=3) for text in ("", texts[0], " \t\n", texts[1])
    ]
    assert predictor.predict(mixed) == [blank, answers[0], blank, answers[1]]
    assert predictor.predict(mixed[:1]) == [blank]
    assert predictor.most_hypotheses == 5  # the size of the beam
    with pytest.raises(UserError, match="has more than the 1024 tokens that the model accepts"):
        predictor.predict([PredictRequest("x " * 1024)])
    one = {"tokens": torch.tensor([4, 2]), "score": torch.tensor(-1.5 * math.log(2))}
    monkeypatch.setattr(predictor.task, "inference_step", lambda *_: [[one | {"attention": None}]])
    (answer,) = predictor.predict([PredictRequest("x")])
    assert answer["hypotheses"][0]["score"] == -1.5  # in bits


@pytest.fixture
def single_text_classifier(tmp_path):
    """A function that returns a classifier of single texts with random weights, given a cell."""
    unpack("sentence_encoder", tmp_path)
    data = tmp_path / "data"
    shutil.rmtree(data / "input1")
    note = json.loads((data / "text.json").read_text())
    (data / "text.json").write_text(json.dumps({**note, "pairs": False}))
    task = SentenceClassificationTask.setup_task(SentenceClassificationConfig(data=str(data)))

    def build(cell):
        model = encoder(
            cell, task, encoder_layers=2, encoder_bidirectional=True, encoder_hidden_size=3
        )
        return SentenceHub(randomize(model), task)

    return build


def test_gates_by_word(single_text_classifier):
    hub = single_text_classifier("cas_lstm")
    question = PredictRequest("The film is good", explain=True)
    (answer,) = ClassifierPredictor(hub).predict([question])
    (sentence,) = answer["sentences"]
    assert sentence["words"] == ["the", "film", "is", "good", "</s>"]
    assert sentence["routing"] == []
    with tracing.record_gates(tracing.recurrent_stacks(hub.model)) as passes:
        hub.probabilities([question.text])
    found = {(row["layer"], row["direction"]): row["mean"] for row in sentence["gates"]}
    assert set(found) == {(2, "forward"), (2, "backward")}
    top = {
        one.direction: one.gates[:, gates.LOWER_CELL_GATE].mean(-1).tolist()
        for one in passes
        if one.layer
    }
    assert found[2, "forward"] == pytest.approx(top[""], abs=1e-4)
    assert found[2, "backward"] == pytest.approx(top["_reverse"][::-1], abs=1e-4)
    assert len(set(found[2, "backward"])) == 5  # all different, so that a wrong order is noticed
    plain = ClassifierPredictor(hub).predict([PredictRequest(question.text)])
    assert plain == [{name: answer[name] for name in ("label", "probability", "classes")}]


def test_routing_by_word(single_text_classifier):
    hub = single_text_classifier("second_order_lstm")
    text = "the film is a good story"
    (answer,) = ClassifierPredictor(hub).predict([PredictRequest(text, explain=True)])
    (sentence,) = answer["sentences"]
    assert sentence["gates"] == []
    with tracing.record_gates(tracing.recurrent_stacks(hub.model)) as passes:
        hub.probabilities([text])
    for row, one in zip(sentence["routing"], passes, strict=True):
        step = -1 if one.direction else 1
        assert row["layer"] == one.layer + 1
        assert row["cells"] == one.cells.tolist()[::step]
        assert row["weights"] == pytest.approx(one.weights.amax(-1).tolist()[::step], abs=1e-4)
        assert row["of"] == one.weights.size(1)


@pytest.mark.parametrize("role", ROLES)
def test_packed_models(role, tmp_path):
    given, file = unpack(role, tmp_path), str(tmp_path / "model.casrnn")
    pack = ["pack", str(given.path), "--data", given.data, "--output", file]
    assert cli.main(pack) == 0
    question = PredictRequest("bo da", pair="bo" if role == "sentence_encoder" else None)
    (answer,) = load(options(path=tmp_path / "model.casrnn")).predict([question])
    assert [answer] == load(given).predict([question])


def test_missing_files(tmp_path):
    given = unpack("translation", tmp_path / "translation")
    with pytest.raises(UserError, match=r"dict.*txt not found in .* \(--data\)"):
        load(options(**{**vars(given), "data": str(tmp_path)}))
    with pytest.raises(UserError, match=r"none does not exist; check the path"):
        load(options(path=tmp_path / "none"))
