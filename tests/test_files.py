"""Files are written whole or not at all."""

import os

import pytest

from fairseq_casrnn.files import replacing, whole_file


@pytest.fixture
def victim(tmp_path):
    """A file to which a symbolic link leads that has the temporary name of ``out``."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "out.tmp").symlink_to(victim)
    return victim


def test_nothing_is_written_through_a_link(victim, tmp_path):
    with whole_file(tmp_path / "out") as file:
        file.write("new")
    assert victim.read_text() == "precious"
    assert (tmp_path / "out").read_text() == "new"
    assert not (tmp_path / "out").is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "victim"]


def test_link_created_during_writing_is_not_followed(victim, tmp_path, monkeypatch):
    """Another user might create it after a leftover file was removed."""
    monkeypatch.setattr(os, "remove", lambda path: None)
    with pytest.raises(FileExistsError), replacing(tmp_path / "out"):
        pass
    assert victim.read_text() == "precious"


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
