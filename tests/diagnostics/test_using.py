"""Errors in fairseq's programs other than ``fairseq-train``."""

import shutil

import pytest
import torch

from fairseq_casrnn import cli
from fairseq_casrnn.diagnostics.explain import fairseq_message
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.reranking.score import load_translation

from .commands import damage, preprocess, spoil_weights, write_corpus

# --- fairseq-preprocess ------------------------------------------------------------------------


def append(name: str, content: bytes):
    def spoil(text):
        with open(text / name, "ab") as file:
            file.write(content)

    return spoil


def blank(name: str, lines: int):
    return lambda text: (text / name).write_text(" \n" * lines)


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (append("train.xx", b"a\nb \xff c\n"), "{text}/train.xx, line 42 is not valid UTF-8"),
        (append("test.yy", b"\xff"), "{text}/test.yy, line 7 is not valid UTF-8"),
        (append("valid.yy", b"a"), "{text}/valid.xx has 6 lines but {text}/valid.yy has 7"),
        # A lone carriage return does not end a line.
        (append("train.xx", b"a\rb\n"), "{text}/train.xx has 41 lines but {text}/train.yy has 40"),
        (
            append("train.xx", b"a <pad> b <s>\n</s> <pad>\n"),
            "{text}/train.xx has words that are special symbols of fairseq (</s> 1, <pad> 2, "
            "<s> 1, first in line 41); write them differently, such as &lt;pad&gt;",
        ),
        (lambda text: (text / "test.yy").write_text(""), "{text}/test.yy is empty"),
        (lambda text: (text / "test.yy").unlink(), "{text}/test.yy does not exist"),
        (blank("train.xx", 40), "{text}/train.xx has only blank lines; give a file with sentences"),
        (blank("train.yy", 40), "{text}/train.yy has only blank lines"),
        (blank("valid.yy", 6), "{text}/valid.yy has only blank lines"),
        (blank("test.xx", 6), "{text}/test.xx has only blank lines"),
    ],
)
def test_damaged_text(fairseq, tmp_path, spoil, sentence):
    text = write_corpus(tmp_path)
    spoil(text)
    assert sentence.format(text=text) in preprocess(fairseq, text).sentence
    assert not (text / "bin").exists()


def test_test_set_without_translations(fairseq, tmp_path):
    text = write_corpus(tmp_path)
    blank("test.yy", 6)(text)
    assert preprocess(fairseq, text).status == 0


def test_wrong_option_for_preprocessing(fairseq, tmp_path):
    text = write_corpus(tmp_path)
    sentence = preprocess(fairseq, text, "--workers", 0).sentence
    assert sentence == "--workers is 0; it must be at least 1"
    assert not (text / "bin").exists()


@pytest.mark.parametrize("content", ["", "\n"])
def test_dictionary_without_words(fairseq, tmp_path, content):
    text = write_corpus(tmp_path)
    (text / "none").write_text(content)
    sentence = preprocess(fairseq, text, "--srcdict", text / "none").sentence
    assert f"{text}/none holds no words; give --srcdict a dictionary that" in sentence
    assert not (text / "bin").exists()


@pytest.mark.parametrize(
    ("only", "option"),
    [((), "thresholdsrc"), ((), "thresholdtgt"), (("--only-source",), "thresholdsrc")],
)
def test_thresholds_that_leave_no_word(fairseq, tmp_path, only, option):
    text = write_corpus(tmp_path)
    sentence = preprocess(fairseq, text, *only, f"--{option}", 999).sentence
    assert sentence == f"no word occurs --{option} 999 times; give a smaller one"
    assert not (text / "bin").exists()


def test_refused_preprocessing_leaves_no_folder(fairseq, tmp_path):
    text = write_corpus(tmp_path)
    assert "nowhere" in preprocess(fairseq, text, "--srcdict", text / "nowhere").sentence
    assert not (text / "bin").exists()


def test_full_disk_while_binarising(fairseq, tmp_path):
    text = write_corpus(tmp_path)
    for name in ("valid.xx", "valid.yy"):
        (text / name).write_text(("a b c d " * 1000 + "\n") * 10)
    (text / "bin").mkdir()
    (text / "bin" / "notes").write_text("mine")
    done = preprocess(fairseq, text, file_size=40_000)
    assert f"could not write {text}/bin (File too large); free some space" in done.sentence
    assert sorted(file.name for file in (text / "bin").iterdir()) == ["notes", "preprocess.log"]


def test_second_preprocessing_into_one_folder(fairseq, data):
    before = {file: file.read_bytes() for file in data.iterdir() if file.suffix != ".log"}
    sentence = preprocess(fairseq, data.parent).sentence
    assert f"{data}/dict.xx.txt exists already; give another --destdir" in sentence
    assert before == {file: file.read_bytes() for file in before}


# --- fairseq-generate and fairseq-validate -----------------------------------------------------


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("--path nowhere.pt", "checkpoint nowhere.pt does not exist; check --path"),
        ("--path {checkpoint}:nowhere.pt", "checkpoint nowhere.pt does not exist"),
        (
            "--path {checkpoint} --lm-path nowhere.pt",
            "checkpoint nowhere.pt does not exist; check --lm-path",
        ),
        ("--path {data}", "{data} cannot be used (Is a directory)"),
        ("", "--path is missing; give it the file of a checkpoint"),
        ("--path {checkpoint} --gen-subset tset", "there is no 'tset' dataset at {data}"),
        ("--path {checkpoint} --beam 0", "--beam is 0; it must be at least 1"),
        ("--path {checkpoint} --bpe subword_nmt", "--bpe-codes is missing"),
        ("--path {checkpoint} --bpe subword_nmt --bpe-codes /no", "/no does not exist"),
        (
            "--path {checkpoint} --model-overrides encoder",
            "--model-overrides is 'encoder', which is not a Python literal; write it as",
        ),
        ("--path {checkpoint} --lenpen nan", "--lenpen is nan; it must be a number"),
        ("--path {checkpoint} --num-shards 2 --shard-id 5", "--shard-id is 5; it must be at least"),
        (
            "--path {checkpoint} --num-shards 9 --shard-id 8",
            "no batch of 'test' is left for --shard-id 8; lower --num-shards 9, or use smaller",
        ),
        ("--path {checkpoint} --remove-bpe nope", "--post-process 'nope' is unknown; choose from"),
        (
            "--path {checkpoint} --skip-invalid-size-inputs-valid-test --max-source-positions 2",
            "no sentence of 'test' is left to translate: all are longer than --max-source-",
        ),
        (
            "--path {checkpoint} --sampling --nbest 5 --sampling-topk 1000",
            "--sampling-topk is 1000; it must not be greater than the size of the target dictio",
        ),
        (
            "--path {checkpoint} --bpe sentencepiece --sentencepiece-model {data}/dict.xx.txt",
            "{data}/dict.xx.txt is not a model of SentencePiece; check --sentencepiece-model",
        ),
        (
            "--path {checkpoint} --bpe subword_nmt --bpe-codes {checkpoint}",
            "{checkpoint} is not valid UTF-8; check --bpe-codes",
        ),
        ("--path {checkpoint} --constraints", "--constraints needs words for each sentence, which"),
        ("--path {model_of_language}", "holds a language model, sentence encoder or tagger, but"),
        ("--path {checkpoint} --replace-unk", "--replace-unk requires a raw text dataset"),
        ("--path {checkpoint} --task translation_lev", "--task translation_lev needs a model that"),
        ("--path {checkpoint} --print-step", "--print-step needs a model that refines its output"),
        ("--path {checkpoint} --retain-iter-history", "--retain-iter-history needs a model that"),
    ],
)
def test_wrong_option_for_generation(fairseq, data, checkpoint, tmp_path, options, sentence):
    names = {"data": data, "checkpoint": checkpoint, "model_of_language": tmp_path / "lm.pt"}
    state = torch.load(checkpoint)
    state["task_state"]["words"] = 123456  # the index of its only dictionary
    torch.save(state, tmp_path / "lm.pt")
    done = fairseq("generate", data, "--cpu", *options.format(**names).split())
    assert sentence.format(**names) in done.sentence


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("options", ["", "--sampling --nbest 5"])
def test_diverged_model(fairseq, data, checkpoint, tmp_path, options):
    spoil_weights(checkpoint, tmp_path / "nan.pt")
    options = ["--path", tmp_path / "nan.pt", "--max-len-b", 5, *options.split()]
    sentence = fairseq("generate", data, "--cpu", *options).sentence
    expected = f"checkpoint {tmp_path}/nan.pt: the scores are not finite because the model's weig"
    assert sentence.startswith(expected)


@pytest.mark.full
def test_scores_that_overflow(fairseq, data, checkpoint, tmp_path):
    """Finite weights can produce them."""
    spoil_weights(checkpoint, tmp_path / "huge.pt", 1e38)
    options = ["--path", tmp_path / "huge.pt", "--max-len-b", 5, "--temperature", 1e-6]
    sentence = fairseq("generate", data, "--cpu", *options).sentence
    assert sentence.startswith("no hypothesis of a sentence has a finite score; drop --fp16, --tem")


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("10 < 10", False),
        ("torch.Size([3]) vs torch.Size([4])", False),
        ("dataset lengths must match", True),
        ("--path required for generation!", True),
    ],
)
def test_messages_of_assertions(message, said):
    """Messages that would not help a user are shown with their traceback."""
    error = AssertionError(message)
    with pytest.raises(AssertionError):
        exec("raise error", {"__name__": "fairseq.somewhere", "error": error})
    assert fairseq_message(error) == (message if said else None)


@pytest.mark.full
def test_incompatible_checkpoints_for_generation(fairseq, data, other_data, checkpoint, tmp_path):
    sentence = fairseq("generate", other_data, "--cpu", "--path", checkpoint).sentence
    assert f"the dict.xx.txt of {other_data} is not the dictionary that the" in sentence
    state = torch.load(checkpoint)
    state["task_state"].pop("words")
    torch.save(state, tmp_path / "older.pt")
    sentence = fairseq("generate", other_data, "--cpu", "--path", tmp_path / "older.pt").sentence
    assert f"{tmp_path}/older.pt belongs to a model of another architecture or" in sentence
    torch.save([1, 2], tmp_path / "list.pt")
    sentence = fairseq("generate", data, "--cpu", "--path", tmp_path / "list.pt").sentence
    assert f"{tmp_path}/list.pt is not a checkpoint of fairseq-train" in sentence
    damage(checkpoint, tmp_path / "damaged.pt")
    sentence = fairseq("generate", data, "--cpu", "--path", tmp_path / "damaged.pt").sentence
    assert f"checkpoint {tmp_path}/damaged.pt is damaged" in sentence


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("side", ["xx", "yy"])
def test_the_same_words_in_another_order(fairseq, data, checkpoint, tmp_path, side):
    """Embeddings would be assigned to other words without any error."""
    other = shutil.copytree(data, tmp_path / "other")
    lines = (other / f"dict.{side}.txt").read_text().splitlines(keepends=True)
    (other / f"dict.{side}.txt").write_text("".join(reversed(lines)))
    expected = (
        f"the dict.{side}.txt of {other} is not the dictionary that the model was trained with"
    )
    assert expected in fairseq("generate", other, "--cpu", "--path", checkpoint).sentence
    (tmp_path / "list").write_text("S-0\ta\nH-0\t-1\ta\n")
    command = ["rerank", "score", tmp_path / "list", "--data", other, "--path", checkpoint]
    with pytest.raises(UserError, match=expected):
        load_translation([str(checkpoint)], other)
    assert cli.main([*map(str, command), "--output", str(tmp_path / "scores")]) == 2


@pytest.mark.full
def test_replaced_unknown_words_without_raw_text(fairseq, data, checkpoint):
    text = data.parent / "raw"
    text.mkdir()
    for side in ("xx", "yy"):
        shutil.copy(data / f"dict.{side}.txt", text)
        shutil.copy(data.parent / f"test.{side}", text / f"test.xx-yy.{side}")
    options = ["--cpu", "--path", checkpoint, "--dataset-impl", "raw", "--replace-unk"]
    done = fairseq("generate", text, *options, "--truncate-source")
    assert done.sentence.startswith("--replace-unk needs source and target of the subset as raw te")


@pytest.mark.full
def test_wrong_option_for_validation(fairseq, data):
    assert "--task is missing" in fairseq("validate", data, "--path", "nowhere.pt").sentence
    options = ["--task", "translation", "--max-tokens", 100, "--cpu"]
    done = fairseq("validate", data, *options, "--path", "nowhere.pt")
    assert "checkpoint nowhere.pt does not exist" in done.sentence
    assert fairseq("validate", data, *options).sentence.startswith("--path is missing; give it")


# --- fairseq-interactive -----------------------------------------------------------------------


@pytest.fixture
def interactive(fairseq, data, checkpoint):
    def run(stdin: bytes, *args):
        options = ["--cpu", "--beam", 2, "--max-len-b", 3, "--max-len-a", 0]
        return fairseq("interactive", data, "--path", checkpoint, *options, *args, stdin=stdin)

    return run


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("buffered", [[], ["--buffer-size", 8, "--batch-size", 4]])
def test_every_line_is_answered(interactive, buffered):
    """Empty lines are empty sentences; a line may have 1,000 words."""
    lines = ["a b", "", " ", "c " * 999 + "d", "e"]
    done = interactive("\n".join(lines).encode(), *buffered)
    assert done.status == 0, done.err
    sources = [answer.split("\t")[1] for answer in done.answers("S")]
    assert sources == [line.strip() for line in lines]
    assert [answer.split("\t")[0] for answer in done.answers("H")] == [f"H-{n}" for n in range(5)]


def test_special_symbols_are_unknown_words(interactive):
    """Words such as </s> are unknown, and neither end a sentence nor count as padding."""
    done = interactive("\ufeffa <pad> b\rc\n</s> <s> d".encode())
    assert done.status == 0, done.err
    assert done.answers("S") == ["S-0\ta <unk> b c", "S-1\t<unk> <unk> d"]


def test_no_line(interactive):
    done = interactive(b"")
    assert (done.status, done.answers("H")) == (0, [])


@pytest.mark.full
def test_line_that_is_too_long(interactive):
    text = b"a\nb\n" + b"c " * 1024 + b"\nd\n"
    for buffered in ([], ["--buffer-size", 3]):
        done = interactive(text, *buffered)
        assert done.sentence.startswith("sentence 3 has 1025 tokens, more than the model's --max-s")
    done = interactive(text, "--skip-invalid-size-inputs-valid-test")
    assert [answer.split("\t")[0] for answer in done.answers("H")] == ["H-0", "H-1", "H-3"]
    done = interactive(b"c " * 500, "--max-tokens", 100)
    assert "a sentence of 501 tokens does not fit into a batch of --max-tokens 100" in done.sentence


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("before", [2, 5000])  # 5000 lines are more than is decoded at a time
def test_invalid_utf8_in_the_input(interactive, tmp_path, before):
    text = b"a b\n" * before + b"c \xff d\ne\n"
    (tmp_path / "in").write_bytes(text)
    expected = f", line {before + 1} is not valid UTF-8; convert it to UTF-8 ("
    # With many lines before it, some might be translated.
    size = ["--buffer-size", before + 10]
    assert interactive(text, *size).sentence.startswith(f"the input{expected}")
    done = interactive(b"", *size, "--input", tmp_path / "in")
    assert done.sentence.startswith(f"{tmp_path}/in{expected}")


def test_unknown_words_replaced_without_a_dictionary(interactive):
    """fairseq would read the dictionary from a file @@. An empty line has no word to copy."""
    done = interactive(b"zzz\n\n", "--replace-unk", "--unkpen", -99)
    assert done.status == 0, done.err
    answers = [answer.split("\t")[2].split() for answer in done.answers("H")]
    assert set(answers[0]) == {"zzz"}
    assert set(answers[1]) == {"<unk>"}


def test_malformed_dictionary_for_unknown_words(interactive, tmp_path):
    (tmp_path / "words").write_text("a b\nc\n")
    sentence = interactive(b"a\n", "--replace-unk", tmp_path / "words").sentence
    assert sentence.startswith(f"{tmp_path}/words, line 2 does not hold a source word and a target")


def test_soft_alignments(interactive):
    sentence = interactive(b"a b\n", "--print-alignment", "soft").sentence
    assert sentence.startswith("fairseq-interactive prints hard alignments; use fairseq-generate")


def test_num_shards_is_refused(interactive):
    sentence = interactive(b"a b\n", "--num-shards", 2).sentence
    assert sentence == "--num-shards is for fairseq-generate and fairseq-eval-lm; drop it"


def test_score_reference_is_refused(interactive):
    sentence = interactive(b"a b\n", "--score-reference").sentence
    assert sentence.startswith("--score-reference needs references, but fairseq-interactive reads")


def test_no_model(fairseq, data):
    assert fairseq("interactive", data, "--cpu").sentence.startswith("--path is missing; give it")


def test_no_input(interactive, tmp_path):
    assert (
        interactive(b"", "--input", "/nowhere").sentence
        == "/nowhere does not exist; check the path"
    )
    done = interactive(b"", "--input", tmp_path)
    assert done.sentence == f"{tmp_path} cannot be used (Is a directory); check the path"


# --- fairseq-eval-lm ---------------------------------------------------------------------------


def test_perplexity_of_a_translation_model(fairseq, data, checkpoint):
    done = fairseq("eval-lm", data, "--cpu", "--task", "translation", "--path", checkpoint)
    assert done.sentence.startswith("fairseq-eval-lm is for language models; give --task language")


# --- all programs ------------------------------------------------------------------------------


def test_unknown_precision_in_the_environment(fairseq, tmp_path, monkeypatch):
    """The variable is read while fairseq imports the plugin."""
    monkeypatch.setenv("CASRNN_FLOAT32_MATMUL_PRECISION", "fast")
    assert fairseq("eval-lm", tmp_path, "--path", "x.pt").sentence == (
        "environment variable CASRNN_FLOAT32_MATMUL_PRECISION is 'fast'; choose from highest, high,"
        " medium, int8"
    )


def test_a_byte_order_mark_in_a_class(fairseq, tmp_path):
    """A byte-order mark between concatenated files is not part of a class."""
    (tmp_path / "train").write_text("pos\nneg\n\ufeffpos\n", encoding="utf-8")
    options = ("--only-source", "--trainpref", tmp_path / "train", "--destdir", tmp_path / "bin")
    done = fairseq("preprocess", *options)
    assert done.sentence.startswith(f"{tmp_path}/train, line 3: '\\ufeffpos' has an invisible")
    assert not (tmp_path / "bin" / "dict.txt").exists()
    (tmp_path / "train").write_text("a film\n\ufeffpos\n", encoding="utf-8")
    assert fairseq("preprocess", *options).status == 0
