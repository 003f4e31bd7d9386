"""The state of a worker: three compacted logs (configurations, positions, statuses), in topics or in one file.

Every worker reads all of it, and follows additions.
"""

import contextlib
import fcntl
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final, Protocol, TextIO

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from ottla.connect.errors import ConnectError, Fenced, Retriable, of_brokers
from ottla.connect.herder.state import LOGGER
from ottla.connect.runtime.worker_settings import TRANSACTIONAL, WorkerSettings, client_settings
from ottla.producers import abandon

log = logging.getLogger(__name__)

OnRecord = Callable[[str, bytes, bytes | None, int], None]
"""Called with the log's name, key, value and offset."""

_TIMEOUT_S: Final = 60.0
_ANYBODYS: Final = LOGGER.encode()
"""Keys of configurations that any worker may write."""
_LATEST: Final[OffsetSpec] = OffsetSpec.latest()  # type: ignore[no-untyped-call] # the library leaves it untyped


class Logs(Protocol):
    """The logs by name. All methods are safe from any thread."""

    def start(self) -> None:
        """Read everything, then go on following. Raises ConnectError."""

    def put(self, name: str, key: bytes, value: bytes | None, *, wait: bool = True) -> None:
        """Write a record; with `wait`, return when it is durable and has been read back.

        Raises ConnectError; Fenced for a configuration, when another worker leads.
        """

    def catch_up(self, name: str) -> None:
        """Return when everything that is in the log now has been read. Raises ConnectError."""

    @property
    def leads(self) -> bool:
        """Whether configurations are written by this worker alone."""

    def lead(self) -> None:
        """Become the only writer of configurations, and fence the previous one. Raises ConnectError."""

    def close(self) -> None:
        """Stop following."""


def logs_of(settings: WorkerSettings, raw: Mapping[str, str], on_record: OnRecord) -> Logs:
    """The logs of a worker. raw: its settings as given, with those of clients."""
    if settings.offset_storage_file_filename is not None:
        return FileLogs(Path(settings.offset_storage_file_filename), on_record)
    topics = {
        "configs": (settings.config_storage_topic, 1, settings.config_storage_replication_factor),
        "offsets": (
            settings.offset_storage_topic,
            settings.offset_storage_partitions,
            settings.offset_storage_replication_factor,
        ),
        "status": (
            settings.status_storage_topic,
            settings.status_storage_partitions,
            settings.status_storage_replication_factor,
        ),
    }
    return TopicLogs(topics, client_settings(raw), f"connect-cluster-{settings.group_id}", on_record)


class TopicLogs:
    """Each log a compacted topic.

    topics: name of the log -> (topic, partitions, replicas); those that are not there are made.
    client: settings of the client library. leader_id: the transactional id of the worker that leads.
    """

    def __init__(
        self,
        topics: Mapping[str, tuple[str, int, int]],
        client: Mapping[str, Any],
        leader_id: str,
        on_record: OnRecord,
    ) -> None:
        self._leader_id = leader_id
        self._leader: Producer | None = None
        self._writing = threading.Lock()
        self._topics, self._client, self._on_record = topics, dict(client), on_record
        self._names = {topic: name for name, (topic, _, _) in topics.items()}
        self._reached: dict[tuple[str, int], int] = {}
        self._moved = threading.Condition()
        self._stopping = threading.Event()
        self._failure: str | None = None
        self._thread: threading.Thread | None = None
        self._consumer: Consumer | None = None
        self._producer: Producer | None = None
        self._admin: AdminClient | None = None

    def start(self) -> None:
        """Make topics that are missing, read all to the end, follow."""
        settings = {
            "group.id": "ottla-connect-reads-without-a-group",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 100,
        }
        self._admin = AdminClient(self._client)  # all connect at the same time
        self._consumer = Consumer({**self._client, **settings})
        self._producer = Producer({**self._client, "enable.idempotence": True, "linger.ms": 2})
        self._make_topics(self._admin)
        partitions = self._partitions()
        self._consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for topic, number in partitions])
        self._thread = threading.Thread(target=self._follow, name="connect logs", daemon=True)
        self._thread.start()
        self._catch_up(self._names, IsolationLevel.READ_COMMITTED)  # tasks that died may have left transactions open

    def put(self, name: str, key: bytes, value: bytes | None, *, wait: bool = True) -> None:
        """Write a record."""
        assert self._producer is not None
        topic, outcome = self._topics[name][0], _Outcome()
        if name == "configs" and not key.startswith(_ANYBODYS):
            leader = self._leader
            if leader is None:
                raise Fenced(f"{topic} is written by the leader alone, and this worker does not lead")
            self._put_as_leader(leader, topic, key, value, outcome)
        else:
            self._producer.produce(topic, key=key, value=value, on_delivery=outcome)
            if not wait:
                self._producer.poll(0)
                return
            self._producer.flush(_TIMEOUT_S)
        partition, offset = outcome.place(topic)
        self._wait(lambda: self._reached.get((topic, partition), 0) > offset, topic)

    def lead(self) -> None:
        """Fence the leader before, and write configurations in transactions from now on."""
        producer = Producer({**TRANSACTIONAL, **self._client, "transactional.id": self._leader_id})
        try:
            producer.init_transactions(_TIMEOUT_S)
        except KafkaException as failure:
            raise of_brokers(failure.args[0], f"this worker cannot lead: {failure.args[0].str()}") from None
        self._leader = producer
        self.catch_up("configs")

    def _put_as_leader(
        self, leader: Producer, topic: str, key: bytes, value: bytes | None, outcome: "_Outcome"
    ) -> None:
        with self._writing:
            try:
                leader.begin_transaction()
                leader.produce(topic, key=key, value=value, on_delivery=outcome)
                leader.commit_transaction(_TIMEOUT_S)
            except KafkaException as failure:
                error = failure.args[0]
                if error.txn_requires_abort() or error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
                    with contextlib.suppress(KafkaException):
                        leader.abort_transaction(_TIMEOUT_S)
                    error = outcome.error or error  # with more details
                    raise of_brokers(error, f"{topic} cannot be written: {error.str()}") from None
                if self._leader is leader:
                    self._leader = None  # the worker claims it again if it still leads
                abandon(leader)
                raise Fenced(f"another worker leads now: {error.str()}") from None

    @property
    def leads(self) -> bool:
        """Whether configurations are written by this worker alone."""
        return self._leader is not None

    def catch_up(self, name: str) -> None:
        """Wait for the reader to come to where the log ends now.

        Positions that are committed may stand behind another task's open transaction, where the reader does not see
        them yet: it is waited until that one has ended too.
        """
        uncommitted = name == "offsets"
        end = IsolationLevel.READ_UNCOMMITTED if uncommitted else IsolationLevel.READ_COMMITTED
        self._catch_up((self._topics[name][0],), end)

    def _catch_up(self, topics: Collection[str], end: IsolationLevel) -> None:
        wanted = {TopicPartition(topic, number): _LATEST for topic, number in self._reached if topic in topics}
        listed = ", ".join(topics)
        admin = self._admin
        assert admin is not None
        asked = admin.list_offsets(wanted, isolation_level=end, request_timeout=_TIMEOUT_S)
        try:
            answers = {place: future.result(_TIMEOUT_S) for place, future in asked.items()}
        except KafkaException as failure:
            if self._admin is admin:  # it goes on asking by the leaders' epochs of before a broker was started again
                self._admin = AdminClient(self._client)
            raise of_brokers(failure.args[0], f"the end of {listed} cannot be read: {failure.args[0].str()}") from None
        except TimeoutError as failure:
            raise Retriable(f"the end of {listed} cannot be read: {failure}") from None
        ends = {(place.topic, place.partition): answer.offset for place, answer in answers.items()}
        self._wait(lambda: all(self._reached[place] >= end for place, end in ends.items()), listed)

    def close(self) -> None:
        """Stop the reader and send what is left."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(_TIMEOUT_S)
        if self._producer is not None:
            self._producer.flush(5.0)

    def _wait(self, reached: Callable[[], bool], topic: str) -> None:
        deadline = time.monotonic() + _TIMEOUT_S
        with self._moved:
            while not reached():
                if self._failure is not None:
                    raise ConnectError(self._failure)
                if not self._moved.wait(deadline - time.monotonic()):
                    raise Retriable(f"{topic} could not be read to its end within {_TIMEOUT_S:.0f} s")

    def _follow(self) -> None:
        assert self._consumer is not None
        try:
            while not self._stopping.is_set():
                first = self._consumer.poll(0.2)  # `consume` would wait for as many as it is asked for
                if first is not None:
                    for message in (first, *self._consumer.consume(500, 0)):
                        self._take(message)
        except Exception as failure:
            log.exception("the worker's topics can no longer be read")
            with self._moved:
                self._failure = f"the worker's topics can no longer be read: {failure}"
                self._moved.notify_all()
        finally:
            self._consumer.close()

    def _take(self, message: Message) -> None:
        error = message.error()
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:  # the library's name
            if error.fatal():
                raise KafkaException(error)
            log.warning("reading the worker's topics: %s", error.str())
            return
        assert topic is not None
        assert partition is not None
        assert offset is not None
        if error is None:
            key = message.key()
            if key is not None:
                _hand_on(self._on_record, self._names[topic], _bytes(key) or b"", _bytes(message.value()), offset)
        with self._moved:
            self._reached[topic, partition] = offset + (error is None)
            self._moved.notify_all()

    def _make_topics(self, admin: AdminClient) -> None:
        compacted = {"cleanup.policy": "compact"}
        wanted = [NewTopic(*each, config=compacted) for each in self._topics.values()]
        for topic, made in admin.create_topics(wanted, request_timeout=_TIMEOUT_S).items():
            try:
                made.result(_TIMEOUT_S)
            except KafkaException as failure:
                if failure.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise ConnectError(f"topic {topic} cannot be made: {failure.args[0].str()}") from None
            except TimeoutError:
                raise Retriable(f"topic {topic} cannot be made: no answer within {_TIMEOUT_S:.0f} s") from None

    def _partitions(self) -> list[tuple[str, int]]:
        assert self._consumer is not None
        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            known = self._consumer.list_topics(timeout=_TIMEOUT_S).topics
            if all(topic in known and known[topic].partitions for topic in self._names):
                break
            if time.monotonic() > deadline:
                raise ConnectError(f"the topics {', '.join(self._names)} did not appear within {_TIMEOUT_S:.0f} s")
            time.sleep(0.05)
        self._check(known)
        found = [(topic, number) for topic in self._names for number in known[topic].partitions]
        self._reached.update(dict.fromkeys(found, 0))
        return found

    def _check(self, known: Mapping[str, Any]) -> None:
        topic, partitions, _ = self._topics["configs"]
        if partitions == 1 and len(known[topic].partitions) != 1:
            raise ConnectError(
                f"topic {topic} (config.storage.topic) has {len(known[topic].partitions)} partitions and needs exactly "
                "one, since the order of its records counts; name another topic"
            )


def _hand_on(on_record: OnRecord, name: str, key: bytes, value: bytes | None, offset: int) -> None:
    try:
        on_record(name, key, value, offset)
    except Exception:  # one foreign record must not stop all workers forever
        log.exception("the record at offset %d of the worker's %s, key %r, is left alone", offset, name, key)


class _Outcome:
    """The delivery report of one record."""

    def __init__(self) -> None:
        self.error: KafkaError | None = None
        self._place: tuple[int, int] | None = None

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        self.error = error
        partition, offset = message.partition(), message.offset()
        if error is None and partition is not None and offset is not None:
            self._place = partition, offset

    def place(self, topic: str) -> tuple[int, int]:
        if self.error is not None:
            raise of_brokers(self.error, f"{topic} cannot be written: {self.error.str()}")
        if self._place is None:
            raise Retriable(f"{topic} cannot be written: no answer within {_TIMEOUT_S:.0f} s")
        return self._place


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


class FileLogs:
    """All logs in one file of JSON lines, for one worker alone; rewritten with the last of each key when it starts."""

    def __init__(self, path: Path, on_record: OnRecord) -> None:
        self._path, self._on_record = path, on_record
        self._lock = threading.RLock()
        self._next = 0
        self._held: TextIO | None = None
        self._torn = False

    def start(self) -> None:
        """Read the file, if there is one, and compact it. Raises ConnectError, also for a foreign file."""
        self._lock_out_others()
        try:
            self._read()
        except BaseException:
            self.close()
            raise

    def _read(self) -> None:
        last: dict[tuple[str, str], tuple[int, str | None]] = {}
        for number, line in enumerate(self._lines(), 1):
            record = _record(line)
            if record is None:
                if not any(line.startswith(each) or each.startswith(line) for each in _BEGINNINGS):
                    raise ConnectError(
                        f"{self._path} (offset.storage.file.filename) is no file of this worker's: line {number} is "
                        "none of its records; name another file, which need not be there"
                    )
                log.warning("line %d of %s was not written to its end, and is left out", number, self._path)
                continue
            name, key, value, offset = record
            last[name, key] = (offset, value)
        kept = sorted((offset, name, key, value) for (name, key), (offset, value) in last.items() if value is not None)
        small = [json.dumps([name, key, value, offset]) + "\n" for offset, name, key, value in kept]
        unfinished = self._path.with_name(self._path.name + ".new")
        try:
            with unfinished.open("w", encoding="utf-8") as file:
                file.write("".join(small))
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(self._path)
        except OSError as failure:
            raise self._trouble("written", failure) from None
        self._next = max((offset for offset, _ in last.values()), default=-1) + 1
        for offset, name, key, value in kept:
            _hand_on(self._on_record, name, key.encode(), value.encode(), offset)

    def put(self, name: str, key: bytes, value: bytes | None, *, wait: bool = True) -> None:
        """Add a line, and hand it on at once."""
        with self._lock:
            offset, self._next = self._next, self._next + 1
            line = json.dumps([name, key.decode(), None if value is None else value.decode(), offset])
            try:
                with self._path.open("a", encoding="utf-8") as file:
                    file.write(("\n" if self._torn else "") + line + "\n")
                self._torn = False
            except OSError as failure:
                self._torn = True  # a part of the line may be there
                raise self._trouble("written", failure) from None
            self._on_record(name, key, value, offset)

    def catch_up(self, name: str) -> None:
        """Nothing to wait for: what is written has been handed on."""

    def lead(self) -> None:
        """Do nothing: no other worker has the file."""

    leads = True

    def close(self) -> None:
        """Let others have the file."""
        if self._held is not None:
            self._held.close()
            self._held = None

    def _lines(self) -> list[str]:
        """The lines; a file that is not text is not a worker's."""
        try:
            text = self._path.read_bytes() if self._path.exists() else b""
        except OSError as failure:
            raise self._trouble("read", failure) from None
        return text.decode(errors="replace").split("\n")[: None if not text.endswith(b"\n") else -1] if text else []

    def _lock_out_others(self) -> None:
        """Two workers with the same file would each lose what the other one writes."""
        beside = self._path.with_name(self._path.name + ".lock")
        try:
            self._held = beside.open("w")
            fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise ConnectError(
                f"another worker runs with {self._path} (offset.storage.file.filename); stop it, or name another file"
            ) from None
        except OSError as failure:
            raise self._trouble("written", failure) from None

    def _trouble(self, done: str, failure: OSError) -> ConnectError:
        reason = (failure.strerror or str(failure)).lower()
        return ConnectError(f"the worker's file {self._path} cannot be {done}: {reason}")


_BEGINNINGS: Final = ('["configs", ', '["offsets", ', '["status", ')
"""The beginnings of lines in a worker's file."""


def _record(line: str) -> tuple[str, str, str | None, int] | None:
    """Name of the log, key, value and offset; None for what is none."""
    try:
        match json.loads(line):
            case [str(name), str(key), str() | None as value, int(offset)]:
                return name, key, value, offset
    except (ValueError, RecursionError):
        pass
    return None
