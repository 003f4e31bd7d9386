"""The faulty filesystem itself: what it may lose, and what it may not."""

import errno
from pathlib import Path

import pytest

from ottla.log.fs import FileSystem, RealFileSystem
from ottla.testing.faulty_fs import Crashed, FaultyFS, Operation, Survival


@pytest.fixture
def fs() -> FaultyFS:
    fs = FaultyFS(seed=1)
    fs.make_directory("/data")
    fs.sync_directory("/")
    return fs


def durable(fs: FaultyFS, path: str, content: bytes) -> None:
    fs.write_bytes(path, content, sync=True)
    fs.sync_directory(path.rpartition("/")[0])


def test_it_is_a_filesystem_of_the_log(fs: FaultyFS) -> None:
    seam: FileSystem = fs
    seam.write_bytes("/data/a", b"hello", sync=False)
    file = seam.open("/data/a")
    file.write(5, b" world")
    assert bytes(file.read(0, 100)) == b"hello world"
    assert sorted(seam.names("/data")) == [("a", False, 11)]
    seam.rename("/data/a", "/data/b")
    assert bytes(file.read(6, 5)) == b"world", "an open file follows its inode"
    seam.remove("/data/b")
    assert not seam.exists("/data/b")
    assert bytes(file.read(0, 5)) == b"hello", "even when it has no name any more"
    with pytest.raises(FileNotFoundError):
        seam.open("/data/b")


def test_what_is_synced_survives_and_what_is_not_is_lost(fs: FaultyFS) -> None:
    durable(fs, "/data/a", b"first")
    fs.open("/data/a").write(5, b" second")
    assert fs.read_bytes("/data/a") == b"first second"
    assert fs.durable_bytes("/data/a") == b"first"
    fs.crash(Survival.NOTHING)
    assert fs.read_bytes("/data/a") == b"first"


def test_a_synced_file_without_a_synced_name_is_lost(fs: FaultyFS) -> None:
    fs.write_bytes("/data/a", b"first", sync=True)
    fs.crash(Survival.NOTHING)
    assert fs.names("/data") == []


def test_an_unsynced_rename_is_lost_or_whole(fs: FaultyFS) -> None:
    seen = set()
    for seed in range(20):
        fs = FaultyFS(seed=seed)
        durable(fs, "/old", b"old")
        durable(fs, "/new", b"new")
        fs.rename("/new", "/old")
        fs.crash(Survival.SCATTERED)
        content = fs.read_bytes("/old")
        assert fs.exists("/new") == (content == b"old")
        seen.add(content)
    assert seen == {b"old", b"new"}


def test_unsynced_removals_and_creations_come_back_or_not(fs: FaultyFS) -> None:
    durable(fs, "/data/gone", b"x")
    fs.remove("/data/gone")
    fs.write_bytes("/data/there", b"y", sync=True)
    fs.crash(Survival.NOTHING)
    assert [name for name, _, _ in fs.names("/data")] == ["gone"]


def test_what_is_synced_under_one_name_is_synced_under_another(fs: FaultyFS) -> None:
    durable(fs, "/data/log", b"short")
    durable(fs, "/data/cleaned", b"cleaned")
    fs.rename("/data/cleaned", "/data/log")
    fs.open("/data/log").write(7, b" and more")
    fs.crash(Survival.EVERYTHING)
    assert fs.read_bytes("/data/log") == b"cleaned and more"
    assert fs.survived_unsynced("/data/log") == range(7, 16)
    fs.crash()
    assert not fs.survived_unsynced("/data/log")


def test_a_torn_write_survives_up_to_a_byte() -> None:
    sizes = set()
    for seed in range(40):
        fs = FaultyFS(seed=seed)
        durable(fs, "/a", b"")
        fs.open("/a").write(0, b"abc")
        fs.open("/a").write(3, b"def")
        fs.crash(Survival.PREFIX)
        content = fs.read_bytes("/a")
        assert b"abcdef".startswith(content)
        sizes.add(len(content))
    assert sizes == set(range(7))


def test_scattered_blocks_survive_and_lost_ones_are_zeros() -> None:
    contents = set()
    for seed in range(40):
        fs = FaultyFS(seed=seed, block_bytes=2)
        durable(fs, "/a", b"")
        fs.open("/a").write(0, b"aabbcc")
        fs.crash(Survival.SCATTERED)
        contents.add(fs.read_bytes("/a"))
    assert contents == {b"", b"aa", b"\0\0bb", b"aabb", b"\0\0\0\0cc", b"aa\0\0cc", b"\0\0bbcc", b"aabbcc"}


def test_nothing_written_behind_a_lost_cut_survives() -> None:
    for seed in range(40):
        fs = FaultyFS(seed=seed)
        durable(fs, "/a", b"old content")
        fs.open("/a").truncate(0)
        fs.open("/a").write(0, b"new")
        fs.crash(Survival.SCATTERED)
        assert fs.read_bytes("/a") in (b"old content", b"", b"new")


def test_a_failed_sync_loses_its_pages_for_good() -> None:
    for seed in range(10):
        fs = FaultyFS(seed=seed)
        durable(fs, "/a", b"x" * 512)
        file = fs.open("/a")
        file.write(512, b"y" * 512)
        fs.fail(Operation.SYNC, "/a")
        with pytest.raises(OSError, match="Input/output error"):
            file.sync()
        assert bytes(file.read(512, 512)) == b"y" * 512, "still in the cache"
        file.sync()
        file.write(1024, b"z" * 512)
        file.sync()
        if fs.durable_bytes("/a") == b"x" * 512 + bytes(512) + b"z" * 512:
            fs.drop_caches()
            assert bytes(file.read(512, 512)) == bytes(512)
            return
    pytest.fail("no failed sync has lost anything")


def test_a_full_disk_takes_what_fits(fs: FaultyFS) -> None:
    durable(fs, "/data/a", b"12345")
    fs.capacity_bytes = 8
    file = fs.open("/data/a")
    with pytest.raises(OSError, match="No space left") as caught:
        file.write(5, b"6789")
    assert caught.value.errno == errno.ENOSPC
    assert fs.read_bytes("/data/a") == b"12345678"
    file.write(0, b"abc")  # overwriting needs no room
    fs.capacity_bytes = None
    file.write(8, b"9")
    assert fs.read_bytes("/data/a") == b"abc456789"


def test_a_rule_strikes_when_and_where_it_says(fs: FaultyFS) -> None:
    fault = fs.fail(Operation.WRITE, "*.log", error=errno.EIO, skip=1, times=2)
    fs.write_bytes("/data/a.index", b"x", sync=False)
    fs.write_bytes("/data/a.log", b"x", sync=False)
    file = fs.open("/data/a.log")
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output error"):
            file.write(0, b"y")
    file.write(0, b"z")
    assert fault.hits == 2
    fault = fs.fail(Operation.RENAME, times=None)
    fault.cancel()
    fs.rename("/data/a.log", "/data/b.log")


def test_a_crash_in_the_midst_stops_everything_until_the_restart(fs: FaultyFS) -> None:
    durable(fs, "/data/a", b"old")
    fs.crash_after(1)
    file = fs.open("/data/a")
    file.write(0, b"new")
    with pytest.raises(Crashed):
        file.sync()
    with pytest.raises(Crashed):
        fs.read_bytes("/data/a")
    fs.crash(Survival.NOTHING)
    assert fs.read_bytes("/data/a") == b"old", "a sync that did not return has synced nothing"
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.read(0, 1)


def test_a_lock_is_held_until_it_is_dropped_or_the_machine_crashes(fs: FaultyFS) -> None:
    held: object | None = fs.lock("/data/.lock")
    with pytest.raises(BlockingIOError):
        fs.lock("/data/.lock")
    assert held is not None
    held = None
    held = fs.lock("/data/.lock")
    fs.crash(Survival.EVERYTHING)
    again = fs.lock("/data/.lock")
    held = None  # of the former life: it frees nothing
    with pytest.raises(BlockingIOError):
        fs.lock("/data/.lock")
    assert again is not None


def test_a_flipped_bit_is_read(fs: FaultyFS) -> None:
    durable(fs, "/data/a", b"\x00\x00")
    fs.flip_bit("/data/a", 9)
    assert fs.read_bytes("/data/a") == b"\x00\x02"
    fs.crash(Survival.NOTHING)
    assert fs.read_bytes("/data/a") == b"\x00\x02"


def test_the_same_seed_gives_the_same_crash() -> None:
    def run() -> bytes:
        fs = FaultyFS(seed=5)
        durable(fs, "/a", b"")
        for number in range(30):
            fs.open("/a").write(number * 100, bytes([number]) * 100)
        fs.crash()
        return fs.read_bytes("/a")

    assert run() == run()


def test_reserved_room_is_there_on_a_full_disk(fs: FaultyFS) -> None:
    file = fs.open("/data/a", create=True)
    assert file.reserve(1000)
    assert (file.size(), fs.used_bytes()) == (0, 1000)
    fs.capacity_bytes = 1002
    with pytest.raises(OSError, match="No space left"):
        fs.write_bytes("/data/b", b"xyz", sync=False)
    fs.remove("/data/b")
    file.write(0, bytes(1002))
    with pytest.raises(OSError, match="No space left"):
        file.write(1002, b"c")
    file.truncate(5)
    fs.write_bytes("/data/b", bytes(1002 - 512), sync=False)  # all but the first block
    file.write(5, b"c")


def test_reserving_more_than_there_is_reserves_nothing(fs: FaultyFS) -> None:
    fs.capacity_bytes = 9
    assert not fs.open("/data/a", create=True).reserve(10)
    fs.write_bytes("/data/b", b"123456789", sync=False)


def test_the_machines_files_reserve_without_growing(tmp_path: Path) -> None:
    file = RealFileSystem().open(str(tmp_path / "a"), create=True)
    assert file.reserve(1 << 20)
    assert file.size() == 0
    assert (tmp_path / "a").stat().st_blocks * 512 >= 1 << 20
    assert not file.reserve(1 << 60)  # there is no such disk: not an error
    assert file.size() == 0
