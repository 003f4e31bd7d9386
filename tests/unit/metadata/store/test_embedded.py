"""The file of the embedded store: locked, durable, and refused in a sentence when it is not what it should be."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.metadata.store.base import Create, StoreUnavailable
from ottla.metadata.store.embedded import EmbeddedStore

COMMITS_BEFORE_THE_END = 40

WRITER = """
import asyncio, sys
from pathlib import Path
from ottla.metadata.store.base import Create, Update
from ottla.metadata.store.embedded import EmbeddedStore

async def write():
    store = EmbeddedStore(Path(sys.argv[1]))
    await store.open()
    await store.commit([Create("/last", b"-1")])
    for number in range(1_000_000):
        await store.commit([Create(f"/n/{number}", b"x" * 500), Update("/last", str(number).encode(), number)])
        print(number, flush=True)

asyncio.run(write())
"""


def test_what_was_committed_survives_the_process(tmp_path: Path) -> None:
    file = tmp_path / "metadata.db"
    with subprocess.Popen([sys.executable, "-c", WRITER, str(file)], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        acknowledged = -1
        for line in writer.stdout:
            acknowledged = int(line)
            if acknowledged == COMMITS_BEFORE_THE_END:
                os.kill(writer.pid, signal.SIGKILL)
                break
        acknowledged = max([acknowledged, *(int(line) for line in writer.stdout)])

    async def read() -> tuple[int, int]:
        store = EmbeddedStore(file)
        await store.open()
        try:
            return int((await store.read("/last"))["/last"].data), len(await store.read("/n"))
        finally:
            await store.close()

    last, count = asyncio.run(read())
    assert acknowledged <= last <= acknowledged + 1
    assert count == last + 1


def test_a_second_process_is_kept_out(tmp_path: Path) -> None:
    async def scenario() -> None:
        file = tmp_path / "metadata.db"
        first, second = EmbeddedStore(file), EmbeddedStore(file)
        await first.open()
        with pytest.raises(StoreUnavailable, match=r"metadata\.db failed: database is locked"):
            await second.open()
        await first.commit([Create("/a", b"")])
        await first.close()
        await second.open()
        assert list(await second.read("/")) == ["/a"]
        await second.close()

    asyncio.run(scenario())


def test_one_file_is_left_when_it_is_closed(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = EmbeddedStore(tmp_path / "deep" / "er" / "metadata.db")
        await store.open()
        await store.commit([Create("/a", b"")])
        await store.close()

    asyncio.run(scenario())
    assert [path.name for path in (tmp_path / "deep" / "er").iterdir()] == ["metadata.db"]


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    file = tmp_path / "metadata.db"
    file.write_bytes(b"not a database at all" * 100)

    async def scenario() -> None:
        with pytest.raises(StoreUnavailable, match=r"metadata\.db failed: file is not a database"):
            await EmbeddedStore(file).open()

    asyncio.run(scenario())
    assert file.read_bytes() == b"not a database at all" * 100


def test_a_place_where_no_file_can_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    async def scenario() -> None:
        with pytest.raises(StoreUnavailable, match=r"metadata\.db failed: (Not a directory|File exists)"):
            await EmbeddedStore(tmp_path / "file" / "metadata.db").open()

    asyncio.run(scenario())
