"""Files are written whole or not at all."""

import os

import pytest

from fairseq_casrnn.files import replacing, whole_file


def test_two_writers_of_a_file(tmp_path):
    """The last one to finish replaces the file; neither writes into the other's draft."""
    with whole_file(tmp_path / "out") as first:
        first.write("first")
        with whole_file(tmp_path / "out") as second:
            second.write("second")
        first.flush()
        assert (tmp_path / "out").read_text() == "second"
    assert (tmp_path / "out").read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_drafts_of_killed_processes_are_removed(tmp_path):
    """Those to which nothing was written for an hour; the first has the name of older versions."""
    (tmp_path / "victim").write_text("precious")
    for name in ("out.tmp", "out.0123abcd.tmp", "out.01234567.tmp", "out.txt.tmp", "out.link.tmp"):
        (tmp_path / name).touch()
    (tmp_path / "out.89abcdef.tmp").symlink_to(tmp_path / "victim")
    for path in tmp_path.iterdir():
        if path.name != "out.01234567.tmp":
            os.utime(path, (0, 0), follow_symlinks=False)
    with whole_file(tmp_path / "out") as file:
        file.write("new")
    assert (tmp_path / "victim").read_text() == "precious"
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ["out", "out.01234567.tmp", "out.link.tmp", "out.txt.tmp", "victim"]


def test_permissions_are_those_of_a_new_file(tmp_path):
    (tmp_path / "plain").touch()
    with whole_file(tmp_path / "out") as file:
        file.write("new")
    assert (tmp_path / "out").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_file_is_unchanged_if_writing_fails(tmp_path):
    def write():
        with whole_file(tmp_path / "out") as file:
            file.write("new")
            file.flush()
            raise KeyError

    (tmp_path / "out").write_text("old")
    with pytest.raises(KeyError):
        write()
    assert (tmp_path / "out").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_errors_name_the_final_file(tmp_path):
    with pytest.raises(FileNotFoundError) as raised, replacing(tmp_path / "missing" / "out"):
        pass
    assert raised.value.filename == str(tmp_path / "missing" / "out")
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError) as raised, replacing(tmp_path / "folder"):
        pass
    assert raised.value.filename == str(tmp_path / "folder")


def test_errors_of_copying_name_the_final_file(tmp_path):
    """In Python's error the file that is read comes first."""
    with pytest.raises(OSError, match="full") as raised, replacing(tmp_path / "out") as draft:
        raise OSError(28, "full", "source", None, draft)
    assert (raised.value.filename, raised.value.filename2) == ("source", str(tmp_path / "out"))
