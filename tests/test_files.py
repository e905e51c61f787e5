"""Files appear complete or not at all."""

import pytest

from tfcaps.files import write_atomically


def test_a_file_takes_the_place_of_the_old_one(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with write_atomically(path, "w") as file:
        file.write("neu: ü")
        assert path.read_text() == "old"
    assert path.read_text("utf-8") == "neu: ü"
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")
    with pytest.raises(RuntimeError, match="half way"):
        with write_atomically(path) as file:
            file.write(b"half")
            raise RuntimeError("half way")
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.bin"]
