"""Which broker is believed about leaders and topics, and what becomes of connections that break."""

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from ottla.client import pool
from ottla.client.addresses import Address
from ottla.client.cluster import Cluster, TopicMissing
from ottla.client.errors import BrokerSilent, BrokerUnavailable
from ottla.errors import ErrorCode
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.primitives import NULL_UUID

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
def cluster() -> Callable[..., Cluster]:
    def of(**says: Any) -> Cluster:
        """Brokers a, b, ...: the answers of each in turn. None: it is away; an error: its connection fails;
        an interruption: raised during its request."""

        class FakeConnection:
            def __init__(self, address: Address) -> None:
                self.address, self.used_at = address, time.monotonic()
                if says[address.host] is None:
                    raise BrokerUnavailable("away")

            def version(self, _: int, newest: int) -> int:
                return newest

            def send(self, *_: Any) -> None:
                said = says[self.address.host]
                if isinstance(said, list) and isinstance(said[0], KeyboardInterrupt):
                    raise said.pop(0)

            def receive(self) -> Any:
                said = says[self.address.host]
                answer = said.pop(0) if isinstance(said, list) else said
                if isinstance(answer, BrokerUnavailable):
                    raise answer
                return answer

            def close(self) -> None:
                pass

        bootstrap = [Address(host, number) for number, host in enumerate(says, 1)]
        return Cluster(bootstrap, FakeConnection)  # type: ignore[arg-type]

    return of


def leader(of: Cluster) -> Address:
    found = of.leader(("t", 0), UUID(int=1))
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
    with pytest.raises(BrokerUnavailable, match="away") as raised:
        leader(cluster(a=None, b=None))
    assert not isinstance(raised.value, TopicMissing)


def test_a_broker_that_is_not_among_the_servers_is_asked_once_it_was_heard_of(cluster: Callable[..., Cluster]) -> None:
    of = cluster(a=[KNOWS, BrokerUnavailable("dead"), BrokerUnavailable("dead")], b=KNOWS)
    of._bootstrap = of._bootstrap[:1]
    assert [*of.topics(["t"])] == ["t"]
    assert [*of.topics(["t"])] == ["t"]


@pytest.mark.parametrize(
    ("breaks", "answered"), [(BrokerUnavailable("broke off"), True), (BrokerSilent("slow"), False)]
)
def test_a_kept_connection_that_breaks_is_made_anew(
    cluster: Callable[..., Cluster], breaks: BrokerUnavailable, answered: bool
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
        monkeypatch.setattr(pool, "IDLE_S", idle_s)
        of.ask_each({address: request}, 1)
        kept.append(of._connections.to(address))
    assert kept[0] is kept[1] is not kept[2]


def test_a_question_that_was_interrupted_leaves_no_answer_for_the_next(cluster: Callable[..., Cluster]) -> None:
    of = cluster(b=[KNOWS, KeyboardInterrupt(), KNOWS])
    request, address = MetadataRequest(topics=[]), Address("b", 1)
    of.ask_each({address: request}, 1)
    with pytest.raises(KeyboardInterrupt):
        of.ask_each({address: request}, 1)
    assert not [*of._connections]
    assert of.ask_each({address: request}, 1) == {address: KNOWS}


def test_a_new_connection_that_breaks_is_not(cluster: Callable[..., Cluster]) -> None:
    breaks = BrokerUnavailable("broke off")
    address = Address("b", 1)
    assert cluster(b=[breaks, KNOWS]).ask_each({address: MetadataRequest(topics=[])}, 1) == {address: breaks}
