"""A log directory without room: other replicas lead while it lasts, and leadership may come back afterwards.

    a write fails (ENOSPC, EDQUOT, EFBIG) -> is there room for a few megabytes?
        yes   it was one large write, or it has passed
        no    the controller is notified -> others lead, and this replica leaves the in-sync sets that others are in
    there is room again (looked for once a second) -> the controller is notified -> the replica may lead again

Nothing is taken offline: where no other replica is in sync, the partition stays here, refuses its producers, and goes
on by itself as soon as it can be written.
Source: Kafka 3.9 takes a directory offline at the first such error, until the broker is started again.
"""

import asyncio
import logging
import os
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from functools import cache
from random import Random
from typing import Final

from ottla.log.directory import LogDirectory
from ottla.log.fs import LACKS_ROOM
from ottla.tasks import supervised

log = logging.getLogger(__name__)

PROBE_FILE: Final = ".room"
ROOM_BYTES: Final = 4 << 20
"""A directory with less is full: some batches and the files of new segments must fit."""
PIECE_BYTES: Final = 1 << 20
POLL_INTERVAL_S: Final = 1.0


class FullDirectories:
    """Finds out which log directories of a broker are full. On the loop's thread; its probes are written in others."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, executor: Executor, *, notify_controller: Callable[[], None]
    ) -> None:
        """`notify_controller` has the controller ask which replicas are concerned."""
        self._loop = loop
        self._executor = executor
        self._notify_controller = notify_controller
        self._watched: dict[LogDirectory, asyncio.Task[None]] = {}
        self._is_closed = False

    def write_failed(self, directory: LogDirectory) -> None:
        """Something could not be written there for lack of room."""
        if directory not in self._watched and not self._is_closed:
            self._watched[directory] = supervised(self._loop, self._watch(directory), f"room in {directory.path}")

    async def close(self) -> None:
        """Look no longer."""
        self._is_closed = True
        tasks = list(self._watched.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self, directory: LogDirectory) -> None:
        """Until there is room; at least as long as it takes to look again, so that one failure costs one probe."""
        try:
            while not await self._has_room(directory):
                if not directory.is_full:
                    directory.is_full = True
                    log.error(
                        "log directory %s is full: other brokers lead its partitions where they have replicas in sync; "
                        "make room there, for example by a shorter retention",
                        directory.path,
                    )
                    self._notify_controller()
                await asyncio.sleep(POLL_INTERVAL_S)
            if directory.is_full:
                directory.is_full = False
                log.warning("there is room again in log directory %s", directory.path)
                self._notify_controller()
            else:
                await asyncio.sleep(POLL_INTERVAL_S)
        finally:
            del self._watched[directory]

    async def _has_room(self, directory: LogDirectory) -> bool:
        if directory.offline_reason is not None:
            return True  # it has failed for good, which is another matter
        return await self._loop.run_in_executor(self._executor, has_room, directory)


def has_room(directory: LogDirectory) -> bool:
    """Whether `ROOM_BYTES` can be written there now; any other error of the disk is not for this to judge."""
    fs, path = directory.fs, os.path.join(directory.path, PROBE_FILE)
    found = True
    try:
        file = fs.open(path, create=True)
        for position in range(0, ROOM_BYTES, PIECE_BYTES):
            file.write(position, _noise())
        del file
    except OSError as problem:
        found = problem.errno not in LACKS_ROOM
    with suppress(OSError):
        fs.remove(path)
    return found


@cache
def _noise() -> bytes:
    """What no filesystem compresses."""
    return Random(0).randbytes(PIECE_BYTES)
