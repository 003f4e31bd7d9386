"""Offsets of many groups at once, log directories, controllers, and what transactions hold back."""

from typing import Any

from tests.unit.admin.test_operations import run

from ottla.admin import Address, Broker, Cluster, Partition, PartitionState, Transaction
from ottla.admin.operations import cluster, groups, transactions
from ottla.admin.operations.core import Ask
from ottla.client.errors import BrokerUnavailable
from ottla.errors import ErrorCode
from ottla.protocol.messages import describe_log_dirs as dirs
from ottla.protocol.messages import list_offsets as ends
from ottla.protocol.messages import metadata
from ottla.protocol.messages import offset_fetch as fetch
from ottla.protocol.messages.describe_producers import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from ottla.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse

T0, T1 = Partition("t", 0), Partition("t", 1)
BROKERS = {number: Broker(number, Address(f"b{number}", 9), None) for number in (1, 2)}


def test_many_groups_are_asked_in_one_request_a_coordinator() -> None:
    def answer(name: str, command: Ask) -> Any:
        request: Any = command.request
        if name == "FindCoordinator":
            return FindCoordinatorResponse(
                coordinators=[
                    Coordinator(
                        key=key,
                        node_id=1,
                        host=f"b{int(key[1:]) % 2}",
                        port=9,
                        error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE if key == "g7" else 0,
                    )
                    for key in request.coordinator_keys
                ]
            )
        if command.to == Address("b1", 9):
            raise BrokerUnavailable("b1 has hung up")
        assert [topic.partition_indexes for topic in request.groups[0].topics] == [[0]]
        part = fetch.OffsetFetchResponsePartitions(partition_index=0, committed_offset=5, metadata=None)
        topic = fetch.OffsetFetchResponseTopics(name="t", partitions=[part])
        return fetch.OffsetFetchResponse(
            groups=[fetch.OffsetFetchResponseGroup(group_id=each.group_id, topics=[topic]) for each in request.groups]
        )

    names = [f"g{number}" for number in range(1_200)]
    found, sent = run(groups.list_offsets_of_groups(names, [T0]), answer, version=9)
    assert len(sent) == 3 * 3
    assert set(found) == set(names[::2])
    assert found["g0"] == {T0: 5}


def test_brokers_that_know_one_group_a_request_are_asked_for_each() -> None:
    def answer(name: str, _: Ask) -> Any:
        if name == "FindCoordinator":
            return FindCoordinatorResponse(host="b1", port=9)
        parts = [
            fetch.OffsetFetchResponsePartitions(partition_index=number, committed_offset=5, metadata=None)
            for number in (0, 1)
        ]
        topic = fetch.OffsetFetchResponseTopics(name="t", partitions=parts)
        return fetch.OffsetFetchResponse(groups=[fetch.OffsetFetchResponseGroup(group_id="g", topics=[topic])])

    found, sent = run(groups.list_offsets_of_groups(["a", "b"], [T0]), answer, version=3)
    assert len(sent) == 4
    assert found == {"a": {T0: 5}, "b": {T0: 5}}


def test_the_directories_of_brokers_that_answer() -> None:
    def answer(_: str, command: Ask) -> Any:
        if command.to == Address("b2", 9):
            raise BrokerUnavailable("b2 has hung up")
        parts = [
            dirs.DescribeLogDirsPartition(
                partition_index=number, partition_size=100, offset_lag=0, is_future_key=number == 2
            )
            for number in range(3)
        ]
        good = dirs.DescribeLogDirsResult(
            log_dir="/b",
            topics=[dirs.DescribeLogDirsTopic(name="t", partitions=parts)],
            total_bytes=1000,
            usable_bytes=400,
        )
        bad = dirs.DescribeLogDirsResult(log_dir="/a", topics=[], error_code=ErrorCode.KAFKA_STORAGE_ERROR)
        return dirs.DescribeLogDirsResponse(results=[good, bad])

    found, _ = run(cluster.describe_log_directories(Cluster(1, BROKERS, {})), answer)
    broken, sound = found.pop(1)
    assert found == {}
    assert (sound.path, sound.replicas, sound.replica_bytes, sound.moving_bytes) == ("/b", 2, 200, 100)
    assert (sound.total_bytes, sound.usable_bytes, sound.problem) == (1000, 400, None)
    assert (broken.path, broken.total_bytes) == ("/a", None)
    assert broken.problem


def test_what_a_transaction_holds_back_in_each_partition() -> None:
    gone = Partition("gone", 0)

    def answer(name: str, command: Ask) -> Any:
        request: Any = command.request
        if name == "Metadata":
            parts = [
                metadata.MetadataResponsePartition(
                    partition_index=number, leader_id=1, replica_nodes=[1], isr_nodes=[1], offline_replicas=[]
                )
                for number in (0, 1)
            ]
            return metadata.MetadataResponse(
                brokers=[metadata.MetadataResponseBroker(node_id=1, host="b1", port=9)],
                topics=[metadata.MetadataResponseTopic(name="t", partitions=parts)],
                controller_id=1,
            )
        if name == "DescribeProducers":
            return DescribeProducersResponse(
                topics=[
                    TopicResponse(
                        name="t",
                        partitions=[
                            PartitionResponse(
                                partition_index=number,
                                active_producers=[
                                    ProducerState(
                                        producer_id=7,
                                        producer_epoch=0,
                                        last_sequence=1,
                                        last_timestamp=1,
                                        coordinator_epoch=0,
                                        current_txn_start_offset=first,
                                    )
                                ],
                            )
                            for number, first in ((0, 4), (1, 8))
                        ],
                    )
                ]
            )
        return ends.ListOffsetsResponse(
            topics=[
                ends.ListOffsetsTopicResponse(
                    name="t",
                    partitions=[
                        ends.ListOffsetsPartitionResponse(
                            partition_index=each.partition_index, offset=4 if request.isolation_level else 9
                        )
                        for each in request.topics[0].partitions
                    ],
                )
            ]
        )

    known = Transaction("x", 7, 0, "Ongoing", 1, 1, frozenset((T0, T1, gone)), 1)
    missing, first, second = run(transactions.list_held_back(known), answer)[0]
    assert (missing.partition, missing.records) == (gone, None)
    assert (first.first_offset, first.last_stable_offset, first.end_offset, first.records) == (4, 4, 9, 5)
    assert second.records == 0  # another transaction is open there before it


def test_ends_are_asked_of_leaders_only() -> None:
    states = {T0: PartitionState(2, (1, 2), (1, 2)), T1: PartitionState(None, (1,), ())}

    def answer(_: str, command: Ask) -> Any:
        assert command.to == Address("b2", 9)
        raise BrokerUnavailable("b2 has hung up")

    asked = cluster.list_leader_ends(Cluster(1, BROKERS, states), [T0, T1, Partition("x", 0)])
    assert run(asked, answer)[0] == {}
