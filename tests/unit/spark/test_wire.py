"""Whom a fetch and a question believe, and what a connection makes of its broker."""

import socket
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from ottla.errors import ErrorCode
from ottla.protocol.api import ApiKey
from ottla.protocol.framing import encode_response
from ottla.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from ottla.protocol.messages.list_offsets import ListOffsetsRequest
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.primitives import NULL_UUID
from ottla.spark import wire
from ottla.spark.offsets import Partition
from ottla.spark.wire import Address, BrokerGone, BrokerSilent, Cluster, Connection, TopicMissing

LEADER = Address("b", 2)
KNOWS = SimpleNamespace(
    brokers=[SimpleNamespace(node_id=2, host="b", port=2)],
    topics=[
        SimpleNamespace(
            name="t",
            topic_id=UUID(int=1),
            error_code=0,
            partitions=[SimpleNamespace(leader_id=2, leader_epoch=0, partition_index=0)],
        )
    ],
)
DENIES = SimpleNamespace(
    brokers=[],
    topics=[
        SimpleNamespace(
            name="t", topic_id=NULL_UUID, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.value, partitions=[]
        )
    ],
)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Cluster]:
    def of(**says: Any) -> Cluster:
        """Of brokers a, b, ...; what each says, one after the other; None: it is away; an error: of the connection; an
        interruption: while it is being asked."""

        class FakeConnection:
            def __init__(self, address: Address, *_: Any) -> None:
                self.address, self.used_at = address, time.monotonic()
                if says[address.host] is None:
                    raise BrokerGone("away")

            def send_newest(self, _: Any, newest: int) -> int:
                said = says[self.address.host]
                if isinstance(said, list) and isinstance(said[0], KeyboardInterrupt):
                    raise said.pop(0)
                return newest

            def receive(self, *_: Any) -> Any:
                said = says[self.address.host]
                answer = said.pop(0) if isinstance(said, list) else said
                if isinstance(answer, BrokerGone):
                    raise answer
                return answer

            def close(self) -> None:
                pass

        monkeypatch.setattr(wire, "Connection", FakeConnection)
        servers = ",".join(f"{host}:{number}" for number, host in enumerate(says, 1))
        return Cluster((("bootstrap.servers", servers),))

    return of


def leader(of: Cluster) -> Address:
    found = of.leader(Partition("t", 0), UUID(int=1))
    assert found is not None
    return found.address


def test_another_broker_is_asked_about_a_topic_that_one_denies(cluster: Callable[..., Cluster]) -> None:
    assert leader(cluster(a=DENIES, b=KNOWS)) == LEADER
    assert leader(cluster(a=None, b=KNOWS)) == LEADER


@pytest.mark.parametrize("other", [DENIES, None])
def test_a_topic_that_all_deny_who_answer_is_missing(cluster: Callable[..., Cluster], other: Any) -> None:
    with pytest.raises(TopicMissing, match="there is no topic 't'"):
        leader(cluster(a=DENIES, b=other))


def test_without_any_answer_nothing_is_known(cluster: Callable[..., Cluster]) -> None:
    with pytest.raises(BrokerGone, match="away") as raised:
        leader(cluster(a=None, b=None))
    assert not isinstance(raised.value, TopicMissing)


def test_a_broker_that_is_not_among_the_servers_is_asked_once_it_was_heard_of(cluster: Callable[..., Cluster]) -> None:
    of = cluster(a=[KNOWS, BrokerGone("dead"), BrokerGone("dead")], b=KNOWS)
    of._bootstrap = of._bootstrap[:1]
    assert [*of.topics(["t"])] == ["t"]
    assert [*of.topics(["t"])] == ["t"]


@pytest.mark.parametrize(("breaks", "answered"), [(BrokerGone("broke off"), True), (BrokerSilent("slow"), False)])
def test_a_kept_connection_that_breaks_is_made_anew(
    cluster: Callable[..., Cluster], breaks: BrokerGone, answered: bool
) -> None:
    """Its broker was started again; one that is too slow is not asked twice."""
    of = cluster(b=[KNOWS, breaks, KNOWS, KNOWS])
    request, address = MetadataRequest(topics=[]), Address("b", 1)
    assert of.ask_each({address: request}, 1) == {address: KNOWS}
    assert of.ask_each({address: request}, 1) == {address: KNOWS if answered else breaks}
    assert of.ask_each({address: request}, 1) == {address: KNOWS}


def test_a_connection_that_was_long_idle_is_made_anew(
    cluster: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somewhere between it may have been forgotten: it would be silent."""
    of = cluster(b=KNOWS)
    request, address = MetadataRequest(topics=[]), Address("b", 1)
    kept = []
    for idle_s in (60.0, 60.0, -1.0):
        monkeypatch.setattr(wire, "IDLE_S", idle_s)
        of.ask_each({address: request}, 1)
        kept.append(of._connections[address])
    assert kept[0] is kept[1] is not kept[2]


def test_a_question_that_was_interrupted_leaves_no_answer_for_the_next(cluster: Callable[..., Cluster]) -> None:
    of = cluster(b=[KNOWS, KeyboardInterrupt(), KNOWS])
    request, address = MetadataRequest(topics=[]), Address("b", 1)
    of.ask_each({address: request}, 1)
    with pytest.raises(KeyboardInterrupt):
        of.ask_each({address: request}, 1)
    assert not of._connections
    assert of.ask_each({address: request}, 1) == {address: KNOWS}


def test_a_new_connection_that_breaks_is_not(cluster: Callable[..., Cluster]) -> None:
    breaks = BrokerGone("broke off")
    address = Address("b", 1)
    assert cluster(b=[breaks, KNOWS]).ask_each({address: MetadataRequest(topics=[])}, 1) == {address: breaks}


@pytest.fixture
def pair() -> Iterator[tuple[Connection, socket.socket]]:
    """A connection, and the broker's end of it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connection = Connection(Address(*listener.getsockname()), "test", 0.5)
        broker, _ = listener.accept()
    with broker:
        yield connection, broker


def serve(end: socket.socket, newest: int, number: int = 1) -> None:
    """Answer ApiVersions as a broker that has Metadata up to this version, and nothing else."""
    keys = [ApiVersion(api_key=ApiKey.METADATA, min_version=0, max_version=newest)]
    pieces = encode_response(ApiVersionsResponse(api_keys=keys), 0, number)
    end.sendall(b"".join(pieces))  # type: ignore[arg-type] # no file region in it


@pytest.mark.parametrize(("newest", "used"), [(7, 7), (13, 10)])
def test_an_older_broker_is_asked_in_the_newest_version_it_has(
    pair: tuple[Connection, socket.socket], newest: int, used: int
) -> None:
    connection, broker = pair
    serve(broker, newest)
    assert connection.send_newest(MetadataRequest(topics=[]), 10) == used


def test_what_a_broker_does_not_serve_is_said(pair: tuple[Connection, socket.socket]) -> None:
    connection, broker = pair
    serve(broker, 7)
    with pytest.raises(BrokerGone, match="is too old: it does not serve LIST_OFFSETS"):
        connection.send_newest(ListOffsetsRequest(replica_id=-1, topics=[]), 6)


def test_the_answer_to_another_request_is_none(pair: tuple[Connection, socket.socket]) -> None:
    connection, broker = pair
    serve(broker, 7, number=2)
    with pytest.raises(BrokerGone, match="answers another request"):
        connection.newest(ApiKey.METADATA)


def test_a_broker_that_says_nothing_is_silent_and_one_that_hangs_up_is_gone(
    pair: tuple[Connection, socket.socket],
) -> None:
    connection, broker = pair
    with pytest.raises(BrokerSilent, match="did not answer within"):
        connection.newest(ApiKey.METADATA)
    broker.close()
    with pytest.raises(BrokerGone) as raised:
        connection.newest(ApiKey.METADATA)
    assert not isinstance(raised.value, BrokerSilent)
