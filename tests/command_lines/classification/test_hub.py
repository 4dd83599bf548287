"""``from_pretrained`` of sentence classifiers."""

import copy
import pickle
import shutil
from types import SimpleNamespace

import pytest
import torch
from fairseq.models import MODEL_REGISTRY

from fairseq_casrnn import cli
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.models.sentence_hub import SentenceHub

from .common import LINES

pytestmark = [  # fairseq's own
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:'pin_memory' argument:UserWarning"),
]


@pytest.fixture(scope="module")
def hub(trained, data, tmp_path_factory):
    """A folder as one would distribute it: the checkpoint and the dictionaries."""
    folder = tmp_path_factory.mktemp("model")
    shutil.copy(trained / "checkpoint_best.pt", folder / "model.pt")
    for part in ("input0", "label"):
        (folder / part).mkdir()
        shutil.copy(data / part / "dict.txt", folder / part)
    return MODEL_REGISTRY["cas_lstm_sentence_encoder"].from_pretrained(str(folder))


@pytest.mark.parametrize("sentences", ["a good film", [5], [None], [("a", "b")], [("a", 5)]])
def test_wrong_types_of_sentences(hub, sentences):
    with pytest.raises(UserError):
        hub.predict(sentences)
    with pytest.raises(UserError):
        hub.encode(sentences)


def test_copies_give_the_same_answers(hub):
    expected = hub.probabilities(LINES)
    for copied in (copy.deepcopy(hub), pickle.loads(pickle.dumps(hub))):
        assert copied.probabilities(LINES).equal(expected)
        assert copied.classes == hub.classes


def test_vectors_for_unknown_words(hub, tmp_path):
    """Words of the training keep their trained embedding; only other words get these vectors."""
    first, second = (hub.task.dictionary[index] for index in (5, 6))
    weight = hub.model.encoder.embed_tokens.weight.detach().clone()
    size = weight.size(1)
    lines = [
        f"unheard {' '.join(map(str, weight[5].tolist()))}",
        f"{first} {' '.join(['9'] * size)}",
        f"zürich {' '.join(map(str, weight[6].tolist()))}",
        f"short {' '.join(['9'] * (size - 1))}",
    ]
    path = tmp_path / "vectors.txt"
    texts = ["unheard it", f"so unheard {second} nowhere", "Zürich", "short"]
    same = [f"{first} it", f"so {first} {second} nowhere", second, "nowhere"]
    for header in (f"4 {size}\n", ""):
        path.write_text(header + "\n".join(lines) + "\n", encoding="utf-8")
        other = copy.deepcopy(hub)
        other.add_vectors(str(path))
        torch.testing.assert_close(other.probabilities(texts), hub.probabilities(same))
        assert "unheard" in other.task.dictionary
        assert other.probabilities(texts[::-1]).equal(
            copy.deepcopy(other).probabilities(texts[::-1])
        )
    assert not hub.probabilities(texts[:1]).equal(hub.probabilities(same[:1]))


def test_vectors_that_do_not_fit(hub, trained, tmp_path):
    path = tmp_path / "vectors.txt"
    load = MODEL_REGISTRY["cas_lstm_sentence_encoder"].from_pretrained
    with pytest.raises(
        UserError, match=r"cannot read the word vectors .*vectors.txt: No such file"
    ):
        load(str(trained), encoder_embed_path=str(path))
    for content in ("a 1 2 3\n", "1 3\na 1 2 3\n"):
        path.write_text(content)
        with pytest.raises(UserError, match="vectors of dimension 3, but the embedding has"):
            load(str(trained), encoder_embed_path=str(path))


def test_sentences_from_an_iterator(hub):
    torch.testing.assert_close(hub.encode(iter(LINES)), hub.encode(LINES))
    assert hub.predict(iter(LINES)) == hub.predict(LINES)


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


def test_wrong_arguments(hub):
    with pytest.raises(UserError, match=r"takes single sentences, not \('a', 'b'\)"):
        hub.predict([("a", "b")])
    of_pairs = SimpleNamespace(task=SimpleNamespace(pairs=True))
    with pytest.raises(UserError, match=r"takes a list of pairs of sentences, \[\(.*\)\], not 'a'"):
        SentenceHub._tokens(of_pairs, "a")
    with pytest.raises(UserError, match="encode takes strings"):
        hub.encode([("a", "b")])


def test_unknown_options_are_refused(trained):
    """A misspelt option would otherwise be ignored without notice."""
    load = MODEL_REGISTRY["cas_lstm_sentence_encoder"].from_pretrained
    with pytest.raises(UserError, match="truncat is not an option of this model or its task"):
        load(str(trained), truncat=4)
    assert load(str(trained), truncate=4, engine="eager").task.cfg.truncate == 4
    hub = load(str(trained), raw_tokenizer="space", engine="eager")
    assert hub.task.cfg.raw_tokenizer == "space"
    with pytest.raises(UserError, match="batch_size is 0; it must be at least 1"):
        load(str(trained)).predict(["a"], batch_size=0)


def test_a_checkpoint_from_before_an_option(trained, data, tmp_path):
    state = torch.load(trained / "checkpoint_best.pt", weights_only=False)
    del state["cfg"]["task"]["raw_tokenizer"]
    torch.save(state, tmp_path / "model.pt")
    load = MODEL_REGISTRY["cas_lstm_sentence_encoder"].from_pretrained
    hub = load(str(tmp_path), data_name_or_path=str(data), raw_tokenizer="space")
    assert hub.task.cfg.raw_tokenizer == "space"
    assert load(str(tmp_path), data_name_or_path=str(data)).task.cfg.raw_tokenizer is None


@pytest.mark.parametrize(
    ("arch", "what"), [("cas_lstm", "a translation"), ("cas_lstm_lm", "a language")]
)
def test_from_pretrained_of_another_kind(trained, data, arch, what):
    load = MODEL_REGISTRY[arch].from_pretrained
    with pytest.raises(UserError, match=f"is of a CasLstmSentenceEncoder, not of {what} model; lo"):
        load(str(trained), "checkpoint_best.pt", data_name_or_path=str(data))


def test_a_packed_model_of_another_kind_is_named(trained, tmp_path):
    """The message names the packed file, not the temporary folder in which it was unpacked."""
    file = tmp_path / "x.casrnn"
    assert cli.main(["pack", str(trained), "--output", str(file)]) == 0
    with pytest.raises(UserError, match=f"in {file} is of a CasLstmSentenceEncoder, not of a tr"):
        MODEL_REGISTRY["cas_lstm"].from_pretrained(str(file))


def test_a_folder_without_dictionaries(trained, tmp_path):
    shutil.copy(trained / "checkpoint_best.pt", tmp_path / "model.pt")
    model = MODEL_REGISTRY["cas_lstm_sentence_encoder"]
    assert model.from_pretrained(str(tmp_path)).classes  # the classes of the training
    with pytest.raises(UserError, match=r"input0/dict.txt, label/dict.txt not found in /nowhere"):
        model.from_pretrained(str(tmp_path), data_name_or_path="/nowhere")
