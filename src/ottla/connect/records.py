"""Records on their way between a connector and a topic."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from ottla.connect.schema import Schema

Position = Mapping[str, Any]
"""How far a source has come in one of its parts: what JSON can hold. Connect calls it the source offset."""

Part = Mapping[str, Any]
"""Which part of the source a position is about (a file, a server, a table): what JSON can hold. Connect calls it the
source partition; a source that is all one part uses {}."""


class TopicPartition(NamedTuple):
    """A partition of a topic, for sinks."""

    topic: str
    partition: int


class Header(NamedTuple):
    """A header of a record; `schema` None: the header converter infers it."""

    key: str
    value: Any
    schema: Schema | None = None


@dataclass(slots=True, kw_only=True)
class Record:
    """What transforms see, on the way in and on the way out. Change a copy (`replaced`), not the record itself.

    topic: where to, or where from. partition: of the topic; None lets the producer choose by the key.
    key, value: by their schemas (`ottla.connect.schema`); without one, what JSON can hold, or bytes.
    timestamp: milliseconds since 1970, None: when it is produced.
    """

    topic: str
    value: Any
    key: Any = None
    key_schema: Schema | None = None
    value_schema: Schema | None = None
    headers: tuple[Header, ...] = ()
    timestamp: int | None = None
    partition: int | None = None

    def replaced(self, **changes: Any) -> Self:
        """A copy with other attributes."""
        changed = copy.copy(self)
        for name, value in changes.items():
            setattr(changed, name, value)
        return changed


@dataclass(slots=True, kw_only=True)
class SourceRecord(Record):
    """What a source yields.

    position: where `read` would go on after this record. None: not a place to go on from (amid a database transaction,
    say); the position moves with the next record that has one.
    part: which part of the source; None: the task's own (`Source.part`).
    """

    position: Position | None = None
    part: Part | None = None


@dataclass(slots=True, kw_only=True)
class Progress:
    """Yielded by a source instead of a record: the position moves, nothing is produced."""

    position: Position
    part: Part | None = None


@dataclass(frozen=True, slots=True)
class SourceLag:
    """Where a source's position is in the log, or the table, that it reads; `Source.lag` finds it out.

    position: as the source's own tools write it. end: the log's end, likewise; None: there is no log, or no end.
    bytes: of the log between the two, None if that is not known. They are an upper bound of what is missing: a log
    also has changes of tables that are not captured.
    """

    position: str
    end: str | None = None
    bytes: int | None = None


@dataclass(slots=True, kw_only=True)
class SinkRecord(Record):
    """What a sink is handed.

    origin, offset: where it was consumed, whatever transforms made of `topic`; positions and commits are about these.
    raw_key, raw_value, raw_headers: as consumed, for the dead-letter topic.
    """

    origin: TopicPartition
    offset: int
    raw_key: bytes | None = None
    raw_value: bytes | None = None
    raw_headers: tuple[tuple[str, bytes | None], ...] = field(default=())
