"""Recipe files: their contents, their meaning, and an error of one sentence for each mistake."""

import io
import json
import os
import re
import shlex
import signal
import subprocess
import time
from pathlib import Path

import pytest
from recipe_runs import EXAMPLES

from fairseq_casrnn import cli
from fairseq_casrnn.console.programs import Programs, copy
from fairseq_casrnn.data.checksum import checksum, checksum_of_training_data
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.plugin import USER_DIR
from fairseq_casrnn.recipes.recipe import load
from fairseq_casrnn.recipes.templates import evaluate, fill
from fairseq_casrnn.recipes.training import refusal
from fairseq_casrnn.runs.identity import identity

RECIPES = sorted(path for path in EXAMPLES.glob("*/*.yaml") if path.parent.name != "hydra")
FILES = ("python", "yaml")
HEAD = "title: A corpus\nkind: classification\nreader: reader.py\narchs: [cnn]\n"


def write(folder, text, name="recipe.yaml"):
    path = folder / name
    path.write_text(text)
    return path


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_recipe_loads_and_names_known_systems(path):
    recipe = load(path)
    for name in (*recipe.archs, recipe.tiny, *(one["arch"] for one in recipe.variants.values())):
        recipe.check_system(name)
        assert "--lr" in recipe.training_options(name, [])


@pytest.mark.parametrize("name", ["trec", "sst", "reviews16", "rte", "conll03", "pos"])
def test_range_of_words_without_vector(name, tmp_path):
    """Embeddings of words without vector are drawn from the range of the vectors."""
    (tmp_path / "some.vec").write_text("a 1 2\n")
    recipe = load(EXAMPLES / name / "recipe.yaml")
    options = recipe.training_options(recipe.archs[0], [], str(tmp_path / "some.vec"))
    assert options[-2:] == ["--encoder-embed-range", "0.25"]


@pytest.mark.parametrize(
    ("name", "paper", "fixed"),
    [("nli", "cas", True), ("nli", "shortcut", False), ("paraphrase", None, True)],
)
def test_vectors_are_frozen_where_the_paper_freezes_them(name, paper, fixed, tmp_path):
    (tmp_path / "some.vec").write_text("a 1 2\n")
    recipe = load(EXAMPLES / name / "recipe.yaml", **({"PAPER": paper} if paper else {}))
    options = recipe.training_options(recipe.archs[0], [], str(tmp_path / "some.vec"))
    assert options[options.index("--encoder-embed-range") + 1] == "0.25"
    assert ("--encoder-freeze-embed" in options) == fixed
    assert "--encoder-freeze-embed" not in recipe.training_options(recipe.archs[0], [])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("titel: x", "there is no key titel; did you mean title?"),
        ("settings: {lr: [1, 2]}", "settings.lr is a list; it must be a single value"),
        ("settings: {lr: }", "settings.lr is empty; it must be a single value"),
        ("settings: fast", "settings is 'fast'; it must be a mapping such as {lr: 1e-3}"),
        ("seeds: 3", "seeds is '3'; it must be a list such as [1, 2]"),
        ("seeds: []", "seeds is empty; it must be a list such as [1, 2]"),
        ("seeds: [[1]]", "seeds is a list; it must be a single value"),
        ("parts: {option: fold, value: [1]}", "no key parts.value; did you mean values?"),
        (
            "parts: {option: fold, values: [1], variable: F}",
            "the key parts.folder is missing; add it",
        ),
        ("when: [{settings: {lr: 1}}]", "the key when.if is missing; add it"),
        ("when: [{if: A, title: x}]", "there is no key when.title; use if, archs"),
        ("systems: {small: {layers: 1}}", "the key systems.small.arch is missing; add it"),
        ("variants: {small: {lr: 1}}", "the key variants.small.arch is missing; add it"),
        ("kind: classifier", "kind is 'classifier'; use classification, tagging, "),
        ("lr: 1\nlr: 2", "line 2 is not YAML: duplicate key lr; correct it"),
        ("title: [", "is not YAML: "),
        ("? [lr]\n: 1", "is not YAML: "),
        pytest.param("seeds: " + "[" * 9999, "is nested too deeply; correct it", id="deep"),
        ("settings: &all {lr: *all}", "is not YAML: found unconstructable recursive node"),
        ("- title", "its content is not a mapping; it must be a mapping"),
        ("", "its content is not a mapping"),
        ("extends: none.yaml", "none.yaml, which {path} extends, cannot be read (No such file"),
        ("extends: recipe.yaml", "extends leads back to "),
        (
            "settings: {lr: $RATE}",
            "'$RATE' has an unknown variable RATE; declare it under variables",
        ),
        ("settings: {lr: $ 1}", "'$ 1' has a $ without a name; write $$ for a $"),
        ("settings: {lr: $(1 +)}", "'1 +' cannot be computed; use variables, numbers, "),
        ("when: [{if: A, settings: {lr: 1}}]", "there is no variable A; declare it"),
        (
            "variables: {A: x}\nsettings: {lr: $(A:.2g)}",
            "'$(A:.2g)' formats a text; only numbers have a format, drop it",
        ),
    ],
)
def test_mistakes_in_a_recipe_name_file_and_key(text, message, tmp_path):
    head = "".join(line for line in HEAD.splitlines(True) if line.split(":")[0] not in text)
    path = write(tmp_path, text if text in ("", "- title", "lr: 1\nlr: 2") else f"{text}\n{head}")
    with pytest.raises(UserError) as error:
        load(path)
    assert message.replace("{path}", str(path)) in str(error.value)
    assert str(path.parent) in str(error.value)
    assert "\n" not in str(error.value)


def test_an_option_of_parts_that_every_recipe_has(tmp_path, capsys):
    path = write(tmp_path, HEAD + "parts: {option: data}\n")
    assert cli.main(["run", "train", str(path)]) == 2
    message = f"{path}: parts.option is data, which is an option of recipes; choose another name"
    assert capsys.readouterr().err == f"error: {message}\n"


def test_missing_keys_and_files(tmp_path):
    with pytest.raises(UserError, match=r"recipe\.yaml: the key archs is missing; add it"):
        load(write(tmp_path, HEAD.replace("archs: [cnn]\n", "")))
    with pytest.raises(UserError, match=r"recipe\.yaml: the key reader is missing; add it"):
        load(write(tmp_path, "title: x\nkind: tagging"))
    with pytest.raises(UserError, match=r"none\.yaml cannot be read \(No such file or directory\)"):
        load(tmp_path / "none.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"title: \xe9")
    with pytest.raises(UserError, match=r"latin\.yaml is not UTF-8"):
        load(tmp_path / "latin.yaml")


@pytest.mark.parametrize("option", ["--dry-run", "--force"])
def test_a_reader_that_does_not_exist(tmp_path, capsys, option):
    path = write(tmp_path, HEAD)
    assert cli.main(["run", "prepare", str(path), option]) == 2
    assert capsys.readouterr().err == (
        f"error: {path}: the reader {tmp_path}/reader.py does not exist; correct the key reader, "
        "or write the file\n"
    )


def test_extends_merges_mappings_and_replaces_other_values(tmp_path):
    base = "settings: {lr: 1e-3, dropout: 0.10, patience: 5}\nseeds: [1, 2]\n" + HEAD
    write(tmp_path, base, "base.yaml")
    own = "extends: base.yaml\nsettings: {dropout: 0.5, clip-norm: 1.0}\nseeds: [3]"
    recipe = load(write(tmp_path, own))
    assert recipe.seeds == ["3"]
    # as written, in the order of the first file
    assert recipe.training_options("cnn_sentence_encoder", ["--x"]) == [
        *("--arch", "cnn_sentence_encoder", "--lr", "1e-3", "--dropout", "0.5"),
        *("--patience", "5", "--clip-norm", "1.0", "--x"),
    ]


def test_conditions_override_settings(tmp_path, monkeypatch):
    text = HEAD + (
        "variables: {SIZE: 8, PAPER: none}\nsettings: {lr: 1, dropout: $SIZE}\n"
        "routed: {temperature-decay: $(2.5e-4 ** (1 / (SIZE - 1)):.2g)}\nunrouted: {lam: none}\n"
        "when:\n- {if: SIZE <= 8, settings: {flag: true, total: $(933 * SIZE)}}\n"
        "- {if: PAPER == 'second', unrouted: {lam: '0'}}\n"
    )
    path = write(tmp_path, text)
    assert load(path).training_options("cnn", [])[2:] == [
        *("--lam", "none", "--flag", "--total", "7464")
    ]
    monkeypatch.setenv("SIZE", "9")
    monkeypatch.setenv("PAPER", "second")
    assert load(path).training_options("cnn", [])[2:] == [
        *("--lam", "0", "--lr", "1", "--dropout", "9")
    ]
    monkeypatch.setenv("SIZE", "")  # an empty variable counts as unset
    routed = load(path).training_options("second_order_lstm", [])
    assert routed[2:4] == ["--temperature-decay", "0.31"]
    for size in ("few", "0", "-1", "8.5"):
        monkeypatch.setenv("SIZE", size)
        sentence = re.escape(f"recipe.yaml: SIZE must be a positive number, not '{size}'")
        with pytest.raises(UserError, match=sentence):
            load(path)


def test_expressions_only_do_arithmetic():
    values = {"N": "3", "NAME": "ab"}
    assert fill("$(max(N - 1, 1) / 4)", values) == "0.5"
    assert fill("${NAME}_$N", values) == "ab_3"
    assert evaluate("NAME == 'ab'", values) is True
    assert evaluate("NAME", values) == "ab"
    for text in (
        "__import__('os')",
        "N.real",
        "[N]",
        "lambda: 1",
        "N if N else 1",
        "open(N)",
        "9 ** 9 ** 9",
        "(1 - N) ** 0.5",
        "1 / (N - N)",
        "NAME < 1.5 < 2",
    ):
        with pytest.raises(UserError, match="cannot be computed"):
            evaluate(text, values)


@pytest.mark.parametrize("size", [0, 1, 255, 256, 70_000])
def test_checksum_is_that_of_posix(size):
    data = bytes(i * i % 251 for i in range(size))
    wanted = subprocess.run(["cksum"], input=data, capture_output=True, check=True).stdout
    assert checksum([data[:100], data[100:]]) == wanted.decode().strip()


def test_identity_excludes_the_length_of_training(tmp_path):
    for name in ("train.bin", "dict.txt", "input0/singletons.txt", "valid.bin", "Label/train.bin"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    own = checksum_of_training_data(tmp_path)
    # Paths are sorted by their bytes, so capitals come first.
    assert own == checksum([b"Label/train.bindict.txtinput0/singletons.txttrain.bin"])
    cells = tmp_path / "cells"
    cells.write_text("w 1\n")
    table = checksum([b"w 1\n"])
    for options, lines in [
        (["--lr", "1", "--max-epoch", "3", "--cpu", "--log-interval=1"], ["--lr", "1"]),
        (["--max-epoch=3", "--lr", "1"], ["--lr", "1"]),
        (["--assignment-path", str(cells)], ["--assignment-path", table]),
        ([f"--assignment-path={cells}"], ["--assignment-path", table]),
        (["--assignment-path", "none"], ["--assignment-path"]),
        (["--mix", f"{tmp_path}:0.5"], ["--mix", own, f"{tmp_path}:0.5"]),
        ([f"--mix={tmp_path}:0.5"], [f"--mix={tmp_path}:0.5", own]),
        (["--mix"], ["--mix"]),
        (["--max-update"], []),
    ]:
        assert identity(tmp_path, options) == "\n".join([own, *lines]), options


@pytest.mark.parametrize(
    ("before", "now", "named"),
    [
        ("--lr 1 --lr 2", "--lr 1 --lr 3", "--lr 2 instead of 3"),
        ("--lr 1 --lr 2", "--lr=1", "--lr 2 instead of 1"),
        ("--a 1 --a 2", "--a 3 --a 2", "--a 1 and 2 instead of 3 and 2"),
        ("--bf16 --lr 1", "--lr 1 --clip-norm 3", "with --bf16, without --clip-norm"),
        ("--low -1.5 2", "--low -1.5", "--low -1.5 2 instead of -1.5"),
        ("--store-ema", "--store-ema 1", "--store-ema without a value instead of 1"),
        ("--mix 12 34 /a:0.5", "--mix=/a:0.5 12 35", "another --mix"),
        ("--assignment-path 1 2", "--assignment-path 3 4", "another --assignment-path"),
        ("--lr 1 --bf16", "--bf16 --lr 1", "in another order"),
    ],
)
def test_refusal_names_the_changed_options(before, now, named):
    texts = ["\n".join(["12 34", *options.split()]) for options in (before, now)]
    assert refusal(Path("out/a/seed1"), *texts) == (
        f"out/a/seed1 was started with other options ({named}); repeat the options given before, "
        "give another --out, or delete that folder to train again"
    )
    assert refusal(Path("out/a/seed1"), texts[0], texts[0].replace("12 34", "5 6")) == (
        "out/a/seed1 was started with other data; give another --out, or delete that folder to "
        "train again"
    )


def test_output_is_shown_if_the_log_cannot_be_written(tmp_path, capsys):
    shown, full = io.BytesIO(), tmp_path / "train.log"
    full.write_bytes(b"")
    reader, writer = os.pipe()
    os.write(writer, b"epoch 1\n")
    os.close(writer)
    with open(full, "rb") as log, open(reader, "rb", buffering=0) as source:
        copy(source, shown, log)  # the log is not open for writing
    assert shown.getvalue() == b"epoch 1\n"
    assert capsys.readouterr().err.startswith(f"warning: cannot write to {full} (")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_a_program_starts_reaches_it(tmp_path, monkeypatch, number):
    program = tmp_path / "wait.py"
    program.write_text("import time; time.sleep(30)")
    popen = subprocess.Popen

    def interrupted(*args, **options):
        child = popen(*args, **options)
        os.kill(os.getpid(), number)
        return child

    monkeypatch.setattr(subprocess, "Popen", interrupted)
    start = time.monotonic()
    before = signal.signal(number, signal.SIG_DFL)  # tests in the background ignore SIGINT
    try:
        with pytest.raises(SystemExit):
            Programs().call(str(program))
    finally:
        signal.signal(number, before)
    assert time.monotonic() - start < 20


def test_a_dry_run_prints_commands_and_writes_nothing(tmp_path, capsys):
    recipe = EXAMPLES / "mr" / "recipe.yaml"
    where = ["--data", f"{tmp_path}/the data", "--out", f"{tmp_path}/out"]
    options = [*where, "--arch", "bicas2", "--seeds", "2", "--dry-run", "--", "--lr", "0.5"]
    assert cli.main(["run", "train", str(recipe), *options]) == 0
    lines = [shlex.split(line) for line in capsys.readouterr().out.splitlines()]
    assert [line[:8] for line in lines] == [
        [
            *("fairseq-train", f"{tmp_path}/the data/data-bin", "--user-dir", USER_DIR),
            *("--seed", seed, "--save-dir", f"{tmp_path}/out/bicas2/seed{seed}"),
        ]
        for seed in ("1", "2")
    ]
    assert all(line[-2:] == ["--lr", "0.5"] for line in lines)
    folds = EXAMPLES / "mr" / "folds.yaml"
    options = [*where, "--raw", "RAW", "--folds", "0,7", "--dry-run"]
    assert cli.main(["run", "table", str(folds), *options]) == 0
    lines = [shlex.split(line) for line in capsys.readouterr().out.splitlines()]
    steps = [line[0] if line[0] == "fairseq-train" else line[2].split(".")[-1] for line in lines]
    assert steps[:3] == steps[3:6] == ["mr", "fairseq-train", "evaluate_classifier"]
    assert steps[6:] == ["tables"]
    assert lines[3][-2:] == ["--fold", "7"]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "text", [b"a 1 -2e-3 .5\nb 1 2 3\n", b"2 3\na 1 2 3\n", b"\xff 1 2 3 \r\n"]
)
def test_vectors_are_an_option_of_a_recipe(text, tmp_path, capsys):
    """--vectors adds the dimension and the recipe's settings; options after -- override them."""
    (tmp_path / "some.vec").write_bytes(text)
    own = HEAD + "settings: {dropout: 0.5}\nvectors: {forget-singletons: 0}"
    recipe = write(tmp_path, own)
    where = ["--arch", "cnn_sentence_encoder", "--data", "DATA", "--out", "OUT", "--dry-run"]
    options = [*where, "--vectors", str(tmp_path / "some.vec"), "--", "--lr", "1"]
    assert cli.main(["run", "train", str(recipe), *options]) == 0
    (line,) = map(shlex.split, capsys.readouterr().out.splitlines())
    assert line[-10:] == [
        *("--dropout", "0.5", "--encoder-embed-path", str(tmp_path / "some.vec")),
        *("--encoder-embed-dim", "3", "--forget-singletons", "0", "--lr", "1"),
    ]
    assert cli.main(["run", "train", str(recipe), *where]) == 0
    assert capsys.readouterr().out.split()[-2:] == ["--dropout", "0.5"]


def test_folds_are_prepared_with_vectors(tmp_path, capsys):
    (tmp_path / "some.vec").write_text("a 1 2\n")
    where = ["--raw", "RAW", "--data", "DATA", "--folds", "3", "--dry-run"]
    options = [*where, "--vectors", str(tmp_path / "some.vec")]
    assert cli.main(["run", "table", str(EXAMPLES / "mr" / "folds.yaml"), *options]) == 0
    prepare, train, *_ = map(shlex.split, capsys.readouterr().out.splitlines())
    assert prepare[prepare.index("--vectors") + 1] == str(tmp_path / "some.vec")
    assert train[train.index("--encoder-embed-dim") + 1] == "2"


def test_each_step_takes_the_parts_of_a_recipe(tmp_path, capsys):
    """Without values, they are the folders that the reader has made in the folder of the data."""
    recipe = str(write(tmp_path, HEAD + "parts: {option: set}\n"))
    assert cli.main(["run", "train", recipe]) == 2
    data = tmp_path / "data"
    message = f"{data} holds no prepared data; run prepare.sh --out {data} first"
    assert capsys.readouterr().err == f"error: {message}\n"
    for name in ("books", "dvd", "music"):
        (data / name / "data-bin").mkdir(parents=True)
    assert cli.main(["run", "train", recipe, "--dry-run"]) == 2
    assert "error: unknown system cnn; give an architecture\n" in capsys.readouterr().err
    arch = ["--arch", "cnn_sentence_encoder", "--dry-run"]
    for options, sets in (
        ([], ["books", "dvd", "music"]),
        (["--set", "dvd,books"], ["dvd", "books"]),
    ):
        for step, name in (("train", "--save-dir"), ("evaluate", "--out")):
            assert cli.main(["run", step, recipe, *arch, *options]) == 0
            words = [shlex.split(line) for line in capsys.readouterr().out.splitlines()]
            found = [
                Path(line[line.index(name) + 1]).relative_to(tmp_path / "out") for line in words
            ]
            assert [path.parts[0] for path in found] == sets
    write(tmp_path, "", "reader.py")
    assert (
        cli.main(["run", "prepare", recipe, "--dry-run", "--set", "dvd,books", "--raw", "R"]) == 0
    )
    (line,) = capsys.readouterr().out.splitlines()
    assert line.endswith(f"reader.py --out {data} --raw R --set dvd books")


@pytest.mark.parametrize(
    ("rows", "options"),
    [
        ("variants: {small: {arch: cnn_sentence_encoder}}", []),
        (
            "parts: {option: part, variable: P, values: [a], folder: $P}\nvariables: {P: a}",
            ["--arch", "cnn_sentence_encoder"],
        ),
    ],
)
def test_table_has_the_checkpoint_and_split_of_the_recipe(rows, options, tmp_path, capsys):
    own = f"checkpoint: last:3\nsubset: valid\n{rows}"
    options = ["--data", "DATA", "--out", "OUT", "--dry-run", *options]
    write(tmp_path, "", "reader.py")
    assert cli.main(["run", "table", str(write(tmp_path, HEAD + own)), *options]) == 0
    *_, evaluate, table = map(shlex.split, capsys.readouterr().out.splitlines())
    assert evaluate[evaluate.index("--checkpoint") + 1] == "last:3"
    assert evaluate[evaluate.index("--subset") + 1] == "valid"
    assert table[table.index("--subset") + 1] == "valid"


@pytest.mark.parametrize("option", ["train", "all", "vectors"])
def test_warning_of_vectors_that_prepare_did_not_get(option, tmp_path, capfd):
    path = tmp_path / "some.vec"
    path.write_text("a 1 2\n")
    prepared = {"vectors": str(path), "vocabulary": "train"}
    if option != "vectors":
        prepared = {"vocabulary": option}
    (tmp_path / "data-bin").mkdir()
    (tmp_path / "data-bin" / "options.json").write_text(json.dumps(prepared))
    options = ["--data", str(tmp_path), "--vectors", str(path), "--dry-run"]
    assert cli.main(["run", "train", str(EXAMPLES / "mr" / "recipe.yaml"), *options]) == 0
    assert ("prepare it with --vectors FILE" in capfd.readouterr().err) == (option == "train")


def test_training_starts_from_the_vectors_of_prepare(tmp_path, capsys):
    for name in ("prepared", "other"):
        (tmp_path / f"{name}.vec").write_text("a 1 2\n")
    (tmp_path / "data-bin").mkdir()
    (tmp_path / "data-bin" / "options.json").write_text(
        json.dumps({"vectors": str(tmp_path / "prepared.vec"), "vocabulary": "train"})
    )
    recipe = ["run", "train", str(EXAMPLES / "mr" / "recipe.yaml"), "--data", str(tmp_path)]
    for options, name in ([], "prepared"), (["--vectors", str(tmp_path / "other.vec")], "other"):
        assert cli.main([*recipe, *options, "--dry-run"]) == 0
        command = capsys.readouterr().out.split()
        assert command[command.index("--encoder-embed-path") + 1] == str(tmp_path / f"{name}.vec")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot read the word vectors {}: No such file or directory"),
        ("", "{}, line 1 is not a word and numbers; give a file of word vectors in GloVe's or"),
        ("a\n", "{}, line 1 is not a word and numbers"),
        ("a film that\n", "{}, line 1 is not a word and numbers"),
    ],
)
def test_invalid_vectors(text, message, tmp_path, capfd):
    path = tmp_path / "some.vec"
    if text is not None:
        path.write_text(text)
    recipe = str(EXAMPLES / "pos" / "recipe.yaml")
    assert cli.main(["run", "train", recipe, "--vectors", str(path), "--dry-run"]) == 2
    assert capfd.readouterr().err.startswith("error: " + message.format(path))


def test_translation_has_no_option_for_vectors(capfd):
    recipe = str(EXAMPLES / "multi30k" / "recipe.yaml")
    with pytest.raises(SystemExit):
        cli.main(["run", "train", recipe, "--vectors", "x", "--dry-run"])
    assert "unrecognized arguments: --vectors" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["trian", "x"], "invalid choice: 'trian'"),
        (["train"], "the following arguments are required: RECIPE; see --help"),
        (["table", "{mr}", "--data", "x"], "recipe.yaml has no table; give it parts, variants or"),
        (["table", "{dyck}", "--dry-run"], "has no table: its kind is brackets, and only those of"),
        (
            ["table", "{depths}", "--depth", "3,7", "--dry-run"],
            "no system has the depth 7; choose --depth from 3, 5, 10",
        ),
    ],
)
def test_mistakes_on_the_command_line(argv, message, capsys):
    folders = {"mr": "mr", "dyck": "dyck", "depths": "tatoeba_zh_en"}
    recipes = {name: EXAMPLES / folder / "recipe.yaml" for name, folder in folders.items()}
    argv = [word.format(**recipes) for word in argv]
    try:
        status = cli.main(["run", *argv])
    except SystemExit as stop:
        status = stop.code
    error = capsys.readouterr().err
    assert status == 2
    assert re.fullmatch(r"error: .*\n", error)
    assert message in error


def documented(number):
    """A reader and a recipe of docs/recipes.md."""
    text = (EXAMPLES.parent / "docs" / "recipes.md").read_text("utf-8")
    blocks = [re.findall(f"```{kind}\n(.*?)```", text, re.DOTALL) for kind in FILES]
    assert len(blocks[0][number].splitlines()) < 45
    return [found[number] for found in blocks]


@pytest.mark.full
def test_the_documented_tagged_corpus(tmp_path, warm_python, monkeypatch):
    reader, recipe = documented(1)
    write(tmp_path, reader, "reader.py")
    path = str(write(tmp_path, recipe))
    for split, size in (("train", 12), ("valid", 2), ("test", 3)):
        write(tmp_path, "red O\nplums B-F\n\nno O\nripe B-F\npears I-F\n\n" * size, f"{split}.txt")
    monkeypatch.setenv("PYTHON", warm_python)
    assert cli.main(["run", "prepare", path, "--raw", str(tmp_path)]) == 0
    tags = (tmp_path / "data" / "data-bin" / "label" / "dict.txt").read_text().split()[::2]
    assert sorted(tags) == ["B-F", "E-F", "O", "S-F"]
    assert cli.main(["run", "train", path, "--tiny", "--", "--cpu"]) == 0
    assert cli.main(["run", "evaluate", path]) == 0
    (result,) = map(json.loads, (tmp_path / "out" / "results.jsonl").read_text().splitlines())
    assert (result["sentences"], result["words"]) == (6, 15)
    assert result["f1"] >= 0


def test_the_documented_corpus(tmp_path, warm_python, monkeypatch, capsys):
    """The two files of docs/recipes.md work unchanged: prepare, train, evaluate."""
    reader, recipe = documented(0)
    folder = tmp_path / "fruit"
    folder.mkdir()
    write(folder, reader, "reader.py")
    path = str(write(folder, recipe))
    for split, size in (("train", 516), ("test", 16)):  # 500 are held out
        write(folder, "good\ta ripe pear\nbad\ta rotten plum\n" * (size // 2), f"{split}.tsv")
    monkeypatch.setenv("PYTHON", warm_python)
    with open(path, "a") as file:
        file.write("counts: {train sentences: 16, test sentences: 17}\n")
    prepare = ["run", "prepare", path, "--raw", str(folder)]
    assert cli.main(prepare) == 0
    said = capsys.readouterr().err
    assert said == (
        "note: test sentences: 16, but the official files of Fruit reviews give 17; check that "
        "no file is missing\n"
    )
    assert cli.main([*prepare, "--force", "--min-count", "2"]) == 0
    assert capsys.readouterr().err == ""  # no warning about another corpus
    options = json.loads((folder / "data" / "data-bin" / "options.json").read_text())
    assert options["program"] == "reader"
    assert cli.main(["run", "train", path, "--tiny", "--", "--cpu"]) == 0
    assert cli.main(["run", "evaluate", path]) == 0
    (result,) = map(json.loads, (folder / "out" / "results.jsonl").read_text().splitlines())
    (path,) = (folder / "out").glob("*/seed1/run.json")
    run = json.loads(path.read_text())
    assert (run["recipe"], run["finished"], run["epochs"]) == ("fruit/recipe", True, 1)
    assert run["best"]["accuracy"] >= 0
    assert run["evaluations"][0]["accuracy"] == result["accuracy"]
    assert (result["sentences"], result["seed"]) == (16, 1)
