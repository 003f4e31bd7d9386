"""A log that is being made, in three steps, so that its files are made in a thread.

LogDirectory.begin -> NewLog.make -> LogDirectory.take
the owner's thread    any thread     the owner's thread
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from ottla.clock import Clock
from ottla.config.log import LogConfig
from ottla.errors import OttlaError
from ottla.ids import TopicId, TopicPartition
from ottla.log.fs import FileSystem
from ottla.log.partition_log import PartitionLog


class Writable(Protocol):
    """Checkpoints, taken and not written yet."""

    def write(self) -> None:
        """In any thread. Raises OSError."""
        ...


class NewLog:
    """The log of one partition, from the decision to make it until it is taken."""

    def __init__(
        self,
        path: str,
        partition: TopicPartition,
        topic_id: TopicId | None,
        config: LogConfig,
        *,
        fs: FileSystem,
        clock: Clock,
        prepare: Callable[[str], None] | None,
        before: Writable | None,
        after: Writable | None = None,
    ) -> None:
        """`prepare` is called with the new directory; `before` is written before there is one, `after` when all of
        its files are there."""
        self.partition = partition
        self.topic_id = topic_id
        self._path = path
        self._config = config
        self._fs = fs
        self._clock = clock
        self._prepare = prepare
        self._before = before
        self._after = after
        self._log: PartitionLog | None = None
        self._problem: OSError | OttlaError | None = None

    def make(self) -> None:
        """Make the files; slow, in any thread, once."""
        fresh = not self._fs.exists(self._path)
        try:
            if self._before is not None:
                self._before.write()
            self._log = PartitionLog.open(
                self._path,
                self.partition,
                self._config,
                fs=self._fs,
                clock=self._clock,
                clean_shutdown=True,
                topic_id=self.topic_id,
                prepare=self._prepare,
                may_be_planned=True,
            )
            if self._after is not None:
                self._after.write()
        except OSError as problem:
            self._problem = problem
            with suppress(OSError):
                if fresh and self._fs.exists(self._path):
                    self._fs.remove_tree(self._path)
        except OttlaError as problem:
            self._problem = problem

    def result(self) -> PartitionLog:
        """The log. Raises what making it raised: OSError, an `OttlaError`."""
        if self._problem is not None:
            raise self._problem
        assert self._log is not None, "not made yet"
        return self._log
