"""A log directory that fails takes its own partitions offline; other brokers lead them, and this one goes on.

A standalone broker goes on, too, without those partitions, unless its metadata are in that directory.

    an error of the disk -- no room --> refused, and tried again; others lead meanwhile (`full_directories.py`)
                         |- another passing one (out of memory) --> refused, and tried again
                         `- any other --> partitions offline -> reported to the controller, which elects others
                                          no directory left  -> the broker stops

A directory that has failed is used again when the broker is started anew.
Source: Kafka 3.9, `ReplicaManager.handleLogDirFailure`, `LogDirFailureChannel`; there a full disk is a failure, too.
"""

import asyncio
import errno
import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.errors import sentence
from ottla.log.directories import LogDirectories
from ottla.log.directory import LogDirectory
from ottla.log.fs import LACKING, LACKS_ROOM
from ottla.replication.full_directories import FullDirectories

if TYPE_CHECKING:
    from ottla.replication.manager import ReplicaManager

log = logging.getLogger(__name__)

PASSING: Final = LACKING | {errno.EINTR, errno.EAGAIN, errno.EEXIST, errno.ENOTEMPTY}
"""What comes and goes, or stands in the way, without a defect of the disk."""


class DirectoryFailures:
    """The failures of one broker's log directories. Runs on the loop's thread; errors come from any thread."""

    def __init__(
        self,
        replicas: "ReplicaManager",
        directories: LogDirectories,
        loop: asyncio.AbstractEventLoop,
        *,
        notify_controller: Callable[[], None] | None,
        stop_broker: Callable[[str], None],
        metadata_directory: Path | None = None,
    ) -> None:
        """`stop_broker` is called with the reason, when no directory is left, or the one with the
        metadata has failed. Without `notify_controller` no other broker can lead instead."""
        self._replicas = replicas
        self._directories = directories
        self._loop = loop
        self._notify_controller = notify_controller
        self._stop_broker = stop_broker
        self._metadata_directory = metadata_directory
        self._full = (
            None
            if notify_controller is None
            else FullDirectories(loop, replicas.threads.checkpoints, notify_controller=notify_controller)
        )
        for directory in directories.online:
            directory.on_error = self._judge

    async def close(self) -> None:
        """Look for room in full directories no longer."""
        if self._full is not None:
            await self._full.close()

    def _judge(self, directory: LogDirectory, problem: OSError) -> None:
        if problem.errno in LACKS_ROOM:
            if self._full is not None:
                with suppress(RuntimeError):
                    self._loop.call_soon_threadsafe(self._full.write_failed, directory)
        elif problem.errno not in PASSING and directory.offline_reason is None:
            with suppress(RuntimeError):  # the loop is closed: the broker has stopped
                self._loop.call_soon_threadsafe(self._fail, directory, problem)

    def _fail(self, directory: LogDirectory, problem: OSError) -> None:
        if directory.offline_reason is not None:
            return  # another thread was quicker
        if problem.errno == errno.ENOENT and directory.fs.exists(str(directory.path)):
            return  # a single file, removed by another program
        reason = sentence(problem)
        count = self._replicas.take_offline(directory, reason)
        log.error(
            "log directory %s has failed: %s; its %d partitions are offline until it is mended and the broker is "
            "started again",
            directory.path,
            reason,
            count,
        )
        if self._notify_controller is not None:
            self._notify_controller()
        if not self._directories.online:
            self._stop_broker(f"no log directory is left: {directory.path} has failed as the last one ({reason})")
        elif directory.path == self._metadata_directory:
            self._stop_broker(f"log directory {directory.path} has failed, which has the broker's metadata ({reason})")
