"""Signals to a training and to the processes that it starts."""

import multiprocessing
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from fairseq import checkpoint_utils
from fairseq.dataclass.configs import CheckpointConfig
from fairseq_cli import train
from torch.utils.data._utils import worker as loading

from fairseq_casrnn.patches import install, signals
from fairseq_casrnn.patches.table import TABLE


def load_data(started) -> None:
    """Run as a process that loads data for a minute."""
    started.set()
    time.sleep(60)


@pytest.fixture
def worker(monkeypatch):
    monkeypatch.setattr(loading, "_worker_loop", load_data)
    install.apply(patch for patch in TABLE if patch.target == f"{loading.__name__}._worker_loop")
    context = multiprocessing.get_context("fork")
    started = context.Event()
    process = context.Process(target=loading._worker_loop, args=(started,), daemon=True)
    process.start()
    assert started.wait(30)
    yield process
    process.kill()
    process.join()


def test_data_loading_process_is_only_ended_by_its_parent(worker):
    """A cluster sends the signal to all processes of a job."""
    code = f"import os; os.kill({worker.pid}, {int(signal.SIGTERM)})"
    subprocess.run([sys.executable, "-SEc", code], check=True)
    worker.join(0.3)
    assert worker.is_alive()
    worker.terminate()
    worker.join(30)
    assert worker.exitcode == 0


SPAWNING = """
import os, signal, sys, time
import torch
from fairseq_casrnn.patches import install, signals
from fairseq_casrnn.patches.table import TABLE

def train(rank, parent):
    signals.install_handler(signals._remember)
    os.kill(parent, signal.SIGUSR1)
    while not signals._received:
        time.sleep(0.01)
    sys.exit(128 + signals._received[0])

if __name__ == "__main__":
    install.apply(p for p in TABLE if p.target == "torch.multiprocessing.spawn")
    torch.multiprocessing.spawn(train, args=(os.getpid(),), nprocs=1)
"""


@pytest.mark.full
def test_spawning_process_passes_signals_on(tmp_path):
    """It ends with the status of the spawned processes."""
    script = tmp_path / "spawning.py"
    script.write_text(SPAWNING)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=300)
    assert done.returncode == 138, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("end_of_epoch", [False, True])
def test_signal_during_an_epoch(monkeypatch, end_of_epoch):
    """Training ends after the update; at the end of an epoch, the epoch is finished first."""
    saved = []
    monkeypatch.setattr(signals, "_received", [int(signal.SIGTERM)])
    monkeypatch.setattr(train, "validate_and_save", lambda *args: ([None], False))
    monkeypatch.setattr(checkpoint_utils, "save_checkpoint", lambda *args: saved.append(args))
    install.apply(p for p in TABLE if p.target == "fairseq_cli.train.validate_and_save")
    options = CheckpointConfig()
    cfg = SimpleNamespace(checkpoint=options)
    trainer = SimpleNamespace(cfg=cfg, data_parallel_world_size=1, is_data_parallel_master=True)
    trainer.get_num_updates = lambda: 7
    update = (cfg, trainer, None, "epoch", ["valid"], end_of_epoch)
    if end_of_epoch:
        assert train.validate_and_save(*update) == ([None], False)
        assert not saved
        return
    with pytest.raises(SystemExit) as stop:
        train.validate_and_save(*update)
    assert stop.value.code == 128 + signal.SIGTERM
    assert saved == [(options, trainer, "epoch", None)]


@pytest.mark.parametrize(
    ("given", "without"),
    [
        ({}, ""),
        ({"restore_file": "run/../run/checkpoint_last.pt"}, ""),
        ({"restore_file": "other/checkpoint_last.pt"}, " without --restore-file"),
        ({"reset_optimizer": True, "restore_file": "a"}, " without --restore-file, --reset-optim"),
        ({"reset_dataloader": True}, " without --reset-dataloader"),
        ({"finetune_from_model": "a"}, ""),
    ],
)
def test_how_to_resume(given, without):
    """fairseq reads --restore-file instead of the stopped training's checkpoint."""
    said = signals.resuming(CheckpointConfig(save_dir="run", **given))
    assert said.startswith(f"the same command{without}")
    assert said.endswith(" resumes it")
    assert ("without" in said) == bool(without)


def test_handlers_of_others_are_kept():
    def own(number, frame):
        pass

    before = signal.signal(signal.SIGUSR1, own)
    try:
        signals.install_handler(signals._remember)
        assert signal.getsignal(signal.SIGUSR1) is own
        assert signal.getsignal(signal.SIGTERM) is signals._remember
    finally:
        signal.signal(signal.SIGUSR1, before)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
