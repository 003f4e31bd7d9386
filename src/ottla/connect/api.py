"""What connectors are written with.

A source is a class with a model of its settings and a generator; a sink is one with `write`. Instances are tasks:
each has
a thread of its own, and is made anew after a failure, a pause or a move to another worker.

    class TickSettings(Settings):
        topic: str = setting("Where the ticks go.", importance="high")
        every_ms: int = setting("Milliseconds between two.", 1000, ge=1)

    class Ticks(Source[TickSettings]):
        '''A number every so often.'''

        def read(self, position: Position | None) -> Iterator[SourceRecord | None]:
            number = position["number"] if position else 0
            while not self.context.sleep(self.settings.every_ms / 1000):
                number += 1
                yield SourceRecord(topic=self.settings.topic, value=number, position={"number": number})

A package registers its connectors as entry points of the group `ottla.connectors`; `connector.class` is then the entry
point's name, or the class's dotted name.
"""

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Generic, Protocol, TypeVar, get_args, get_origin

from ottla.connect.errors import BadRecord, ConfigError, ConnectError, Fenced, Retriable
from ottla.connect.log_identity import KeptOffset, LogIdentity
from ottla.connect.records import (
    Header,
    Part,
    Position,
    Progress,
    Record,
    SinkRecord,
    SourceLag,
    SourceRecord,
    TopicPartition,
)
from ottla.connect.schema import Field, Schema, Type
from ottla.connect.settings import CommaList, SecretStr, Settings, setting
from ottla.connect.targets import Targets

__all__ = [
    "BadRecord",
    "CommaList",
    "ConfigError",
    "ConnectError",
    "Context",
    "Fenced",
    "Field",
    "Header",
    "KeptOffset",
    "LogIdentity",
    "Part",
    "Position",
    "Progress",
    "Record",
    "Retriable",
    "Schema",
    "SecretStr",
    "Settings",
    "Sink",
    "SinkContext",
    "SinkRecord",
    "Source",
    "SourceContext",
    "SourceLag",
    "SourceRecord",
    "Targets",
    "TopicPartition",
    "Type",
    "Yielded",
    "setting",
]

S = TypeVar("S", bound=Settings)

TaskSettings = Mapping[str, str]
"""What one task of a connector is to do: its share of the tables, say. Goes over the settings of the connector."""

Yielded = SourceRecord | Progress | Sequence[SourceRecord | Progress] | None
"""What `Source.read` yields: one record, or several that go into one transaction, or None: nothing now (the runtime
then flushes, and looks whether it is to stop)."""


class Context(Protocol):
    """What a task may ask of the runtime. Safe to use from any thread."""

    connector: str
    """The connector's name."""
    task: int
    """The number of this task, from 0; -1 in `tasks` and `check`."""
    log: logging.Logger
    """`ottla.connect.connector.NAME`: what `ottla connect logs` shows."""
    targets: Targets
    """The addresses that the worker lets HTTP connectors reach."""
    client: Mapping[str, Any]
    """Settings for confluent-kafka's clients of the worker's cluster; for what a connector has to do there itself."""

    @property
    def stopping(self) -> bool:
        """Whether the task is to end soon."""

    def sleep(self, seconds: float) -> bool:
        """Wait, or less if the task is to stop. Returns `stopping`."""

    def progress(self, what: str, done: int, total: int | None = None) -> None:
        """Report the progress of long work to users: `progress("snapshot of orders", 1200, 50_000)`."""

    def warn(self, sentence: str | None) -> None:
        """Show a sentence in the status of the running task (a slot that falls behind, say); None takes it away."""


class SourceContext(Context, Protocol):
    """Context of a source's task."""

    def position(self, part: Part) -> Position | None:
        """Where the last one came to in a part of the source, as of the start of `read`; None: never read."""

    def reject(self, reason: BadRecord | str) -> None:
        """Skip something that came in and cannot become a record, if `errors.tolerance` is `all`.

        Raises ConnectError if it is `none`; let it pass.
        """


class SinkContext(Context, Protocol):
    """Context of a sink's task."""

    def reject(self, record: SinkRecord, reason: BadRecord | str) -> None:
        """Skip one record of the batch being written: to the dead-letter topic, if `errors.tolerance` is `all`.

        Raises ConnectError if it is `none`; let it pass.
        """

    def identity(self, topic: str) -> LogIdentity:
        """The ids of the cluster and of a topic that is read: a target keeps them beside its offsets."""

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Read on from `offset` after this `write` or `flush`."""

    def pause(self, *partitions: TopicPartition) -> None:
        """Deliver no records of these until `resume`."""

    def resume(self, *partitions: TopicPartition) -> None:
        """The opposite of `pause`."""


class _Connector(Generic[S]):
    settings_model: ClassVar[type[Settings]] = Settings
    """The model: the S of `Source[S]`."""
    version: ClassVar[str] = ""
    """Shown in consoles; empty: the version of the package it comes with."""
    aliases: ClassVar[tuple[str, ...]] = ()
    """Other values of `connector.class` that mean this one, such as the Java class with the same settings."""
    defaults: ClassVar[Mapping[str, str]] = {}
    """Settings of the runtime that this connector has unless the user sets them, such as `value.converter`."""

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        for base in getattr(cls, "__orig_bases__", ()):
            model = next(iter(get_args(base)), None)
            if isinstance(get_origin(base), type) and isinstance(model, type) and issubclass(model, Settings):
                cls.settings_model = model

    def __init__(self, settings: S, context: Any) -> None:
        self.settings = settings
        self.context = context

    @classmethod
    def check(cls, settings: S, context: Context) -> None:
        """Check that the resources named in the settings exist and are permitted; called before a connector is
        accepted.

        Raises ConfigError (with the setting's name) or Retriable; either way the user reads the sentence. Keep it
        under a few seconds. Settings that the model accepts and that cannot be checked are fine.
        """

    @classmethod
    def local_paths(cls, settings: S) -> Mapping[str, Sequence[str]]:
        """Files and directories of the worker's machine that are read or written, by the setting that names them.

        The worker refuses those that its configuration does not allow (`file.connectors.allowed.paths`).
        """
        return {}

    def close(self) -> None:
        """Let go of everything; called once, whatever happened, from the task's thread."""


class Source(_Connector[S]):
    """Brings records in. Subclass `Source[MySettings]`; `self.settings` and `self.context` are set when `read` is
    called.
    """

    context: SourceContext
    exactly_once: ClassVar[bool] = True
    """Whether `read(position)` yields again exactly what followed that position. Positions and records then go into one
    transaction. False: records are produced first, the position is kept when they are acknowledged."""

    @classmethod
    def tasks(cls, settings: S, max_tasks: int, context: Context) -> Sequence[TaskSettings]:
        """Split the work: the settings of each task, at most `max_tasks` of them. By default one that does
        everything.
        """
        return [{}]

    def part(self) -> Part:
        """Which part of the source `read` is about. To be overridden where tasks read different parts."""
        return {}

    def read(self, position: Position | None) -> Iterator[Yielded]:
        """Yield what follows `position` in `part()`; None: from the start. To return is to be done for good.

        Runs in the task's thread. Yield None as soon as nothing more is there (it ends the transaction), then at least
        once a second. The generator is closed (GeneratorExit at a yield: use `with` and `finally`) when the task pauses
        or stops. Other parts: `self.context.position(part)`.

        Raises Retriable, ConnectError.
        """
        raise NotImplementedError(f"{type(self).__name__} has no read()")

    @classmethod
    def lag(cls, settings: S, part: Part, position: Position, context: Context) -> SourceLag | None:
        """How far a stored position is behind the source, asked of the source itself; by default None: not known.

        Called for `ottla connect status`, on any worker, whether or not a task runs. None also for a part that these
        settings do not read, and amid a snapshot. Raises ConnectError or Retriable; the user reads the sentence. Keep
        it under a few seconds.
        """
        return None

    def changed_at(self, record: SourceRecord, now_ms: int) -> int | None:
        """When the change that a record reports was made, in milliseconds since 1970; None: it reports none.

        Called now and then with a record that was sent, as `read` yielded it, for the last change in the status. By
        default the record's timestamp, or else now: a source that polls learns of a row when it sees it.
        """
        return record.timestamp if record.timestamp is not None else now_ms

    def committed(self, part: Part, position: Position) -> None:
        """Everything up to `position` is safe in the log: let the other side forget it (confirm a slot, delete a file).

        Called in the task's thread, between two steps of `read`; never with a position older than before.
        """


class Sink(_Connector[S]):
    """Takes records out. Subclass `Sink[MySettings]`; `self.settings` and `self.context` are set when `open` is called.

    At least once with `write` (and `flush`, if that only buffers); exactly once with `positions` too, kept in the
    target in
    the same transaction as the rows.
    """

    context: SinkContext
    most_records: ClassVar[int] = 500
    """Records in one batch, unless `consumer.override.max.poll.records` is set; fewer where writing a batch takes long.
    """

    @classmethod
    def tasks(cls, settings: S, max_tasks: int, context: Context) -> Sequence[TaskSettings]:
        """The settings of each task. By default `max_tasks` equal ones, among which the group shares partitions."""
        return [{} for _ in range(max_tasks)]

    def unread(self, schema: Schema) -> Collection[str]:
        """Names of fields of values with this schema that the sink never reads: they may lack, which saves time."""
        return ()

    def open(self, partitions: Sequence[TopicPartition]) -> None:
        """These partitions come to this task from now on. Connect to the target here."""

    def positions(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Start offsets of the partitions whose offset (of the next record) is kept in the target; called after `open`.

        The others start at the group's committed offset. An offset that is a `KeptOffset` names its log by
        `context.identity` of that time: the task fails if the topic is another one now.
        """
        return {}

    def alter_offsets(self, offsets: Mapping[TopicPartition, int | None] | None) -> None:
        """Change the result of `positions`, for a REST request while no task runs; called after `open([])`.

        None for a partition: forget its offset; None for all: forget those of this connector, whatever they are of.
        The runtime has changed the group's offsets before, which it can only while no task is in the group. A sink that
        has `positions` and not this refuses such requests. Raises ConnectError; nothing is changed in the target then.
        """

    def write(self, batch: Sequence[SinkRecord]) -> None:
        """Write some records, in this order for each partition (never empty).

        Raises Retriable: the whole batch comes again, so undo what was begun; BadRecord with `record`: likewise,
        without that
        one; ConnectError: the task fails.
        """
        raise NotImplementedError(f"{type(self).__name__} has no write()")

    def flush(self) -> Mapping[TopicPartition, int] | None:
        """Make everything written so far durable; the group's offsets are committed after it.

        Returns the offset of the next record for each partition, where less is durable than was written; None: all is.
        Raises Retriable: `flush` is called again; ConnectError: the task fails. A record that is bad is for `write` to
        refuse: BadRecord fails the task here, for what was buffered is not handed in again.
        """
        return None

    def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """These partitions go to another task; what was not flushed is theirs to write again. `flush` was called
        before,
        unless they were lost."""
