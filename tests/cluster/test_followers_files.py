"""What followers keep on their disks: no more than their leader does, once retention, compaction, DeleteRecords and the
expiry of producers have been there."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition

from ottla.errors import ErrorCode
from ottla.ids import Offset
from ottla.log.partition_log import PartitionLog
from ottla.protocol.messages import alter_partition_reassignments as alter
from ottla.protocol.messages import delete_records as dr
from ottla.records.batch import iter_batches
from ottla.records.record import decode_records
from tests.support.cluster_in_process import ClusterInProcess
from tests.support.eventually import eventually
from tests.support.raw_client import ask
from tests.support.whole_topic import read_all

SEGMENT_BYTES = 16_000
BROKERS = (1, 2, 3)
SMALL = {"batch.size": 4000}


@pytest.fixture
def cluster() -> Iterator[ClusterInProcess]:
    with ClusterInProcess(
        log_retention_check_interval_ms="100",
        log_cleaner_backoff_ms="100",
        producer_id_expiration_check_interval_ms="100",
        producer_id_expiration_ms="1500",
    ) as started:
        yield started


def log_of(cluster: ClusterInProcess, broker: int, topic: str) -> PartitionLog:
    found = cluster.brokers[broker].replicas.find(topic, 0)
    assert found is not None
    return found.log


def newest_values(cluster: ClusterInProcess, broker: int, topic: str) -> dict[bytes | None, bytes | None]:
    """The last value of each key in a replica's files."""

    async def read() -> dict[bytes | None, bytes | None]:
        log = log_of(cluster, broker, topic)
        found: dict[bytes | None, bytes | None] = {}
        offset: Offset = log.log_start_offset
        while offset < log.log_end_offset:
            data = log.read_blocking(offset, 1 << 20, upper_bound=log.log_end_offset, min_one_message=True).data
            for header in iter_batches(data):
                found |= {record.key: record.value for record in decode_records(data, header)}
                offset = Offset(header.next_offset)
        return found

    return cluster.run(read())


def bytes_on_disk(cluster: ClusterInProcess, broker: int, topic: str) -> int:
    directory = cluster.directory / str(broker) / f"{topic}-0"
    size = 0
    for file in directory.glob("*.log"):
        with suppress(FileNotFoundError):  # it goes while we look
            size += file.stat().st_size
    return size


def produce_keyed(cluster: ClusterInProcess, topic: str, count: int, keys: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 1, "log_level": 0})
    for number in range(count):
        producer.produce(topic, b"%06d" % number + b"v" * 94, key=b"key %d" % (number % keys))
        if number % 50 == 49:
            assert producer.flush(30) == 0  # in many batches


def test_retention_shortens_followers_as_it_does_the_leader(cluster: ClusterInProcess) -> None:
    limits = {"internal.segment.bytes": str(SEGMENT_BYTES), "retention.bytes": str(4 * SEGMENT_BYTES)}
    cluster.create("t", [[1, 2, 3]], **limits)
    produce_keyed(cluster, "t", 4000, 4000)

    async def nothing_is_left_to_delete() -> bool:
        logs = [log_of(cluster, broker, "t") for broker in BROKERS]
        return all(
            log.log_end_offset == 4000
            and log.log_start_offset == log.segments[0].base_offset >= logs[0].log_start_offset
            and sum(segment.size for segment in log.segments[1:]) < 4 * SEGMENT_BYTES
            for log in logs
        )

    eventually(lambda: cluster.run(nothing_is_left_to_delete()))
    for broker in BROKERS:
        assert log_of(cluster, broker, "t").log_start_offset > 3000, broker
        assert bytes_on_disk(cluster, broker, "t") <= 6 * SEGMENT_BYTES
    leaders = cluster.log_bytes(1, "t")
    for broker in (2, 3):
        copy = cluster.log_bytes(broker, "t")
        assert leaders.endswith(copy) or copy.endswith(leaders)


def test_compaction_and_a_leader_that_was_a_follower(cluster: ClusterInProcess) -> None:
    cluster.create(
        "t",
        [[1, 2, 3]],
        **{
            "internal.segment.bytes": str(SEGMENT_BYTES),
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0.01",
        },
    )
    produce_keyed(cluster, "t", 3000, 10)
    expected = {b"key %d" % (number % 10): b"%06d" % number + b"v" * 94 for number in range(2990, 3000)}
    for broker in BROKERS:
        eventually(lambda broker=broker: bytes_on_disk(cluster, broker, "t") <= 3 * SEGMENT_BYTES)
        eventually(lambda broker=broker: newest_values(cluster, broker, "t") == expected)
    cluster.stop(1)
    eventually(lambda: cluster.partition("t").leader in (2, 3))
    produce_keyed(cluster, "t", 500, 10)
    cluster.start(1)
    eventually(lambda: set(cluster.partition("t").isr) == set(BROKERS))
    expected = {b"key %d" % (number % 10): b"%06d" % number + b"v" * 94 for number in range(490, 500)}
    for broker in BROKERS:
        eventually(lambda broker=broker: newest_values(cluster, broker, "t") == expected)
    assert set(read_all(cluster.bootstrap, "t", 10)[-10:]) == set(expected.values())


def test_a_copy_of_a_compacted_log_knows_where_epochs_began_that_have_no_record_left(cluster: ClusterInProcess) -> None:
    """Another log is compared with it by these epochs, if it leads (KIP-101)."""
    compact = {"internal.segment.bytes": str(SEGMENT_BYTES), "cleanup.policy": "compact"}
    cluster.create("t", [[1, 2]], **compact, **{"min.cleanable.dirty.ratio": "0.01"})
    for leader, other in ((1, 2), (2, 1), (1, 2)):
        eventually(lambda leader=leader: cluster.partition("t").leader == leader)
        produce_keyed(cluster, "t", 100, 10)  # less than a segment: several epochs have to share one
        cluster.stop(leader)
        eventually(lambda other=other: cluster.partition("t").leader == other)
        cluster.start(leader)
        eventually(lambda: set(cluster.partition("t").isr) == {1, 2})
    leader = cluster.partition("t").leader
    produce_keyed(cluster, "t", 1000, 10)
    known = log_of(cluster, leader, "t").leader_epochs
    eventually(lambda: bytes_on_disk(cluster, leader, "t") <= 3 * SEGMENT_BYTES)
    partition = alter.ReassignablePartition(partition_index=0, replicas=[leader, 3])
    request = alter.AlterPartitionReassignmentsRequest(
        topics=[alter.ReassignableTopic(name="t", partitions=[partition])]
    )
    assert ask(cluster.address(cluster.controller), request, 0).error_code == 0
    eventually(lambda: set(cluster.partition("t").isr) == {leader, 3})
    copied = log_of(cluster, 3, "t").leader_epochs
    written = [entry for entry in known.entries() if entry[1] < 1300]  # it may lead once more
    eventually(lambda: copied.entries() == written)
    assert [start for _, start in written] == [0, 100, 200, 300]


def test_deleted_records_leave_every_disk(cluster: ClusterInProcess) -> None:
    cluster.create("t", [[1, 2, 3]], **{"internal.segment.bytes": str(SEGMENT_BYTES)})
    cluster.produce(
        "t", [b"a person's name" + b"." * 100, *(b"%d" % number + b"v" * 90 for number in range(1000))], **SMALL
    )
    admin = cluster.admin()
    deleted = admin.delete_records([TopicPartition("t", 0, 900)])
    assert [future.result(20).low_watermark for future in deleted.values()] == [900]
    for broker in BROKERS:
        assert log_of(cluster, broker, "t").log_start_offset == 900, broker  # as of the answer
        eventually(lambda broker=broker: b"a person's name" not in cluster.log_bytes(broker, "t"))
        directory = cluster.directory / str(broker) / "t-0"
        eventually(lambda directory=directory: not list(directory.glob("*.deleted")))
    eventually(lambda: cluster.log_bytes(1, "t") == cluster.log_bytes(2, "t") == cluster.log_bytes(3, "t"))


def test_silent_producers_are_forgotten_everywhere(cluster: ClusterInProcess) -> None:
    cluster.create("t", [[1, 2, 3]])
    settings: dict[str, Any] = {"enable.idempotence": "true"}
    cluster.produce("t", [b"v"], **settings)
    logs = [log_of(cluster, broker, "t") for broker in BROKERS]
    eventually(lambda: all(log.log_end_offset == 1 for log in logs))
    eventually(lambda: not any(log.producer_state.producers for log in logs))


def test_records_are_deleted_when_every_replica_in_sync_has_them_deleted(cluster: ClusterInProcess) -> None:
    cluster.create("t", [[1, 2, 3]])
    cluster.produce("t", [b"v"] * 10)
    cluster.stop_copying(3, "t")

    def delete(before: int, timeout_ms: int) -> tuple[int, int]:
        topic = dr.DeleteRecordsTopic(
            name="t", partitions=[dr.DeleteRecordsPartition(partition_index=0, offset=before)]
        )
        answer = ask(cluster.address(1), dr.DeleteRecordsRequest(topics=[topic], timeout_ms=timeout_ms), 2)
        (result,) = answer.topics[0].partitions
        return result.low_watermark, result.error_code

    assert delete(4, 300) == (-1, ErrorCode.REQUEST_TIMED_OUT)
    assert [log_of(cluster, broker, "t").log_start_offset for broker in BROKERS] == [4, 4, 0]
    cluster.resume_copying(3, "t")
    assert delete(4, 20_000) == (4, 0)
    assert [log_of(cluster, broker, "t").log_start_offset for broker in BROKERS] == [4, 4, 4]
    cluster.stop_copying(3, "t")
    cluster.produce_without_waiting("t", [b"w"])
    assert delete(7, 20_000) == (7, 0), "a replica that leaves the in-sync set is not waited for any longer"
    assert cluster.partition("t").isr == (1, 2)
    cluster.resume_copying(3, "t")
    eventually(lambda: log_of(cluster, 3, "t").log_start_offset == 7)
