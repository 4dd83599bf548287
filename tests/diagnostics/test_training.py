"""Errors in ``fairseq-train``: one sentence, a nonzero status, and no half-written files."""

import os
import re
import shutil
import signal
import socket

import pytest
import torch
from command_lines.programs import assert_same_training
from fairseq import checkpoint_utils

from fairseq_casrnn.diagnostics.explain import explained
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.inference import average
from fairseq_casrnn.patches.checkpoint_files import check_archive
from fairseq_casrnn.patches.save_dir_lock import LOCK, claim

from .commands import damage, preprocess, spoil_weights, write_corpus

# --- options -----------------------------------------------------------------------------------


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("--arch cas_lstmm", "invalid choice: 'cas_lstmm'; did you mean cas_lstm or "),
        ("--arch nonsense_lm", "'nonsense_lm'; choose from cas_lstm_lm, cas_lstm_lm_dyck, "),
        ("--lam 1.5", r"--lam is '1.5'; it must be a number in \[0, 1\]"),
        ("--encoder-layers 0", "--encoder-layers is 0; it must be at least 1"),
        ("--engine warp", "engine 'warp' is unknown; choose from reference, eager"),
        ("--adaptive-softmax-cutoff 5", "-cutoff needs --criterion adaptive_loss"),
        ("--criterion adaptive_loss", "use `--ddp-backend=legacy_ddp`"),
        (
            "--criterion adaptive_loss --ddp-backend legacy_ddp",
            "^--criterion adaptive_loss needs --adaptive-softmax-cutoff; give that option, or",
        ),
        ("--memory-efficient-fp16", "^--memory-efficient-fp16 needs a GPU, and this training uses"),
        (
            "--store-ema --ema-start-update 1 --ema-seed-model {0}",
            "^--ema-seed-model .* holds no weights averaged in training; give a checkpoint of",
        ),
        ("--left-pad-target", "drop --left-pad-target"),
        ("--encoder-embed-path /nowhere.vec", "cannot read the word vectors /nowhere.vec"),
        ("--upsample-primary 0", "^--upsample-primary is 0; it must be at least 1$"),
        (
            "--task multilingual_translation --lang-pairs xx-yy",
            "^--arch and --task do not fit: cas_lstm_tiny cannot be trained with multilingual",
        ),
        ("--profile", "^--profile needs a GPU, but there is none; drop the option$"),
        ("--bpe bytes", "^--bpe bytes does not work in this fairseq; drop it"),
        (
            "--dataset-impl fasta",
            r"/valid\.xx-yy\.xx is not in the format of --dataset-impl fasta; drop that",
        ),
        ("--optimizer cpu_adam", "^Please install DeepSpeed: pip install deepspeed"),
        ("--optimizer composite", "^--optimizer composite needs options for groups of"),
        (
            "--task translation_multi_simple_epoch --langs xx,yy --lang-pairs xx-yy "
            "--left-pad-target True",
            "need right-padded targets; drop --left-pad-target",
        ),
        ("--max-tokens 3", "a sentence of 7 tokens does not fit into a batch of --max-tokens 3"),
        (
            "--max-tokens 2",
            "^no sentence is left to train on: all have more than --max-tokens 2 tokens; raise "
            "--max-tokens or split the sentences$",
        ),
        (
            "--max-source-positions 1",
            "^no sentence is left to train on: all are longer than --max-source-positions and",
        ),
        ("--max-tokens 0", "^--max-tokens is 0; it must be at least 1$"),
        ("--batch-size 0", "^--batch-size is 0; it must be at least 1$"),
        ("--amp", "^--amp needs a GPU, and this training uses none; drop the option$"),
        (
            "--max-source-positions 3",
            r"sentence \d of 'valid' has \d and \d tokens, more than .* \(3, 1024\)",
        ),
        ("--bf16 --tpu", "^--tpu needs torch_xla; install it, or drop --tpu$"),
        ("--max-tokens -5", "--max-tokens is -5; it must be at least 1"),
        ("--adam-betas (0.9,)", r"--adam-betas is \(0.9,\); it must be two numbers"),
        ("--lr-scheduler polynomial_decay", "^--total-num-update is missing; give it a value"),
        (
            "--lr-scheduler polynomial_decay --total-num-update 0",
            "^--total-num-update is 0.0; it must be at least 1",
        ),
        ("--finetune-from-model {0} --restore-file {0}", "can not be specified together$"),
        ("--tokenizer moses", "^--source-lang is missing; give it a value"),
        (
            "--best-checkpoint-metric accuracy --maximize-best-checkpoint-metric",
            "validation gives no 'accuracy', .* it gives loss, ppl: choose one",
        ),
        ("--restore-file nowhere.pt", "checkpoint nowhere.pt does not exist; check --restore"),
        (
            "--finetune-from-model nowhere.pt",
            "checkpoint nowhere.pt does not exist; check --finetune-from-model",
        ),
        ("--finetune-from-model .", "checkpoint . is a folder; check --finetune"),
        ("--continue-once nowhere.pt", "checkpoint nowhere.pt does not exist; check --continue"),
    ],
)
def test_wrong_option(fairseq, data, checkpoint, tmp_path, options, sentence):
    done = fairseq.train(data, "--save-dir", tmp_path, *options.format(checkpoint).split())
    assert re.search(sentence, done.sentence)
    assert done.status in (1, 2)  # it was not aborted by threads that collate batches
    assert not list(tmp_path.glob("*.pt"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_half_precision_without_gpu(fairseq, data):
    sentence = fairseq.train(data, "--fp16").sentence
    assert sentence == "--fp16 needs a GPU, and this training uses none; drop the option"


def test_missing_options(fairseq, data):
    assert "--arch is missing" in fairseq("train", data, "--cpu", "--max-tokens", 100).sentence
    done = fairseq("train", data, "--cpu", "--arch", "cas_lstm_tiny")
    assert "batch size either with --max-tokens or --batch-size" in done.sentence
    task = ["--task", "stateful_language_modeling"]
    done = fairseq("train", data, "--cpu", "--arch", "cas_lstm_lm_tiny", *task)
    assert done.sentence == "--batch-size is missing; give the number of streams of each worker"
    done = fairseq("train", data, "--cpu", "--arch", "cas_lstm_lm_tiny", *task, "--sentence-reset")
    assert "batch size either with --max-tokens or --batch-size" in done.sentence


def test_translation_model_for_language_modelling(fairseq, data, tmp_path):
    shutil.copy(data / "dict.xx.txt", tmp_path / "dict.txt")
    for kind in ("bin", "idx"):
        shutil.copy(data / f"train.xx-yy.xx.{kind}", tmp_path / f"train.{kind}")
    options = ["--task", "stateful_language_modeling", "--batch-size", 2, "--optimizer", "sgd"]
    done = fairseq("train", tmp_path, *options, "--arch", "cas_lstm_tiny", "--cpu")
    assert done.sentence.startswith("--arch and --task do not fit")
    assert "Overrides" not in done.out + done.err


def test_several_languages_without_subfolders(fairseq, data, tmp_path):
    shutil.copy(data / "dict.xx.txt", tmp_path / "dict.txt")
    options = ["--task", "multilingual_language_modeling", "--batch-size", 2, "--optimizer", "sgd"]
    done = fairseq("train", tmp_path, *options, "--arch", "cas_lstm_lm_tiny", "--cpu")
    assert done.sentence == (
        f"{tmp_path} has no subfolders, but --task multilingual_language_modeling reads one for "
        "each language; use --task language_modeling for a text in one language"
    )


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("+model.lam=1.5", "--lam is '1.5'"),
        ("+model.encoder_layers=two", "option encoder_layers: Value 'two' of type 'str' could not"),
        ("optimization.update_freq=[0]", "--update-freq is 0; it must be at least 1"),
        ("+optimizer.adam_betas=[0.9]", "--adam-betas is [0.9]; it must be two numbers"),
        ("model._name=cas_lstmm", "unknown model 'cas_lstmm'; did you mean cas_lstm"),
        ("task.data=/nowhere", "/nowhere does not exist"),
        ("~task.data", "task.data is missing; give it the folder that fairseq-preprocess wrote"),
    ],
)
def test_wrong_value_for_hydra(fairseq, data, tmp_path, override, sentence):
    (tmp_path / "tiny.yaml").write_text(f"""\
common: {{cpu: true}}
task: {{_name: translation, data: {data}}}
criterion: {{_name: cross_entropy}}
dataset: {{max_tokens: 200, num_workers: 0}}
optimization: {{max_epoch: 1, lr: [0.001]}}
optimizer: {{_name: adam}}
lr_scheduler: {{_name: fixed}}
checkpoint: {{no_save: true, save_dir: {tmp_path}}}
model: {{_name: cas_lstm}}
""")
    config = ["--config-dir", tmp_path, "--config-name", "tiny"]
    assert sentence in fairseq("hydra-train", *config, override).sentence


# --- lengths -----------------------------------------------------------------------------------


def test_long_and_empty_lines_in_training(fairseq, tmp_path):
    """Pairs that are too long are skipped and counted; an empty line is an empty sentence."""
    text = write_corpus(tmp_path / "text")
    for name in ("train.xx", "train.yy"):
        with open(text / name, "a") as file:
            file.write("\n\n" + "a " * 999 + "a\n" + "a " * 1199 + "a\n")
    assert preprocess(fairseq, text).status == 0
    for limit, left_out in ((1200, 1), (500, 2)):
        done = fairseq.train(text / "bin", "--max-tokens", limit)
        assert done.status == 0, done.err
        assert f"{left_out} samples have invalid sizes and will be skipped" in done.out


# --- checkpoints -------------------------------------------------------------------------------


def test_another_model(fairseq, data, checkpoint):
    restore = ["--restore-file", checkpoint]
    sentence = fairseq.train(data, *restore, "--arch", "dg_lstm_tiny").sentence
    assert f"checkpoint {checkpoint} belongs to a model of another architecture" in sentence
    finetune = ["--finetune-from-model", checkpoint, "--encoder-hidden-size", 8]
    assert f"checkpoint {checkpoint} belongs to a" in fairseq.train(data, *finetune).sentence


def test_another_dictionary(fairseq, other_data, checkpoint):
    sentence = fairseq.train(other_data, "--restore-file", checkpoint).sentence
    assert f"checkpoint {checkpoint} belongs to a model of another architecture" in sentence
    assert "or with another dictionary (first difference: encoder.embed_tokens" in sentence


@pytest.mark.parametrize("scheduler", ["inverse_sqrt", "reduce_lr_on_plateau"])
def test_another_lr_scheduler(fairseq, data, checkpoint, scheduler):
    options = ["--restore-file", checkpoint, "--lr-scheduler", scheduler]
    assert fairseq.train(data, *options).sentence == (
        f"checkpoint {checkpoint} was trained with another --lr-scheduler than {scheduler}; give "
        "that one, or --reset-lr-scheduler"
    )
    assert fairseq.train(data, *options, "--reset-lr-scheduler").status == 0


@pytest.mark.parametrize("option", ["--restore-file", "--finetune-from-model"])
def test_damaged_checkpoint(fairseq, data, checkpoint, tmp_path, option):
    """torch would load it."""
    damage(checkpoint, tmp_path / "damaged.pt")
    torch.load(tmp_path / "damaged.pt", weights_only=True)
    sentence = fairseq.train(data, option, tmp_path / "damaged.pt").sentence
    assert sentence.startswith(f"checkpoint {tmp_path}/damaged.pt is damaged: its contents do not")


@pytest.mark.parametrize("missing", [1, 10, 1000])
def test_checkpoint_with_bytes_missing_in_its_middle(checkpoint, tmp_path, missing):
    """Bytes may be missing anywhere; zipfile then computes wrong or negative offsets."""
    whole, cut = checkpoint.read_bytes(), tmp_path / "cut.pt"
    for start in range(0, len(whole) - missing, len(whole) // 20):
        cut.write_bytes(whole[:start] + whole[start + missing :])
        with pytest.raises(UserError, match=f"^checkpoint {cut} (is damaged|cannot be read)"):
            average.load(cut)
        with pytest.raises(UserError, match=f"^checkpoint {cut} (is|ca)"), explained():
            checkpoint_utils.load_checkpoint_to_cpu(str(cut))


@pytest.mark.parametrize("kind", ["loop", "dangling", "folder"])
def test_last_checkpoint_that_is_not_a_file(fairseq, data, tmp_path, kind):
    last = tmp_path / "checkpoint_last.pt"
    if kind == "folder":
        last.mkdir()
    else:
        last.symlink_to(last.name if kind == "loop" else "nowhere.pt")
    what = "not a regular file" if kind == "folder" else "a symbolic link that leads to no file"
    sentence = fairseq.train(data, "--save-dir", tmp_path).sentence
    assert sentence == f"checkpoint {last} is {what}; fix it, or remove it to train a new model"


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("emptied", [{}, {"train_iterator": {}}, {"train_iterator": None}])
def test_checkpoint_without_position(fairseq, data, checkpoint, tmp_path, emptied):
    """fairseq would restart from epoch 1 with its weights."""
    last = tmp_path / "checkpoint_last.pt"
    torch.save({**torch.load(checkpoint, weights_only=True), "extra_state": emptied}, last)
    before = last.read_bytes()
    sentence = fairseq.train(data, "--save-dir", tmp_path, "--max-epoch", 2).sentence
    assert sentence.startswith(f"checkpoint {last} does not say how far its training got, so it")
    assert last.read_bytes() == before
    if not emptied:
        arguments = ("--finetune-from-model", last, "--save-dir", tmp_path / "new")
        assert fairseq.train(data, *arguments).status == 0


def test_checkpoint_without_checksums(checkpoint, tmp_path):
    check_archive(str(checkpoint))
    state = torch.load(checkpoint, weights_only=True)
    before = torch.serialization.get_crc32_options()
    torch.serialization.set_crc32_options(False)
    try:
        torch.save(state, tmp_path / "unsummed.pt")
    finally:
        torch.serialization.set_crc32_options(before)
    check_archive(str(tmp_path / "unsummed.pt"))
    torch.save(state, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    check_archive(str(tmp_path / "old.pt"))


def test_resumed_from_nan(fairseq, data, checkpoint, tmp_path):
    spoil_weights(checkpoint, tmp_path / "nan.pt")
    reset = ["--reset-optimizer", "--reset-dataloader", "--reset-meters"]
    done = fairseq.train(data, "--restore-file", tmp_path / "nan.pt", *reset)
    assert done.sentence.startswith(
        "the gradients are not finite: the training has diverged; continue from an earlier "
    )
    assert "norms: {" not in done.out + done.err
    assert "gradients: {" not in done.out + done.err


def test_folder_of_another_training(fairseq, data, checkpoint, tmp_path):
    shutil.copy(checkpoint, tmp_path / "checkpoint_last.pt")
    claim(tmp_path)
    options = ["--save-dir", tmp_path, "--max-epoch", 2]
    sentence = fairseq.train(data, *options).sentence
    assert sentence.startswith(f"another training is running in {tmp_path}; wait until it ends")
    assert {file.name for file in tmp_path.iterdir()} == {"checkpoint_last.pt", LOCK}
    assert (tmp_path / "checkpoint_last.pt").read_bytes() == checkpoint.read_bytes()
    assert fairseq.train(data, *options, "--no-save").status == 0


def test_file_of_another_program(fairseq, data, tmp_path):
    torch.save({"weights": torch.zeros(1)}, tmp_path / "other.pt")
    sentence = fairseq.train(data, "--restore-file", tmp_path / "other.pt").sentence
    assert sentence == f"{tmp_path}/other.pt is not a checkpoint of fairseq-train; check the path"


@pytest.mark.parametrize("inside", ["", "/run"])
def test_save_dir_that_is_a_file(fairseq, data, tmp_path, inside):
    (tmp_path / "file").touch()
    folder = f"{tmp_path}/file{inside}"
    done = fairseq.train(data, "--save-dir", folder)
    assert done.sentence.startswith(f"--save-dir {folder} cannot be written (")


def test_first_run_may_name_the_last_checkpoint(fairseq, data, tmp_path):
    """Scripts may use the same command for the first run and for resuming."""
    done = fairseq.train(data, "--restore-file", tmp_path / "checkpoint_last.pt")
    assert done.status == 0, done.err
    assert "Warning" not in done.err  # a warning of fairseq's libraries


def test_leftover_of_a_killed_save(fairseq, data, checkpoint, tmp_path):
    """Training does not resume from it, and a save an hour later removes it."""
    shutil.copy(checkpoint, tmp_path)
    for name in ("checkpoint_last.pt.tmp", "checkpoint2.pt.tmp"):
        (tmp_path / name).write_bytes(checkpoint.read_bytes()[:1000])
        os.utime(tmp_path / name, (0, 0))
    done = fairseq.train(data, "--save-dir", tmp_path, "--max-epoch", 2)
    assert done.status == 0, done.err
    assert "(epoch 2 @ 2 updates)" in done.out
    assert not list(tmp_path.glob("*.tmp"))
    assert torch.load(tmp_path / "checkpoint_last.pt")["optimizer_history"][-1]["num_updates"] == 4


def test_interrupt(fairseq, data, tmp_path):
    """After Ctrl-C all checkpoints can be loaded, and the next run resumes from the last."""
    arguments = ["--save-dir", tmp_path, "--save-interval-updates", 1, "--max-epoch", 1000]
    started = fairseq.start_training(data, *arguments)
    started.interrupt_after("Saved checkpoint")
    done = started.finish()
    assert done.status != 0
    assert done.err.splitlines()[-1] == "interrupted"
    assert "Traceback" not in done.err
    assert not list(tmp_path.glob("*.tmp"))
    saved = [torch.load(file) for file in tmp_path.glob("checkpoint*.pt")]
    assert len(saved) >= 2


@pytest.mark.full
def test_signal_before_the_end_of_a_job(fairseq, data, tmp_path):
    """The resumed training equals one without interruption."""
    options = ["--max-epoch", 30, "--save-interval", 30, "--dropout", "0.2", "--max-tokens", 30]
    options += ["--disable-validation"]
    started = fairseq.start_training(data, "--save-dir", tmp_path / "parts", *options)
    started.interrupt_after("Start iterating over samples", signal.SIGTERM)
    done = started.finish()
    assert done.status == 128 + signal.SIGTERM, done.err
    last = tmp_path / "parts" / "checkpoint_last.pt"
    updates = torch.load(last)["optimizer_history"][-1]["num_updates"]
    said = f"stopped by SIGTERM after {updates} updates; the same command resumes it"
    assert done.err.splitlines()[-1] == said
    for name in ("parts", "whole"):
        done = fairseq.train(data, "--save-dir", tmp_path / name, *options)
        assert done.status == 0, done.err
    assert_same_training(last, tmp_path / "whole" / "checkpoint_last.pt")


def test_signal_with_no_save(fairseq, data, tmp_path):
    options = ["--max-epoch", 1000, "--no-save", "--save-dir", tmp_path]
    started = fairseq.start_training(data, *options)
    started.interrupt_after("Start iterating over samples", signal.SIGUSR1)
    done = started.finish()
    assert done.status == 128 + signal.SIGUSR1
    assert done.err.splitlines()[-1].endswith(" updates; its options ask for no checkpoint")
    assert not list(tmp_path.iterdir())


# --- several processes -------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as connection:
        connection.bind(("127.0.0.1", 0))
        return connection.getsockname()[1]


def start_two_processes(fairseq, data, tmp_path, *args):
    options = ["--distributed-world-size", 2, "--distributed-no-spawn", "--distributed-init-method"]
    options += [f"tcp://127.0.0.1:{free_port()}", "--distributed-backend", "gloo"]
    options += ["--ddp-backend", "legacy_ddp", "--save-dir", tmp_path, *args]
    return [fairseq.start_training(data, *options, "--distributed-rank", rank) for rank in range(2)]


def two_processes(*args):
    return [worker.finish() for worker in start_two_processes(*args)]


def test_wrong_option_for_two_processes(fairseq, data, tmp_path):
    done = two_processes(fairseq, data, tmp_path, "--lam", "1.5")
    assert all(one.sentence.startswith("--lam is '1.5'") for one in done)


def test_error_in_one_of_two_processes(fairseq, data, tmp_path):
    """Only the first process reads checkpoints, and the other must not wait for ever."""
    (tmp_path / "bad.pt").write_bytes(b"nothing")
    first, second = two_processes(fairseq, data, tmp_path, "--restore-file", tmp_path / "bad.pt")
    assert f"checkpoint {tmp_path}/bad.pt cannot be read" in first.sentence
    assert second.status != 0


@pytest.mark.full
def test_signal_to_one_of_two_processes(fairseq, data, tmp_path):
    """Both processes stop after the same update, and training resumes from there."""
    options = ["--max-epoch", 60, "--save-interval", 60, "--disable-validation"]
    options += ["--log-format", "json", "--log-interval", 1]
    workers = start_two_processes(fairseq, data, tmp_path / "parts", *options)
    workers[0].interrupt_after('"num_updates": "1"', 0)  # the second process is training, too
    workers[1].process.send_signal(signal.SIGUSR1)
    first, second = [worker.finish() for worker in workers]
    assert (first.status, second.status) == (138, 138), first.err + second.err
    assert "stopped by SIGUSR1 after " in first.err
    assert "stopped by" not in second.err
    for name in ("parts", "whole"):
        for done in two_processes(fairseq, data, tmp_path / name, *options):
            assert done.status == 0, done.err
    last = [tmp_path / name / "checkpoint_last.pt" for name in ("parts", "whole")]
    assert_same_training(*last)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            ["--dropuot", 0.1, "--max-ecpoh", "2"],
            "did you mean --dropout for --dropuot, --max-epoch",
        ),
        (
            ["--best-checkpoint-metric", "ppll"],
            "validation gives no 'ppll', which --best-checkpoint-metric asks",
        ),
    ],
)
def test_unknown_names(fairseq, data, tmp_path, options, sentence):
    done = fairseq.train(data, "--save-dir", tmp_path, *options)
    assert done.status != 0
    assert sentence in done.sentence
