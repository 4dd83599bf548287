"""SIGTERM and SIGUSR1, which clusters send before a job ends: save after the update and stop.

The exit status is 128 plus the signal number. The same command resumes the training, without
options such as ``--restore-file``. Signals before the first epoch, and signals with another
handler, keep their effect.
"""

import multiprocessing
import os
import signal
import sys
import threading
from typing import NoReturn

import torch
from fairseq import checkpoint_utils
from fairseq.distributed import utils as distributed

from fairseq_casrnn.errors import as_option
from fairseq_casrnn.patches.messages import wait_for_batches
from fairseq_casrnn.runs.layout import LAST

SIGNALS = [number for name in ("SIGTERM", "SIGUSR1") if (number := getattr(signal, name, None))]
RESETS = ("reset_optimizer", "reset_dataloader", "reset_meters", "reset_lr_scheduler")
_received: list[int] = []


def install_handler(handler) -> None:
    """Install ``handler`` for the signals that have no other handler."""
    if threading.current_thread() is not threading.main_thread():
        return  # Python allows handlers only in the main thread
    for number in SIGNALS:
        if signal.getsignal(number) in (signal.SIG_DFL, _remember, _forward_to_children):
            signal.signal(number, handler)


def _remember(number: int, frame) -> None:
    _received.append(number)


def _forward_to_children(number: int, frame) -> None:
    """Send the signal to the training processes that this process has started."""
    children = multiprocessing.active_children()
    for child in children:
        if child.pid is not None:
            os.kill(child.pid, number)
    if not children:
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


def signal_received(trainer) -> int:
    """The number of a signal that any training process has received, or 0; equal in all ranks."""
    number = _received[0] if _received else 0
    if trainer.data_parallel_world_size == 1:
        return number
    greatest = torch.tensor([number], device=trainer.device)
    distributed.all_reduce(greatest, group=trainer.data_parallel_process_group, op="max")
    return int(greatest)


def stop(trainer, number: int) -> NoReturn:
    """Exit after all ranks have reached this point, when the checkpoint is written."""
    options = trainer.cfg.checkpoint
    saved = not (options.no_save or options.no_last_checkpoints)
    if trainer.data_parallel_world_size > 1:
        torch.distributed.barrier(distributed.get_global_group())
    if trainer.is_data_parallel_master:
        how = resuming(options) if saved else "its options ask for no checkpoint"
        name, updates = signal.Signals(number).name, trainer.get_num_updates()
        print(f"stopped by {name} after {updates} updates; {how}", file=sys.stderr)
    wait_for_batches()
    raise SystemExit(128 + number)


def resuming(options) -> str:
    """How to resume the training with the ``CheckpointConfig`` ``options``, for a message."""
    last, given = os.path.join(options.save_dir, LAST), options.restore_file
    # fairseq would obey these options again.
    names = [name for name in RESETS if getattr(options, name)]
    if given != LAST and os.path.realpath(given) != os.path.realpath(last):
        names = ["restore_file", *names]
    without = f" without {', '.join(map(as_option, names))}" if names else ""
    return f"the same command{without} resumes it"


def stop_after_update(result, cfg, trainer, task, epoch_itr, valid_subsets, end_of_epoch):
    """After ``validate_and_save``: if a signal came during the update, save and stop."""
    _, should_stop = result
    if not (should_stop or end_of_epoch) and (number := signal_received(trainer)):
        checkpoint_utils.save_checkpoint(cfg.checkpoint, trainer, epoch_itr, None)
        stop(trainer, number)
    return result


def stop_between_epochs(original, cfg, trainer, task, epoch_itr):
    """Around ``train``: if a signal came at the end of the previous epoch, save and stop.

    The work at the end of that epoch, such as the scheduler's step, is done by then.
    """
    install_handler(_remember)
    before = getattr(trainer, "epoch_before", None)
    if before is not None and (number := signal_received(trainer)):
        if before.epoch % cfg.checkpoint.save_interval:  # that epoch saved no checkpoint
            checkpoint_utils.save_checkpoint(cfg.checkpoint, trainer, before, None)
        stop(trainer, number)
    result = original(cfg, trainer, task, epoch_itr)
    trainer.epoch_before = epoch_itr
    return result


def forward_signals(original, *args, **kwargs):
    """Around ``torch.multiprocessing.spawn``: forward signals to the processes."""
    install_handler(_forward_to_children)
    try:
        return original(*args, **kwargs)
    except torch.multiprocessing.ProcessExitedException as error:
        for number in SIGNALS:
            if error.exit_code in (128 + number, -number):
                raise SystemExit(128 + number) from None
        raise


def ignore_sigterm_in_workers(*args, **kwargs) -> None:
    """Before a data loader's worker loop: ignore SIGTERM unless the parent process sends it.

    A cluster sends the signal to all processes of a job. If a worker died, the update would fail.
    """
    if not hasattr(signal, "sigwaitinfo"):  # missing on some systems
        return
    parent = os.getppid()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def wait() -> None:
        while signal.sigwaitinfo({signal.SIGTERM}).si_pid != parent:
            pass
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()
