"""Files are written whole or not at all, and nowhere else."""

import os
import secrets

import pytest

from prudent.files import write_whole


def test_a_link_in_the_way_is_replaced_and_not_followed(tmp_path):
    outside = tmp_path / "outside.txt"
    outside.write_text("kept")
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "policy.csv").symlink_to(outside)
    write_whole(folder / "policy.csv", "new")
    assert outside.read_text() == "kept"
    assert (folder / "policy.csv").read_text() == "new" and not (folder / "policy.csv").is_symlink()


def test_links_under_the_temporary_names_are_not_followed(tmp_path, monkeypatch):
    outside = tmp_path / "outside.txt"
    outside.write_text("kept")
    folder = tmp_path / "run"
    folder.mkdir()
    for process in range(os.getpid() - 5, os.getpid() + 5):
        (folder / f".policy.csv.{process}.partial").symlink_to(outside)
    write_whole(folder / "policy.csv", "new")
    assert outside.read_text() == "kept" and (folder / "policy.csv").read_text() == "new"
    # Even a name that was guessed is refused.
    monkeypatch.setattr(secrets, "token_hex", lambda size: "guessed")
    (folder / ".policy.csv.guessed.partial").symlink_to(outside)
    with pytest.raises(OSError, match="exists"):
        write_whole(folder / "policy.csv", "newer")
    assert outside.read_text() == "kept" and (folder / "policy.csv").read_text() == "new"


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    path = write_whole(tmp_path / "note.txt", "old")

    def fails(file):
        file.write(b"half")
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space"):
        write_whole(path, fails)
    assert path.read_text() == "old" and [entry.name for entry in tmp_path.iterdir()] == ["note.txt"]
