"""Checkpoints are written whole; those that are damaged or do not say how far they got, refused."""

import os
import shutil
import zipfile
import zlib

from fairseq_casrnn.diagnostics.checkpoints import lost_place, without_place
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.files import replacing


def save_whole_file(original, obj, filename, async_write=False):
    """Write a checkpoint completely or not at all.

    fairseq tries a failed save again, at the position in the file where the first attempt broke
    off.
    """
    import torch
    from fairseq.file_io import PathManager

    if async_write or not PathManager.supports_rename(filename):
        return original(obj, filename, async_write=async_write)
    with replacing(filename) as temporary, open(temporary, "wb") as file:
        torch.save(obj, file)


def copy_whole_file(original, src_path: str, dst_path: str, overwrite: bool = False):
    """Copy a checkpoint completely or not at all.

    fairseq copies the new checkpoint over ``checkpoint_last.pt`` in place, so a full disk or a kill
    in that moment destroys the file that a resumed training starts from.
    """
    from fairseq.file_io import PathManager

    if PathManager.path_requires_pathmanager(src_path + dst_path):
        return original(src_path, dst_path, overwrite=overwrite)
    with replacing(dst_path) as temporary:
        shutil.copyfile(src_path, temporary)
    return dst_path


def check_before_resuming(original, cfg, trainer, **kwargs):
    """fairseq trains a new model where it finds no file, or no place in it to go on from."""
    from fairseq.file_io import PathManager

    # checkpoint_last.pt may be missing: scripts give it to the first run and to the next ones.
    name = cfg.restore_file
    last = os.path.basename(name).startswith("checkpoint_last")
    if not last and not trainer.checkpoint_suffix and not PathManager.isfile(name):
        raise UserError(
            f"checkpoint {name} does not exist; check --restore-file, or drop it to train a new "
            "model"
        )
    if name == "checkpoint_last.pt":
        name = os.path.join(cfg.save_dir, f"checkpoint_last{trainer.checkpoint_suffix}.pt")
    if os.path.lexists(name) and not os.path.isfile(name):
        what = "a symbolic link that leads to no file" if os.path.islink(name) else "no file"
        raise UserError(f"checkpoint {name} is {what}; mend it, or remove it to train a new model")
    extra_state, batches = original(cfg, trainer, **kwargs)
    if (
        extra_state
        and os.path.isfile(name)
        and not cfg.reset_dataloader
        and lost_place(extra_state)
    ):
        raise UserError(without_place(name))
    return extra_state, batches


def check_archive(path: str, *args, **kwargs) -> None:
    """Compare a checkpoint with its checksums, which torch writes but does not read.

    Raises:
        UserError: its contents have changed since it was written.
    """
    if not (os.path.isfile(path) and zipfile.is_zipfile(path)):
        return  # remote, older than torch 1.6, or truncated: torch notices
    try:
        with zipfile.ZipFile(path) as archive:
            # Unless torch.serialization.set_crc32_options(False) left them out.
            summed = any(entry.CRC for entry in archive.infolist())
            damaged = summed and archive.testzip() is not None
    # An OSError is that of reading at a place before the file, where bytes are missing.
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, ValueError):
        damaged = True
    if damaged:
        raise UserError(
            f"checkpoint {path} is damaged: its contents do not match their checksums; copy it "
            "again or use another one"
        )
