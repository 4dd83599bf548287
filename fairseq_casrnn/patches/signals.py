"""SIGTERM and SIGUSR1, which a cluster sends before a job's end: save at the next update and stop.

The exit status is 128 plus the signal's number, and the same command goes on where it stopped. A
signal that comes before the first epoch, or for which there is another handler, does what it did.
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

from .messages import wait_for_batches

SIGNALS = [number for name in ("SIGTERM", "SIGUSR1") if (number := getattr(signal, name, None))]
_received: list[int] = []


def handle(handler) -> None:
    """Have ``handler`` called for the signals that nobody else handles."""
    if threading.current_thread() is not threading.main_thread():
        return  # where Python allows no handlers
    for number in SIGNALS:
        if signal.getsignal(number) in (signal.SIG_DFL, _remember, _pass_on):
            signal.signal(number, handler)


def _remember(number: int, frame) -> None:
    _received.append(number)


def _pass_on(number: int, frame) -> None:
    """To the processes that train, which this one has started and waits for."""
    children = multiprocessing.active_children()
    for child in children:
        if child.pid is not None:
            os.kill(child.pid, number)
    if not children:
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


def agreed(trainer) -> int:
    """The signal that one of the training processes has received, the same in all of them, or 0."""
    number = _received[0] if _received else 0
    if trainer.data_parallel_world_size == 1:
        return number
    greatest = torch.tensor([number], device=trainer.device)
    distributed.all_reduce(greatest, group=trainer.data_parallel_process_group, op="max")
    return int(greatest)


def stop(trainer, number: int) -> NoReturn:
    """End this process, and all the others with it, when the checkpoint is written."""
    options = trainer.cfg.checkpoint
    kept = not (options.no_save or options.no_last_checkpoints)
    if trainer.data_parallel_world_size > 1:
        torch.distributed.barrier(distributed.get_global_group())
    if trainer.is_data_parallel_master:
        what = "the same command goes on from there" if kept else "no checkpoint was asked for"
        name, updates = signal.Signals(number).name, trainer.get_num_updates()
        print(f"stopped by {name} after {updates} updates; {what}", file=sys.stderr)
    wait_for_batches()
    raise SystemExit(128 + number)


def stop_after_update(result, cfg, trainer, task, epoch_itr, valid_subsets, end_of_epoch):
    """Look for signals when an update is done: after ``validate_and_save``."""
    _, should_stop = result
    if not (should_stop or end_of_epoch) and (number := agreed(trainer)):
        checkpoint_utils.save_checkpoint(cfg.checkpoint, trainer, epoch_itr, None)
        stop(trainer, number)
    return result


def stop_between_epochs(original, cfg, trainer, task, epoch_itr):
    """Look for signals between epochs: around ``train``.

    What belongs to the end of the epoch before, such as a step of the rate, has been done.
    """
    handle(_remember)
    before = getattr(trainer, "epoch_before", None)
    if before is not None and (number := agreed(trainer)):
        if before.epoch % cfg.checkpoint.save_interval:  # not saved at its end
            checkpoint_utils.save_checkpoint(cfg.checkpoint, trainer, before, None)
        stop(trainer, number)
    result = original(cfg, trainer, task, epoch_itr)
    trainer.epoch_before = epoch_itr
    return result


def pass_signals_on(original, *args, **kwargs):
    """With several GPUs, fairseq starts the processes that train and waits for them."""
    handle(_pass_on)
    try:
        return original(*args, **kwargs)
    except torch.multiprocessing.ProcessExitedException as error:
        for number in SIGNALS:
            if error.exit_code in (128 + number, -number):
                raise SystemExit(128 + number) from None
        raise


def survive_in_workers(*args, **kwargs) -> None:
    """A process that loads data survives SIGTERM to all processes of a job; not its parent's.

    Its death would be an error in the middle of an update.
    """
    if not hasattr(signal, "sigwaitinfo"):  # not everywhere
        return
    parent = os.getppid()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def wait() -> None:
        while signal.sigwaitinfo({signal.SIGTERM}).si_pid != parent:
            pass
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()
