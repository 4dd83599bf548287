"""Atomic writing of checkpoints; damaged or incomplete ones are refused."""

import os
import shutil
import zipfile
import zlib

from fairseq_casrnn.diagnostics.checkpoints import lacks_position, missing_position_message
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.files import replacing
from fairseq_casrnn.runs.layout import LAST


def save_whole_file(original, obj, filename, async_write=False):
    """Write a checkpoint completely or not at all.

    fairseq retries a failed save at the position in the file where the first attempt failed.
    """
    import torch
    from fairseq.file_io import PathManager

    if async_write or not PathManager.supports_rename(filename):
        return original(obj, filename, async_write=async_write)
    with replacing(filename) as temporary, open(temporary, "wb") as file:
        torch.save(obj, file)


def copy_whole_file(original, src_path: str, dst_path: str, overwrite: bool = False):
    """Copy a checkpoint completely or not at all.

    fairseq overwrites ``checkpoint_last.pt`` in place. A full disk or a kill during the copy
    destroys the file from which a training resumes.
    """
    from fairseq.file_io import PathManager

    if PathManager.path_requires_pathmanager(src_path + dst_path):
        return original(src_path, dst_path, overwrite=overwrite)
    with replacing(dst_path) as temporary:
        shutil.copyfile(src_path, temporary)
    return dst_path


def check_before_resuming(original, cfg, trainer, **kwargs):
    """Refuse a checkpoint that is missing or has no position; fairseq silently starts from scratch.

    Raises:
        UserError: ``--restore-file``, ``--continue-once`` or ``--finetune-from-model`` is not a
            file, or the checkpoint to resume says neither epoch nor batch.
    """
    from fairseq.file_io import PathManager

    option, name = "--restore-file", cfg.restore_file
    # checkpoint_last.pt may be missing: scripts also give it to the first run.
    optional = os.path.basename(name).startswith("checkpoint_last") or trainer.checkpoint_suffix
    if name == LAST:
        name = os.path.join(cfg.save_dir, f"checkpoint_last{trainer.checkpoint_suffix}.pt")
        if not os.path.lexists(name) and (start := cfg.continue_once or cfg.finetune_from_model):
            option = "--continue-once" if cfg.continue_once else "--finetune-from-model"
            name, optional = start, False
    if not optional and not PathManager.isfile(name):
        what = "is a folder" if os.path.isdir(name) else "does not exist"
        raise UserError(
            f"checkpoint {name} {what}; check {option}, or drop it to train a new model"
        )
    if os.path.lexists(name) and not os.path.isfile(name):
        link = os.path.islink(name)
        what = "a symbolic link that leads to no file" if link else "not a regular file"
        raise UserError(f"checkpoint {name} is {what}; fix it, or remove it to train a new model")
    extra_state, batches = original(cfg, trainer, **kwargs)
    if (
        extra_state
        and os.path.isfile(name)
        and option != "--finetune-from-model"
        and not cfg.reset_dataloader
        and lacks_position(extra_state)
    ):
        raise UserError(missing_position_message(name))
    return extra_state, batches


def check_archive(path: str, *args, **kwargs) -> None:
    """Verify a checkpoint's checksums, which torch writes but does not verify.

    Raises:
        UserError: the file has changed since it was written.
    """
    if not (os.path.isfile(path) and zipfile.is_zipfile(path)):
        return  # remote, older than torch 1.6, or truncated, which torch reports
    try:
        with zipfile.ZipFile(path) as archive:
            # torch.serialization.set_crc32_options(False) leaves the checksums out.
            summed = any(entry.CRC for entry in archive.infolist())
            damaged = summed and archive.testzip() is not None
    # OSError: a seek to a negative offset, if bytes are missing.
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, ValueError):
        damaged = True
    if damaged:
        raise UserError(
            f"checkpoint {path} is damaged: its contents do not match their checksums; copy it "
            "again or use another one"
        )
