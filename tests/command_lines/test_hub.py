"""Translation in Python: ``from_pretrained`` with a tokenizer and BPE."""

import copy
import pickle
import shutil

import pytest
import torch
from fairseq.models import MODEL_REGISTRY
from subword_nmt.learn_bpe import learn_bpe

from fairseq_casrnn.errors import UserError

from .conftest import WORDS, write_corpus
from .programs import fairseq, train

pytestmark = [  # fairseq's own
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:'pin_memory' argument:UserWarning"),
]


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory):
    """A folder as one would distribute it: the model, the dictionaries, the BPE codes."""
    corpus, folder = tmp_path_factory.mktemp("bpe"), tmp_path_factory.mktemp("model")
    write_corpus(corpus)
    with open(corpus / "both", "w") as both:
        for name in ("train.xx", "train.yy"):
            both.write((corpus / name).read_text())
    with open(corpus / "both") as text, open(folder / "bpecodes", "w") as codes:
        learn_bpe(text, codes, 8)
    apply_bpe(corpus, folder / "bpecodes")
    prefixes = [p for s in ("train", "valid") for p in (f"--{s}pref", corpus / f"bpe.{s}")]
    fairseq("preprocess", "-s", "xx", "-t", "yy", *prefixes, "--destdir", corpus / "bin")
    options = ["-s", "xx", "-t", "yy", "--lr", "0.02"]
    train(corpus / "bin", corpus / "run", "cas_lstm_tiny", *options, epochs=3)
    shutil.copy(corpus / "run" / "checkpoint_last.pt", folder / "model.pt")
    for side in ("xx", "yy"):
        shutil.copy(corpus / "bin" / f"dict.{side}.txt", folder)
    return folder


def apply_bpe(corpus, codes):
    from subword_nmt.apply_bpe import BPE

    with open(codes) as file:
        bpe = BPE(file)
    for split in ("train", "valid"):
        for side in ("xx", "yy"):
            lines = (corpus / f"{split}.{side}").read_text().splitlines()
            # The full stop gives the tokenizer something to do.
            text = "".join(bpe.process_line(line + " .") + "\n" for line in lines)
            (corpus / f"bpe.{split}.{side}").write_text(text)


def test_an_empty_text_stays_empty(hub):
    texts = [" ".join(list(WORDS)[:3]), "", " \n"]
    found = hub.translate(texts)
    assert found == [hub.translate(texts[0]), "", ""]
    assert hub.translate("") == ""
    assert hub.translate([]) == []


@pytest.fixture(scope="module")
def hub(model_dir):
    model = MODEL_REGISTRY["cas_lstm"]
    return model.from_pretrained(str(model_dir), tokenizer="moses", bpe="subword_nmt").eval()


SENTENCE = " ".join(list(WORDS)[:4])


def test_raw_text_is_tokenized_and_split(hub):
    assert hub.tokenize(SENTENCE + ".") == SENTENCE + " ."
    pieces = hub.apply_bpe(SENTENCE + " .").split()
    assert any(piece.endswith("@@") for piece in pieces)
    tokens = hub.encode(SENTENCE + ".")
    assert hub.src_dict.string(tokens) == " ".join(pieces)  # there is no unknown word


def test_translate(hub, model_dir, tmp_path):
    """``translate`` gives the same as fairseq-interactive."""
    sentences = [SENTENCE + ".", " ".join(reversed(SENTENCE.split())) + "."]
    translations = hub.translate(sentences, beam=4, max_len_b=12)
    (tmp_path / "input").write_text("".join(sentence + "\n" for sentence in sentences))
    done = fairseq(
        *("interactive", model_dir, "--path", model_dir / "model.pt", "--cpu", "--beam", "4"),
        *("-s", "xx", "-t", "yy", "--tokenizer", "moses", "--bpe", "subword_nmt"),
        *("--bpe-codes", model_dir / "bpecodes", "--input", tmp_path / "input"),
        *("--max-len-b", "12"),
    )
    assert translations == [line[-1] for line in done.lines("D")]
    assert hub.translate(sentences[0], beam=4, max_len_b=12) == translations[0]
    assert not any("@@" in text for text in translations)


def test_from_pretrained_loads_the_trained_weights(hub, model_dir):
    state = torch.load(model_dir / "model.pt", weights_only=True)["model"]
    (model,) = hub.models
    assert type(model) is MODEL_REGISTRY["cas_lstm"]
    for name, tensor in model.state_dict().items():
        assert tensor.equal(state[name]), name


def test_hypotheses_are_sorted_by_score(hub):
    tokens = hub.encode(SENTENCE + ".")
    hypotheses = hub.generate(tokens, beam=5, max_len_b=12)
    scores = [float(hypothesis["score"]) for hypothesis in hypotheses]
    assert len(scores) == 5
    assert scores == sorted(scores, reverse=True)


def test_missing_folders(model_dir):
    load = MODEL_REGISTRY["cas_lstm"].from_pretrained
    with pytest.raises(UserError, match="nowhere does not exist; check the path of the model"):
        load(str(model_dir / "nowhere"))
    for data in ("/no/data", "./data"):
        with pytest.raises(UserError, match="data does not exist; check the path of data_name"):
            load(str(model_dir), data_name_or_path=data)


def test_copies_translate_the_same(hub):
    """Copies, including pickled ones, keep the options, the tokenizer and the task."""
    expected = hub.translate([SENTENCE + "."], beam=4, max_len_b=12)
    for copied in (copy.deepcopy(hub), pickle.loads(pickle.dumps(hub))):
        assert copied.translate([SENTENCE + "."], beam=4, max_len_b=12) == expected
        assert copied.cfg == hub.cfg


def test_quantised_models_translate(hub):
    with pytest.warns(DeprecationWarning, match="torch.ao.quantization is deprecated"):
        quantised = torch.ao.quantization.quantize_dynamic(hub)
    assert len(quantised.translate([SENTENCE + "."], beam=4, max_len_b=12)) == 1


def test_a_checkpoint_with_unsafe_content(model_dir, tmp_path):
    """The message does not repeat torch's advice to load the file unsafely."""
    shutil.copytree(model_dir, tmp_path, dirs_exist_ok=True)
    state = torch.load(model_dir / "model.pt", weights_only=True)
    torch.save({**state, "planted": shutil.rmtree}, tmp_path / "model.pt")
    for name in ("cas_lstm", "cas_lstm_lm"):
        with pytest.raises(
            UserError, match=r"was refused because it holds shutil\.rmtree"
        ) as caught:
            MODEL_REGISTRY[name].from_pretrained(str(tmp_path))
        assert "weights_only" not in str(caught.value)


def test_special_symbols_in_a_text_are_unknown_words(hub):
    words = hub.task.source_dictionary
    assert hub.binarize("<pad> ba </s>").tolist()[0::2] == [words.unk(), words.unk()]
    assert hub.binarize("<pad>").tolist() == [words.unk(), words.eos()]
