"""Whom a fetch believes, without sockets."""

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from ottla.errors import ErrorCode
from ottla.protocol.primitives import NULL_UUID
from ottla.spark import wire
from ottla.spark.offsets import Partition
from ottla.spark.wire import Address, BrokerGone, Cluster, TopicMissing

LEADER = Address("b", 2)
KNOWS = SimpleNamespace(
    brokers=[SimpleNamespace(node_id=2, host="b", port=2)],
    topics=[
        SimpleNamespace(
            topic_id=UUID(int=1), error_code=0, partitions=[SimpleNamespace(leader_id=2, partition_index=0)]
        )
    ],
)
DENIES = SimpleNamespace(
    brokers=[],
    topics=[SimpleNamespace(topic_id=NULL_UUID, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.value, partitions=[])],
)


def cluster(monkeypatch: pytest.MonkeyPatch, **says: Any) -> Cluster:
    """Of brokers a, b, ...; None: it is away."""

    class FakeConnection:
        def __init__(self, address: Address, _: str) -> None:
            self.address = address
            if says[address.host] is None:
                raise BrokerGone("away")

        def newest(self, _: int) -> int:
            return 10

        def ask(self, *_: Any) -> Any:
            return says[self.address.host]

    monkeypatch.setattr(wire, "Connection", FakeConnection)
    servers = ",".join(f"{host}:{number}" for number, host in enumerate(says, 1))
    return Cluster((("bootstrap.servers", servers),))


def leader(of: Cluster) -> Address:
    found = of.leader(Partition("t", 0), UUID(int=1))
    assert found is not None
    return found.address


def test_another_broker_is_asked_about_a_topic_that_one_denies(monkeypatch: pytest.MonkeyPatch) -> None:
    assert leader(cluster(monkeypatch, a=DENIES, b=KNOWS)) == LEADER
    assert leader(cluster(monkeypatch, a=None, b=KNOWS)) == LEADER


@pytest.mark.parametrize("other", [DENIES, None])
def test_a_topic_that_all_deny_who_answer_is_missing(monkeypatch: pytest.MonkeyPatch, other: Any) -> None:
    with pytest.raises(TopicMissing, match="there is no topic 't'"):
        leader(cluster(monkeypatch, a=DENIES, b=other))


def test_without_any_answer_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BrokerGone, match="away") as raised:
        leader(cluster(monkeypatch, a=None, b=None))
    assert not isinstance(raised.value, TopicMissing)
