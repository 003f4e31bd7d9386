"""Whether a log directory is full, and who hears of it."""

import asyncio
import errno
import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ottla.log.directory import LogDirectory
from ottla.replication import full_directories
from ottla.replication.full_directories import PROBE_FILE, ROOM_BYTES, FullDirectories, has_room
from ottla.testing.faulty_fs import FaultyFS, Operation
from ottla.testing.manual_clock import ManualClock


@pytest.fixture
def fs() -> FaultyFS:
    made = FaultyFS()
    made.make_directory("/data")
    return made


@pytest.fixture
def directory(fs: FaultyFS) -> LogDirectory:
    return LogDirectory(Path("/data"), fs=fs, clock=ManualClock())


@pytest.mark.parametrize("room", [0, ROOM_BYTES - 1, ROOM_BYTES])
def test_a_directory_needs_some_megabytes(fs: FaultyFS, directory: LogDirectory, room: int) -> None:
    fs.capacity_bytes = fs.used_bytes() + room
    assert has_room(directory) == (room == ROOM_BYTES)
    assert not fs.exists(f"/data/{PROBE_FILE}")
    assert fs.used_bytes() + room == fs.capacity_bytes


@pytest.mark.parametrize(("error", "room"), [(errno.EDQUOT, False), (errno.EFBIG, False), (errno.EIO, True)])
def test_other_errors_are_not_a_lack_of_room(fs: FaultyFS, directory: LogDirectory, error: int, room: bool) -> None:
    fs.fail(Operation.WRITE, error=error)
    assert has_room(directory) == room


def test_the_controller_hears_of_a_full_directory_and_of_room_in_it(
    fs: FaultyFS, directory: LogDirectory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(full_directories, "POLL_INTERVAL_S", 0.001)
    told: list[bool] = []

    async def main() -> None:
        with ThreadPoolExecutor(1) as threads:
            looking = FullDirectories(
                asyncio.get_running_loop(), threads, notify_controller=lambda: told.append(directory.is_full)
            )
            looking.write_failed(directory)  # there is room: it was a large write
            async with asyncio.timeout(20):
                while looking._watched:
                    await asyncio.sleep(0.001)
                fs.capacity_bytes = fs.used_bytes() + 100
                for _ in range(3):
                    looking.write_failed(directory)
                while not told:
                    await asyncio.sleep(0.001)
                fs.heal()
                while len(told) < 2:
                    await asyncio.sleep(0.001)
            await looking.close()
            looking.write_failed(directory)
            assert not looking._watched

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    assert told == [True, False]
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]
