"""What the filesystem with the mortal page cache keeps, and what it loses."""

from pathlib import Path

from tests.chaos.lost_cache import LostCacheFileSystem


def test_only_what_was_synced_is_in_the_real_file(tmp_path: Path) -> None:
    fs, path = LostCacheFileSystem(), tmp_path / "a"
    file = fs.open(str(path), create=True)
    file.write(0, b"synced")
    file.sync()
    file.write(6, b" and not")
    file.write(0, b"S")
    assert bytes(file.read(0, 100)) == b"Synced and not"
    assert path.read_bytes() == b"synced"
    assert fs.names(str(tmp_path)) == [("a", False, 14)]
    file.sync()
    assert path.read_bytes() == b"Synced and not"


def test_all_who_open_a_file_see_the_same(tmp_path: Path) -> None:
    fs, path = LostCacheFileSystem(), str(tmp_path / "a")
    fs.open(path, create=True).write(0, b"one")
    assert fs.read_bytes(path) == b"one"
    assert LostCacheFileSystem().read_bytes(path) == b"", "another process, after a crash of this one"


def test_a_truncation_is_synced_like_a_write(tmp_path: Path) -> None:
    fs, path = LostCacheFileSystem(), tmp_path / "a"
    fs.write_bytes(str(path), b"0123456789", sync=True)
    file = fs.open(str(path))
    file.truncate(4)
    file.truncate(6)
    assert (file.size(), path.read_bytes()) == (6, b"0123456789")
    file.sync()
    assert path.read_bytes() == b"0123\0\0"


def test_names_survive_and_carry_what_was_not_synced(tmp_path: Path) -> None:
    fs = LostCacheFileSystem()
    fs.make_directory(str(tmp_path / "d"))
    fs.write_bytes(str(tmp_path / "d" / "a"), b"new", sync=False)
    fs.rename(str(tmp_path / "d"), str(tmp_path / "e"))
    assert fs.read_bytes(str(tmp_path / "e" / "a")) == b"new"
    assert (tmp_path / "e" / "a").read_bytes() == b""
    assert fs.sync_all(str(tmp_path))
    assert (tmp_path / "e" / "a").read_bytes() == b"new"
    fs.remove(str(tmp_path / "e" / "a"))
    assert not fs.exists(str(tmp_path / "e" / "a"))
    fs.remove_tree(str(tmp_path / "e"))
    assert not (tmp_path / "e").exists()
