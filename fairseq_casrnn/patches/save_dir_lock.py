"""One training at a time in a folder of checkpoints."""

import errno
from pathlib import Path
from typing import BinaryIO

from fairseq_casrnn.errors import UserError

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

LOCK = ".lock"
BUSY = (errno.EACCES, errno.EAGAIN)
_claimed: dict[Path, BinaryIO] = {}  # open files keep their locks until the process ends


def claim_save_dir(cfg, trainer, **kwargs) -> None:
    """Claim a training's ``--save-dir`` before it reads or writes a checkpoint.

    Two trainings in one folder take turns at overwriting ``checkpoint_last.pt`` and each other's
    best, and neither notices.
    """
    if not cfg.no_save and trainer.cfg.distributed_training.distributed_rank == 0:
        claim(cfg.save_dir)


def claim(folder: str | Path) -> None:
    """Keep other processes from claiming ``folder`` until this one ends, killed or not.

    Where files cannot be locked, or not be written, this does nothing.

    Raises:
        UserError: another process has it.
    """
    path = Path(folder).absolute() / LOCK
    if fcntl is None or path in _claimed:
        return
    try:
        file = open(path, "ab")  # noqa: SIM115
    except OSError:
        return  # what is wrong with the folder, fairseq says when it saves
    try:
        # Of the process, unlike flock's: workers that it forks do not keep it when it is killed.
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        if error.errno in BUSY:
            raise UserError(
                f"another training is running in {folder}; wait until it ends, or train in another "
                f"folder (if there is none, after a crash of another machine say, delete {path})"
            ) from None
        return
    _claimed[path] = file
