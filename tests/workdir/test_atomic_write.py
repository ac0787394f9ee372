"""A file is the old one or the new one, never a part of either."""

from pathlib import Path

import pytest

from workdir.atomic_write import write_atomically


def test_the_file_is_replaced_and_nothing_else_is_left(tmp_path):
    path = tmp_path / "config.json"
    assert write_atomically(path, "하나\n") and path.read_bytes() == "하나\n".encode()
    assert write_atomically(path, b"\xff") and path.read_bytes() == b"\xff"
    assert not write_atomically(path, "other", overwrite=False) and path.read_bytes() == b"\xff"
    assert write_atomically(tmp_path / "new", "other", overwrite=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "new"]


def test_without_hard_links_a_new_file_is_renamed(tmp_path, monkeypatch):
    def no_links(*paths):
        raise OSError("not supported")

    monkeypatch.setattr("os.link", no_links)
    assert write_atomically(tmp_path / "new", "text", overwrite=False)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("new", "text")]


@pytest.mark.parametrize("failing", ["pathlib.Path.write_bytes", "os.replace"])
def test_a_write_that_fails_leaves_the_old_file_alone(tmp_path, monkeypatch, failing):
    path = tmp_path / "result.json"
    path.write_text("old")

    def full_disk(*arguments):
        raise OSError("No space left on device")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space left"):
        patch.setattr(failing, full_disk)
        write_atomically(path, "new")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("result.json", "old")]


def test_text_that_cannot_be_encoded_leaves_the_old_file_alone(tmp_path):
    path = tmp_path / "result.json"
    path.write_text("old")
    with pytest.raises(ValueError):
        write_atomically(path, "\ud800")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("result.json", "old")]


def test_there_is_one_atomic_write():
    root = Path(__file__).resolve().parents[2]
    places = [path for path in root.rglob("*.py") if not any(part[0] == "." for part in path.relative_to(root).parts)]
    replacing = [path for path in places if "os.replace(" in path.read_text(encoding="utf-8")]
    assert [path.name for path in replacing if "tests" not in path.relative_to(root).parts] == ["atomic_write.py"]
