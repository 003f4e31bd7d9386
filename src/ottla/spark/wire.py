"""Fetches from the leader of one partition, without a client library in between.

A client library hands over one Python object per record; here a fetch response stays one piece of memory, which
`ottla.spark.columns` turns into Arrow columns. Fetch is version 13 where the broker has it: it names the topic by its
id, so that a topic deleted and made again is never taken for the old one (KIP-516); else 12, which every broker since
Kafka 2.7 serves. Plain connections only: whatever asks for TLS or SASL goes through the client library
(`ottla.spark.fetch`).
"""

import logging
import os
import socket
import time
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple, Self
from uuid import UUID

from ottla.errors import ErrorCode
from ottla.protocol.api import ApiKey
from ottla.protocol.errors import MalformedMessage, UnsupportedVersion
from ottla.protocol.framing import decode_response, encode_request
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.primitives import NULL_UUID
from ottla.protocol.schema import Message
from ottla.spark.client_settings import ClientSettings
from ottla.spark.columns import Aborted
from ottla.spark.errors import SourceError
from ottla.spark.offsets import Partition

log = logging.getLogger(__name__)

CLIENT_ID: Final = "ottla-spark"
FETCH_BY_NAME: Final = 12
FETCH_BY_ID: Final = 13
METADATA_VERSION: Final = 9
METADATA_WITH_IDS: Final = 10
API_VERSIONS_VERSION: Final = 0
READ_COMMITTED: Final = 1
DEFAULT_FETCH_BYTES: Final = 4 << 20
"""Per request and partition: some thousands of records of 1 KB, so that what a task does per response is spread."""
SMALL_ANSWER: Final = 64 << 10
LARGEST_RESPONSE: Final = 1 << 30
CONNECT_TIMEOUT_S: Final = 10.0
ANSWER_TIMEOUT_S: Final = 30.0
RETRY_S: Final = 0.1
WARN_EVERY_S: Final = 15.0

UNDERSTOOD: Final = frozenset(
    (
        "bootstrap.servers",
        "check.crcs",
        "client.id",
        "fetch.max.bytes",
        "fetch.message.max.bytes",
        "fetch.min.bytes",
        "fetch.wait.max.ms",
        "group.id",
        "isolation.level",
        "max.partition.fetch.bytes",
        "security.protocol",
    )
)
"""Settings of the client library that mean the same here, or nothing for a read."""

MOVED: Final = frozenset(
    (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    )
)
"""Ask again who leads; a topic that is being created is unknown for a moment, too."""


def is_plain(client: ClientSettings) -> bool:
    """Whether these settings ask for nothing but what is done here."""
    given = dict(client)
    return given.keys() <= UNDERSTOOD and given.get("security.protocol", "plaintext").lower() == "plaintext"


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Fetched(NamedTuple):
    """An answer; `records` None: nothing for now, because this `is_end` of the log or it `is_outside` of it, or
    because a transaction is open there. `records` lie in memory that the next answer is read into."""

    records: memoryview | None
    aborted: tuple[Aborted, ...] = ()
    is_end: bool = False
    is_outside: bool = False


class BrokerGone(Exception):
    """A connection that did not do what it is for; the message says why."""


class TopicMissing(BrokerGone):
    """None of the brokers that answer knows the topic at the moment."""


class TopicGone(Exception):
    """The topic that was meant is no more; the message says what there is instead."""


class Connection:
    """One connection, one request at a time; `receive` may come long after `send`."""

    def __init__(self, address: Address, client_id: str) -> None:
        """Raises BrokerGone."""
        self.address = address
        self._client_id = client_id
        self._last_id = 0
        self._size = memoryview(bytearray(4))
        self._memory = bytearray()
        self._versions: dict[int, int] | None = None
        try:
            self._socket = socket.create_connection(address, CONNECT_TIMEOUT_S)
        except OSError as error:
            raise BrokerGone(f"{address} cannot be reached: {error.strerror or error}") from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.settimeout(ANSWER_TIMEOUT_S)

    def close(self) -> None:
        self._socket.close()

    def ask(self, request: Message, version: int) -> Any:
        """Raises BrokerGone."""
        self.send(request, version)
        return self.receive(request, version)

    def newest(self, api: int) -> int:
        """The newest version of an API that the broker has; -1 for none. Raises BrokerGone."""
        if self._versions is None:
            answer = self.ask(ApiVersionsRequest(), API_VERSIONS_VERSION)
            self._versions = {each.api_key: each.max_version for each in answer.api_keys}
        return self._versions.get(api, -1)

    def send(self, request: Message, version: int) -> None:
        """Raises BrokerGone."""
        self._last_id += 1
        pieces = encode_request(request, version, self._last_id, self._client_id)
        try:
            self._socket.sendall(b"".join(pieces))  # type: ignore[arg-type] # no file region in a request
        except OSError as error:
            raise BrokerGone(f"{self.address} broke off: {error.strerror or error}") from error

    def receive(self, request: Message, version: int) -> Any:
        """The response to the oldest request not answered yet; what it has of bytes is overwritten by the next one.
        Raises BrokerGone."""
        assert request.API_KEY is not None
        size = int.from_bytes(self._fill(self._size), "big", signed=True)
        if not 0 <= size <= LARGEST_RESPONSE:
            raise BrokerGone(f"{self.address} does not answer as a Kafka broker")
        if len(self._memory) < size or len(self._memory) > 4 * max(size, DEFAULT_FETCH_BYTES):
            self._memory = bytearray(max(size, SMALL_ANSWER))
        try:
            return decode_response(request.API_KEY, version, self._fill(memoryview(self._memory)[:size]))[1]
        except (MalformedMessage, UnsupportedVersion) as error:
            raise BrokerGone(f"{self.address} does not answer as a Kafka broker: {error}") from error

    def _fill(self, whole: memoryview) -> memoryview:
        filled = 0
        try:
            while filled < len(whole):
                count = self._socket.recv_into(whole[filled:])
                if not count:
                    raise BrokerGone(f"{self.address} closed the connection")
                filled += count
        except TimeoutError:
            raise BrokerGone(f"{self.address} did not answer within {ANSWER_TIMEOUT_S:.0f} s") from None
        except OSError as error:
            raise BrokerGone(f"{self.address} broke off: {error.strerror or error}") from error
        return whole


class Cluster:
    """The connections of this process to one cluster, and who leads what, kept for the tasks that follow."""

    def __init__(self, client: ClientSettings) -> None:
        given = dict(client)
        self._bootstrap = parse_servers(given["bootstrap.servers"])
        self._client_id = given.get("client.id", CLIENT_ID)
        self._connections: dict[Address, Connection] = {}
        self._leaders: dict[Partition, tuple[Address, UUID]] = {}

    def leader(self, partition: Partition, topic_id: UUID) -> Connection | None:
        """A connection to who leads the partition; None if nobody does at the moment.

        Raises BrokerGone; TopicGone if the topic has another id than this one, which is NULL_UUID if unknown.
        """
        address, found_id = self._leaders.get(partition) or self._ask_for_leader(partition)
        if NULL_UUID not in (topic_id, found_id) and topic_id != found_id:
            self.forget_leader(partition)
            raise TopicGone("was deleted and made again")
        return None if address is None else self._connect(address)

    def forget_leader(self, partition: Partition) -> None:
        """Ask again the next time."""
        self._leaders.pop(partition, None)

    def _ask_for_leader(self, partition: Partition) -> tuple[Address | None, UUID]:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=partition.topic)], allow_auto_topic_creation=False)
        is_missing = False
        for answer in self._answers(request, METADATA_VERSION, METADATA_WITH_IDS):
            brokers = {broker.node_id: Address(broker.host, broker.port) for broker in answer.brokers}
            for topic in answer.topics:
                for found in topic.partitions:
                    if found.leader_id in brokers:
                        key = Partition(partition.topic, found.partition_index)
                        self._leaders[key] = brokers[found.leader_id], topic.topic_id
                if topic.partitions:
                    return self._leaders.get(partition) or (None, topic.topic_id)
                is_missing = is_missing or topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if is_missing:
            raise TopicMissing(f"there is no topic '{partition.topic}'")
        return None, NULL_UUID

    def drop(self, connection: Connection) -> None:
        """Forget a connection that failed, or whose answers nobody waits for any more."""
        connection.close()
        if self._connections.get(connection.address) is connection:
            del self._connections[connection.address]
        for partition, (address, _) in list(self._leaders.items()):
            if address == connection.address:
                del self._leaders[partition]

    def _answers(self, request: Message, version: int, better: int) -> Iterator[Any]:
        """What one broker after the other says, in the `better` version if it has that. Raises BrokerGone if none does:
        one that has just started knows less than others."""
        problem: BrokerGone | None = BrokerGone("no broker is named")
        for address in dict.fromkeys((*self._connections, *self._bootstrap)):
            try:
                connection = self._connect(address)
            except BrokerGone as error:
                problem = problem and error
                continue
            try:
                assert request.API_KEY is not None
                answer = connection.ask(request, better if connection.newest(request.API_KEY) >= better else version)
            except BrokerGone as error:
                self.drop(connection)
                problem = problem and error
                continue
            problem = None
            yield answer
        if problem is not None:
            raise problem

    def _connect(self, address: Address) -> Connection:
        known = self._connections.get(address)
        if known is None:
            known = self._connections[address] = Connection(address, self._client_id)
        return known


@lru_cache(maxsize=4)
def _cluster(client: ClientSettings, process_id: int) -> Cluster:
    """Shared within a process; a forked one must not use its parent's connections."""
    return Cluster(client)


def parse_servers(text: str) -> list[Address]:
    """`host:port,[::1]:port` as addresses. Raises SourceError."""
    found = []
    for part in text.split(","):
        host, _, port = part.strip().rpartition("://")[2].rpartition(":")
        if not host or not port.isdigit():
            raise SourceError(f"'kafka.bootstrap.servers' is a list of host:port, but has {part.strip()!r}")
        found.append(Address(host.strip("[]"), int(port)))
    return found


class PartitionFetch:
    """Reads one partition from an offset on. `request` and `wait` alternate, so that the broker works while what came
    before is being decoded. Use as a context manager: whatever ends the task, no stray answer stays behind."""

    def __init__(
        self,
        client: ClientSettings,
        partition: Partition,
        *,
        topic_id: UUID | None = None,
        patience_s: float,
        missing_s: float,
    ) -> None:
        """`topic_id`: of the topic that is meant, None if unknown. `patience_s`: how long the partition may be
        without a leader or its brokers unreachable. `missing_s`: how long brokers may say that there is no such
        topic before that is believed; not more than `patience_s`."""
        given = dict(client)
        self._cluster = _cluster(client, os.getpid())
        self._partition = partition
        self._topic_id = topic_id or NULL_UUID
        self._patience_s = patience_s
        self._missing_s = missing_s
        self._isolation = READ_COMMITTED if given.get("isolation.level") == "read_committed" else 0
        self._max_bytes = _partition_bytes(given)
        self._max_wait_ms = int(given.get("fetch.wait.max.ms", "100"))
        self._min_bytes = int(given.get("fetch.min.bytes", "1"))
        self._leader: Connection | None = None
        self._asked: FetchRequest | None = None
        self._version = FETCH_BY_NAME
        self._offset = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._asked is not None and self._leader is not None:
            self._cluster.drop(self._leader)

    def request(self, offset: int) -> None:
        """Ask for records from this offset on; `wait` gives them."""
        self._offset = offset
        self._send()

    def wait(self) -> Fetched:
        """What was asked for.

        Raises SourceError if the partition stays out of reach for too long, TopicGone if it was deleted.
        """
        began = warned_at = time.monotonic()
        missing_since: float | None = None
        while True:
            try:
                if self._asked is None:
                    self._send(final=True)
                answer = self._receive()
            except BrokerGone as error:
                reason = str(error)
                self._forget_leader()
                is_missing = isinstance(error, TopicMissing)
                missing_since = (missing_since or time.monotonic()) if is_missing else None
            else:
                if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    return Fetched(None, is_outside=True)
                if not answer.error_code:
                    if not answer.records:
                        return Fetched(None, is_end=self._offset >= answer.high_watermark)
                    aborted = tuple(Aborted(each.producer_id, each.first_offset) for each in answer.aborted or ())
                    return Fetched(answer.records, aborted)
                if answer.error_code not in MOVED:
                    raise SourceError(f"reading {self._partition} at offset {self._offset}: {_name(answer.error_code)}")
                reason = _name(answer.error_code)
                self._leader = None
                self._cluster.forget_leader(self._partition)
            now = time.monotonic()
            if now > warned_at + WARN_EVERY_S:
                log.warning("waiting for the leader of %s at offset %d: %s", self._partition, self._offset, reason)
                warned_at = now
            if missing_since is not None and now > missing_since + self._missing_s:
                raise TopicGone("was deleted")
            if now > began + self._patience_s:
                raise SourceError(
                    f"reading {self._partition} at offset {self._offset}: its leader could not be reached for "
                    f"{self._patience_s:.0f} s ({reason})"
                )
            time.sleep(RETRY_S)

    def _send(self, *, final: bool = False) -> None:
        """With `final`, raises BrokerGone and TopicGone; otherwise `wait` tries again."""
        try:
            if self._leader is None:
                self._leader = self._cluster.leader(self._partition, self._topic_id)
            if self._leader is None:
                raise BrokerGone("it has no leader")
            partition = FetchPartition(
                partition=self._partition.number, fetch_offset=self._offset, partition_max_bytes=self._max_bytes
            )
            by_id = self._topic_id != NULL_UUID and self._leader.newest(ApiKey.FETCH) >= FETCH_BY_ID
            self._version = FETCH_BY_ID if by_id else FETCH_BY_NAME
            asked = FetchRequest(
                max_wait_ms=self._max_wait_ms,
                min_bytes=self._min_bytes,
                max_bytes=self._max_bytes,
                isolation_level=self._isolation,
                topics=[FetchTopic(topic=self._partition.topic, topic_id=self._topic_id, partitions=[partition])],
            )
            self._leader.send(asked, self._version)
            self._asked = asked
        except (BrokerGone, TopicGone):
            self._forget_leader()
            if final:
                raise

    def _receive(self) -> "_Answer":
        assert self._leader is not None
        assert self._asked is not None
        response = self._leader.receive(self._asked, self._version)
        self._asked = None
        if response.error_code:
            return _Answer(response.error_code)
        data = response.responses[0].partitions[0]
        records = None if data.records is None else memoryview(data.records)
        return _Answer(data.error_code, records, data.aborted_transactions, data.high_watermark)

    def _forget_leader(self) -> None:
        if self._leader is not None:
            self._cluster.drop(self._leader)
        self._cluster.forget_leader(self._partition)
        self._leader = self._asked = None


class _Answer(NamedTuple):
    error_code: int
    records: memoryview | None = None
    aborted: Any = None
    high_watermark: int = -1


def _partition_bytes(given: Mapping[str, str]) -> int:
    wish = given.get("max.partition.fetch.bytes", given.get("fetch.message.max.bytes"))
    return DEFAULT_FETCH_BYTES if wish is None else int(wish)


def _name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"
