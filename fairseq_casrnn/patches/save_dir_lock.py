"""A lock on ``--save-dir``: one training at a time."""

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
    """Lock a training's ``--save-dir`` before it reads or writes a checkpoint.

    Otherwise two trainings in one folder would silently overwrite each other's checkpoints.
    """
    if not cfg.no_save and trainer.cfg.distributed_training.distributed_rank == 0:
        claim(cfg.save_dir)


def claim(folder: str | Path) -> None:
    """Lock ``folder`` until this process ends, in whatever way.

    Does nothing if the system cannot lock files or the folder is not writable.

    Raises:
        UserError: another process holds the lock.
    """
    path = Path(folder).absolute() / LOCK
    if fcntl is None or path in _claimed:
        return
    try:
        file = open(path, "ab")  # noqa: SIM115
    except OSError:
        return  # fairseq reports an unusable folder when it saves
    try:
        # Forked workers do not inherit a lockf lock, unlike flock, so it ends with this process.
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
