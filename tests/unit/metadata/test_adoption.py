"""What can be read off log directories that Ottla did not write. The real ones are in tests/compat/genuine."""

from pathlib import Path
from uuid import UUID

import pytest

from ottla.cluster.commands import CreateTopic
from ottla.cluster.image import ResourceType
from ottla.cluster.quorum_log import QuorumLog
from ottla.errors import CorruptMessage
from ottla.ids import BrokerId, TopicName, uuid_to_text
from ottla.metadata.adoption import FIRST_FREE_PRODUCER_ID, AdoptionProblem, find_adoptable
from ottla.protocol.metadata_records import (
    ClientQuotaRecord,
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    QuotaEntity,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
    encode_record,
)
from ottla.protocol.schema import Message
from ottla.records.record import Record, encode_batch

ID = UUID(int=5)
BEGIN, END, ABORT = (bytes([1, kind, 0, 0]) for kind in (23, 24, 25))


def partition_directory(log_dir: Path, name: str, topic_id: UUID | None = ID, epochs: str = "0\n1\n3 0\n") -> None:
    directory = log_dir / name
    directory.mkdir(parents=True)
    if topic_id is not None:
        (directory / "partition.metadata").write_text(f"version: 0\ntopic_id: {uuid_to_text(topic_id)}\n")
    if epochs:
        (directory / "leader-epoch-checkpoint").write_text(epochs)


def metadata_record(found: Message, version: int = 0) -> bytes:
    return encode_record(found, version)


def batch(base_offset: int, *values: bytes) -> bytes:
    records = [Record(base_offset + number, 1000, None, value) for number, value in enumerate(values)]
    return bytes(encode_batch(records, base_offset=base_offset))


def footer(offset: int) -> bytes:
    """The end of a snapshot."""
    return bytes(encode_batch([Record(offset, 1000, b"\0\0\0\4", b"\0\0\0")], base_offset=offset, control=True))


def new_partition(topic_id: UUID, replicas: list[int], epoch: int = 0) -> PartitionRecord:
    return PartitionRecord(
        partition_id=0,
        topic_id=topic_id,
        replicas=replicas,
        isr=replicas,
        removing_replicas=[],
        adding_replicas=[],
        leader=replicas[0],
        leader_epoch=epoch,
    )


def test_new_directories_hold_nothing(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").touch()
    (tmp_path / "a").mkdir()
    (tmp_path / "gone-0.0123456789abcdef-delete").mkdir()
    (tmp_path / "no name-0").mkdir()
    assert find_adoptable([tmp_path, tmp_path / "missing"], BrokerId(1)) is None


def test_topics_without_their_settings_lose_nothing(tmp_path: Path) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    partition_directory(first, "a-b-0", epochs="0\n2\n3 0\n7 10\n")
    partition_directory(second, "a-b-1")
    partition_directory(second, "__consumer_offsets-0", UUID(int=6), epochs="")
    partition_directory(first, "old-0", None)
    adopted = find_adoptable([first, second], BrokerId(4))
    assert adopted is not None
    assert adopted.next_producer_id == FIRST_FREE_PRODUCER_ID
    made = {
        command.topic.name: command for command in adopted.commands(BrokerId(4)) if isinstance(command, CreateTopic)
    }
    assert made[TopicName("a-b")].topic.topic_id == ID
    assert [(part.leader, part.leader_epoch, part.isr) for part in made[TopicName("a-b")].topic.partitions] == [
        (4, 8, (4,)),
        (4, 4, (4,)),
    ]
    assert made[TopicName("a-b")].configs == {"retention.ms": "-1"}
    assert made[TopicName("__consumer_offsets")].configs == {"cleanup.policy": "compact"}
    assert made[TopicName("old")].topic.topic_id != UUID(int=0)


@pytest.mark.parametrize(
    ("directories", "problem"),
    [
        ([("a-0", ID), ("a-2", ID)], "no log directory holds partition 1"),
        ([("a-0", ID), ("a-1", UUID(int=9))], "have another id"),
    ],
)
def test_what_is_incomplete_is_not_taken_over(
    tmp_path: Path, directories: list[tuple[str, UUID]], problem: str
) -> None:
    for name, topic_id in directories:
        partition_directory(tmp_path, name, topic_id)
    with pytest.raises(AdoptionProblem, match=problem):
        find_adoptable([tmp_path], BrokerId(1))


def test_the_same_partition_twice_is_a_problem(tmp_path: Path) -> None:
    for log_dir in (tmp_path / "1", tmp_path / "2"):
        partition_directory(log_dir, "a-0")
    with pytest.raises(AdoptionProblem, match="are the same partition"):
        find_adoptable([tmp_path / "1", tmp_path / "2"], BrokerId(1))


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    partition_directory(tmp_path, "a-0", epochs="0\n1\nx y\n")
    with pytest.raises(AdoptionProblem, match="leader-epoch-checkpoint"):
        find_adoptable([tmp_path], BrokerId(1))
    (tmp_path / "a-0" / "leader-epoch-checkpoint").unlink()
    (tmp_path / "a-0" / "partition.metadata").write_text("version: 0\n")
    with pytest.raises(AdoptionProblem, match=r"partition\.metadata"):
        find_adoptable([tmp_path], BrokerId(1))


def _quota(key: str, value: float) -> ClientQuotaRecord:
    alice = QuotaEntity(entity_type="user", entity_name="alice")
    return ClientQuotaRecord(entity=[alice], key=key, value=value, remove=False)


def test_the_quorums_log_says_what_counts(tmp_path: Path) -> None:
    partition_directory(tmp_path, "kept-0")
    partition_directory(tmp_path, "stray-0", UUID(int=7))
    partition_directory(tmp_path, "again-0", UUID(int=8))  # of an older topic of this name
    quorum = tmp_path / "__cluster_metadata-0"
    quorum.mkdir()
    snapshot = [TopicRecord(name="kept", topic_id=ID), new_partition(ID, [1])]
    whole = batch(0, *map(metadata_record, snapshot)) + footer(2)
    (quorum / "00000000000000000010-0000000001.checkpoint").write_bytes(whole)
    (quorum / "00000000000000000002-0000000001.checkpoint").write_bytes(b"older, not read")
    again = UUID(int=9)
    later = [
        TopicRecord(name="again", topic_id=again),
        new_partition(again, [1]),
        PartitionChangeRecord(partition_id=0, topic_id=ID, leader=1),
        ConfigRecord(resource_type=2, resource_name="kept", name="retention.ms", value="5"),
        ConfigRecord(resource_type=2, resource_name="kept", name="from.the.future", value="5"),
        ConfigRecord(resource_type=4, resource_name="", name="log.retention.ms", value="6"),
        ConfigRecord(resource_type=4, resource_name="2", name="log.retention.ms", value="7"),
        ConfigRecord(resource_type=4, resource_name="1", name="ssl.keystore.location", value="8"),
        ConfigRecord(resource_type=32, resource_name="a/b", name="consumer.session.timeout.ms", value="50000"),
        ConfigRecord(resource_type=32, resource_name="a/b", name="from.the.future", value="9"),
        UserScramCredentialRecord(
            name="alice", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096
        ),
        _quota("producer_byte_rate", 1024.0),
        _quota("from.the.future", 1.0),
        ProducerIdsRecord(broker_id=1, next_producer_id=3000),
    ]
    segment = batch(8, metadata_record(RemoveTopicRecord(topic_id=UUID(int=99))), b"\x01\x63\x00")
    segment += batch(10, *map(metadata_record, later))
    (quorum / "00000000000000000000.log").write_bytes(segment + b"\0" * 40)
    adopted = find_adoptable([tmp_path], BrokerId(1))
    assert adopted is not None
    assert {topic.name: (topic.topic_id, topic.leader_epochs) for topic in adopted.topics.values()} == {
        "kept": (ID, {0: 3}),
        "again": (again, {0: 0}),
    }
    assert adopted.configs == {
        (ResourceType.TOPIC, "kept"): {"retention.ms": "5"},
        (ResourceType.BROKER, ""): {"log.retention.ms": "6"},
        (ResourceType.BROKER, "1"): {"ssl.keystore.location": "8"},
        (ResourceType.GROUP, "a/b"): {"consumer.session.timeout.ms": "50000"},
        (ResourceType.USER, "alice"): {
            "SCRAM-SHA-256": "salt=cw==,stored_key=aw==,server_key=dg==,iterations=4096",
            "producer_byte_rate": "1024",
        },
    }
    assert adopted.next_producer_id == 3000


def test_a_broker_of_several_is_not_taken_over_alone(tmp_path: Path) -> None:
    quorum = tmp_path / "__cluster_metadata-0"
    quorum.mkdir()
    records = [TopicRecord(name="far", topic_id=ID), new_partition(ID, [2, 3])]
    (quorum / "00000000000000000000.log").write_bytes(batch(0, *map(metadata_record, records)))
    with pytest.raises(AdoptionProblem, match=r"kept by brokers \[2, 3\]"):
        find_adoptable([tmp_path], BrokerId(1))


def test_a_broker_of_several_that_holds_everything_is_not_taken_over_alone(tmp_path: Path) -> None:
    """With as many replicas as brokers, nothing else tells: the others would go on without it."""
    directory, metadata = tmp_path / "data", tmp_path / "metadata"
    partition_directory(directory, "kept-0")
    quorum = metadata / "__cluster_metadata-0"
    quorum.mkdir(parents=True)
    topic = [TopicRecord(name="kept", topic_id=ID), new_partition(ID, [1, 2])]
    own, other = (
        RegisterBrokerRecord(
            broker_id=number,
            incarnation_id=UUID(int=number),
            broker_epoch=number,
            end_points=[],
            features=[],
            rack=None,
        )
        for number in (1, 2)
    )

    def write(*records: Message) -> None:
        (quorum / "00000000000000000000.log").write_bytes(batch(0, *map(metadata_record, records)))

    write(*topic, own, other)
    with pytest.raises(AdoptionProblem, match=r"the brokers \[2\] are in the cluster, too"):
        find_adoptable([directory, metadata], BrokerId(1))
    write(*topic, own, other, UnregisterBrokerRecord(broker_id=2, broker_epoch=2))
    assert find_adoptable([directory, metadata], BrokerId(1)) is not None


def test_an_aborted_transaction_of_the_quorum_does_not_count() -> None:
    kept, gone = UUID(int=1), UUID(int=2)
    found = QuorumLog()
    values = [
        BEGIN,
        metadata_record(TopicRecord(name="gone", topic_id=gone)),
        ABORT,
        BEGIN,
        metadata_record(TopicRecord(name="kept", topic_id=kept)),
        END,
    ]
    found.read(batch(0, *values), "test")
    assert list(found.state.topics.states) == [kept]
    found.read(batch(0, *values), "test, again")
    assert found.next_offset == 6


def test_what_changes_in_the_quorum_counts_from_then_on() -> None:
    found = QuorumLog()
    values = [
        TopicRecord(name="t", topic_id=ID),
        new_partition(ID, [1], epoch=4),
        PartitionChangeRecord(partition_id=0, topic_id=ID, replicas=[2, 3]),
        ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="5"),
        ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value=None),
    ]
    found.read(batch(0, *map(metadata_record, values)), "test")
    partition = found.state.topics.states[ID].partitions[0].image
    assert (partition.replicas, partition.leader_epoch) == ((2, 3), 4), "the leader has not changed"
    assert found.state.configs == {}


def test_a_damaged_end_of_the_quorums_log_is_ignored() -> None:
    found = QuorumLog()
    damaged = bytearray(batch(1, metadata_record(TopicRecord(name="u", topic_id=UUID(int=1)))))
    damaged[-1] ^= 1
    found.read(batch(0, metadata_record(TopicRecord(name="t", topic_id=ID))) + bytes(damaged), "test")
    assert [topic.name for topic in found.state.topics.states.values()] == ["t"]


@pytest.mark.parametrize("cut", [b"", b"\0" * 40, footer(2)[:-1], footer(2)[:-1] + b"\1"], ids=len)
def test_a_snapshot_without_its_end_is_not_taken_over(tmp_path: Path, cut: bytes) -> None:
    quorum = tmp_path / "__cluster_metadata-0"
    quorum.mkdir()
    begun = batch(0, *map(metadata_record, [TopicRecord(name="t", topic_id=ID), new_partition(ID, [1])]))
    (quorum / "00000000000000000010-0000000001.checkpoint").write_bytes(begun + cut)
    (quorum / "00000000000000000010.log").write_bytes(batch(10, metadata_record(TopicRecord(name="u", topic_id=ID))))
    with pytest.raises(CorruptMessage, match=r"0000000001\.checkpoint is damaged or incomplete"):
        find_adoptable([tmp_path], BrokerId(1))


def test_records_that_are_missing_are_noticed() -> None:
    found = QuorumLog()
    damaged = bytearray(batch(1, b"\1\x14\0\0"))
    damaged[-1] ^= 1
    found.read(batch(0, b"\1\x14\0\0") + bytes(damaged), "first")
    with pytest.raises(CorruptMessage, match="second: the records of the metadata log from offset 1 to 1 are missing"):
        found.read(batch(2, b"\1\x14\0\0"), "second")
    with pytest.raises(CorruptMessage, match="from offset 0 to 4 are missing"):
        QuorumLog().read(batch(5, b"\1\x14\0\0"), "alone")


def test_records_about_topics_that_are_not_there_are_corrupt() -> None:
    for record in (PartitionChangeRecord(partition_id=0, topic_id=ID), RemoveTopicRecord(topic_id=ID)):
        with pytest.raises(CorruptMessage, match="test, offset 0: there is no topic"):
            QuorumLog().read(batch(0, metadata_record(record)), "test")


def test_records_that_no_quorum_writes_are_corrupt() -> None:
    with pytest.raises(CorruptMessage, match="test, offset 0: a metadata record has frame version 9"):
        QuorumLog().read(batch(0, bytes([9, 2, 0])), "test")
    with pytest.raises(CorruptMessage, match=r"^test, offset 0: .*TopicRecord version 0"):
        QuorumLog().read(batch(0, bytes([1, 2, 0, 0x7F])), "test")
    with pytest.raises(CorruptMessage, match=r"^test, offset 0: .*ends within its frame"):
        QuorumLog().read(batch(0, bytes([1, 2])), "test")


def test_control_batches_and_tombstones_of_the_quorum_are_passed_over() -> None:
    found = QuorumLog()
    leader_change = encode_batch([Record(0, 0, b"\0\0\0\2", b"x")], control=True)
    tombstone = encode_batch([Record(1, 0, None, None)])
    found.read(bytes(leader_change + tombstone), "test")
    assert (found.next_offset, found.state.topics.states) == (2, {})
