"""Connections to brokers without a client library in between, for what Spark needs of them most.

A client library hands over one Python object per record, and asks about offsets with what it knew of a broker before
that was started again. Here a fetch response stays one piece of memory (`ottla.spark.wire_fetch`), and every question
about topics is asked anew, of whoever answers (`ottla.spark.wire_metadata`). Plain connections only: whatever asks for
TLS or SASL goes through the client library (`client_fetch`, `client_metadata`).
"""

import socket
import time
import weakref
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, NamedTuple
from uuid import UUID

from ottla.errors import ErrorCode
from ottla.protocol.api import ApiKey
from ottla.protocol.errors import MalformedMessage, UnsupportedVersion
from ottla.protocol.framing import decode_response, encode_request
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.primitives import NULL_UUID
from ottla.protocol.schema import Message
from ottla.spark.client_settings import ClientSettings
from ottla.spark.errors import SourceError
from ottla.spark.offsets import Partition

CLIENT_ID: Final = "ottla-spark"
METADATA_VERSION: Final = 10
"""Has the ids of topics (KIP-516). Of this and other APIs, an older broker is asked in the newest version it has."""
API_VERSIONS_VERSION: Final = 0
NO_EPOCH: Final = -1
DEFAULT_FETCH_BYTES: Final = 4 << 20
"""Per request and partition: some thousands of records of 1 KB, so that what a task does per response is spread."""
SMALL_ANSWER: Final = 64 << 10
LARGEST_RESPONSE: Final = 1 << 30
CONNECT_TIMEOUT_S: Final = 10.0
ANSWER_TIMEOUT_S: Final = 30.0
IDLE_S: Final = 60.0
"""A connection that was not used for so long is made anew: what lies between may have forgotten it without a word."""

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


def is_plain(client: ClientSettings) -> bool:
    """Whether these settings ask for nothing but what is done here."""
    given = dict(client)
    return given.keys() <= UNDERSTOOD and given.get("security.protocol", "plaintext").lower() == "plaintext"


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Leader(NamedTuple):
    """Who leads a partition, since which epoch, the id of its topic, and which broker said so. Older brokers have no
    epochs (NO_EPOCH) and ids (NULL_UUID)."""

    address: Address
    epoch: int
    topic_id: UUID
    told_by: Address


class BrokerGone(Exception):
    """A connection that did not do what it is for; the message says why."""


class BrokerSilent(BrokerGone):
    """A broker that took a request and did not answer in time."""


class TopicMissing(BrokerGone):
    """None of the brokers that answer knows the topic at the moment."""


class TopicGone(Exception):
    """The topic that was meant is no more; the message says what there is instead."""


class Connection:
    """One connection; requests are answered in the order in which they were sent, and `receive` may come long after
    `send`. Every method may raise BrokerGone; the connection is of no more use then."""

    def __init__(self, address: Address, client_id: str, answer_within_s: float) -> None:
        self.address = address
        self._client_id = client_id
        self._answer_within_s = answer_within_s
        self._last_id = 0
        self._answered = 0
        self._size = memoryview(bytearray(4))
        self._memory = bytearray()
        self._versions: dict[int, int] | None = None
        self.used_at = time.monotonic()
        try:
            self._socket = socket.create_connection(address, min(CONNECT_TIMEOUT_S, answer_within_s))
        except OSError as error:
            raise BrokerGone(f"{address} cannot be reached: {error.strerror or error}") from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.settimeout(answer_within_s)
        weakref.finalize(self, self._socket.close)  # clusters are kept in caches, which drop what is old

    def close(self) -> None:
        self._socket.close()

    def newest(self, api: int) -> int:
        """The newest version of an API that the broker has; -1 for none."""
        if self._versions is None:
            request = ApiVersionsRequest()
            self.send(request, API_VERSIONS_VERSION)
            answer = self.receive(request, API_VERSIONS_VERSION)
            self._versions = {each.api_key: each.max_version for each in answer.api_keys}
        return self._versions.get(api, -1)

    def send_newest(self, request: Message, newest: int) -> int:
        """Send it in the `newest` version, or the newest that the broker has; gives which."""
        assert request.API_KEY is not None
        version = min(newest, self.newest(request.API_KEY))
        if version < request.VERSIONS[0]:
            raise BrokerGone(f"{self.address} is too old: it does not serve {ApiKey(request.API_KEY).name}")
        self.send(request, version)
        return version

    def send(self, request: Message, version: int) -> None:
        self._last_id += 1
        self.used_at = time.monotonic()
        pieces = encode_request(request, version, self._last_id, self._client_id)
        try:
            self._socket.sendall(b"".join(pieces))  # type: ignore[arg-type] # no file region in a request
        except OSError as error:
            raise BrokerGone(f"{self.address} broke off: {error.strerror or error}") from error

    def receive(self, request: Message, version: int) -> Any:
        """The response to the oldest request not answered yet; what it has of bytes is overwritten by the next one."""
        assert request.API_KEY is not None
        size = int.from_bytes(self._fill(self._size), "big", signed=True)
        if not 0 <= size <= LARGEST_RESPONSE:
            raise BrokerGone(f"{self.address} does not answer as a Kafka broker")
        if len(self._memory) < size or len(self._memory) > 4 * max(size, DEFAULT_FETCH_BYTES):
            self._memory = bytearray(max(size, SMALL_ANSWER))
        try:
            number, answer = decode_response(request.API_KEY, version, self._fill(memoryview(self._memory)[:size]))
        except (MalformedMessage, UnsupportedVersion) as error:
            raise BrokerGone(f"{self.address} does not answer as a Kafka broker: {error}") from error
        self._answered += 1
        self.used_at = time.monotonic()
        if number != self._answered:
            raise BrokerGone(f"{self.address} answers another request than the one that was sent")
        return answer

    def _fill(self, whole: memoryview) -> memoryview:
        filled = 0
        try:
            while filled < len(whole):
                count = self._socket.recv_into(whole[filled:])
                if not count:
                    raise BrokerGone(f"{self.address} closed the connection")
                filled += count
        except TimeoutError:
            raise BrokerSilent(f"{self.address} did not answer within {self._answer_within_s:.0f} s") from None
        except OSError as error:
            raise BrokerGone(f"{self.address} broke off: {error.strerror or error}") from error
        return whole


class Cluster:
    """Connections to one cluster, and who leads what, kept for the questions that follow. For one thread."""

    def __init__(self, client: ClientSettings, answer_within_s: float = ANSWER_TIMEOUT_S) -> None:
        given = dict(client)
        self._bootstrap = parse_servers(given["bootstrap.servers"])
        self._client_id = given.get("client.id", CLIENT_ID)
        self._answer_within_s = answer_within_s
        self._connections: dict[Address, Connection] = {}
        self._brokers: tuple[Address, ...] = ()
        self._leaders: dict[Partition, Leader] = {}
        self._epochs: dict[Partition, tuple[UUID, int]] = {}
        self._wrong: dict[Address, None] = {}  # in the order in which they last were

    # -- who leads ---------------------------------------------------------------------------------

    def leader(self, partition: Partition, topic_id: UUID) -> Connection | None:
        """A connection to who leads the partition; None if nobody does at the moment.

        Raises BrokerGone; TopicGone if the topic has another id than this one, which is NULL_UUID if unknown.
        """
        found = self._leaders.get(partition)
        if found is None:
            topic = self.topics((partition.topic,)).get(partition.topic)
            if topic is not None and _is_unknown(topic):
                raise TopicMissing(f"there is no topic '{partition.topic}'")
            found = self._leaders.get(partition)
        if found is None:
            return None
        if NULL_UUID not in (topic_id, found.topic_id) and topic_id != found.topic_id:
            self.forget_leader(partition)
            raise TopicGone("was deleted and made again")
        return self._connect(found.address)

    def led_by(self, partition: Partition) -> Leader | None:
        """Who led the partition when that was last heard of."""
        return self._leaders.get(partition)

    def forget_leader(self, partition: Partition) -> None:
        """Ask again the next time, and first another broker than the one that named who does not lead, or is gone: it
        may be cut off from those who know better."""
        leader = self._leaders.pop(partition, None)
        if leader is not None:
            self._wrong.pop(leader.told_by, None)
            self._wrong[leader.told_by] = None

    def topics(self, names: Collection[str]) -> dict[str, Any]:
        """What brokers say of these topics, as `MetadataResponseTopic`; who leads their partitions is noted.

        One that has just started, or is cut off from the others, knows less: a topic that one denies, or of which it
        has older news than were heard before, or knows no leader, is asked for at the next. Raises BrokerGone if none
        answers.
        """
        found: dict[str, Any] = {}
        left = set(names)
        topics = [MetadataRequestTopic(name=name) for name in names]
        for address, answer in self._answers(MetadataRequest(topics=topics, allow_auto_topic_creation=False)):
            unsure = self._note(answer, address)
            for topic in answer.topics:
                if topic.name not in found or not _is_unknown(topic):
                    found[topic.name] = topic
                if not _is_unknown(topic) and topic.name not in unsure:
                    left.discard(topic.name)
            if not left:
                break
        return found

    def names(self, expected: Collection[str] = ()) -> set[str]:
        """All topics there are, from as many brokers as it takes to know the `expected`. Raises BrokerGone."""
        found: set[str] = set()
        for _, answer in self._answers(MetadataRequest(topics=None, allow_auto_topic_creation=False)):
            found.update(topic.name for topic in answer.topics)
            if found.issuperset(expected):
                break
        return found

    def _note(self, answer: Any, told_by: Address) -> set[str]:
        """Note who leads; gives the topics of which others may know more. Newer news, by epoch, stay."""
        brokers = {broker.node_id: Address(broker.host, broker.port) for broker in answer.brokers}
        self._brokers = tuple(brokers.values())
        unsure = set()
        for topic in answer.topics:
            for each in topic.partitions:
                partition = Partition(topic.name, each.partition_index)
                topic_id, epoch = self._epochs.get(partition, (NULL_UUID, NO_EPOCH))
                if NULL_UUID != topic_id == topic.topic_id and each.leader_epoch < epoch:
                    unsure.add(topic.name)
                    continue
                self._epochs[partition] = topic.topic_id, each.leader_epoch
                if each.leader_id in brokers:
                    address = brokers[each.leader_id]
                    self._leaders[partition] = Leader(address, each.leader_epoch, topic.topic_id, told_by)
                else:
                    self._leaders.pop(partition, None)
                    unsure.add(topic.name)
        return unsure

    # -- asking ------------------------------------------------------------------------------------

    def _answers(self, request: MetadataRequest) -> Iterator[tuple[Address, Any]]:
        """What one broker after the other says, those that were wrong lately last. Raises BrokerGone if none says
        anything."""
        problem: BrokerGone | None = BrokerGone("no broker is named")
        addresses = dict.fromkeys((*self._connections, *self._bootstrap, *self._brokers))
        trusted = [address for address in addresses if address not in self._wrong]
        for address in (*trusted, *(address for address in self._wrong if address in addresses)):
            answer = self.ask_each({address: request}, METADATA_VERSION)[address]
            if isinstance(answer, BrokerGone):
                problem = problem and answer
                continue
            problem = None
            yield address, answer
        if problem is not None:
            raise problem

    def ask_each(self, requests: Mapping[Address, Message], newest: int) -> dict[Address, Any]:
        """The answers of several brokers, which work at the same time; BrokerGone for one that gives none.

        They are asked in the `newest` version, or the newest they have. Of a connection that is kept nobody knows
        whether its broker was away since: one that breaks is made anew, once.
        """
        kept = set(self._connections)
        found = self._exchange(requests, newest)
        broken = [each for each in kept if isinstance(found.get(each), BrokerGone)]
        again = {each: requests[each] for each in broken if not isinstance(found[each], BrokerSilent)}
        return {**found, **self._exchange(again, newest)} if again else found

    def _exchange(self, requests: Mapping[Address, Message], newest: int) -> dict[Address, Any]:
        found: dict[Address, Any] = {}
        versions: dict[Address, int] = {}
        waiting: dict[Address, Connection] = {}
        try:
            for address, request in requests.items():
                try:
                    waiting[address] = self._connect(address)
                    versions[address] = waiting[address].send_newest(request, newest)
                except BrokerGone as error:
                    found[address] = error
                    if address in waiting:
                        self.drop(waiting.pop(address))
            for address, connection in list(waiting.items()):
                try:
                    found[address] = connection.receive(requests[address], versions[address])
                except BrokerGone as error:
                    found[address] = error
                    self.drop(connection)
                del waiting[address]
        finally:
            for connection in waiting.values():  # interrupted: nobody waits for these answers
                self.drop(connection)
        return found

    def drop(self, connection: Connection) -> None:
        """Forget a connection that failed, or whose answers nobody waits for any more."""
        self._close(connection)
        for partition, leader in list(self._leaders.items()):
            if leader.address == connection.address:
                self.forget_leader(partition)

    def _close(self, connection: Connection) -> None:
        connection.close()
        if self._connections.get(connection.address) is connection:
            del self._connections[connection.address]

    def _connect(self, address: Address) -> Connection:
        known = self._connections.get(address)
        if known is not None and time.monotonic() > known.used_at + IDLE_S:
            self._close(known)
            known = None
        if known is None:
            known = self._connections[address] = Connection(address, self._client_id, self._answer_within_s)
        return known


def parse_servers(text: str) -> list[Address]:
    """`host:port,[::1]:port` as addresses. Raises SourceError."""
    found = []
    for part in text.split(","):
        host, _, port = part.strip().rpartition("://")[2].rpartition(":")
        if not host or not port.isdigit():
            raise SourceError(f"'kafka.bootstrap.servers' is a list of host:port, but has {part.strip()!r}")
        found.append(Address(host.strip("[]"), int(port)))
    return found


def _is_unknown(topic: Any) -> bool:
    return bool(topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
