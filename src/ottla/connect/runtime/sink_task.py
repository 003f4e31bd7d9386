"""A task of a sink: what the group `connect-NAME` consumes is converted, transformed and written.

Offsets are committed after a flush, so that nothing is lost; with offsets kept in the target too, nothing is doubled.
"""

import contextlib
import socket
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as Place

from ottla.connect.api import Sink
from ottla.connect.clients.groups import leave
from ottla.connect.errors import BadRecord, ConnectError, Fenced, Retriable
from ottla.connect.herder.state import TaskId
from ottla.connect.log_identity import KeptOffset, LogIdentity, check_same_log
from ottla.connect.records import SinkRecord, TopicPartition
from ottla.connect.runtime.brokers import Lifeline
from ottla.connect.runtime.chain import Chain
from ottla.connect.runtime.connector_config import RuntimeSettings, SinkRuntimeSettings, parsed
from ottla.connect.runtime.handling import DeadLetters, Tolerance
from ottla.connect.runtime.plugins import ConnectorClass
from ottla.connect.runtime.task import BasicContext, Report, Task, WorkerEnvironment
from ottla.connect.runtime.traces import SinkTraces, traces_in
from ottla.connect.runtime.worker_settings import WorkerSettings, connection_settings

_WAIT_S: Final = 0.1
_ANSWER_S: Final = 10.0
_LONGEST_POLL_MS: Final = 300_000
"""The client library's own max.poll.interval.ms."""
_FIRST_RECORDS: Final = 100
"""Maximum of the first batch: the speed of the target is still unknown."""
_WRITE_S: Final = 30.0
"""Target time for writing a batch: the group revokes partitions of a consumer that polls too rarely."""
_FIRST_PAUSE_S: Final = 0.2
_LOOK_AT_LOGS_S: Final = 10.0
"""How often a running task looks whether its topics are still those that they were."""
_LOST: Final = (
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.FENCED_INSTANCE_ID,
    KafkaError.STALE_MEMBER_EPOCH,
    KafkaError._NO_OFFSET,  # the library's name
)
"""Answers to a commit by which others have the partitions: they write again what was not committed."""

T = TypeVar("T")
OnTopic = Callable[[TaskId, str], None]


class Identify(Protocol):
    """Asks for the identities of topics; shared: an answer that another task has just had will do."""

    def __call__(self, topics: Collection[str], shared: bool = ...) -> Mapping[str, LogIdentity]: ...


def group_of(connector: str, config: Mapping[str, str]) -> str:
    """The consumer group of a sink."""
    return config.get("consumer.override.group.id") or f"connect-{connector}"


class SinkTask(Task):
    """Runs a `Sink`. on_topic: called when the task reads from a topic for the first time."""

    def __init__(
        self, task: TaskId, config: Mapping[str, str], environment: WorkerEnvironment, report: Report, on_topic: OnTopic
    ) -> None:
        super().__init__(task, config, environment, report)
        self.context: _Context = _Context(task)
        self._on_topic = on_topic
        self._topics: set[str] = set()
        self._sink: Sink[Any]
        self._consumer: Consumer
        self._refused: list[KafkaError] = []
        """Logins of the consumer that brokers refused."""
        self._dead: DeadLetters | None = None
        self._next: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._owned: set[TopicPartition] = set()
        self._left: set[TopicPartition] = set()
        """Partitions that were taken away since the last records were consumed; those come again if they are back."""
        self._target_keeps = False
        self._identify: Identify = lambda topics, shared=False: {}
        self._look_at = 0.0
        self._origins: dict[TopicPartition, TopicPartition] = {}
        self._longest_pause_s = 60.0
        tracer = environment.tracer
        self._traces = None if tracer is None else SinkTraces(tracer, task)
        self._flush_every_s = environment.settings.offset_flush_interval_ms / 1000
        self.written = 0

    def progress_mark(self) -> object:
        """Changes with every batch."""
        return self.written

    def _attempt(self, connector: ConnectorClass, config: Mapping[str, str], runtime: RuntimeSettings) -> None:
        assert issubclass(connector, Sink)
        assert isinstance(runtime, SinkRuntimeSettings)
        self._longest_pause_s = runtime.errors_retry_delay_max_ms / 1000
        self._dead = self._dead_letters(config, runtime)
        skip = None if self._dead is None else self._dead.add
        self.context.tolerance = Tolerance(runtime, self.context.log, skip, self.figures.errors)
        try:
            with contextlib.ExitStack() as ending:
                if self._dead is not None:
                    ending.callback(self._dead.close)
                chain = Chain(config, self._environment.converters, self.context.tolerance)
                ending.callback(chain.close)
                self._sink = connector(parsed(connector.settings_model, config), self.context)
                ending.callback(self._sink.close)
                chain.leave_out(self._sink.unread)
                self._target_keeps = connector.positions is not Sink.positions
                client = self._environment.client("consumer", config)
                most = int(client.pop("max.poll.records", connector.most_records))
                asking = connection_settings(client)
                lifeline = Lifeline(self._environment.brokers)
                self._identify = lambda topics, shared=False: self._environment.identities.of(
                    topics, asking, shared=shared
                )
                self.context.logs.clear()
                self._refused.clear()
                liveness = _liveness(self._environment.settings, client)
                self._consumer = self.context.consumer = self._new_consumer(
                    liveness | self._place(client) | {"error_cb": self._note_refusal} | client,
                    group_of(self.id.connector, config),
                )
                ending.callback(self._leave)
                self._next, self._committed, self._owned, self._left = {}, {}, set(), set()
                self._consumer.subscribe(
                    runtime.topics or [f"^({runtime.topics_regex})$"],
                    on_assign=self._assigned,
                    on_revoke=self._revoked,
                    on_lost=self._taken_away,
                )
                self._pump(chain, most, lifeline)
                self._flush()
        except KafkaException as failure:
            raise _translated(failure.args[0]) from None

    def _note_refusal(self, error: KafkaError) -> None:
        if error.code() == KafkaError._AUTHENTICATION:
            self._refused.append(error)

    def _place(self, client: Mapping[str, Any]) -> dict[str, Any]:
        """The group instance id of this task on any worker: a successor gets its partitions at once after a crash.

        Workers that keep their state in files are independent, and may share a group: each has instance ids of its
        own, by its machine and file. With the newer group protocol a successor would have to wait until the session
        is over.
        """
        if str(client.get("group.protocol", "classic")).lower() != "classic":
            return {}
        settings = self._environment.settings
        file = settings.offset_storage_file_filename
        whose = settings.group_id if file is None else f"{socket.gethostname()}:{Path(file).absolute()}"
        return {"group.instance.id": f"{whose}-{self.id.connector}-{self.id.task}"}

    @staticmethod
    def _new_consumer(client: Mapping[str, Any], group: str) -> Consumer:
        return Consumer(
            {
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "partition.assignment.strategy": "range",
                "topic.metadata.refresh.interval.ms": 10_000,
                **client,
                "group.id": group,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            }
        )

    def _leave(self) -> None:
        self._owned.clear()  # everything that can be kept has been: the callbacks shall not flush again
        leave(self._consumer)

    def _pump(self, chain: Chain, most: int, lifeline: Lifeline) -> None:
        flushed = time.monotonic()
        size = min(most, _FIRST_RECORDS)
        while not self.context.stopping:
            messages = self._consumer.consume(size, _WAIT_S)
            if self._refused:
                raise ConnectError(
                    f"the brokers refuse the login of the consumer: {self._refused[0].str()}; is "
                    "consumer.override.sasl.*, or the worker's sasl.*, right?"
                )
            lifeline.check(self._consumer)
            self._left.clear()
            batch, seen = self._decoded(messages, chain)
            if batch:
                size = min(most, self._write_timed(batch))
            for place, offset in seen.items():
                if self._still(place):
                    self._next[place] = offset
            self.context.apply(self._next)
            if time.monotonic() - flushed >= self._flush_every_s:
                self._flush()
                flushed = time.monotonic()

    def _decoded(self, messages: Sequence[Message], chain: Chain) -> tuple[list[SinkRecord], dict[TopicPartition, int]]:
        batch: list[SinkRecord] = []
        seen: dict[TopicPartition, int] = {}
        origin: TopicPartition | None = None
        others = 0
        decode = chain.decode
        for message in messages:
            error = message.error()
            topic, partition, offset = message.topic() or "", message.partition() or 0, message.offset() or 0
            if origin is None or partition != origin.partition or topic != origin.topic:
                origin = self._origin(topic, partition)
                if self._target_keeps and error is None and offset < self._next.get(origin, 0):
                    raise _made_again(origin, self._next[origin], offset)
            if error is not None:
                others += 1
                if error.code() == KafkaError._PARTITION_EOF:  # beyond control records, which are no lag
                    seen[origin] = offset
                else:
                    self._trouble(error)
                continue
            if topic not in self._topics:
                self._topics.add(topic)
                self._on_topic(self.id, topic)
            record = decode(
                origin, offset, _bytes(message.key()), _bytes(message.value()), _headers(message), _timestamp(message)
            )
            if record is not None:
                batch.append(record)
            seen[origin] = offset + 1
        if messages:
            self.figures.read(len(messages) - others)
        return batch, seen

    def _origin(self, topic: str, partition: int) -> TopicPartition:
        """Where a message is from: one object for all of a partition."""
        origin = TopicPartition(topic, partition)
        return self._origins.setdefault(origin, origin)

    def _trouble(self, error: KafkaError) -> None:
        if error.code() == KafkaError._FATAL:  # the library's name
            raise _translated(error)
        if error.code() in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED):
            raise ConnectError(f"the brokers do not let this sink read: {error.str()}")
        self.context.warn(f"reading: {error.str()}")

    def _write_timed(self, batch: list[SinkRecord]) -> int:
        """Returns how many records the target takes in the time that there is."""
        count, began = len(batch), time.monotonic()
        parents = [] if self._traces is None else traces_in(batch)
        self._write(batch)
        took_s = time.monotonic() - began
        self.figures.put(len(batch), took_s)
        if parents and self._traces is not None:
            self._traces.wrote(parents, len(batch), took_s)
        return max(1, int(count * _WRITE_S / max(took_s, 0.001)))

    def _write(self, batch: list[SinkRecord]) -> None:
        def write() -> None:
            self._check_not_given_up()
            gone = {each for each in {record.origin for record in batch} if not self._still(each)}
            if gone:
                batch[:] = [record for record in batch if record.origin not in gone]
            if batch:
                self._sink.write(batch.copy())

        while True:
            try:
                self._persistently(write)
                break
            except BadRecord as error:
                at = next((n for n, record in enumerate(batch) if record is error.record), None)
                if at is None:
                    raise ConnectError(f"a record was refused, and the connector does not name it: {error}") from error
                self.context.tolerance.handle("TASK_PUT", type(self._sink).__qualname__, error, batch.pop(at))
        self.written += 1

    def _still(self, place: TopicPartition) -> bool:
        """Whether a partition has been this task's ever since the last records were consumed."""
        return place in self._owned and place not in self._left

    def _flush(self) -> None:
        if self._owned:
            self._commit(self._persistently(self._sink.flush))

    def _commit(self, offsets: Mapping[TopicPartition, int] | None) -> None:
        """Commit what has been written, except where `flush` names less."""
        self._check_not_given_up()
        if self._dead is not None:
            self._dead.flush()
        known = {**self._next, **(offsets or {})}
        moved = {
            place: offset
            for place, offset in known.items()
            if place in self._owned and self._committed.get(place) != offset
        }
        self._look_at_logs()
        if not moved:
            return
        identity = self.context.identity
        places = [Place(*place, offset, metadata=identity(place.topic).metadata) for place, offset in moved.items()]
        began = time.monotonic()
        try:
            self._consumer.commit(offsets=places, asynchronous=False)
        except KafkaException as failure:
            self.figures.commit_failures += 1
            if failure.args[0].code() not in _LOST:
                raise
            self.context.log.info("the group moved on before a commit: %s", failure.args[0].str())
            return
        self._committed.update(moved)
        self.figures.committed(time.monotonic() - began)

    def _persistently(self, action: Callable[[], T]) -> T:
        """Call until it is not Retriable, staying in the group meanwhile. Raises Retriable when stopped."""
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                outcome = action()
            except Retriable as trouble:
                self.figures.errors.retries += 1
                self.context.warn(f"{self._environment.secrets.clean(str(trouble))} (trying again)")
                self._wait_in_group(max(pause_s, trouble.after_s))
                if self.context.stopping:
                    raise
                pause_s = min(pause_s * 2, self._longest_pause_s)
            else:
                if pause_s != _FIRST_PAUSE_S:
                    self.context.warn(None)
                return outcome

    def _wait_in_group(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not self.context.stopping and time.monotonic() < deadline:
            held = self._consumer.assignment()
            self._consumer.pause(held)
            message = self._consumer.poll(min(_WAIT_S, max(0.0, deadline - time.monotonic())))
            if message is not None and message.error() is None:  # of a partition that has just come
                self._consumer.seek(Place(message.topic() or "", message.partition() or 0, message.offset() or 0))
            self._consumer.resume([place for place in self._consumer.assignment() if not self.context.is_held(place)])

    def _look_at_logs(self) -> None:
        """Raises ConnectError if a topic was deleted and made again since its partitions came."""
        if time.monotonic() < self._look_at or self._environment.brokers.refusing:  # nobody would answer
            return
        self._look_at = time.monotonic() + _LOOK_AT_LOGS_S
        owned = {place.topic: place for place in self._owned}
        try:
            now = self._identify(owned, shared=True)
        except Retriable as trouble:  # the commit reports it as well, if it lasts
            self.context.log.info("topics are looked at later: %s", trouble)
            return
        for topic, place in owned.items():
            if topic in now:
                check_same_log(place, self._next.get(place, 0), self.context.identity(topic), now[topic], "this sink")

    def _assigned(self, consumer: Consumer, partitions: list[Place]) -> None:
        with _translating():
            self._take(consumer, partitions)

    def _take(self, consumer: Consumer, partitions: list[Place]) -> None:
        places = [TopicPartition(each.topic, each.partition) for each in partitions]
        self._owned.update(places)
        self.figures.partitions = len(self._owned)
        self._note_logs({place.topic for place in places})
        self._check_committed(consumer, partitions)
        self._sink.open(places)
        kept = self._sink.positions(places)
        for each in partitions:
            place = TopicPartition(each.topic, each.partition)
            offset = kept.get(place)
            if offset is not None:
                if isinstance(offset, KeptOffset):
                    check_same_log(place, offset, offset.log, self.context.identity(place.topic), "the target")
                _check_in_log(consumer, each, offset)
                each.offset = int(offset)
        consumer.assign(partitions)

    def _note_logs(self, topics: Collection[str]) -> None:
        """Look up the topics' identities. Raises Retriable if one of them does not exist, or no broker answers."""
        found = self._identify(topics)
        self._look_at = time.monotonic() + _LOOK_AT_LOGS_S
        self.context.logs.update(found)
        missing = sorted(set(topics) - self.context.logs.keys()) if found or self.context.logs else []
        if missing:
            raise Retriable(f"topic {missing[0]} no longer exists")

    def _check_committed(self, consumer: Consumer, partitions: list[Place]) -> None:
        """Raises ConnectError if the group committed offsets of other logs than those that have the names now."""
        if not self.context.logs:
            return
        for each in consumer.committed(partitions, timeout=_ANSWER_S):
            if each.error is not None:
                raise _translated(each.error)
            if each.offset >= 0:
                kept, place = LogIdentity.of_metadata(each.metadata), TopicPartition(each.topic, each.partition)
                check_same_log(place, each.offset, kept, self.context.identity(place.topic), "the sink's group")

    def _revoked(self, consumer: Consumer, partitions: list[Place]) -> None:
        if self._owned:
            try:
                with _translating():
                    self._commit(self._sink.flush())
            except Retriable as trouble:  # the whole group waits: the next owner writes them again
                self.context.warn(
                    f"{self._environment.secrets.clean(str(trouble))} (partitions are given up unflushed)"
                )
        self._taken_away(consumer, partitions)

    def _taken_away(self, _consumer: Consumer, partitions: list[Place]) -> None:
        places = [TopicPartition(each.topic, each.partition) for each in partitions]
        for place in places:
            self._next.pop(place, None)
            self._committed.pop(place, None)
        lost = [place for place in places if place in self._owned]
        self._owned.difference_update(places)
        self.figures.partitions = len(self._owned)
        self._left.update(places)
        if lost:
            self._sink.revoked(lost)

    def _dead_letters(self, config: Mapping[str, str], runtime: SinkRuntimeSettings) -> DeadLetters | None:
        topic = runtime.errors_deadletterqueue_topic_name.strip()
        if not topic:
            return None
        replicas = runtime.errors_deadletterqueue_topic_replication_factor
        headers = runtime.errors_deadletterqueue_context_headers_enable
        client = self._environment.client("producer", config)
        try:
            return DeadLetters(
                topic,
                replicas,
                client,
                headers=headers,
                task=self.id,
                clean=self._environment.secrets.clean,
                figures=self.figures.errors,
            )
        except KafkaException as failure:  # the brokers do not answer: that passes
            raise _translated(failure.args[0]) from None


@contextmanager
def _translating() -> Iterator[None]:
    """For callbacks: the client library raises a KafkaException that leaves one as a bare KafkaError, which no except
    clause names."""
    try:
        yield
    except KafkaException as failure:
        raise _translated(failure.args[0]) from None


class _Context(BasicContext):
    def __init__(self, task: TaskId) -> None:
        super().__init__(task, {})
        self.tolerance: Tolerance
        self.consumer: Consumer
        self.logs: dict[str, LogIdentity] = {}
        """What the topics were when their partitions came."""
        self._seeks: dict[TopicPartition, int] = {}
        self._held: set[TopicPartition] = set()

    def reject(self, record: SinkRecord, reason: BadRecord | str) -> None:
        """Skip one record, or raise."""
        error = BadRecord(reason, record) if isinstance(reason, str) else reason
        self.tolerance.handle("TASK_PUT", self.connector, error, record)

    def identity(self, topic: str) -> LogIdentity:
        """What a topic was when its partitions came."""
        return self.logs.get(topic, LogIdentity())

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Read on from there, from the next batch on."""
        self._seeks[partition] = offset

    def pause(self, *partitions: TopicPartition) -> None:
        """Deliver no records of these."""
        self._held.update(partitions)
        self.consumer.pause([Place(*each) for each in partitions])

    def resume(self, *partitions: TopicPartition) -> None:
        """Hand them out again."""
        self._held.difference_update(partitions)
        self.consumer.resume([Place(*each) for each in partitions])

    def is_held(self, place: Place) -> bool:
        """Whether the sink has paused a partition."""
        return (place.topic, place.partition) in self._held

    def apply(self, following: dict[TopicPartition, int]) -> None:
        """Do what `seek` asked for."""
        seeks, self._seeks = self._seeks, {}
        for place, offset in seeks.items():
            self.consumer.seek(Place(place.topic, place.partition, offset))
            following[place] = offset


def _check_in_log(consumer: Consumer, place: Place, offset: int) -> None:
    """Raises ConnectError for a position kept by the target that the log does not reach."""
    _, end = consumer.get_watermark_offsets(place, timeout=_ANSWER_S)
    if offset > end:
        raise _made_again(TopicPartition(place.topic, place.partition), offset, end)


def _liveness(settings: WorkerSettings, client: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by which a group gives up a task as soon as the workers give up its worker; `client`: what is given.

    The client library's own 45 s would keep partitions of a killed worker that long, also from itself started again.
    """
    longest_ms = _given(client, "max.poll.interval.ms", _LONGEST_POLL_MS)  # beyond it no session may be
    session_ms = _given(client, "session.timeout.ms", min(settings.session_timeout_ms, longest_ms))
    heartbeat_ms = min(settings.heartbeat_interval_ms, max(session_ms // 3, 1))
    return {"session.timeout.ms": session_ms, "heartbeat.interval.ms": heartbeat_ms}


def _given(client: Mapping[str, Any], name: str, default: int) -> int:
    """A client's number, if it is one: of others the client library complains."""
    text = str(client.get(name, ""))
    return int(text) if text.isdecimal() else default


def _made_again(place: TopicPartition, kept: int, there: int) -> ConnectError:
    """Read on from the log's beginning, as a consumer does by itself, its records would pass for written ones."""
    return ConnectError(
        f"the target has the records before offset {kept} of {place.topic}-{place.partition}, whose end offset is "
        f"{there}: "
        "was the topic deleted and created anew? Stop the connector and delete its offset of this partition (PATCH or "
        "DELETE /connectors/NAME/offsets) to write the new topic from its beginning, or set the offset to continue from"
    )


def _headers(message: Message) -> tuple[tuple[str, bytes | None], ...]:
    given: Any = message.headers()
    return tuple([(name, _bytes(value)) for name, value in given]) if given else ()


def _timestamp(message: Message) -> int | None:
    kind, timestamp = message.timestamp()
    return timestamp if kind else None


def _bytes(value: Any) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _translated(error: KafkaError) -> ConnectError:
    if error.code() == KafkaError._FATAL:  # the library's name
        return Fenced(f"another instance of this task has its place in the group: {error.str()}")
    if error.code() in (KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.TOPIC_AUTHORIZATION_FAILED):
        return ConnectError(f"the brokers do not let this sink read: {error.str()}")
    if error.code() == KafkaError._INVALID_ARG:  # the library's name
        return ConnectError(f"the settings of this sink's consumer cannot be used: {error.str()}")
    return Retriable(f"reading from the brokers failed: {error.str()}")
