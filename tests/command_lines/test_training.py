"""fairseq-train and fairseq-validate: all cells, options of training, logs, interruptions."""

import math
import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from types import SimpleNamespace
from unittest import mock

import pytest
import sacrebleu
import torch
from fairseq.logging import progress_bar
from fairseq.optim.lr_scheduler.reduce_lr_on_plateau import ReduceLROnPlateauLRSchedule
from fairseq.trainer import Trainer
from fairseq_cli import train as fairseq_train
from omegaconf import OmegaConf
from tensorboardX.proto import event_pb2

from fairseq_casrnn.patches.safe_loading import allow_checkpoint_globals

from .programs import (
    TRAIN,
    USER_DIR,
    assert_same_training,
    checkpoint,
    every_cell,
    fairseq,
    generate,
    run,
    train,
)

VALIDATE = ["--task", "translation", "--cpu", "--max-tokens", "60", "--log-format", "json"]


@every_cell
def test_every_cell_trains(trained, data, cell):
    """Each has a lower validation loss than a unigram model."""
    done = fairseq("validate", data, *VALIDATE, "--path", trained(cell) / "checkpoint_last.pt")
    (record,) = done.records("valid_loss")
    state = checkpoint(trained(cell) / "checkpoint_last.pt")
    assert state["cfg"]["model"]["_name"] == f"{cell}_tiny"
    assert float(record["valid_loss"]) == pytest.approx(state["extra_state"]["val_loss"], abs=2e-3)
    assert float(record["valid_loss"]) < 4.0


def test_training_loss_falls(data, tmp_path):
    done = train(data, tmp_path, "cas_lstm_tiny", epochs=6)
    losses = [float(record["train_loss"]) for record in done.records("train_loss")]
    assert len(losses) == 6
    assert min(losses) < losses[0] - 0.5


def test_bfloat16_without_a_tpu(data, tmp_path):
    """--bf16 trains almost like float32."""
    losses = []
    for options in ([], ["--bf16"]):
        done = train(data, tmp_path / f"{len(losses)}", "cas_lstm_tiny", *options, epochs=2)
        losses.append([float(record["train_loss"]) for record in done.records("train_loss")])
    assert losses[0] == pytest.approx(losses[1], abs=0.02)
    assert losses[0] != losses[1]


@pytest.fixture
def in_parts(data, tmp_path):
    """The corpus with copies of its training and validation sets as train1 and valid1."""
    folder = shutil.copytree(data, tmp_path / "bin")
    for split in ("train", "valid"):
        for file in data.glob(f"{split}.*"):
            shutil.copy(file, folder / file.name.replace(split, f"{split}1", 1))
    return folder


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize(("options", "parts"), [([], 2), (["--upsample-primary", "3"], 4)])
def test_training_data_in_parts(in_parts, tmp_path, options, parts):
    """Each part is read once per epoch, and the first one --upsample-primary times."""
    options = ["--ignore-unused-valid-subsets", *options, "--batch-size", "4"]
    done = train(in_parts, tmp_path, "cas_lstm_tiny", *options, epochs=1)
    assert int(done.records("train_loss")[0]["train_num_updates"]) == 15 * parts


def test_validation_data_in_parts(in_parts, data, tmp_path):
    """With --combine-valid-subsets, the second part, here the training set, changes the loss."""
    for file in data.glob("train.*"):
        shutil.copy(file, in_parts / file.name.replace("train", "valid1", 1))
        (in_parts / file.name.replace("train", "train1", 1)).unlink()
    losses = []
    for number, folder in enumerate((data, in_parts)):
        options = ["--combine-valid-subsets"] * number
        done = train(folder, tmp_path / f"{number}", "cas_lstm_tiny", *options, epochs=1)
        losses.append(float(done.records("valid_loss")[0]["valid_loss"]))
    assert losses[0] != losses[1]


def test_lengths_in_buckets(data, trained):
    """The additional padding of --num-batch-buckets does not change the loss."""
    command = ["validate", data, *VALIDATE, "--path", trained("cas_lstm") / "checkpoint_last.pt"]
    plain, buckets = (
        fairseq(*command, *options).records("valid_loss")[0]["valid_loss"]
        for options in ([], ["--num-batch-buckets", "2"])
    )
    assert plain == buckets


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("fed", [[], ["--no-input-feed"]])
def test_guided_alignment(corpus, tmp_path, fed):
    """The attention learns the given alignment, in which the words are reversed."""
    for split in ("train", "valid"):
        lines = (corpus / f"{split}.xx").read_text().splitlines()
        counts = [len(line.split()) for line in lines]
        pairs = [[f"{n - 1 - i}-{i}" for i in range(n)] for n in counts]
        (tmp_path / f"{split}.align").write_text("".join(" ".join(p) + "\n" for p in pairs))
        for side in ("xx", "yy"):
            shutil.copy(corpus / f"{split}.{side}", tmp_path)
    texts = ["--trainpref", tmp_path / "train", "--validpref", tmp_path / "valid"]
    texts += ["-s", "xx", "-t", "yy", "--align-suffix", "align"]
    fairseq("preprocess", *texts, "--destdir", tmp_path / "bin")
    options = ["--criterion", "label_smoothed_cross_entropy_with_alignment", "--load-alignments"]
    options += ["--alignment-lambda", "5", "--dropout", "0", "--lr", "0.03", *fed]
    done = train(tmp_path / "bin", tmp_path, "cas_lstm_tiny", *options, epochs=6)
    losses = [float(record["train_alignment_loss"]) for record in done.records("train_loss")]
    assert losses[-1] < 0.9 * losses[0]


@pytest.mark.parametrize(
    "more", [[], pytest.param(["--report-accuracy"], marks=pytest.mark.full)], ids=["", "accuracy"]
)
def test_fused_criterion_trains_as_fairseqs(data, tmp_path, more):
    losses = []
    for name in ("label_smoothed_cross_entropy", "fused_label_smoothed_cross_entropy"):
        options = ["--criterion", name, "--label-smoothing", "0.1", *more]
        done = train(data, tmp_path / name, "cas_lstm_tiny", *options)
        losses.append([float(r["train_nll_loss"]) for r in done.records("train_nll_loss")])
    assert len(losses[0]) == 2
    assert losses[0] == pytest.approx(losses[1], abs=2e-3)


# --- annealing ---------------------------------------------------------------------------------


def test_temperature_is_annealed_logged_and_restored(data, tmp_path):
    """The temperature is logged, saved and restored, and does not fall below the floor."""
    options = ["--temperature", "0.8", "--temperature-decay", "0.5", "--temperature-floor", "0.15"]
    expected = {1: 0.8, 2: 0.4, 3: 0.2, 4: 0.15}
    done = train(data, tmp_path, "second_order_lstm_tiny", *options, epochs=3)
    resumed = train(data, tmp_path, "second_order_lstm_tiny", *options, epochs=4)
    logged = [r for d in (done, resumed) for r in d.records("train_temperature")]
    assert {r["epoch"]: float(r["train_temperature"]) for r in logged} == expected
    for epoch, temperature in expected.items():
        model = checkpoint(tmp_path / f"checkpoint{epoch}.pt")["model"]
        buffers = [v.item() for name, v in model.items() if name.endswith("rnn.temperature")]
        assert buffers == pytest.approx([temperature] * 2)


def test_resuming_with_more_epochs_keeps_the_annealing(data, tmp_path):
    """The default anneals to the floor in the last epoch; additional epochs stay at the floor."""
    done = train(data, tmp_path, "second_order_lstm_tiny", epochs=3)
    resumed = train(data, tmp_path, "second_order_lstm_tiny", epochs=5)
    logged = [r for d in (done, resumed) for r in d.records("train_temperature")]
    temperatures = [float(record["train_temperature"]) for record in logged]
    assert temperatures == pytest.approx([1, 0.01, 1e-4, 1e-4, 1e-4])


@pytest.mark.full
def test_checkpoints_with_a_numeric_decay(trained, data, tmp_path):
    """Checkpoints of 0.1 store the decay as a number; they still translate and resume."""
    state = checkpoint(trained("second_order_lstm") / "checkpoint_last.pt")
    state["cfg"]["model"] |= {"temperature_decay": 0.9, "max_epoch": 10}
    del state["extra_state"]["annealing"]
    torch.save(state, tmp_path / "checkpoint_last.pt")
    translations = [
        generate(data, folder / "checkpoint_last.pt").lines("H")
        for folder in (tmp_path, trained("second_order_lstm"))
    ]
    assert translations[0] == translations[1] != []
    done = train(data, tmp_path, "second_order_lstm_tiny", epochs=11)
    (record,) = done.records("train_temperature")
    assert float(record["train_temperature"]) == pytest.approx(0.9**10, abs=1e-4)


def test_only_mixtures_log_a_temperature(data, tmp_path):
    assert train(data, tmp_path, "cas_lstm_tiny", epochs=1).records("train_temperature") == []


# --- interruptions -----------------------------------------------------------------------------


class Interrupted(BaseException):
    """Stands for a process that is killed."""


@pytest.mark.parametrize(
    ("arch", "more"),
    [
        pytest.param("lstm", (), marks=pytest.mark.full),
        ("cas_lstm_tiny", ()),
        pytest.param("cas_lstm_tiny", ("--optimizer", "torch_adam"), marks=pytest.mark.full),
        pytest.param("second_order_lstm_tiny", (), marks=pytest.mark.full),
        ("second_order_lstm_tiny", ("--max-update", "20")),  # anneals from update to update
    ],
)
def test_resuming_in_the_middle_of_an_epoch_changes_nothing(data, tmp_path, arch, more):
    """All weights agree bit for bit, with dropout, since fairseq seeds each update."""
    options = ["--save-interval-updates", "3", "--disable-validation", *more]
    if arch == "lstm":
        sizes = ("embed-dim", "hidden-size")
        options += [p for s in sizes for p in (f"--encoder-{s}", 8, f"--decoder-{s}", 8)]
        options += ["--decoder-out-embed-dim", 8]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    train(data, whole, arch, *options)
    total = checkpoint(whole / "checkpoint_last.pt")["optimizer_history"][-1]["num_updates"]
    step = Trainer.train_step

    def interrupted(trainer, *args, **kwargs):
        if trainer.get_num_updates() == total // 2 + 2:
            raise Interrupted
        return step(trainer, *args, **kwargs)

    with mock.patch.object(Trainer, "train_step", interrupted), pytest.raises(Interrupted):
        train(data, parts, arch, *options)
    last = checkpoint(parts / "checkpoint_last.pt")
    assert 0 < last["extra_state"]["train_iterator"]["iterations_in_epoch"] < total // 2
    train(data, parts, arch, *options)
    assert_same_training(whole / "checkpoint_last.pt", parts / "checkpoint_last.pt")


KILL = """
import os, signal, sys
from fairseq.trainer import Trainer
from fairseq_cli.train import cli_main
step = Trainer.train_step
def train_step(trainer, *args, **kwargs):
    if trainer.get_num_updates() == 8:
        os.kill(os.getpid(), signal.SIGKILL)
    return step(trainer, *args, **kwargs)
Trainer.train_step = train_step
cli_main()
"""


@pytest.mark.full
def test_resuming_a_killed_process_changes_nothing(data, tmp_path):
    options = [data, *TRAIN, "--arch", "cas_lstm_tiny", "--max-epoch", "2", "--user-dir", USER_DIR]
    options += ["--save-interval-updates", "3", "--disable-validation", "--save-dir"]
    killed = run(sys.executable, "-c", KILL, *options, tmp_path / "killed")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    train(data, tmp_path / "killed", "cas_lstm_tiny", *options[-4:-1])
    train(data, tmp_path / "whole", "cas_lstm_tiny", *options[-4:-1])
    assert_same_training(*(tmp_path / n / "checkpoint_last.pt" for n in ("killed", "whole")))


# --- several batches, several processes --------------------------------------------------------


def test_resuming_keeps_the_patience_count(data, tmp_path):
    """Early stopping and ReduceLROnPlateau act at the same epochs as without interruption."""
    options = ["--lr", "1e-12", "--patience", "4", "--lr-scheduler", "reduce_lr_on_plateau"]
    options += ["--lr-patience", "1", "--lr-threshold", "0.1", "--best-checkpoint-metric", "ppl"]
    options += ["--no-epoch-checkpoints"]  # ppl is rounded to two digits, and so never improves
    train(data, tmp_path / "whole", "cas_lstm_tiny", *options, epochs=9)
    for epochs in (2, 4, 9, 9):  # the last call finds that training has stopped
        done = train(data, tmp_path / "parts", "cas_lstm_tiny", *options, epochs=epochs)
    assert "raise --patience to continue" in done.log
    whole, parts = (
        checkpoint(tmp_path / name / "checkpoint_last.pt") for name in ("whole", "parts")
    )
    assert whole["extra_state"]["train_iterator"]["epoch"] == 6  # the next epoch
    assert parts["extra_state"]["train_iterator"]["epoch"] == 6
    rates = [c["last_optimizer_state"]["param_groups"][0]["lr"] for c in (whole, parts)]
    # two reductions, each after two validations without gain
    assert rates[0] == rates[1] == pytest.approx(1e-14)
    train(data, tmp_path / "parts", "cas_lstm_tiny", *options, "--patience", "5", epochs=9)
    parts = checkpoint(tmp_path / "parts" / "checkpoint_last.pt")
    assert parts["extra_state"]["train_iterator"]["epoch"] == 7


@pytest.mark.full
def test_resuming_keeps_the_reduced_learning_rate(data, tmp_path):
    """The rate falls after the epoch's checkpoint is written, and is restored nevertheless."""
    options = ["--lr-scheduler", "reduce_lr_on_plateau", "--lr-patience", "0"]
    options += ["--lr-threshold", "0.9", "--no-epoch-checkpoints"]  # no gain is ever enough
    train(data, tmp_path / "whole", "cas_lstm_tiny", *options, epochs=4)
    for epochs in (2, 3, 4):
        train(data, tmp_path / "parts", "cas_lstm_tiny", *options, epochs=epochs)
    last = [tmp_path / name / "checkpoint_last.pt" for name in ("whole", "parts")]
    assert_same_training(*last)
    (rate,) = {checkpoint(p)["last_optimizer_state"]["param_groups"][0]["lr"] for p in last}
    # reduced after epochs two and three; the next reduction is after epoch four
    assert rate == pytest.approx(0.01 * 0.1**2)


@pytest.mark.full
def test_patience_count_with_python_m(data, tmp_path):
    """The recipes start fairseq in this way, which puts its functions in the module __main__."""
    options = [*TRAIN, "--lr", "1e-12", "--patience", "2", "--best-checkpoint-metric", "ppl"]
    options += ["--arch", "cas_lstm_tiny", "--save-dir", tmp_path, "--user-dir", USER_DIR]
    for epochs in (2, 9):
        command = [sys.executable, "-m", "fairseq_cli.train", data, *options]
        done = run(*command, "--max-epoch", epochs)
        assert done.returncode == 0, done.stderr
        assert "Warning" not in done.stderr  # such as fairseq's own, which users cannot fix
    state = checkpoint(tmp_path / "checkpoint_last.pt")
    assert state["extra_state"]["early_stopping"]["num_runs"] == 2
    assert state["extra_state"]["train_iterator"]["epoch"] == 4  # the next epoch


def test_trainings_in_one_process_have_separate_best_scores(data, tmp_path):
    """The best score is not kept in the process, as in a sweep of fairseq-hydra-train."""
    train(data, tmp_path / "first", "cas_lstm_tiny", "--patience", "1", epochs=2)
    train(data, tmp_path / "second", "cas_lstm_tiny", "--patience", "1", "--lr", "1e-6", epochs=2)
    states = [checkpoint(tmp_path / name / "checkpoint_best.pt") for name in ("first", "second")]
    best = [state["extra_state"]["best"] for state in states]
    assert best[0] < best[1] - 0.01
    assert states[1]["extra_state"]["train_iterator"]["epoch"] == 3  # both epochs improved


def test_patience_starts_at_the_first_nonzero_score(monkeypatch):
    """BLEU is 0 in the first epochs, which does not count towards --patience; later it does."""
    stop = fairseq_train.should_stop_early
    for name in ("best", "num_runs"):
        monkeypatch.setattr(stop, name, None, raising=False)
        monkeypatch.delattr(stop, name)
    asked = {"patience": 2, "maximize_best_checkpoint_metric": True}
    cfg = OmegaConf.create({"checkpoint": asked})
    assert [stop(cfg, value) for value in (0.0, 0.0, 0.0, 3.0, 0.0)] == [False] * 5
    assert stop(cfg, 2.0)
    for name in ("best", "num_runs"):
        delattr(stop, name)
    cfg.checkpoint.maximize_best_checkpoint_metric = False
    assert [stop(cfg, 0.0) for _ in range(3)] == [False, False, True]


def test_plateau_starts_at_the_first_nonzero_score():
    def rates(mode, *values):
        weights = torch.optim.SGD([torch.zeros(1)], lr=1.0)
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(weights, mode, factor=0.1, patience=0)
        own = SimpleNamespace(get_lr=lambda: weights.param_groups[0]["lr"])
        schedule = SimpleNamespace(lr_scheduler=plateau, warmup_end=True, optimizer=own)
        step = ReduceLROnPlateauLRSchedule.step
        return [step(schedule, epoch, value) for epoch, value in enumerate(values, 1)]

    assert rates("max", 0.0, 0.0, 0.0, 3.0, 0.0) == pytest.approx([1, 1, 1, 1, 0.1])
    assert rates("min", 0.0, 0.0, 0.0) == pytest.approx([1, 0.1, 0.01])


def test_empty_translations_have_bleu_zero():
    for asked, found, metric in ((True, 0.0, "bleu"), (False, None, "loss")):
        cfg = OmegaConf.create({"checkpoint": {"best_checkpoint_metric": metric}})
        task = SimpleNamespace(cfg=SimpleNamespace(eval_bleu=asked))
        trainer = SimpleNamespace(task=task, get_num_updates=lambda: 3)
        stats = fairseq_train.get_valid_stats(cfg, trainer, {"loss": 1.0}, False)
        assert stats.get("bleu") == found
    stats = fairseq_train.get_valid_stats(cfg, trainer, {"loss": 1.0, "bleu": 5.0}, False)
    assert stats["bleu"] == 5.0


def test_update_freq(data, tmp_path):
    """Two batches per update halve the number of updates, and their gradients are summed."""
    whole = train(data, tmp_path / "1", "cas_lstm_tiny", epochs=1)
    pairs = train(data, tmp_path / "2", "cas_lstm_tiny", "--update-freq", "2", epochs=1)
    updates = [
        float(done.records("train_num_updates")[-1]["train_num_updates"]) for done in (whole, pairs)
    ]
    assert updates[1] == math.ceil(updates[0] / 2) > 2
    tokens = [float(done.records("train_wpb")[-1]["train_wpb"]) for done in (whole, pairs)]
    assert tokens[1] * updates[1] == pytest.approx(tokens[0] * updates[0], rel=1e-2)


def parallel_processes(data, folder, options):
    """Run fairseq-train in two processes on the CPU."""
    parallel = {
        "world-size": 2,
        "backend": "gloo",
        "init-method": f"file://{folder}/rendezvous",
    }
    command = ["fairseq-train", data, *options, "--ddp-backend", "legacy_ddp"]
    command += [part for k, v in parallel.items() for part in (f"--distributed-{k}", v)]
    command += ["--distributed-no-spawn", "--distributed-rank"]
    env = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"} if sys.platform == "linux" else None
    logs = [folder / f"log{rank}" for rank in (0, 1)]
    processes = []
    for rank, log in enumerate(logs):
        with open(log, "w") as file:
            argv = [str(part) for part in [*command, rank]]
            processes.append(subprocess.Popen(argv, stdout=file, stderr=file, env=env))
    for process, log in zip(processes, logs, strict=True):
        assert process.wait() == 0, log.read_text()


@pytest.mark.full
def test_two_processes_equal_two_batches_an_update(data, trained, tmp_path):
    """SGD and a mild temperature are used, since Adam and low temperatures amplify rounding."""
    start = trained("second_order_lstm") / "checkpoint_last.pt"
    options = ["--optimizer", "sgd", "--lr", "0.5", "--dropout", "0", "--max-epoch", "2"]
    options += ["--temperature-decay", "0.9"]
    options += ["--finetune-from-model", start]
    both = [*TRAIN, "--arch", "second_order_lstm_tiny", *options, "--user-dir", USER_DIR]
    parallel_processes(data, tmp_path, [*both, "--save-dir", tmp_path / "two"])
    train(data, tmp_path / "one", "second_order_lstm_tiny", *options, "--update-freq", "2")
    ours, theirs, before = (
        checkpoint(path)["model"]
        for path in (*(tmp_path / n / "checkpoint_last.pt" for n in ("two", "one")), start)
    )
    for name, tensor in theirs.items():
        learnt = (tensor - before[name]).abs().max()
        assert learnt > 1e-5, f"{name} was not trained"
        assert (ours[name] - tensor).abs().max() < 0.02 * learnt, name


# --- what else fairseq offers ------------------------------------------------------------------


def scalars(folder):
    """The scalars of TensorBoard's event files in ``folder``: ``{tag: [(step, value)]}``."""
    found = {}
    for path in folder.glob("events*"):
        content = path.read_bytes()
        while content:
            length = int.from_bytes(content[:8], "little")
            event = event_pb2.Event.FromString(content[12 : 12 + length])
            content = content[16 + length :]
            for value in event.summary.value:
                found.setdefault(value.tag, []).append((event.step, value.simple_value))
    return found


def test_tensorboard(data, tmp_path):
    logs = tmp_path / "logs"
    done = train(data, tmp_path, "second_order_lstm_tiny", "--tensorboard-logdir", logs)
    progress_bar._close_writers()  # as happens when a program ends
    progress_bar._tensorboard_writers.clear()
    records = done.records("train_loss")
    train_log, valid_log = scalars(logs / "train"), scalars(logs / "valid")
    steps, losses = zip(*train_log["loss"], strict=True)
    assert losses == pytest.approx([float(r["train_loss"]) for r in records], abs=1e-3)
    assert list(steps) == [float(r["train_num_updates"]) for r in records]
    assert [v for _, v in train_log["temperature"]] == pytest.approx([1.0, 1e-4])
    valid = [float(r["valid_loss"]) for r in done.records("valid_loss")]
    assert [v for _, v in valid_log["loss"]] == pytest.approx(valid, abs=1e-3)


@pytest.mark.full
def test_bleu_while_training(data, tmp_path):
    """Training logs the BLEU of greedy translations, as computed by fairseq-generate."""
    options = ["--eval-bleu", "--eval-bleu-args", '{"beam": 1, "max_len_b": 12}']
    options += ["--best-checkpoint-metric", "bleu", "--maximize-best-checkpoint-metric"]
    options += ["--eval-tokenized-bleu", "--lr", "0.02"]
    done = train(data, tmp_path, "cas_lstm_tiny", *options, epochs=6)
    logged = float(done.records("valid_bleu")[-1]["valid_bleu"])
    last = tmp_path / "checkpoint_last.pt"
    again = generate(data, last, "--beam", "1", "--gen-subset", "valid")
    texts, references = ([line[-1] for line in again.lines(kind)] for kind in ("H", "T"))
    expected = sacrebleu.corpus_bleu(texts, [references], tokenize="none").score
    assert logged == pytest.approx(expected, abs=0.02)
    assert logged > 1


@pytest.mark.full
def test_adaptive_softmax(data, tmp_path):
    options = ["--adaptive-softmax-cutoff", "6,10", "--criterion", "adaptive_loss"]
    options += ["--ddp-backend", "legacy_ddp"]
    done = train(data, tmp_path, "cas_lstm_tiny", *options, epochs=8)
    losses = [float(r["valid_loss"]) for r in done.records("valid_loss")]
    assert losses[-1] < losses[0] - 0.5
    path = tmp_path / "checkpoint_last.pt"
    assert checkpoint(path)["cfg"]["model"]["adaptive_softmax_cutoff"] == "6,10"
    (record,) = fairseq("validate", data, *VALIDATE, "--path", path).records("valid_loss")
    assert float(record["valid_loss"]) == pytest.approx(losses[-1], abs=2e-3)
    assert len(generate(data, path, "--beam", "3").lines("H")) == 9


def test_checkpoints_load_safely(trained):
    with suppress(AttributeError):
        torch.serialization.clear_safe_globals()
    try:
        state = torch.load(trained("cas_lstm") / "checkpoint_last.pt", weights_only=True)
    finally:
        allow_checkpoint_globals()
    assert state["cfg"]["model"]["lam"] == "0.5"
