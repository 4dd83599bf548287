"""Two trainings cannot use one folder."""

import errno
import subprocess
import sys
from types import SimpleNamespace
from unittest import mock

import pytest

from fairseq_casrnn.errors import UserError
from fairseq_casrnn.patches import save_dir_lock

CLAIM = """
import sys
from fairseq_casrnn.patches.save_dir_lock import claim
claim(sys.argv[1])
print("claimed", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def claimed(tmp_path):
    """A folder and the process that has claimed it."""
    holder = subprocess.Popen(
        [sys.executable, "-c", CLAIM, tmp_path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout.readline() == "claimed\n"
    yield tmp_path, holder
    holder.kill()
    holder.communicate()


def test_claimed_folder_is_refused_until_its_process_ends(claimed):
    folder, holder = claimed
    with pytest.raises(UserError, match=f"running in {folder}; wait until it ends, or train"):
        save_dir_lock.claim(folder)
    holder.kill()
    holder.wait()
    save_dir_lock.claim(folder)


def test_one_process_may_claim_a_folder_again(tmp_path):
    """The folder may also have another name."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    for name in ("folder", "folder", "link"):
        save_dir_lock.claim(tmp_path / name)


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_file_systems_without_locks(tmp_path, number):
    error = OSError(number, "no locks here")
    with mock.patch.object(save_dir_lock.fcntl, "lockf", side_effect=error):
        save_dir_lock.claim(tmp_path)
    assert tmp_path / save_dir_lock.LOCK not in save_dir_lock._claimed


def test_missing_folder(tmp_path):
    save_dir_lock.claim(tmp_path / "missing")
    assert not (tmp_path / "missing").exists()


@pytest.mark.parametrize(
    ("no_save", "rank", "claims"), [(False, 0, True), (True, 0, False), (False, 1, False)]
)
def test_only_the_process_that_saves_claims_the_folder(tmp_path, no_save, rank, claims):
    """It does so before it reads a checkpoint."""
    cfg = SimpleNamespace(no_save=no_save, save_dir=str(tmp_path))
    trainer = SimpleNamespace(
        cfg=SimpleNamespace(distributed_training=SimpleNamespace(distributed_rank=rank))
    )

    save_dir_lock.claim_save_dir(cfg, trainer, disable_iterator_cache=False)
    assert (tmp_path / save_dir_lock.LOCK).exists() == claims
