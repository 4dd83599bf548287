"""The task sentence_classification: reading its data folder, and one-sentence errors."""

import json
import re
import shutil

import pytest
from fairseq.tasks import TASK_REGISTRY
from labelled_corpora import write_mr, write_sick

import fairseq_casrnn
from fairseq_casrnn.data.columns import binarise, make_dictionary
from fairseq_casrnn.data.corpora import mr, sick
from fairseq_casrnn.errors import UserError

fairseq_casrnn.register()

from fairseq_casrnn.tasks.sentence_classification import (  # noqa: E402
    SentenceClassificationConfig as Config,
)
from fairseq_casrnn.tasks.sentence_classification import parse_mix  # noqa: E402

TASK = TASK_REGISTRY["sentence_classification"]


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    folder = tmp_path_factory.mktemp("original")
    for module, write in ((mr, write_mr), (sick, write_sick)):
        name = module.__name__.rpartition(".")[2]
        raw = write(folder / f"{name}.raw")
        assert module.main(["--raw", str(raw), "--out", str(folder / name)]) == 0
    return folder


@pytest.fixture
def data(originals, tmp_path):
    """A copy that a test may damage."""
    shutil.copytree(originals / "mr" / "data-bin", tmp_path / "mr")
    return tmp_path / "mr"


def setup(folder, **options):
    given = {"seed": 1, "save_dir": "", "no_save": True, "train_subset": "train", **options}
    return TASK.setup_task(Config(data=str(folder), **given))


def test_splits_of_several_files(data):
    """``fairseq-preprocess --trainpref a,b`` writes several; fairseq combines those of training."""
    for part in ("input0", "label"):
        for ending in ("bin", "idx"):
            shutil.copy(data / part / f"valid.{ending}", data / part / f"train1.{ending}")
    task = setup(data)
    more = len(task.load_dataset("valid"))
    assert len(task.load_dataset("train")) == 96
    assert len(task.load_dataset("train", combine=True)) == 96 + more
    assert len(task.read("train")) == 96 + more  # for validation on the training set


def test_another_subset_for_training(data):
    task = setup(data, train_subset="valid", forget_singletons=0.5)
    for split, random in (("train", False), ("valid", True)):
        dataset = task.load_dataset(split)
        assert dataset.shuffle is random
        assert (dataset.unk_dropout is not None) is random
    assert task.training_set is task.datasets["valid"]


def load(folder, split="train", **options):
    return setup(folder, **options).load_dataset(split)


def write_labels(folder, split, labels):
    """Replace a split's labels, encoded with the training set's dictionary."""
    shutil.rmtree(folder / "label" / "new", ignore_errors=True)
    dictionary = setup(folder).label_dictionary
    binarise({split: labels}, dictionary, folder / "label" / "new")
    for ending in ("bin", "idx"):
        (folder / "label" / "new" / f"{split}.{ending}").replace(folder / f"label/{split}.{ending}")


def test_data_of_the_task(data, originals):
    task = setup(data)
    assert task.classes == ["negative", "positive"]
    assert not task.pairs
    assert len(task.load_dataset("train")) == 96
    pairs = setup(originals / "sick" / "data-bin")
    assert pairs.pairs
    assert pairs.classes == ["contradiction", "entailment", "neutral"]
    sample = pairs.load_dataset("train")[0]
    assert len(sample["inputs"]) == 2
    assert pairs.classes[sample["label"]] == "entailment"


def task_state(task):
    return {key: task.state_dict()[key] for key in ("classes", "words", "text")}


def test_the_order_of_classes_is_that_of_the_model(data):
    """In a folder of fairseq-preprocess, the order of classes changes with the counts."""
    state = task_state(setup(data))
    (data / "label" / "dict.txt").write_text("positive 5\nnegative 4\n")
    for split, wanted in (("valid", "negative"), ("test", "positive")):
        write_labels(data, split, [[wanted]] * 12)
    task = setup(data)
    assert task.classes == ["positive", "negative"]
    task.load_state_dict(state)
    assert task.classes == ["negative", "positive"]
    assert set(task.load_dataset("valid").labels.tolist()) == {0}
    assert set(task.load_dataset("test").labels.tolist()) == {1}
    task = setup(data)
    task.load_dataset("valid")  # fairseq-train does so before it loads a checkpoint
    with pytest.raises(
        UserError, match=r"lists the classes in another order .* negative, positive"
    ):
        task.load_state_dict(state)


def test_data_of_another_model(data):
    state = task_state(setup(data))
    lines = (data / "input0" / "dict.txt").read_text().splitlines()
    (data / "input0" / "dict.txt").write_text("\n".join([*lines[1:], lines[0]]) + "\n")
    with pytest.raises(
        UserError, match=r"input0/dict.txt is not the dictionary that the model was"
    ):
        setup(data).load_state_dict(state)
    (data / "input0" / "dict.txt").write_text("\n".join(lines) + "\n")
    (data / "label" / "dict.txt").write_text("negative 5\nmixed 4\n")
    with pytest.raises(UserError, match=r"are negative, positive, but .* lists negative, mixed"):
        setup(data).load_state_dict(state)


def test_singletons(data):
    """Singletons are those of singletons.txt, or else words that the dictionary counts once."""
    task = setup(data, forget_singletons=0.5)
    words = sorted(word for word in task.dictionary.symbols[task.dictionary.nspecial :])
    (data / "input0" / "singletons.txt").write_text(f"{words[2]}\n{words[4]}\n")
    rare = task.load_dataset("train").unk_dropout.rare
    assert [task.dictionary[i] for i in rare.nonzero().flatten()] in (
        [words[2], words[4]],
        [words[4], words[2]],
    )
    (data / "input0" / "singletons.txt").unlink()
    task.dictionary.count[task.dictionary.index(words[3])] = 1
    counted = {task.dictionary[i] for i in task._unk_dropout().rare.nonzero().flatten()}
    assert words[3] in counted
    assert all(task.dictionary.count[task.dictionary.index(word)] == 1 for word in counted)
    specials = range(task.dictionary.nspecial)
    assert not counted & {task.dictionary[index] for index in specials}
    assert setup(data, forget_singletons=0.5, seed=7)._unk_dropout().seed == 7


def test_classes_padded_as_fairseq_preprocess_does(data):
    with open(data / "label" / "dict.txt", "a") as file:
        file.write("madeupword0000 0\nmadeupword0001 0\n")
    assert setup(data).classes == ["negative", "positive"]


def test_a_label_that_training_does_not_have(data):
    write_labels(data, "valid", [["positive"], ["mixed"], *[["negative"]] * 10])
    task = setup(data)
    labels = task.load_dataset("valid").labels.tolist()
    assert labels == [1, -1, *[0] * 10]
    assert re.search(
        r"^1 label\(s\) of valid do not occur in training, the first at \S*label/valid, sentence "
        r"2 \(<unk>\); each counts as an error and is left out of the loss$",
        task.unseen["valid"],
    )
    write_labels(data, "train", [["positive"], ["mixed"]])
    message = r"label/train, sentence 2 \(<unk>\): its label is not one of neg"
    with pytest.raises(UserError, match=message):
        task._labels(str(data), "train")


def test_a_label_of_two_words_or_none(data):
    write_labels(data, "valid", [["positive"], ["negative", "positive"], *[["negative"]] * 10])
    with pytest.raises(UserError, match="label/valid, sentence 2 has 2 words for a label"):
        load(data, "valid")
    write_labels(data, "test", [[], *[["negative"]] * 11])
    with pytest.raises(UserError, match="label/test, sentence 1 has 0 words for a label"):
        load(data, "test")


def test_parts_of_unequal_length(data):
    write_labels(data, "valid", [["positive"]] * 11)
    message = r"input0/valid has 12 sentences but .*label/valid has 11; run fairseq-preprocess"
    with pytest.raises(UserError, match=message):
        load(data, "valid")


def test_missing_parts(data, tmp_path):
    with pytest.raises(UserError, match=r"/nowhere/input0/dict.txt does not exist; fill /nowhere"):
        setup("/nowhere")
    (tmp_path / "dict.en.txt").touch()
    with pytest.raises(UserError, match=r"has the data of a translation or language model, but a"):
        setup(tmp_path)
    with pytest.raises(UserError, match=r"there is no .*input0/other; check the data folder"):
        load(data, "other")
    (data / "label" / "dict.txt").write_text("positive 5\n")
    with pytest.raises(UserError, match=r"dict.txt lists 1 class\(es\)"):
        setup(data)


def test_empty_sentence(data):
    """An empty sentence consists of </s> alone."""
    dictionary = setup(data).dictionary
    binarise({"valid": [[], ["good"]]}, dictionary, data / "new")
    for ending in ("bin", "idx"):
        (data / "new" / f"valid.{ending}").replace(data / f"input0/valid.{ending}")
    write_labels(data, "valid", [["positive"], ["negative"]])
    assert load(data, "valid")[0]["inputs"][0].tolist() == [dictionary.eos()]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"raw_tokenizer": "bert"}, "--raw-tokenizer is 'bert'"),
        ({"truncate": 0}, "--truncate is 0"),
        ({"forget_singletons": 1.5}, "--forget-singletons is 1.5"),
    ],
)
def test_wrong_options(data, options, message):
    with pytest.raises(UserError, match=message):
        setup(data, **options)


def test_parsing_of_the_option_mix():
    assert parse_mix("a:b:0.15") == ("a:b", 0.15)


def test_a_mix_is_mapped_to_the_dictionary(data, originals, tmp_path):
    """The mixed-in folder has another dictionary, and another order of the classes."""
    other = shutil.copytree(originals / "mr" / "data-bin", tmp_path / "other")
    own = setup(data).dictionary
    theirs = make_dictionary({"unheard": 9, "good": 3, "bad": 2})
    (other / "label" / "dict.txt").write_text("positive 5\nnegative 4\n")
    texts = [["unheard", "good"], ["bad"]] * 48
    shutil.rmtree(other / "input0")
    binarise({"train": texts}, theirs, other / "input0")
    write_labels(other, "train", [["positive"], ["negative"]] * 48)
    mixed = load(data, mix=f"{other}:1", seed=7)
    assert mixed.seed == 7
    first, second = mixed[96], mixed[97]
    expected = [own.unk(), own.index("good"), own.eos()], [own.index("bad"), own.eos()]
    assert (first["inputs"][0].tolist(), second["inputs"][0].tolist()) == expected
    assert (first["label"], second["label"]) == (1, 0)
    assert len(load(data, "valid", mix=f"{other}:1")) == 12


def test_warnings_about_a_mix(data, originals, tmp_path, caplog):
    """A quarter of its words are unknown here, and its text was not lower-cased."""
    other = shutil.copytree(originals / "mr" / "data-bin", tmp_path / "other")
    shutil.rmtree(other / "input0")
    binarise(
        {"train": [["good"]] * 96}, make_dictionary({"good": 9, "unheard": 3}), other / "input0"
    )
    text = json.loads((other / "text.json").read_text())
    (other / "text.json").write_text(json.dumps({**text, "lowercase": False}))
    caplog.set_level("INFO")
    load(data, mix=f"{other}:1")
    assert f"25.0 % of the words of {other} are not in the dictionary" in caplog.text
    (warning,) = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert warning.startswith(
        f"text.json has lowercase true in {data}, but false in {other}, which"
    )


def test_unknown_tokenizer(data):
    (data / "text.json").write_text('{"tokenizer": "foo"}')
    with pytest.raises(UserError, match=r"text\.json has the tokenizer 'foo'; write one of"):
        setup(data)


def test_raw_text(data):
    """Raw text is split as the training text was, unless options differ, and truncated."""

    def read(line, **options):
        task = setup(data, **options)
        return [task.dictionary[int(token)] for token in task.encode_text(line)]

    assert read("Good, bad") == ["good", "<unk>", "bad", "</s>"]
    assert read("Good bad", lowercase=False) == ["<unk>", "bad", "</s>"]
    assert read("bad, bad", raw_tokenizer="space") == ["<unk>", "bad", "</s>"]
    assert read("bad bad good bad", truncate=3) == ["bad", "bad", "</s>"]
    assert read("bad bad", truncate=3) == ["bad", "bad", "</s>"]
    assert load(data, truncate=3).sizes.max() == 3


def test_results_of_validations(data, tmp_path):
    """Each validation set has its file, and --no-save prevents them."""
    task = setup(data, save_dir=str(tmp_path), no_save=False)
    for number, split in enumerate(("valid", "test")):
        task.get_batch_iterator(task.load_dataset(split), max_sentences=4)
        task.write_validation({"accuracy": 50.0}, {"num_updates": number})
    for number, name in enumerate(("validation.json", "validation.test.json")):
        kept = json.loads((tmp_path / name).read_text())
        assert kept == {"accuracy": 50.0, "num_updates": number}
    (tmp_path / "validation.json").unlink()
    task.cfg.no_save = True
    task.get_batch_iterator(task.datasets["valid"], max_sentences=4)
    task.write_validation({"accuracy": 50.0}, {"num_updates": 3})
    assert not (tmp_path / "validation.json").exists()


def test_validation_of_the_training_set(data):
    """Validation reads the set unchanged, and does not affect training or its epoch."""
    task = setup(data, mix=f"{data}:0.25", forget_singletons=0.5)
    mixed = task.load_dataset("train")
    assert len(mixed) == 96 + 24
    training = task.get_batch_iterator(mixed, max_sentences=8, epoch=3, grouped_shuffling=False)
    assert training.dataset is mixed
    chosen = mixed.chosen.tolist()
    plain = task.get_batch_iterator(mixed, max_sentences=8).dataset
    assert task.get_batch_iterator(mixed, max_sentences=8).dataset is plain
    assert len(plain) == 96
    assert plain.unk_dropout is None
    assert not plain.shuffle
    assert (mixed.base.epoch, mixed.chosen.tolist()) == (3, chosen)
    # fairseq-validate does not need the mixed-in corpus, which may be absent
    task.cfg.mix = "nowhere:0.25"
    assert len(task.load_dataset("train", task_cfg=task.cfg)) == 96


def test_only_training_is_shuffled_and_has_unk_dropout(data):
    for split, random in (("train", True), ("valid", False)):
        dataset = load(data, split, forget_singletons=0.5)
        assert dataset.shuffle is random
        assert (dataset.unk_dropout is not None) is random


def test_dictionaries_are_sorted_by_count():
    dictionary = make_dictionary({"b": 2, "a": 2, "c": 5, "d": 1}, 2)
    assert dictionary.symbols[dictionary.nspecial :] == ["c", "a", "b"]


def test_second_sentences_of_another_dictionary(originals, tmp_path):
    shutil.copytree(originals / "sick" / "data-bin", tmp_path / "sick")
    load(tmp_path / "sick")
    shutil.rmtree(tmp_path / "sick" / "input1")
    own = make_dictionary({"zebra": 1, "yak": 2})
    binarise({"train": [["zebra", "yak"]] * 60}, own, tmp_path / "sick" / "input1")
    message = "input1/dict.txt differs from .*input0/dict.txt, which both"
    with pytest.raises(UserError, match=message):
        load(tmp_path / "sick")


def test_special_symbols_are_unknown_words(originals):
    """In raw text, words such as </s> are unknown."""
    task = setup(originals / "mr" / "data-bin", raw_tokenizer="space")
    unknown, end = task.dictionary.unk(), task.dictionary.eos()
    assert task.encode_text("<pad> </s> <s>").tolist() == [unknown] * 3 + [end]
