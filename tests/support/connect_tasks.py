"""Connectors run by a test as the runtime would run them, but step by step and without a cluster."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ottla.connect.api import (
    BadRecord,
    ConnectError,
    LogIdentity,
    Part,
    Position,
    Progress,
    Retriable,
    Sink,
    SinkRecord,
    Source,
    SourceRecord,
    Targets,
    TopicPartition,
)

_TIMEOUT_S = 60
_STILL_READ = "is read by the server's process"
"""In the refusal of a database whose session for the same slot has not ended."""


class TaskContext:
    """What a task may ask of the runtime; `warning`, `told`, `rejected` and `skipped` are what it said."""

    def __init__(self, positions: Mapping[str, Position] | None = None) -> None:
        self.connector = "tested"
        self.task = 0
        self.log = logging.getLogger("ottla.connect.connector.tested")
        self.client: Mapping[str, Any] = {}
        self.targets = Targets("127.0.0.0/8")
        self.stopping = False
        self.warning: str | None = None
        self.told: dict[str, tuple[int, int | None]] = {}
        self.rejected: list[tuple[SinkRecord, str]] = []
        self.tolerant = False
        self.skipped: list[str] = []
        self.log_identity = LogIdentity("the-cluster", "the-topic")
        self._positions = positions or {}

    def sleep(self, seconds: float) -> bool:
        time.sleep(min(seconds, 0.02))
        return self.stopping

    def progress(self, what: str, done: int, total: int | None = None) -> None:
        self.told[what] = (done, total)

    def warn(self, sentence: str | None) -> None:
        self.warning = sentence

    def position(self, part: Part) -> Position | None:
        return self._positions.get(str(dict(part)))

    def reject(self, record: SinkRecord | BadRecord | str, reason: BadRecord | str | None = None) -> None:
        """A sink names a record and the reason, a source, which has no record, the reason alone."""
        if isinstance(record, SinkRecord):
            self.rejected.append((record, str(reason)))
        elif self.tolerant:
            self.skipped.append(str(record))
        else:
            raise ConnectError(str(record))

    def identity(self, topic: str) -> LogIdentity:
        return self.log_identity

    def seek(self, partition: TopicPartition, offset: int) -> None:
        raise AssertionError("no connector here seeks")

    def pause(self, *partitions: TopicPartition) -> None:
        raise AssertionError("no connector here pauses")

    def resume(self, *partitions: TopicPartition) -> None:
        raise AssertionError("no connector here resumes")


class RunningSource:
    """A source that is being read; `position` and `records` are what is safe so far."""

    def __init__(self, source: Source[Any], position: Position | None) -> None:
        self.source = source
        self.position = position
        self.records: list[SourceRecord] = []
        self._steps = source.read(position)

    def step(self) -> list[SourceRecord]:
        """What one step yields, which is safe from then on."""
        yielded = self._next()
        items: Sequence[SourceRecord | Progress]
        items = [yielded] if isinstance(yielded, SourceRecord | Progress) else yielded or []
        moved = [each for each in items if each.position is not None]
        fresh = [each for each in items if isinstance(each, SourceRecord)]
        self.records += fresh
        if moved:
            self.position = moved[-1].position
            assert self.position is not None
            self.source.committed(self.source.part(), self.position)
        return fresh

    def _next(self) -> Any:
        """The next step. As a worker does, it begins again while the session before it still ends at the server."""
        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            try:
                return next(self._steps)
            except Retriable as problem:
                if _STILL_READ not in str(problem) or time.monotonic() > deadline:
                    raise
                self._steps = self.source.read(self.position)

    def until(self, seen: Callable[[list[SourceRecord]], bool]) -> list[SourceRecord]:
        """Step until what came in this call is enough; all of it."""
        fresh: list[SourceRecord] = []
        deadline = time.monotonic() + _TIMEOUT_S
        while not seen(fresh):
            assert time.monotonic() < deadline, f"only {fresh}"
            fresh += self.step()
        return fresh

    def take(self, count: int) -> list[SourceRecord]:
        """Step until so many records came."""
        fresh = self.until(lambda found: len(found) >= count)
        assert len(fresh) == count, fresh
        return fresh

    def rest(self) -> list[SourceRecord]:
        """Everything, of a source that ends."""
        fresh: list[SourceRecord] = []
        while True:
            try:
                fresh += self.step()
            except StopIteration:
                return fresh

    def stop(self) -> None:
        """As a pause does."""
        close = getattr(self._steps, "close", None)
        if close is not None:
            close()
        self.source.close()


@contextmanager
def running(
    kind: type[Source[Any]], config: Mapping[str, object], position: Position | None = None, context: Any = None
) -> Iterator[RunningSource]:
    """A source with these settings, read from a position."""
    running_source = RunningSource(kind(kind.settings_model(**config), context or TaskContext()), position)
    try:
        yield running_source
    finally:
        running_source.stop()


def sink_record(topic: str, offset: int, value: Any, *, partition: int = 0, **more: Any) -> SinkRecord:
    """A record as a sink is handed it."""
    return SinkRecord(
        topic=topic, value=value, offset=offset, partition=partition, origin=TopicPartition(topic, partition), **more
    )


def opened(
    kind: type[Sink[Any]], config: Mapping[str, object], *partitions: TopicPartition, context: Any = None
) -> Any:
    """A sink that these partitions have come to."""
    sink = kind(kind.settings_model(**config), context or TaskContext())
    sink.open(partitions)
    return sink
