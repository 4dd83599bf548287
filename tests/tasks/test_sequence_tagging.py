"""The task sequence_tagging: reading its data folder, and one-sentence errors."""

import shutil
from types import SimpleNamespace

import pytest
import torch
from fairseq.tasks import TASK_REGISTRY
from tagged_corpora import sentences, write_conll03

import fairseq_casrnn
from fairseq_casrnn.data.columns import binarise, make_dictionary
from fairseq_casrnn.data.corpora import conll03
from fairseq_casrnn.data.spans import as_bioes
from fairseq_casrnn.errors import UserError

fairseq_casrnn.register()

from fairseq_casrnn.tasks.sequence_tagging import SequenceTaggingConfig as Config  # noqa: E402

TASK = TASK_REGISTRY["sequence_tagging"]


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ner")
    raw = write_conll03(folder / "raw")
    assert conll03.main(["--raw", str(raw), "--out", str(folder / "data")]) == 0
    return folder / "data" / "data-bin"


@pytest.fixture
def data(original, tmp_path):
    """A copy that a test may damage."""
    return shutil.copytree(original, tmp_path / "data")


def setup(folder, uses_characters=True, **options):
    given = {"seed": 1, "save_dir": "", "no_save": True, "train_subset": "train", **options}
    task = TASK.setup_task(Config(data=str(folder), **given))
    task.uses_characters = uses_characters
    return task


def replace(folder, part, split, rows, dictionary):
    """Replace a split of a part, encoded with ``dictionary``."""
    new = folder / part / "new"
    binarise({split: rows}, dictionary, new)
    for ending in ("bin", "idx"):
        (new / f"{split}.{ending}").replace(folder / part / f"{split}.{ending}")
    shutil.rmtree(new)


def test_splits_of_several_files(data):
    """``fairseq-preprocess --trainpref a,b`` writes several; fairseq combines those of training."""
    for part in ("input0", "label", "spelling"):
        for ending in ("bin", "idx"):
            shutil.copy(data / part / f"valid.{ending}", data / part / f"train1.{ending}")
    task = setup(data)
    parts = [task.load_dataset(split) for split in ("train", "valid")]
    both = task.load_dataset("train", combine=True)
    assert len(both) == sum(map(len, parts))
    last, same = both[len(both) - 1], parts[1][len(parts[1]) - 1]
    for name in ("words", "tags"):
        assert torch.equal(last[name], same[name])
    assert list(map(torch.Tensor.tolist, last["characters"])) == list(
        map(torch.Tensor.tolist, same["characters"])
    )


def test_another_subset_for_training(data):
    task = setup(data, train_subset="valid", forget_singletons=0.5)
    assert task.load_dataset("valid").unk_dropout is not None
    assert task.load_dataset("train").unk_dropout is None


def test_data_of_the_task(original):
    task = setup(original)
    assert task.are_spans
    assert task.classes == sorted(
        {tag for name in ("train", "valid", "test") for rows in sentences(60, name)
         for tag in as_bioes([row[2] for row in rows])}
    )  # fmt: skip
    dataset = task.load_dataset("train")
    for index, rows in enumerate(sentences(60, "train")[:5]):
        sample = dataset[index]
        assert [task.classes[tag] for tag in sample["tags"]] == as_bioes([row[2] for row in rows])
        words = ["".join(task.characters[int(c)] for c in word) for word in sample["characters"]]
        assert words == [row[0] for row in rows]
        assert len(sample["words"]) == len(rows) + 1


def test_a_batch(original):
    task = setup(original)
    dataset = task.load_dataset("train")
    samples = [dataset[i] for i in range(4)]
    batch = dataset.collater(samples)
    lengths = [len(sample["tags"]) for sample in samples]
    assert batch["lengths"].tolist() == lengths
    assert batch["ntokens"] == sum(lengths)
    assert batch["target"].shape == (4, max(lengths))
    assert batch["net_input"]["src_tokens"].shape == (4, max(lengths) + 1)
    assert batch["net_input"]["spelling"].shape[:2] == (4, max(lengths))
    pad = task.characters.pad()
    for b, sample in enumerate(samples):
        assert batch["target"][b, : lengths[b]].tolist() == sample["tags"].tolist()
        assert set(batch["target"][b, lengths[b] :].tolist()) <= {-1}
        for t, word in enumerate(sample["characters"]):
            row = batch["net_input"]["spelling"][b, t]
            assert row[row.ne(pad)].tolist() == word.tolist()
        assert batch["net_input"]["spelling"][b, lengths[b] :].eq(pad).all()
    assert dataset.collater([]) == {}
    assert (
        "spelling"
        not in setup(original, uses_characters=False)
        .load_dataset("train")
        .collater([setup(original, uses_characters=False).load_dataset("train")[0]])["net_input"]
    )


def test_long_words_and_empty_sentences(data):
    """fairseq-preprocess turns an empty line into an empty sentence."""
    task = setup(data)
    long = ["x"] * 50 + ["o"] * 30
    replace(data, "input0", "valid", [["saw"], []], task.dictionary)
    replace(data, "label", "valid", [["O"], []], task.label_dictionary)
    replace(data, "spelling", "valid", [long, []], task.characters)
    dataset = task.load_dataset("valid")
    batch = dataset.collater([dataset[0], dataset[1]])
    assert batch["net_input"]["spelling"].shape == (2, 1, 50)
    assert batch["net_input"]["spelling"][0].eq(task.characters.index("x")).all()
    assert batch["lengths"].tolist() == [1, 0]
    empty = dataset.collater([dataset[1]])
    assert empty["target"].tolist() == [[-1]]
    assert empty["net_input"]["spelling"].eq(task.characters.pad()).all()


def test_forgotten_words_keep_their_spelling(data):
    (data / "input0" / "singletons.txt").write_text("rome\n")
    task = setup(data, forget_singletons=1.0)
    dataset = task.load_dataset("train")
    rare = dataset.unk_dropout.rare
    changed = 0
    for index in range(len(dataset)):
        before, after = task.read("train")[index], dataset[index]
        chosen = rare[before["words"]]
        changed += int(chosen.sum())
        assert after["words"][chosen].eq(task.dictionary.unk()).all()
        assert after["words"][~chosen].equal(before["words"][~chosen])
        assert all(map(torch.equal, after["characters"], before["characters"]))
    written = [row[0] for rows in sentences(60, "train") for row in rows]
    assert changed == written.count("Rome") > 0


def test_validation_of_the_training_set(data):
    """Validation reads the set unchanged, and does not change the epoch of the training."""
    task = setup(data, forget_singletons=0.5)
    dataset = task.load_dataset("train")
    training = task.get_batch_iterator(dataset, max_sentences=8, epoch=3, grouped_shuffling=False)
    plain = task.get_batch_iterator(dataset, max_sentences=8).dataset
    assert training.dataset is dataset
    assert (plain.shuffle, plain.unk_dropout, len(plain)) == (False, None, len(dataset))
    assert dataset.epoch == 3


def test_only_training_is_shuffled_and_has_unk_dropout(data):
    task = setup(data, forget_singletons=0.5)
    for split, random in (("train", True), ("valid", False)):
        dataset = task.load_dataset(split)
        assert dataset.shuffle is random
        assert (dataset.unk_dropout is not None) is random


@pytest.mark.parametrize(
    ("part", "rows", "message"),
    [
        ("label", [["O"]] * 11, r"input0/valid has 12 sentences but .*label/valid has 11"),
        (
            "label",
            [["O"]] * 12,
            r"label/valid, sentence \d+ covers 1 words, .*; give each word one tag$",
        ),
        (
            "spelling",
            [["a"]] * 12,
            r"spelling/valid, sentence \d+ covers 1 words, .*; prepare them ",
        ),
    ],
)
def test_inconsistent_parts(data, part, rows, message):
    task = setup(data)
    dictionary = task.label_dictionary if part == "label" else task.characters
    replace(data, part, "valid", rows, dictionary)
    with pytest.raises(UserError, match=message):
        task.load_dataset("valid")


def test_constraints_of_the_scheme(data):
    task = setup(data)
    task.load_dataset("train")
    begin, inside, outside = (task.classes.index(tag) for tag in ("B-PER", "I-PER", "O"))
    steps = task.constraints.steps
    assert steps[begin, inside] == 0 > steps[outside, inside]
    assert setup(data, unconstrained_tags=True).constraints is None
    make_dictionary({"NN": 3, "DT": 2}).save(str(data / "label" / "dict.txt"))
    assert setup(data).constraints is None


def test_no_constraints_for_irregular_tags(data, caplog):
    """Constraints are off if the tags are IOB1 or violate them often, also after loading."""
    tags = make_dictionary({"O": 9, "I-X": 8, "B-X": 1})
    tags.save(str(data / "label" / "dict.txt"))
    rows = sentences(60, "train")
    forms = [["O" if tag == "O" else f"{tag[0]}-X" for _, _, tag in row] for row in rows]
    replace(data, "label", "train", forms, tags)
    task = setup(data)
    task.load_dataset("train")
    assert task.constraints is not None
    state = task.state_dict()
    del state["irregular_tags"]  # an older checkpoint does not say whether its tags are IOB1
    older = setup(data)
    older.load_state_dict(state)
    assert older.constraints is None
    irregular = [["O" if tag == "O" else "I-X" for tag in row] for row in forms]
    replace(data, "label", "train", irregular, tags)
    task = setup(data)
    task.load_dataset("train")
    assert task.constraints is None
    assert "191 span tags in the training set violate IOB2 or BIOES" in caplog.text
    loaded = setup(data)
    loaded.load_state_dict(task.state_dict())
    assert loaded.constraints is None


def test_an_unknown_tag(data):
    task = setup(data)
    tags = [as_bioes([row[2] for row in rows]) for rows in sentences(12, "valid")]
    tags[3][1] = "S-ORG"
    replace(data, "label", "valid", tags, task.label_dictionary)
    dataset = task.load_dataset("valid")
    expected = [*tags[3][:1], "I-<unk>", *tags[3][2:]]
    assert task.tag_names(dataset.tags(3)) == expected
    assert task.tag_names(dataset.tags(2)) == tags[2]
    assert "label/valid, sentence 4, word 2; each counts as an error" in task.unseen["valid"]
    batch = dataset.collater([dataset[3]])
    assert batch["target"][0].tolist() == dataset.tags(3).tolist()
    rows = [as_bioes([row[2] for row in rows]) for rows in sentences(60, "train")]
    rows[1][0] = "S-ORG"
    replace(data, "label", "train", rows, task.label_dictionary)
    with pytest.raises(UserError, match="label/train, sentence 2, word 1: its tag is not one of"):
        task.load_dataset("train")


def test_raw_text(original):
    task = setup(original)
    assert task.split_text("Anna saw it, in 1998.") == ["Anna", "saw", "it", ",", "in", "1998", "."]
    assert setup(original, raw_tokenizer="space").split_text("it, in") == ["it,", "in"]
    tokens, char_ids = task.encode_words(["Anna", "1998", "ANNA"])
    words = [task.dictionary[int(token)] for token in tokens]
    assert words == ["anna", "0000", "anna", "</s>"]
    shown = ["".join(task.characters[int(c)] for c in word) for word in char_ids[:2]]
    assert shown == ["Anna", "1998"]  # as in the raw text
    tokens, _ = setup(original, lowercase=False).encode_words(["Anna"])
    assert tokens[0] == task.dictionary.unk()


@pytest.mark.parametrize(
    ("known", "line", "shown"),
    [
        (
            ['"', "'"],
            "He said \"don’t\", “yes” ``''",
            ["He", "said", '"', "do", "n’t", '"', ",", "“", "yes", "”", "``", "''"],
        ),
        (
            ["``", "''", "'"],
            'He said "don’t", “yes”',
            ["He", "said", "``", "do", "n't", "''", ",", "``", "yes", "''"],
        ),
    ],
)
def test_quotation_marks(data, known, line, shown):
    """Quotation marks are kept unless the training text only had other ones."""
    make_dictionary(dict.fromkeys(known, 2)).save(str(data / "input0" / "dict.txt"))
    assert setup(data).split_text(line) == shown


def test_unknown_quotation_marks_become_plain_ones(data):
    make_dictionary(dict.fromkeys(['"', "'", "”"], 2)).save(str(data / "input0" / "dict.txt"))
    task = setup(data)
    tokens, _ = task.encode_words(['"', "“", "”", "’"])
    known = [task.dictionary[int(token)] for token in tokens]
    assert known == ['"', '"', "”", "'", "</s>"]


def test_dictionaries_of_another_model(data):
    state = setup(data).state_dict()
    setup(data).load_state_dict(state)
    letters = make_dictionary({"a": 3, "b": 2})
    letters.save(str(data / "spelling" / "dict.txt"))
    setup(data, uses_characters=False).load_state_dict(state)
    with pytest.raises(UserError, match=r"spelling/dict.txt is not the dictionary that the"):
        setup(data).load_state_dict(state)
    task = setup(data, uses_characters=False)
    task.load_state_dict(state)  # in fairseq's order: the model is built afterwards
    with pytest.raises(UserError, match=r"spelling/dict.txt is not the dictionary that the"):
        task.use_characters()
    lines = (data / "input0" / "dict.txt").read_text().splitlines()
    (data / "input0" / "dict.txt").write_text("\n".join(lines[::-1]) + "\n")
    with pytest.raises(UserError, match=r"input0/dict.txt is not the dictionary that the"):
        setup(data, uses_characters=False).load_state_dict(state)


def test_missing_parts(data):
    with pytest.raises(UserError, match=r"there is no .*input0/other"):
        setup(data).load_dataset("other")
    (data / "spelling" / "train.idx").unlink()
    setup(data, uses_characters=False).load_dataset("train")
    with pytest.raises(UserError, match=r"there is no .*spelling/train"):
        setup(data).load_dataset("train")
    shutil.rmtree(data / "spelling")
    assert setup(data).characters is None
    (data / "label" / "dict.txt").unlink()
    with pytest.raises(UserError, match=r"label/dict.txt does not exist; fill"):
        setup(data)


def test_special_symbols_are_unknown_words(original):
    """In raw text, words such as </s> are unknown."""
    task = setup(original)
    tokens, char_ids = task.encode_words(["<pad>", "Anna", "</s>"])
    unknown = task.dictionary.unk()
    assert tokens[:1].tolist() + tokens[2:].tolist() == [unknown, unknown, task.dictionary.eos()]
    assert [len(word) for word in char_ids] == [5, 4, 4]


@pytest.mark.parametrize(("regular", "irregular"), [(99, False), (98, True)])
def test_tags_with_one_percent_of_errors_are_regular(regular, irregular):
    rows, state = [[1]] * regular + [[2]], {}
    own = SimpleNamespace(
        are_spans=True,
        classes=["O", "B-X", "I-X"],
        state=SimpleNamespace(merge_state_dict=state.update),
    )

    class Tags(list):
        def tags(self, index):
            return torch.tensor(self[index])

    TASK._for_training(own, Tags(rows), "train")
    assert state == {"irregular_tags": irregular}
