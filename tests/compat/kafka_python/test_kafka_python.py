"""kafka-python: producer, consumer, groups and its wide admin client."""

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetAndMetadata, OffsetSpec, TopicPartition
from kafka.admin import AlterConfigOp, ConfigResource, ConfigResourceType, MemberToRemove
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import (
    ElectionNotNeededError,
    MessageSizeTooLargeError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from tests.compat.factories import NewNameFactory, NewTopicFactory
from tests.compat.samples import Sample, samples
from tests.support.eventually import eventually


def produce(bootstrap: str, topic: str, records: list[Sample], partition: int = 0, **settings: Any) -> list[int]:
    """Send all, wait for all; the offsets."""
    producer = KafkaProducer(bootstrap_servers=bootstrap, linger_ms=5, **settings)
    try:
        futures = [
            producer.send(
                topic,
                value=record.value,
                key=record.key,
                headers=list(record.headers),
                partition=partition,
                timestamp_ms=record.timestamp_ms,
            )
            for record in records
        ]
        producer.flush(30)
        return [future.get(10).offset for future in futures]
    finally:
        producer.close()


def numbered(count: int) -> list[Sample]:
    return [Sample(None, str(number).encode(), (), 1_000_000 + number) for number in range(count)]


@contextlib.contextmanager
def consumer(bootstrap: str, *topics: str, **settings: Any) -> Iterator[KafkaConsumer]:
    """A consumer that begins at the beginning and commits only when told."""
    client = KafkaConsumer(
        *topics,
        bootstrap_servers=bootstrap,
        **{
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "heartbeat_interval_ms": 300,
            "session_timeout_ms": 6000,
            "metadata_max_age_ms": 1000,  # a refresh that this client cancels by itself is made up for after that
            **settings,
        },
    )
    try:
        yield client
    finally:
        client.close()


def drain(client: KafkaConsumer, count: int, timeout_s: float = 60.0) -> list[Any]:
    """The next `count` records."""
    records: list[Any] = []
    deadline = time.monotonic() + timeout_s
    while len(records) < count:
        assert time.monotonic() < deadline, f"{len(records)} of {count} records within {timeout_s} s"
        for batch in client.poll(timeout_ms=1_000, max_records=count - len(records)).values():
            records.extend(batch)
    return records


def as_sample(record: Any) -> Sample:
    return Sample(record.key, record.value, tuple(record.headers), record.timestamp)


@pytest.fixture
def admin(bootstrap: str) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=bootstrap)
    yield client
    client.close()


class PolledMember:
    """A group member polled by a thread of its own."""

    def __init__(self, bootstrap: str, topic: str, **settings: Any) -> None:
        self._stop = threading.Event()
        self._bootstrap, self._topic, self._settings = bootstrap, topic, settings
        self.partitions: set[int] = set()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with consumer(self._bootstrap, self._topic, **self._settings) as client:
            while not self._stop.is_set():
                client.poll(timeout_ms=500)  # one that a rebalance outlasts is forgotten by this client
                self.partitions = {partition.partition for partition in client.assignment()}

    def leave(self) -> None:
        self._stop.set()
        self._thread.join(30)
        assert not self._thread.is_alive()


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
def test_records_come_back_as_they_went(
    bootstrap: str, new_topic: NewTopicFactory, codec: str | None, idempotent: bool
) -> None:
    topic = new_topic()
    sent = samples(120, null_headers=False)
    offsets = produce(bootstrap, topic, sent, compression_type=codec, enable_idempotence=idempotent)
    assert offsets == list(range(len(sent)))
    with consumer(bootstrap, topic) as reader:
        assert [as_sample(record) for record in drain(reader, len(sent))] == sent


@pytest.mark.parametrize("acks", [1, "all"])
def test_every_acks(bootstrap: str, new_topic: NewTopicFactory, acks: int | str) -> None:
    topic = new_topic()
    produce(bootstrap, topic, numbered(50), acks=acks, enable_idempotence=False)
    with consumer(bootstrap, topic) as reader:
        assert [record.value for record in drain(reader, 50)] == [b"%d" % number for number in range(50)]


def test_a_message_too_large_is_refused(bootstrap: str, new_topic: NewTopicFactory) -> None:
    topic = new_topic(**{"max.message.bytes": "10000"})
    with pytest.raises(MessageSizeTooLargeError):
        produce(bootstrap, topic, [Sample(None, b"x" * 20_000, (), 1_000)])


def test_positions_seeks_and_times(bootstrap: str, new_topic: NewTopicFactory) -> None:
    topic = new_topic()
    where = TopicPartition(topic, 0)
    produce(bootstrap, topic, numbered(100), batch_size=500)
    with consumer(bootstrap) as reader:
        reader.assign([where])
        assert reader.beginning_offsets([where]) == {where: 0}
        assert reader.end_offsets([where]) == {where: 100}
        assert reader.offsets_for_times({where: 1_000_042})[where].offset == 42
        assert reader.offsets_for_times({where: 9_000_000})[where] is None
        reader.seek(where, 90)
        assert [record.offset for record in drain(reader, 10)] == list(range(90, 100))
        reader.seek_to_beginning(where)
        assert drain(reader, 1)[0].offset == 0
        reader.seek_to_end(where)
        assert reader.position(where) == 100


@pytest.mark.parametrize("assignor", [RangePartitionAssignor, CooperativeStickyAssignor])
def test_members_come_and_go(
    bootstrap: str, new_topic: NewTopicFactory, new_name: NewNameFactory, assignor: type
) -> None:
    topic = new_topic(4)
    settings = {"group_id": new_name(), "partition_assignment_strategy": (assignor,)}
    members = [PolledMember(bootstrap, topic, **settings)]
    try:
        eventually(lambda: len(members[0].partitions) == 4)
        members.append(PolledMember(bootstrap, topic, **settings))
        eventually(lambda: [len(member.partitions) for member in members] == [2, 2])
        assert members[0].partitions.isdisjoint(members[1].partitions)
        members.pop().leave()
        eventually(lambda: len(members[0].partitions) == 4)
    finally:
        for member in members:
            member.leave()


def test_commits_are_kept_and_read_back(
    bootstrap: str, admin: KafkaAdminClient, new_topic: NewTopicFactory, new_name: NewNameFactory
) -> None:
    topic, group = new_topic(), new_name()
    where = TopicPartition(topic, 0)
    produce(bootstrap, topic, numbered(30))
    with consumer(bootstrap, topic, group_id=group) as first:
        drain(first, 10)
        first.commit({where: OffsetAndMetadata(10, "ten", -1)})
    with consumer(bootstrap, topic, group_id=group) as second:
        assert second.committed(where) == 10
        assert [record.offset for record in drain(second, 20)] == list(range(10, 30))
        second.commit()
    offsets = admin.list_group_offsets({group: None})[group]
    assert offsets[where].offset == 30
    assert not [error for error in admin.delete_group_offsets(group, [where]).values() if error.errno]
    assert not admin.list_group_offsets({group: None})[group]


def test_groups_are_listed_described_reset_and_deleted(
    bootstrap: str, admin: KafkaAdminClient, new_topic: NewTopicFactory, new_name: NewNameFactory
) -> None:
    topic, group = new_topic(2), new_name()
    where = TopicPartition(topic, 0)
    produce(bootstrap, topic, numbered(20))
    with consumer(bootstrap, topic, group_id=group, client_id="describer") as member:
        drain(member, 20)
        described = admin.describe_groups([group])[group]
        assert described["group_state"] == "Stable"
        assert [one["client_id"] for one in described["members"]] == ["describer"]
        assert admin.delete_groups([group]) == {group: "NonEmptyGroupError"}
        member.commit()
    eventually(lambda: admin.describe_groups([group])[group]["group_state"] == "Empty")
    assert group in {entry["group_id"] for entry in admin.list_groups(states_filter=["Empty"])}
    admin.alter_group_offsets(group, {where: OffsetAndMetadata(5, "", -1)})
    assert admin.list_group_offsets({group: [where]})[group][where].offset == 5
    admin.reset_group_offsets(group, {where: OffsetSpec.EARLIEST})
    assert admin.list_group_offsets({group: [where]})[group][where].offset == 0
    assert admin.delete_groups([group]) == {group: "OK"}
    assert admin.delete_groups([group]) == {group: "GroupIdNotFoundError"}
    assert group not in {entry["group_id"] for entry in admin.list_groups()}


def test_a_static_member_is_removed(
    bootstrap: str, admin: KafkaAdminClient, new_topic: NewTopicFactory, new_name: NewNameFactory
) -> None:
    topic, group = new_topic(2), new_name()
    member = PolledMember(bootstrap, topic, group_id=group, group_instance_id="fixed", session_timeout_ms=30_000)
    eventually(lambda: len(member.partitions) == 2)
    member.leave()  # a static member keeps its place
    (kept,) = admin.describe_groups([group])[group]["members"]
    assert kept["group_instance_id"] == "fixed"
    (result,) = admin.remove_group_members(group, [MemberToRemove(group_instance_id="fixed")]).values()
    assert result.errno == 0
    assert admin.describe_groups([group])[group]["members"] == []


def test_administration(bootstrap: str, admin: KafkaAdminClient, new_name: NewNameFactory) -> None:
    topic = new_name()
    wanted = {topic: {"num_partitions": 2, "replication_factor": 1, "configs": {"retention.ms": "5000000"}}}
    admin.create_topics(wanted, wait_for_metadata=True)
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics(wanted)
    assert topic in admin.list_topics()
    admin.create_partitions({topic: 3})
    eventually(lambda: len(admin.describe_topics([topic])[0]["partitions"]) == 3)
    pages = admin.describe_topic_partitions([topic], response_partition_limit=2)
    assert len(pages["topics"][0]["partitions"]) == 2
    assert pages["next_cursor"] is not None

    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    changed = ConfigResource(ConfigResourceType.TOPIC, topic, {"segment.bytes": (AlterConfigOp.SET, "2000000")})
    admin.alter_configs([changed])

    def modified() -> dict[str, str]:
        found = admin.describe_configs([resource])["topic"][topic]
        return {name: entry["value"] for name, entry in found.items()}

    eventually(lambda: modified().get("segment.bytes") == "2000000")
    assert modified()["retention.ms"] == "5000000"

    produce(bootstrap, topic, numbered(10), partition=2)
    where = TopicPartition(topic, 2)
    assert admin.delete_records({where: 4})[where]["low_watermark"] == 4
    assert admin.list_partition_offsets({where: OffsetSpec.EARLIEST})[where].offset == 4
    assert admin.list_partition_offsets({where: OffsetSpec.LATEST})[where].offset == 10
    assert admin.list_partition_offsets({where: OffsetSpec.MAX_TIMESTAMP})[where].offset == 9
    admin.delete_topics([topic])
    eventually(lambda: topic not in admin.list_topics())
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics([topic])


def test_what_the_broker_tells_of_itself(
    bootstrap: str, admin: KafkaAdminClient, new_topic: NewTopicFactory, new_name: NewNameFactory
) -> None:
    topic = new_topic(2)
    where = TopicPartition(topic, 0)
    produce(bootstrap, topic, numbered(10), enable_idempotence=True)
    cluster = admin.describe_cluster()
    assert [broker["broker_id"] for broker in cluster["brokers"]] == [1]
    (broker,) = admin.describe_log_dirs({topic: [0, 1]})
    (log_dir,) = [one for one in broker["log_dirs"] if one["topics"]]
    sizes = {part["partition_index"]: part["partition_size"] for part in log_dir["topics"][0]["partitions"]}
    assert sizes[0] > 0
    assert sizes[1] == 0
    (producer,) = admin.describe_producers([where])[where].active_producers
    assert producer.last_sequence == 9
    assert topic in admin.list_config_resources(["TOPIC"])["topic"]
    (election,) = admin.elect_leaders(0, {topic: [0]}).replica_election_results
    assert election.partition_result[0].error_code == ElectionNotNeededError.errno
    unknown = new_name()
    assert admin.list_group_offsets({unknown: [where]})[unknown][where].offset == -1
