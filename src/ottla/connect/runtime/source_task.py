"""A source task: writes the records of its generator to topics, and the positions to the topic of positions.

With exactly-once delivery, both go into one transaction, and the next runner of the task fences this one by the same
transactional id.
Source: KIP-618.
"""

import contextlib
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.connect.api import Source
from ottla.connect.errors import BadRecord, ConfigError, ConnectError, Fenced, Retriable, of_brokers
from ottla.connect.herder.state import TaskId
from ottla.connect.records import Part, Position, Progress, SourceRecord
from ottla.connect.runtime.brokers import Lifeline
from ottla.connect.runtime.chain import Chain, Encoded
from ottla.connect.runtime.connector_config import RuntimeSettings, SourceRuntimeSettings, parsed
from ottla.connect.runtime.handling import Tolerance
from ottla.connect.runtime.new_topics import NewTopics
from ottla.connect.runtime.plugins import ConnectorClass
from ottla.connect.runtime.positions import position_value
from ottla.connect.runtime.task import BasicContext, Delivery, Report, Task, WorkerEnvironment
from ottla.connect.runtime.traces import SourceTraces
from ottla.connect.runtime.transaction_boundary import Phase, TransactionBoundary
from ottla.connect.runtime.worker_settings import TRANSACTIONAL
from ottla.producers import abandon

_TIMEOUT_S: Final = 60.0
_POLL_EVERY: Final = 256
"""Records between two polls of the client."""
_LATER: Final = 0.2
_LOOK_S: Final = 1.0
"""Between two looks of a source that is done at the brokers."""
_FULL_S: Final = 0.005
"""Between two tries to hand a record to a client that holds as much as it may."""
_PRODUCER: Final[Mapping[str, Any]] = {"linger.ms": 5, "queue.buffering.max.kbytes": 32_768}
"""Settings of a producer unless configured; it buffers as many bytes as Kafka's (`buffer.memory`)."""
_TRANSACTION_TIMEOUT_MS: Final = 60_000
"""The client library's default, unless `producer.transaction.timeout.ms` is set."""
_NO_POSITION: Final = (
    "the source has given no position for half of transaction.timeout.ms: what it has sent is committed without one, "
    "as Kafka Connect would, and comes again if the task ends before the next position"
)
_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_FENCED: Final = (
    KafkaError._FENCED,  # the library's names
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.PRODUCER_FENCED,
)

OnTopic = Callable[[TaskId, str], None]


class SourceTask(Task):
    """Runs a `Source`. on_topic: called when the task writes to a topic for the first time."""

    def __init__(
        self, task: TaskId, config: Mapping[str, str], environment: WorkerEnvironment, report: Report, on_topic: OnTopic
    ) -> None:
        super().__init__(task, config, environment, report)
        self.context: _Context = _Context(task, environment)
        self.context.delivery = Delivery(_now_ms())
        self._changed_at: int | None = None
        """When the last change was made that was sent and is not committed yet."""
        self._on_topic = on_topic
        self._topics: set[str] = set()
        tracer = environment.tracer
        self._traces = None if tracer is None else SourceTraces(tracer, task)
        self.committed = 0
        """Transactions, or flushes."""

    def progress_mark(self) -> object:
        """Changes with every commit."""
        return self.committed

    def _attempt(self, connector: ConnectorClass, config: Mapping[str, str], runtime: RuntimeSettings) -> None:
        assert issubclass(connector, Source)
        assert isinstance(runtime, SourceRuntimeSettings)
        self.figures.aborted()
        self.context.tolerance = Tolerance(runtime, self.context.log, figures=self.figures.errors)
        chain = Chain(config, self._environment.converters, self.context.tolerance)
        lifeline = Lifeline(self._environment.brokers)
        writer = self._writer(connector, config, runtime)
        writer.explains = self.restarts > 0
        try:
            writer.open()
            self._environment.logs.catch_up("offsets")
            source = connector(parsed(connector.settings_model, config), self.context)
            try:
                client = self._environment.client("producer", config)
                longest_s = float(client.get("transaction.timeout.ms", _TRANSACTION_TIMEOUT_MS)) / 1000
                start = self.context.position(source.part())
                boundary = TransactionBoundary(
                    runtime,
                    flush_s=self._environment.settings.offset_flush_interval_ms / 1000,
                    transactional=writer.transactional,
                    longest_s=longest_s,
                    gives_positions=start is not None,
                )
                self._pump(source, start, chain, writer, boundary, config, lifeline)
            finally:
                source.close()
        except KafkaException as failure:
            raise _translated(failure.args[0]) from None
        finally:
            writer.close()
            chain.close()
            if self._traces is not None:
                self._traces.ended(is_committed=False)

    def _writer(
        self,
        connector: type[Source[Any]],
        config: Mapping[str, str],
        runtime: SourceRuntimeSettings,
    ) -> "Writer":
        client = self._environment.client("producer", config)
        once = self._environment.settings.exactly_once and connector.exactly_once
        if not once and runtime.exactly_once_support.lower() == "required":
            raise ConfigError(
                "exactly.once.support is required, and "
                + (
                    "this connector cannot" if self._environment.settings.exactly_once else "the worker runs without it"
                ),
                "exactly.once.support",
            )
        if once:
            return TransactionalWriter(self.id, client, self._environment)
        return PlainWriter(self.id, client, self._environment)

    def _pump(
        self,
        source: Source[Any],
        start: Position | None,
        chain: Chain,
        writer: "Writer",
        boundary: TransactionBoundary,
        config: Mapping[str, str],
        lifeline: Lifeline,
    ) -> None:
        own_part = source.part()
        generator = source.read(start)
        if not (hasattr(generator, "__next__") and hasattr(generator, "close")):
            raise ConnectError(
                f"{type(source).__name__}.read() is to be a generator (a function with `yield`), and returned a "
                f"{type(generator).__name__}"
            )
        done = object()
        try:
            while not self.context.stopping:
                try:
                    item: Any = next(generator, done)
                except Retriable:
                    if boundary.phase is Phase.AT_POSITION:  # what came before is good
                        self._commit(source, writer, boundary)
                    raise
                together = isinstance(item, list | tuple)
                items = item if together else () if item is None or item is done else (item,)
                if not items:
                    if boundary.idle(done=item is done):
                        self._commit(source, writer, boundary)
                    lifeline.check(writer.client)
                    while item is done and not self.context.stopped.wait(_LOOK_S):
                        lifeline.check(writer.client)
                    continue
                sent = [each for each in items if self._take(each, own_part, chain, writer, config)]
                self.figures.records_in += len(items)
                self.figures.records_out += len(sent)
                self._note_change(source, sent)
                boundary.taken(items, together=together)
                if boundary.expiring():
                    self.context.warn(_NO_POSITION)
                    self._commit(source, writer, boundary)
                elif boundary.over():
                    self._commit(source, writer, boundary)
            if boundary.phase is not Phase.BEYOND_POSITION:  # else the writer's close aborts them, and they come again
                self._commit(source, writer, boundary)
        finally:
            generator.close()

    def _take(
        self,
        item: SourceRecord | Progress,
        own_part: Part,
        chain: Chain,
        writer: "Writer",
        config: Mapping[str, str],
    ) -> bool:
        """Send a record, and move the position. Returns whether a record was sent: transforms leave some out."""
        sent = False
        if isinstance(item, SourceRecord):
            encoded = chain.encode(item)
            if encoded is not None:
                try:
                    if encoded.topic not in self._topics:
                        self._new_topic(encoded.topic, config)
                    writer.send(encoded if self._traces is None else self._traces.marked(encoded))
                    sent = True
                except BadRecord as error:
                    self.context.tolerance.handle("KAFKA_PRODUCE", type(writer).__qualname__, error, item)
        elif not isinstance(item, Progress):
            raise ConnectError(
                f"a source yields SourceRecord, Progress, lists of them, or None, and this one {item!r:.100} "
                f"({type(item).__name__})"
            )
        if item.position is not None:
            writer.move(own_part if item.part is None else item.part, item.position)
        return sent

    def _note_change(self, source: Source[Any], sent: Sequence[SourceRecord]) -> None:
        """Remember the last change among records that were sent; heartbeats are none."""
        for each in reversed(sent):
            changed_at = source.changed_at(each, _now_ms())
            if changed_at is not None:
                self._changed_at = changed_at
                return

    def _commit(self, source: Source[Any], writer: "Writer", boundary: TransactionBoundary) -> None:
        self._check_not_given_up()
        began = time.monotonic()
        try:
            safe = writer.commit()
        except BaseException:
            self.figures.commit_failures += 1
            raise
        took_s = time.monotonic() - began
        boundary.committed(took_s)
        self.figures.committed(took_s)
        self.figures.delivered()
        if self._traces is not None:
            self._traces.ended(is_committed=True)
        delivery = self.context.delivery
        if self._changed_at is not None and delivery is not None:
            self.context.delivery = replace(delivery, delivered_at=_now_ms(), changed_at=self._changed_at)
            self._changed_at = None
        for part, position in safe:
            source.committed(part, position)
        self.committed += 1
        if self.restarts and self.context.warning is not None and self.context.warning.endswith("(trying again)"):
            self.context.warn(None)

    def _new_topic(self, topic: str, config: Mapping[str, str]) -> None:
        """Make a topic that is to be made by this task. Raises BadRecord for what is no name of a topic."""
        given: object = topic  # by a plugin or a transform, which may give anything
        if not isinstance(given, str) or not _TOPIC.fullmatch(given) or given in (".", ".."):
            raise BadRecord(f"{topic!r:.300} is no name of a topic: letters, digits, `.`, `_` and `-`, at most 249")
        wanted = NewTopics.of(config) if self._environment.settings.topic_creation_enable else None
        if wanted is not None:
            group = wanted.group(topic)
            new = NewTopic(topic, group.partitions, group.replicas, config=dict(group.settings))
            admin = AdminClient(dict(self.context.client))
            try:
                admin.create_topics([new], request_timeout=_TIMEOUT_S)[topic].result(_TIMEOUT_S)
            except KafkaException as failure:
                error = failure.args[0]
                if error.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise of_brokers(error, f"topic {topic} cannot be made: {error.str()}") from None
            except TimeoutError:
                raise Retriable(f"topic {topic} cannot be made: no answer within {_TIMEOUT_S:.0f} s") from None
        self._topics.add(topic)
        self._on_topic(self.id, topic)


class _Context(BasicContext):
    def __init__(self, task: TaskId, environment: WorkerEnvironment) -> None:
        super().__init__(task, {})
        self._environment = environment
        self.tolerance: Tolerance

    def position(self, part: Part) -> Position | None:
        """Where the last one came to."""
        return self._environment.positions.of(self.connector, part)

    def reject(self, reason: BadRecord | str) -> None:
        """Skip what came in, or raise."""
        error = BadRecord(reason) if isinstance(reason, str) else reason
        self.tolerance.handle("TASK_POLL", self.connector, error, None)


class Writer(Protocol):
    """Where records and positions go."""

    transactional: bool
    explains: bool
    """Whether it keeps an eye on each record until the next commit, to say why one was not taken: that costs time."""

    def open(self) -> None:
        """Become the writer for this task."""

    @property
    def client(self) -> Producer:
        """What produces."""

    def send(self, record: Encoded) -> None:
        """Add a record. Raises BadRecord for one that no broker would take."""

    def move(self, part: Part, position: Position) -> None:
        """Add a position: everything up to it has been sent."""

    def commit(self) -> list[tuple[Part, Position]]:
        """Make all of it durable. Returns the positions that now are."""

    def close(self) -> None:
        """Drop what was not committed."""


class _Positioned:
    """Positions that wait for a commit, the last of each part."""

    def __init__(self, task: TaskId, environment: WorkerEnvironment) -> None:
        self._task, self._environment = task, environment
        self._moved: dict[bytes, tuple[Part, Position]] = {}
        self._sent = 0
        self._keys: list[tuple[Part, bytes]] = []

    def move(self, part: Part, position: Position) -> None:
        """Remember a position."""
        self._moved[self._key(part)] = (part, position)

    def _key(self, part: Part) -> bytes:
        for known, key in self._keys:
            if known is part or known == part:
                return key
        key = self._environment.positions.key(self._task.connector, part)
        self._keys.append((part, key))
        return key


def _produce(producer: Producer, record: Encoded, on_delivery: Any = None) -> None:
    extra: dict[str, Any] = {}
    if record.timestamp is not None:
        extra["timestamp"] = record.timestamp
    if record.partition is not None:
        extra["partition"] = record.partition
    if record.headers:
        extra["headers"] = record.headers
    if on_delivery is not None:
        extra["on_delivery"] = on_delivery
    while True:
        try:
            producer.produce(record.topic, record.value, record.key, **extra)
        except BufferError:  # the client holds as much as it may
            producer.poll(_FULL_S)
        except KafkaException as failure:
            error = failure.args[0]
            if error.code() in (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError._INVALID_ARG):
                size = len(record.value or b"")
                raise BadRecord(f"a record of {size:,} bytes for {record.topic}: {error.str()}") from None
            raise
        else:
            return


class TransactionalWriter(_Positioned):
    """Records and positions in transactions."""

    transactional = True

    def __init__(self, task: TaskId, client: Mapping[str, Any], environment: WorkerEnvironment) -> None:
        super().__init__(task, environment)
        transactional_id = f"{environment.settings.group_id}-{task.connector}-{task.task}"
        self._producer = Producer({**_PRODUCER, **TRANSACTIONAL, **client, "transactional.id": transactional_id})
        self._open = self.explains = False
        self._refused: ConnectError | None = None

    def open(self) -> None:
        """Fence the previous writer; its open transaction is aborted."""
        self._producer.init_transactions(_TIMEOUT_S)

    @property
    def client(self) -> Producer:
        """What produces."""
        return self._producer

    def send(self, record: Encoded) -> None:
        """Add a record to the transaction."""
        self._begin()
        self._produce(record, self._delivered if self.explains else None)
        self._sent += 1
        if self._sent % _POLL_EVERY == 0:
            self._producer.poll(0)

    def commit(self) -> list[tuple[Part, Position]]:
        """End the transaction, if there is one."""
        moved = self._moved
        if moved:
            self._begin()
            topic = self._environment.settings.offset_storage_topic
            for key, (_, position) in moved.items():
                self._produce(Encoded(topic, key, position_value(position), [], None, None))
        if self._open:
            self._end()
        self._moved = {}
        return list(moved.values())

    def close(self) -> None:
        """Abort an open transaction."""
        if self._open:
            self._open = False
            with contextlib.suppress(KafkaException):  # the broker does it when the next one comes, or by its own clock
                self._producer.abort_transaction(_LATER * 10)
        abandon(self._producer)
        del self._producer  # its threads end now, and not when the collector finds what refers to it

    def _begin(self) -> None:
        if not self._open:
            self._producer.begin_transaction()
            self._open = True

    def _produce(self, record: Encoded, on_delivery: Any = None) -> None:
        try:
            _produce(self._producer, record, on_delivery)
        except KafkaException as failure:
            if failure.args[0].code() == KafkaError._FATAL:
                self._producer.begin_transaction()  # raises the fatal error: `produce` only reports that there is one
            raise

    def _end(self) -> None:
        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            try:
                self._producer.commit_transaction(_TIMEOUT_S)
                break
            except KafkaException as failure:
                error = failure.args[0]
                if error.retriable() and not error.txn_requires_abort() and time.monotonic() < deadline:
                    continue
                if self._refused is not None:
                    raise self._refused from None
                raise
        self._open = self.explains = False

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None and self._refused is None:
            self._refused = _translated(error, f" ({message.topic()})")


class PlainWriter(_Positioned):
    """Records first, positions when the records are acknowledged."""

    transactional = False
    explains = True

    def __init__(self, task: TaskId, client: Mapping[str, Any], environment: WorkerEnvironment) -> None:
        super().__init__(task, environment)
        self._producer = Producer({**_PRODUCER, **client, "enable.idempotence": True})
        self._failure: KafkaError | None = None

    def open(self) -> None:
        """Do nothing: writers cannot be fenced here."""

    @property
    def client(self) -> Producer:
        """What produces."""
        return self._producer

    def send(self, record: Encoded) -> None:
        """Send a record."""
        _produce(self._producer, record, self._delivered)
        self._sent += 1
        if self._sent % _POLL_EVERY == 0:
            self._producer.poll(0)

    def commit(self) -> list[tuple[Part, Position]]:
        """Wait for the acknowledgements, then keep the positions."""
        left = self._producer.flush(_TIMEOUT_S)
        if self._failure is not None:
            raise _translated(self._failure)
        if left:
            raise Retriable(f"{left} records were not acknowledged within {_TIMEOUT_S:.0f} s")
        moved, self._moved = self._moved, {}
        for key, (_, position) in moved.items():
            self._environment.logs.put("offsets", key, position_value(position))
        return list(moved.values())

    def close(self) -> None:
        """Drop what waits."""
        abandon(self._producer)
        del self._producer

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None and self._failure is None:
            self._failure = error


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _translated(error: KafkaError, about: str = "") -> ConnectError:
    if error.code() in _FENCED:
        return Fenced(f"another worker has taken it over ({error.str()})")
    final = (
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.UNSUPPORTED_VERSION,
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError._INVALID_ARG,
    )
    if error.code() in final:
        return ConnectError(f"the brokers refuse what this task writes{about}: {error.str()}")
    return Retriable(f"writing to the brokers failed{about}: {error.str()}")
