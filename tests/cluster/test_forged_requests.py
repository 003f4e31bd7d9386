"""Requests that only brokers send, sent by somebody else: none is believed, and nothing is lost by them."""

from collections.abc import Iterator
from typing import Any

import pytest

from ottla.errors import ErrorCode
from ottla.metadata.cluster_metadata import ClusterMetadata
from ottla.metadata.registered_brokers import RegisteredBrokers
from ottla.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from ottla.protocol.messages.alter_partition import AlterPartitionRequest
from ottla.protocol.messages.controlled_shutdown import ControlledShutdownRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from ottla.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from ottla.protocol.messages.read_share_group_state import PartitionData, ReadShareGroupStateRequest, ReadStateData
from ottla.protocol.messages.stop_replica import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState
from ottla.protocol.messages.update_metadata import UpdateMetadataRequest
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from ottla.server import inter_broker
from tests.support.cluster_in_process import ClusterInProcess
from tests.support.eventually import eventually
from tests.support.raw_client import RawConnection, ask

LARGEST = 2**31 - 1
REFUSALS = {
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.STALE_BROKER_EPOCH,
    ErrorCode.STALE_CONTROLLER_EPOCH,
}


@pytest.fixture(autouse=True)
def _little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inter_broker, "TIMEOUT_S", 0.2)


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterInProcess]:
    with ClusterInProcess() as cluster:
        yield cluster


def epoch_of(cluster: ClusterInProcess, number: int) -> int:
    metadata = cluster.brokers[number].metadata
    assert isinstance(metadata, ClusterMetadata)
    return metadata.broker_epoch


def controller_epoch(cluster: ClusterInProcess) -> int:
    metadata = cluster.brokers[1].metadata
    assert isinstance(metadata, ClusterMetadata)
    return metadata.controller_epoch


def replicas_of(cluster: ClusterInProcess, number: int) -> set[str]:
    return {directory.name for directory in cluster.directory.glob(f"{number}/*") if directory.is_dir()}


@pytest.mark.parametrize("asked_epoch", ["the largest", "one more", "the true one"])
@pytest.mark.parametrize("broker_epoch", [-1, 0, LARGEST])
def test_nobody_is_taken_for_the_controller(cluster: ClusterInProcess, asked_epoch: str, broker_epoch: int) -> None:
    if "t" not in cluster.image(1).topics:
        cluster.create("t", [[1, 2, 3]])
        cluster.produce("t", [b"kept"])
    here = controller_epoch(cluster)
    epoch = {"the largest": LARGEST, "one more": here + 1, "the true one": here}[asked_epoch]
    before = replicas_of(cluster, 2)
    claim: dict[str, Any] = {"controller_id": 1, "controller_epoch": epoch, "broker_epoch": broker_epoch}
    partition = StopReplicaPartitionState(partition_index=0, leader_epoch=LARGEST, delete_partition=True)
    stopped = StopReplicaTopicState(topic_name="t", partition_states=[partition])
    for request, version in (
        (LeaderAndIsrRequest(type=2, topic_states=[], live_leaders=[], **claim), 5),
        (StopReplicaRequest(topic_states=[stopped], **claim), 3),
        (UpdateMetadataRequest(topic_states=[], live_brokers=[], type=2, **claim), 8),
    ):
        assert ask(cluster.address(2), request, version).error_code in REFUSALS
    assert replicas_of(cluster, 2) == before
    assert controller_epoch(cluster) == here
    cluster.produce("t", [b"still taken"])


def test_nobody_is_taken_for_a_broker_of_another_epoch(cluster: ClusterInProcess) -> None:
    address = cluster.address(cluster.controller)
    for epoch in (-1, 0, epoch_of(cluster, 2) + 1, LARGEST):
        for request, version in (
            (AlterPartitionRequest(broker_id=2, broker_epoch=epoch, topics=[]), 3),
            (AllocateProducerIdsRequest(broker_id=2, broker_epoch=epoch), 0),
            (ControlledShutdownRequest(broker_id=2, broker_epoch=epoch), 3),
        ):
            assert ask(address, request, version).error_code in REFUSALS


@pytest.mark.parametrize("version", [12, 15, 17])
def test_a_forged_fetch_of_a_follower_acknowledges_nothing(cluster: ClusterInProcess, version: int) -> None:
    topic = f"copied-{version}"
    cluster.create(topic, [[1, 2]], min_insync_replicas="2")
    cluster.produce(topic, [b"first"])
    cluster.stop_copying(2, topic)
    cluster.produce_without_waiting(topic, [b"second"])
    log = cluster.brokers[1].replicas.find(topic, 0)
    assert log is not None
    eventually(lambda: log.log.log_end_offset == 2)
    found = cluster.image(1).topics[topic]  # type: ignore[index]
    wanted = FetchPartition(partition=0, fetch_offset=2, log_start_offset=0, partition_max_bytes=1 << 20)
    name = FetchTopic(topic=topic, topic_id=found.topic_id, partitions=[wanted])
    for epoch in (-1, 0, epoch_of(cluster, 2) + 1):
        replica: dict[str, Any] = (
            {"replica_id": 2} if version < 15 else {"replica_state": ReplicaState(replica_id=2, replica_epoch=epoch)}
        )
        request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[name], **replica)
        answer = ask(cluster.address(1), request, version)
        assert answer.error_code in REFUSALS
        assert answer.responses == []
    assert log.high_watermark == 1
    cluster.resume_copying(2, topic)
    eventually(lambda: log.high_watermark == 2)


def test_what_brokers_send_is_served_at_their_listener_only() -> None:
    """All clients here share the brokers' address; what tells them apart is the listener."""
    with ClusterInProcess(
        1,
        listeners="PLAINTEXT://127.0.0.1:0,CLIENTS://127.0.0.1:0",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,CLIENTS:PLAINTEXT",
        default_replication_factor="1",
        min_insync_replicas="1",
    ) as own:
        own.create("t", [[1]])
        outside = f"127.0.0.1:{own.brokers[1].ports['CLIENTS']}"
        topics = [WritableTxnMarkerTopic(name="t", partition_indexes=[0])]
        marker = WritableTxnMarker(
            producer_id=5, producer_epoch=0, transaction_result=True, coordinator_epoch=0, topics=topics
        )
        request = WriteTxnMarkersRequest(markers=[marker])
        answer = ask(outside, request, 1)
        assert answer.markers[0].topics[0].partitions[0].error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert own.brokers[1].replicas.find("t", 0).log.log_end_offset == 0  # type: ignore[union-attr]
        part = PartitionData(partition=0, leader_epoch=0)
        topic_id = own.image(1).topics["t"].topic_id  # type: ignore[index]
        read = ReadShareGroupStateRequest(group_id="g", topics=[ReadStateData(topic_id=topic_id, partitions=[part])])
        assert ask(outside, read, 0).results[0].partitions[0].error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        claim: dict[str, Any] = {
            "controller_id": 1,
            "controller_epoch": controller_epoch(own),
            "broker_epoch": epoch_of(own, 1),
        }
        stop = StopReplicaRequest(topic_states=[], **claim)
        assert ask(outside, stop, 3).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert ask(own.address(1), stop, 3).error_code == ErrorCode.NONE


def test_forgers_are_named_once(cluster: ClusterInProcess, caplog: pytest.LogCaptureFixture) -> None:
    caplog.clear()
    request = ControlledShutdownRequest(broker_id=9, broker_epoch=1)
    for _ in range(3):
        assert ask(cluster.address(cluster.controller), request, 3).error_code in REFUSALS
    named = [record.getMessage() for record in caplog.records if "CONTROLLED_SHUTDOWN from" in record.getMessage()]
    assert len(named) <= 1


def test_forgeries_that_come_together_share_what_the_store_says(
    cluster: ClusterInProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = 0
    genuine = RegisteredBrokers._read

    async def counted(brokers: RegisteredBrokers) -> bool:
        nonlocal reads
        reads += 1
        return await genuine(brokers)

    monkeypatch.setattr(RegisteredBrokers, "_read", counted)
    forged = LeaderAndIsrRequest(
        controller_id=1, controller_epoch=LARGEST, broker_epoch=LARGEST, type=2, topic_states=[], live_leaders=[]
    )
    with RawConnection(cluster.address(2)) as connection:
        for _ in range(200):
            connection.send(forged, 5)
        codes = {connection.receive(forged, 5).error_code for _ in range(200)}
    assert codes <= REFUSALS
    assert 0 < reads < 150  # how many come together depends on how the bytes arrive
