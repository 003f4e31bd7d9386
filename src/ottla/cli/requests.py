"""Requests that no client library can send: one connection per broker, one request at a time.

Everything else in this package talks through confluent-kafka, as any user's program. What has no call there
(transactions, the history of a group, offsets of share groups) is asked here, at the newest version both ends know.
"""

import socket
from collections.abc import Iterable
from importlib import metadata
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from confluent_kafka import KafkaError

from ottla.cli.client import Connection, bootstrap_addresses
from ottla.cli.exits import CommandFailed
from ottla.cli.failures import explain
from ottla.cli.partition import Partition
from ottla.errors import ErrorCode
from ottla.protocol.api import ApiKey, response_class
from ottla.protocol.errors import MalformedMessage, UnencodableMessage, UnsupportedVersion
from ottla.protocol.framing import decode_response, encode_request
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.schema import Message

CLIENT_ID: Final = "ottla-cli"
CLIENT_SOFTWARE: Final = "ottla"
API_VERSIONS_VERSION: Final = 3
"""Understood by every broker since Kafka 2.4."""

GROUP: Final = 0
TRANSACTION: Final = 1
SHARE: Final = 2
"""What `Requests.coordinator` looks for; the numbers are FindCoordinator's key types."""

_ONE_KEY_UNTIL: Final = 3
_LARGEST_RESPONSE: Final = 256 << 20


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Requests:
    """Asks brokers, and keeps its connections until it is closed. Every method may raise CommandFailed."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sockets: dict[Address, socket.socket] = {}
        self._versions: dict[Address, dict[int, tuple[int, int]]] = {}
        self._last_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connected in self._sockets.values():
            connected.close()
        self._sockets.clear()

    # --- whom to ask ---

    def brokers(self) -> dict[int, Address]:
        """The cluster's brokers, by id."""
        answer = self.ask(MetadataRequest(topics=[]))
        return {broker.node_id: Address(broker.host, broker.port) for broker in answer.brokers}

    def leaders(self, partitions: Iterable[Partition]) -> dict[Partition, Address]:
        """Who leads each of these partitions; one that has no leader, or does not exist, is left out."""
        wanted = set(partitions)
        topics = [MetadataRequestTopic(name=name) for name in sorted({partition.topic for partition in wanted})]
        if not topics:
            return {}
        answer = self.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=False))
        brokers = {broker.node_id: Address(broker.host, broker.port) for broker in answer.brokers}
        return {
            partition: brokers[found.leader_id]
            for topic in answer.topics
            for found in topic.partitions
            if (partition := Partition(topic.name, found.partition_index)) in wanted and found.leader_id in brokers
        }

    def coordinator(self, key: str, kind: int = TRANSACTION) -> Address:
        """Which broker coordinates a group, a transactional id or a share partition."""
        bootstrap = self._bootstrap()
        version = self.version(ApiKey.FIND_COORDINATOR, bootstrap)
        if version > _ONE_KEY_UNTIL:
            request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
            found = self.ask(request, to=bootstrap).coordinators[0]
        else:
            found = self.ask(FindCoordinatorRequest(key=key, key_type=kind), to=bootstrap)
        if found.error_code:
            raise CommandFailed(
                f"nobody coordinates {key!r} at the moment: {refusal(found.error_code, found.error_message)}"
            )
        return Address(found.host, found.port)

    # --- asking ---

    def ask(self, request: Message, *, to: Address | None = None) -> Any:
        """The response to the request, from a bootstrap server or the broker at `to`; errors in it are the caller's."""
        address = to or self._bootstrap()
        assert request.API_KEY is not None
        api_key = ApiKey(request.API_KEY)
        return self._exchange(request, self.version(api_key, address), address)

    def version(self, api_key: ApiKey, address: Address) -> int:
        """The newest version of an API that the broker and this program know."""
        served = self._versions.get(address)
        if served is None:
            asking = ApiVersionsRequest(
                client_software_name=CLIENT_SOFTWARE, client_software_version=metadata.version("ottla")
            )
            answer = self._exchange(asking, API_VERSIONS_VERSION, address)
            if answer.error_code:
                raise CommandFailed(f"{address} does not say what it serves: {refusal(answer.error_code)}")
            served = {key.api_key: (key.min_version, key.max_version) for key in answer.api_keys}
            self._versions[address] = served
        known = response_class(api_key).VERSIONS
        lowest, highest = served.get(api_key, (0, -1))
        version = min(highest, known[-1])
        if version < max(lowest, known[0]):
            name = api_key.name.replace("_", " ").title().replace(" ", "")
            raise CommandFailed(f"the broker at {address} does not serve {name} in a version known here")
        return version

    def _bootstrap(self) -> Address:
        for known in self._sockets:
            return known
        self._connection.reach()
        servers = str(self._connection.properties.get("bootstrap.servers", self._connection.bootstrap))
        reason = ""
        for host, port in bootstrap_addresses(servers):
            try:
                self._connected(Address(host, port))
            except CommandFailed as failure:
                reason = str(failure)
            else:
                return Address(host, port)
        raise CommandFailed(reason)

    def _connected(self, address: Address) -> socket.socket:
        found = self._sockets.get(address)
        if found is None:
            protocol = str(self._connection.properties.get("security.protocol", "PLAINTEXT")).upper()
            if protocol != "PLAINTEXT":
                raise CommandFailed(f"this command speaks PLAINTEXT only, not {protocol}")
            try:
                found = socket.create_connection(address, timeout=self._connection.timeout_s)
            except OSError as failure:
                raise CommandFailed(f"{address} cannot be reached: {_reason(failure)}") from None
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._sockets[address] = found
        return found

    def _drop(self, address: Address) -> None:
        self._sockets.pop(address).close()
        self._versions.pop(address, None)  # another version may be started there

    def _exchange(self, request: Message, version: int, address: Address) -> Any:
        connected = self._connected(address)
        self._last_id += 1
        assert request.API_KEY is not None
        try:
            for piece in encode_request(request, version, self._last_id, CLIENT_ID):
                connected.sendall(bytes(piece))  # type: ignore[arg-type] # no file region in a request
            size = int.from_bytes(_receive(connected, 4), "big", signed=True)
            if not 0 <= size <= _LARGEST_RESPONSE:
                raise CommandFailed(f"{address} does not answer as a Kafka broker")
            _, response = decode_response(request.API_KEY, version, _receive(connected, size))
        except TimeoutError:
            self._drop(address)  # or its late answer would be taken for that to the next request
            raise CommandFailed(f"{address} did not answer within {self._connection.timeout_s:g} s") from None
        except OSError as failure:
            self._drop(address)
            raise CommandFailed(f"{address} broke off: {_reason(failure)}") from None
        except UnencodableMessage as problem:
            raise CommandFailed(f"the broker at {address} is too old for this request: {problem}") from None
        except (MalformedMessage, UnsupportedVersion):
            raise CommandFailed(f"{address} does not answer as a Kafka broker") from None
        return response


def refusal(code: int, message: str | None = None) -> str:
    """An error code of a response as (part of) a sentence, with what the broker says of it, if it does."""
    known = explain(KafkaError(code))
    if not message:
        return known
    said = message.strip().rstrip(".")
    return said if said.lower() not in (known.lower(), "") else known


def error_name(code: int) -> str:
    """The name of an error code, in Kafka's words."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


def _reason(failure: OSError) -> str:
    return (failure.strerror or str(failure)).lower()


def _receive(connected: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        piece = connected.recv(size - len(received))
        if not piece:
            raise OSError("the connection was closed")
        received += piece
    return bytes(received)
