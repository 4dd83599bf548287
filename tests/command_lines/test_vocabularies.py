"""Models with dictionaries that have the same words in another order."""

import shutil
from pathlib import Path

import pytest
from fairseq import checkpoint_utils
from fairseq.sequence_generator import SequenceGenerator

from fairseq_casrnn.diagnostics.explain import explain
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.patches.vocabularies import check_ensemble

from .programs import checkpoint, fairseq, generate, train
from .test_generation import COUNT, LN2, Model

SEVERAL = ["--task", "translation_multi_simple_epoch", "--langs", "xx,yy", "--lang-pairs", "xx-yy"]


def reverse_lines(source: Path, target: Path) -> Path:
    target.write_text("".join(reversed(source.read_text().splitlines(keepends=True))))
    return target


@pytest.fixture(scope="module")
def reordered(corpus, data, tmp_path_factory) -> Path:
    """The corpus, binarised with both dictionaries reversed."""
    folder = tmp_path_factory.mktemp("reordered")
    options = []
    for side, option in (("xx", "--srcdict"), ("yy", "--tgtdict")):
        options += [option, reverse_lines(data / f"dict.{side}.txt", folder / f"reversed.{side}")]
    for split in ("train", "valid", "test"):
        options += [f"--{split}pref", corpus / split]
    fairseq("preprocess", "-s", "xx", "-t", "yy", *options, "--destdir", folder / "bin")
    return folder / "bin"


@pytest.fixture(scope="module")
def language_model(corpus, tmp_path_factory):
    """``language_model(dictionary)`` returns data and checkpoint for the target language."""

    def make(dictionary: Path) -> tuple[Path, Path]:
        folder = tmp_path_factory.mktemp("language-model")
        texts = ["--trainpref", corpus / "train.yy", "--validpref", corpus / "valid.yy"]
        options = ["--only-source", *texts, "--srcdict", dictionary]
        fairseq("preprocess", *options, "--destdir", folder / "bin")
        task = ["--task", "language_modeling", "--sample-break-mode", "eos"]
        train(folder / "bin", folder, "cas_lstm_lm_tiny", *task, epochs=1)
        return folder / "bin", folder / "checkpoint_last.pt"

    return make


@pytest.fixture(scope="module")
def fitting(language_model, data):
    return language_model(data / "dict.yy.txt")


@pytest.fixture(scope="module")
def unfitting(language_model, reordered):
    return language_model(reordered / "dict.yy.txt")


@pytest.fixture
def beside(data, trained, tmp_path):
    """``beside(model, dictionary)`` translates with that language model and ``dict.txt``."""

    def run(path: Path, dictionary: Path | None, weight: str = "0.5"):
        folder = shutil.copytree(data, tmp_path / "bin")
        if dictionary is not None:
            shutil.copy(dictionary, folder / "dict.txt")
        options = ["--beam", "1", "--lm-path", path, "--lm-weight", weight]
        return generate(folder, trained("cas_lstm") / "checkpoint_last.pt", *options)

    return run


def test_language_model_of_the_target_dictionary(data, trained, fitting, beside):
    """Each word's score is the weighted sum of both models' scores."""
    done = beside(fitting[1], data / "dict.yy.txt")
    translation = Model(trained("cas_lstm") / "checkpoint_last.pt")
    (lm,), _, task = checkpoint_utils.load_model_ensemble_and_task([str(fitting[1])])
    sources = dict(done.lines("S"))
    assert len(sources) == COUNT
    for (number, _, text), (_, positions) in zip(done.lines("H"), done.lines("P"), strict=True):
        words = translation.words(text)
        expected = translation.scores(sources[number], words)
        tokens = task.dictionary.encode_line(text, add_if_not_exist=False).long()
        output = lm.eval()(tokens.roll(1).unsqueeze(0))
        of_lm = lm.get_normalized_probs(output, log_probs=True)[0].gather(1, tokens.unsqueeze(1))
        added = (0.5 / LN2 * of_lm.detach().squeeze(1)).tolist()
        both = [one + other for one, other in zip(expected, added, strict=True)]
        assert [float(value) for value in positions.split()] == pytest.approx(both, abs=1e-3)


@pytest.mark.parametrize("weight", ["0", "0.5"])
def test_warning_of_a_weight_of_zero(data, fitting, beside, weight):
    done = beside(fitting[1], data / "dict.yy.txt", weight)
    assert ("--lm-weight is 0" in done.log) == (weight == "0")


def test_language_model_with_its_own_dictionary(unfitting, beside):
    with pytest.raises(UserError, match="of --lm-path differs from the target dictionary"):
        beside(unfitting[1], unfitting[0] / "dict.txt")


def test_language_model_of_another_size(data, language_model, beside, tmp_path):
    words = (data / "dict.yy.txt").read_text().splitlines(keepends=True)
    (tmp_path / "fewer").write_text("".join(words[:5]))
    folder, path = language_model(tmp_path / "fewer")
    with pytest.raises(UserError, match="of --lm-path differs from the target dictionary"):
        beside(path, folder / "dict.txt")


@pytest.mark.parametrize("copied", [True, False])
def test_language_model_beside_another_dictionary(data, unfitting, beside, copied):
    with pytest.raises((UserError, FileNotFoundError)) as caught:
        beside(unfitting[1], data / "dict.yy.txt" if copied else None)
    sentence = explain(caught.value)
    if copied:
        assert sentence.startswith(
            f"--lm-path {unfitting[1]} was trained with another dictionary than "
        )
    else:
        assert f"dict.txt of --lm-path {unfitting[1]} does not exist; " in sentence
    assert "/bin/dict.yy.txt (fairseq-preprocess --only-source --srcdict " in sentence


def test_lm_path_of_another_kind_of_model(data, trained, beside):
    path = trained("cas_lstm") / "checkpoint_last.pt"
    with pytest.raises(UserError, match="the model of --lm-path is a CasLstmModel, not a language"):
        beside(path, data / "dict.yy.txt")


def test_language_model_that_reads_bos_first(fitting):
    (lm,), _, task = checkpoint_utils.load_model_ensemble_and_task([str(fitting[1])])
    check_ensemble([], task.dictionary, lm)
    lm.reads_bos = True
    with pytest.raises(UserError, match="of --lm-path was trained with --add-bos-token"):
        check_ensemble([], task.dictionary, lm)


@pytest.mark.parametrize(
    ("program", "options", "sentence"),
    [
        ("generate", ["--score-reference"], "--score-reference ignores --lm-path"),
        ("interactive", [], "fairseq-interactive ignores --lm-path"),
    ],
)
def test_options_that_ignore_lm_path(data, program, options, sentence):
    with pytest.raises(UserError, match=sentence):
        fairseq(program, data, "--path", "model.pt", "--lm-path", "lm.pt", *options)


@pytest.mark.full
def test_multilingual_task(data, reordered, tmp_path):
    """fairseq's task translation_multi_simple_epoch creates its dictionaries itself."""

    def refused():
        return pytest.raises(UserError, match=r"dict\.xx\.txt of .* is not the dictionary that")

    start = [*SEVERAL, "--finetune-from-model", tmp_path / "checkpoint_last.pt"]
    train(data, tmp_path, "cas_lstm_tiny", *SEVERAL, epochs=1)
    path, languages = tmp_path / "checkpoint_last.pt", ["-s", "xx", "-t", "yy"]
    assert len(generate(data, path, *SEVERAL, *languages).lines("H")) == COUNT
    with refused():
        generate(reordered, path, *SEVERAL, *languages)
    with refused():
        train(reordered, tmp_path, "cas_lstm_tiny", *SEVERAL)
    with refused():
        train(reordered, tmp_path / "fine", "cas_lstm_tiny", *start)
    train(data, tmp_path / "fine", "cas_lstm_tiny", *start, epochs=1)
    assert checkpoint(path)["extra_state"]["words"] == checkpoint(path)["task_state"]["words"]


def test_models_of_different_dictionaries(data, reordered, trained, tmp_path):
    """Each model is loaded in Python with its own task."""
    paths = [trained("cas_lstm") / "checkpoint_last.pt", tmp_path / "checkpoint_last.pt"]
    train(reordered, tmp_path, "cas_lstm_tiny", epochs=1)
    one, other = (checkpoint_utils.load_model_ensemble_and_task([str(path)]) for path in paths)
    SequenceGenerator([*one[0], *one[0]], one[2].target_dictionary)
    with pytest.raises(UserError, match="the models have different dictionaries"):
        SequenceGenerator([*one[0], *other[0]], one[2].target_dictionary)
