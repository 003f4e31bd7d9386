"""A broker that is alone has no other brokers: nobody is taken for one."""

from typing import Any

import pytest
from tests.support import stories
from tests.support.eventually import eventually
from tests.support.raw_client import ClosedError, ask, errors_in
from tests.support.share_groups import topic_id
from tests.support.transaction_stories import Producer, Teller
from tests.wire.test_transactions import fetched, produce

from ottla.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from ottla.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from ottla.protocol.messages.write_share_group_state import (
    PartitionData,
    StateBatch,
    WriteShareGroupStateRequest,
    WriteStateData,
)
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from ottla.testing import Broker


@pytest.fixture
def teller(ottla_broker: Broker) -> Teller:
    teller = Teller(ottla_broker.bootstrap)
    teller.ready()
    teller.create("t", 1)
    return teller


def mark(broker: Broker, producer: Producer, *, commit: bool, coordinator: int = 0) -> set[ErrorCode]:
    marker = WritableTxnMarker(
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        transaction_result=commit,
        coordinator_epoch=coordinator,
        topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0])],
    )
    return errors_in(ask(broker.bootstrap, WriteTxnMarkersRequest(markers=[marker]), 1))


def test_nobody_ends_a_transaction_that_its_coordinator_will_end(ottla_broker: Broker, teller: Teller) -> None:
    producer = teller.new("t")
    teller.add("begin", producer, [("t", 0)])
    assert errors_in(ask(ottla_broker.bootstrap, produce("t", producer, 0, b"a"), 11)) == set()
    assert mark(ottla_broker, producer, commit=True) == {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
    assert mark(ottla_broker, producer, commit=False) == {ErrorCode.INVALID_TXN_STATE}
    assert mark(ottla_broker, producer.older(-1), commit=False) == {ErrorCode.INVALID_PRODUCER_EPOCH}
    assert fetched(ottla_broker.bootstrap, "t", committed=True) == []
    teller.end("end", producer, commit=True)
    assert mark(ottla_broker, producer, commit=False, coordinator=2**31 - 1) == {ErrorCode.INVALID_TXN_STATE}
    eventually(lambda: fetched(ottla_broker.bootstrap, "t", committed=True) == [b"a"])
    assert mark(ottla_broker, producer, commit=False) == {ErrorCode.INVALID_TXN_STATE}


@pytest.mark.parametrize("version", [12, 17])
def test_nobody_follows(ottla_broker: Broker, teller: Teller, version: int) -> None:
    teller.fill("t", stories.batch(b"a"))
    state = ReplicaState(replica_id=2, replica_epoch=5)
    who: dict[str, Any] = {"replica_id": 2} if version < 15 else {"replica_state": state}
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topic = FetchTopic(topic="t", topic_id=topic_id(ottla_broker.bootstrap, "t"), partitions=[wanted])
    answer = ask(ottla_broker.bootstrap, FetchRequest(max_wait_ms=0, min_bytes=0, topics=[topic], **who), version)
    assert (answer.error_code, answer.responses) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])


def test_nobody_writes_the_state_of_share_groups(ottla_broker: Broker, teller: Teller) -> None:
    batch = StateBatch(first_offset=0, last_offset=5, delivery_state=2, delivery_count=1)
    part = PartitionData(partition=0, state_epoch=0, leader_epoch=0, start_offset=0, state_batches=[batch])
    topic = WriteStateData(topic_id=topic_id(ottla_broker.bootstrap, "t"), partitions=[part])
    answer = ask(ottla_broker.bootstrap, WriteShareGroupStateRequest(group_id="g", topics=[topic]), 0)
    assert answer.results[0].partitions[0].error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_there_is_no_controller(ottla_broker: Broker) -> None:
    forged = LeaderAndIsrRequest(controller_id=1, controller_epoch=2**31 - 1, topic_states=[], live_leaders=[])
    with pytest.raises(ClosedError):
        ask(ottla_broker.bootstrap, forged, 7)
