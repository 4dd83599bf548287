"""The quickstart: the sentences it generates, and run.sh at a tiny size."""

import datetime
import os
import random
import re
import shlex
import shutil
import string
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "examples" / "quickstart"

pytest.importorskip("num2words")
sys.path.insert(0, str(DEMO))
import generate  # noqa: E402
import report  # noqa: E402
import wording  # noqa: E402

DAY = datetime.date(1984, 3, 23)  # a Friday

KNOWN = [
    (
        wording.date(DAY, with_weekday=True, with_year=True),
        "am Freitag, dem dreiundzwanzigsten März neunzehnhundertvierundachtzig",
        "on Friday, the twenty-third of March nineteen eighty-four",
    ),
    (wording.date(datetime.date(2000, 5, 1)), "am ersten Mai", "on the first of May"),
    (wording.date(datetime.date(2000, 12, 7)), "am siebten Dezember", "on the seventh of December"),
    (wording.year(1100), "elfhundert", "eleven hundred"),
    (wording.year(1905), "neunzehnhundertfünf", "nineteen oh five"),
    (wording.year(2000), "zweitausend", "two thousand"),
    (wording.year(2005), "zweitausendfünf", "two thousand and five"),
    (wording.year(2024), "zweitausendvierundzwanzig", "twenty twenty-four"),
    (wording.clock(1, 0), "ein Uhr", "one o'clock"),
    (wording.clock(3, 15), "viertel nach drei", "a quarter past three"),
    (wording.clock(3, 25), "fünf vor halb vier", "twenty-five past three"),
    (wording.clock(3, 30), "halb vier", "half past three"),
    (wording.clock(3, 35), "fünf nach halb vier", "twenty-five to four"),
    (wording.clock(12, 45), "viertel vor eins", "a quarter to one"),
    (wording.timetable(0, 0), "null Uhr", "midnight"),
    (wording.timetable(0, 10), "null Uhr zehn", "twelve ten am"),
    (wording.timetable(12, 1), "zwölf Uhr eins", "twelve oh one pm"),
    (wording.timetable(17, 42), "siebzehn Uhr zweiundvierzig", "five forty-two pm"),
    (wording.timetable(20, 0), "zwanzig Uhr", "eight pm"),
    (wording.price(1), "ein Euro", "one euro"),
    (wording.price(3, 1), "drei Euro und ein Cent", "three euros and one cent"),
    (wording.price(9, 99, short=True), "neun Euro neunundneunzig", "nine euros ninety-nine"),
    (
        wording.price(2345),
        "zweitausenddreihundertfünfundvierzig Euro",
        "two thousand three hundred and forty-five euros",
    ),
    (wording.amount(1, half=True), "anderthalb", "one and a half"),
    (wording.amount(2, half=True), "zweieinhalb", "two and a half"),
    (wording.amount(101), "einhundertein", "one hundred and one"),
]


@pytest.mark.parametrize(("pair", "german", "english"), KNOWN, ids=[k[2] for k in KNOWN])
def test_wording(pair, german, english):
    assert pair == (german, english)


def test_ordinals():
    assert wording.de_ordinal(3, "r") == "dritter"
    assert wording.de_ordinal(31, "n") == "einunddreißigsten"
    assert wording.en_ordinal(12) == "twelfth"


def test_years_that_are_read_differently_are_refused():
    with pytest.raises(ValueError, match="1066"):
        wording.year(1066)


def test_the_same_hour_reads_the_same_on_both_dials():
    for hour in range(1, 13):
        assert wording.clock(hour, 0) == wording.timetable(hour, 0)


def test_templates_have_the_same_slots_on_both_sides():
    for _, german, english in generate.TEMPLATES:
        slots = [
            sorted(name for _, name, _, _ in string.Formatter().parse(side) if name)
            for side in (german, english)
        ]
        assert slots[0] == slots[1]
        assert set(slots[0]) <= set(generate.SLOTS)


def test_no_german_sentence_has_two_translations():
    rng, english_of = random.Random(3), {}
    for _ in range(20_000):
        _, german, english = rng.choice(generate.TEMPLATES)
        german, english = generate.fill(german, english, rng)
        assert english_of.setdefault(german, english) == english
    assert len(english_of) > 10_000


def test_the_corpus_is_the_same_for_the_same_seed():
    assert generate.generate(500, seed=1) == generate.generate(500, seed=1)
    assert generate.generate(500, seed=1) != generate.generate(500, seed=2)


def test_parts_share_no_sentence_on_either_side():
    pairs = generate.generate(8_000, seed=4)
    parts = generate.split(pairs, 300)
    assert {part: len(parts[part]) for part in parts} == {"train": 7400, "valid": 300, "test": 300}
    for side in (0, 1):
        texts = {part: {pair[side] for pair in parts[part]} for part in parts}
        assert len(set.union(*texts.values())) == 8_000
    assert sorted([*parts["train"], *parts["valid"], *parts["test"]]) == sorted(pairs)


def test_sentences_have_no_digits():
    pairs = generate.generate(5_000, seed=5)
    assert not [pair for pair in pairs if re.search(r"[\d{}]|  ", " ".join(pair))]
    words = {word for german, _ in pairs for word in german.split()}
    assert {"halb", "viertel", "Cent.", "Uhr", "Euro", "anderthalb", "Mai"} <= words


def test_too_many_sentences_are_refused(monkeypatch):
    monkeypatch.setattr(generate, "TEMPLATES", [(1, "{city}", "{city}")])
    with pytest.raises(ValueError, match="8 of 100"):
        generate.generate(100, seed=1)


def test_report_counts_correct_translations(tmp_path):
    text = "S-0\tja\nT-0\tyes\nH-0\t-0.1\tyes\nD-0\t-0.1\tyes\nS-1\tnein\nT-1\tno\nD-1\t-0.2\tnot\n"
    path = tmp_path / "test.txt"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match="no BLEU"):
        report.read(path)
    path.write_text(text + "Generate test with beam=10: BLEU = 50\n", encoding="utf-8")
    sentences, bleu = report.read(path)
    assert sentences[1] == {"S": "nein", "T": "no", "D": "not"}
    assert bleu.endswith("BLEU = 50")


def run_demo(out, *options, cwd=None):
    """Run run.sh at a tiny size."""
    command = [DEMO / "run.sh", "--out", out, "--sentences", "300", *options]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        list(map(str, command)), cwd=cwd, env=env, capture_output=True, text=True, timeout=300
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder and the output of a finished run with five updates."""
    out = tmp_path_factory.mktemp("demo") / "out dir"
    done = run_demo(out, "--max-update", "5", cwd=out.parent)
    assert done.returncode == 0, done.stdout + done.stderr
    return out, done.stdout


@pytest.mark.full
def test_the_demos_model_has_two_layers_of_cas_lstm(finished):
    """With a single layer the model would be a plain LSTM."""
    out, printed = finished
    log = (out / "train.log").read_text("utf-8")
    assert "2. Train cas_lstm (" in printed
    assert "with a single layer" not in log
    assert log.count("CASLSTM(") == 2
    assert log.count("num_layers=2") == 2


@pytest.mark.full
def test_demo_prints_scores_examples_and_paths(finished):
    out, printed = finished
    assert re.search(r"BLEU = \d", printed)
    assert printed.count("reference  ") == 3  # the test set of 1 % has only three sentences
    assert printed.count("ours       ") == 3
    assert re.search(r"valid \| epoch .* num_updates 5", printed)
    for name in ("data", "checkpoints", "train.log", "learning_curve.png", "attention.png"):
        assert (out / name).exists()
        assert name in printed
    for picture in ("learning_curve.png", "attention.png"):
        assert (out / picture).read_bytes().startswith(b"\x89PNG")


@pytest.mark.full
def test_the_printed_command_translates(finished):
    _, printed = finished
    line = printed.strip().splitlines()[-1]
    assert line.startswith("echo ")
    done = subprocess.run(
        ["bash", "-c", line], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.strip().splitlines()) == 1
    assert "rror" not in done.stdout
    assert re.search(r"[a-z]", done.stdout)


@pytest.mark.full
def test_a_second_run_shows_the_results_without_training(finished):
    out, printed = finished
    checkpoint = out / "checkpoints" / "checkpoint_last.pt"
    before = checkpoint.stat().st_mtime_ns
    again = run_demo(out, "--max-update", "5")
    assert again.returncode == 0
    assert "Finished before" in again.stdout
    assert checkpoint.stat().st_mtime_ns == before
    assert printed[printed.index("Where everything is") :] in again.stdout


@pytest.mark.full
def test_an_interrupted_training_is_resumed(finished, tmp_path):
    """Training continues after five of eight updates, and the data are not prepared again."""
    out = tmp_path / "out"
    shutil.copytree(finished[0], out)
    settings = (out / "settings.txt").read_text("utf-8").replace("updates 5", "updates 8")
    (out / "settings.txt").write_text(settings, encoding="utf-8")
    for name in ("trained", "test.txt", "attention.png"):
        (out / name).unlink()
    data = (out / "data" / "codes").stat().st_mtime_ns
    resumed = run_demo(out, "--max-update", "8")
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    assert re.search(r"Loaded checkpoint .* @ 5 updates", resumed.stdout)
    assert re.search(r"valid \| epoch .* num_updates 8", resumed.stdout)
    assert (out / "data" / "codes").stat().st_mtime_ns == data
    assert (out / "attention.png").exists()


@pytest.mark.full
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--max-update", "6"], "made with other settings; add --force"),
        (["--max-update", "none"], "--max-update must be a positive number"),
        (["--seed", "2"], "made with other settings; add --force"),
        (["--sentences", "99"], "--sentences must be at least 100, not 99"),
        (["--max-update"], "--max-update needs a value"),
        (["--sentence", "3"], "unknown option --sentence"),
    ],
    ids=" ".join,
)
def test_mistakes_are_one_sentence(finished, options, message):
    out, _ = finished
    failed = run_demo(out, *options)
    assert failed.returncode == 2
    assert failed.stderr.startswith("error: ")
    assert message in failed.stderr
    assert failed.stderr.count("\n") == 1


def test_force_does_not_delete_other_folders(tmp_path):
    (tmp_path / "mine").write_text("mine")
    failed = run_demo(tmp_path, "--force")
    assert failed.returncode == 2
    assert shlex.quote(str(tmp_path)) in failed.stderr
    assert (tmp_path / "mine").read_text() == "mine"


def test_help_names_every_option():
    shown = subprocess.run([DEMO / "run.sh", "--help"], capture_output=True, text=True, check=True)
    for option in ("--force", "--out", "--sentences", "--max-update", "--seed", "--arch"):
        assert option in shown.stdout
