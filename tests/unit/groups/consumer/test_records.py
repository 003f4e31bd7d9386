"""Records of consumer groups in `__consumer_offsets`, byte for byte as Kafka writes them."""

from uuid import UUID

import pytest

from ottla.groups.consumer.records import (
    ClassicMember,
    ConsumerGroupDeleted,
    ConsumerGroupEpoch,
    CurrentAssignment,
    CurrentAssignmentDeleted,
    MemberState,
    MemberSubscription,
    MemberSubscriptionDeleted,
    ResolvedRegex,
    ResolvedRegexDeleted,
    SubscriptionMetadata,
    SubscriptionMetadataDeleted,
    TargetAssignment,
    TargetAssignmentDeleted,
    TargetAssignmentEpoch,
    TargetAssignmentEpochDeleted,
)
from ottla.groups.events import Assignor
from ottla.groups.records import GroupRecord, GroupRecordFormat
from ottla.ids import GroupId, InstanceId, MemberId, TopicId, TopicName

FORMAT = GroupRecordFormat()
G, M = GroupId("g"), MemberId("m")
T = TopicId(UUID(int=5))
NAMES = frozenset({TopicName("b"), TopicName("a")})
ON_TARGET = "0200000000000000000000000000000005030000000100000002"
EPOCHS = "010009" + "03" + "00000003" * 2
"""The tagged field 0 of nine bytes, which Kafka 4.3.1 writes: the member's epoch for each partition."""
WITHOUT_EPOCHS = "0000000000030000000201" + ON_TARGET + "000100"
"""As Kafka 4.1.1 writes it."""

WRITTEN: list[tuple[GroupRecord, str, str]] = [
    (ConsumerGroupEpoch(G, 3, 77), "0003000167", "000000000003010008000000000000004d"),
    (ConsumerGroupEpoch(G, 3, 0), "0003000167", "00000000000300"),
    (
        MemberSubscription(G, M, None, "r", "c", "h", NAMES, "x.*", 100, "uniform", None),
        "000500016700016d",
        "000000027202630268030261026204782e2a0000006408756e69666f726d01000100",
    ),
    (
        MemberSubscription(
            G, M, InstanceId("i"), None, "c", "h", NAMES, None, 100, None, ClassicMember(5, (Assignor("range", b"x"),))
        ),
        "000500016700016d",
        "00000269000263026803026102620000000064000100100100000005020672616e676502780000",
    ),
    (TargetAssignmentEpoch(G, 5), "0006000167", "00000000000500"),
    (TargetAssignment(G, M, {T: frozenset({2, 1})}), "000700016700016d", "0000" + ON_TARGET + "0000"),
    (
        CurrentAssignment(G, M, 3, 2, MemberState.UNREVOKED_PARTITIONS, {T: frozenset({1, 2})}, {}),
        "000800016700016d",
        "0000000000030000000201" + ON_TARGET + EPOCHS + "0100",
    ),
    (
        ResolvedRegex(G, "x.*", frozenset({TopicName("xa")}), 3, 4),
        "00100001670003782e2a",
        "0000020378610000000000000003000000000000000400",
    ),
]


@pytest.mark.parametrize(("record", "key", "value"), WRITTEN)
def test_a_record_is_written_and_read(record: GroupRecord, key: str, value: str) -> None:
    assert FORMAT.encode(record) == (bytes.fromhex(key), bytes.fromhex(value))
    assert FORMAT.decode(bytes.fromhex(key), bytes.fromhex(value)) == record


def test_an_assignment_of_older_kafka_has_no_epochs() -> None:
    assert FORMAT.decode(bytes.fromhex("000800016700016d"), bytes.fromhex(WITHOUT_EPOCHS)) == WRITTEN[6][0]


def test_a_member_is_classic_only_if_it_has_protocols() -> None:
    value = bytes.fromhex("000000027202630268030261026204782e2a0000006408756e69666f726d00")
    assert FORMAT.decode(bytes.fromhex("000500016700016d"), value) == WRITTEN[2][0]


@pytest.mark.parametrize(
    ("record", "key"),
    [
        (ConsumerGroupDeleted(G), "0003000167"),
        (SubscriptionMetadataDeleted(G), "0004000167"),
        (MemberSubscriptionDeleted(G, M), "000500016700016d"),
        (TargetAssignmentEpochDeleted(G), "0006000167"),
        (TargetAssignmentDeleted(G, M), "000700016700016d"),
        (CurrentAssignmentDeleted(G, M), "000800016700016d"),
        (ResolvedRegexDeleted(G, "x.*"), "00100001670003782e2a"),
    ],
)
def test_a_tombstone_is_written_and_read(record: GroupRecord, key: str) -> None:
    assert FORMAT.encode(record) == (bytes.fromhex(key), None)
    assert FORMAT.decode(bytes.fromhex(key), None) == record


def test_what_brokers_before_4_1_wrote_about_topics_is_recognized() -> None:
    value = bytes.fromhex("00000200000000000000000000000000000005027400000002010000")
    assert FORMAT.decode(bytes.fromhex("0004000167"), value) == SubscriptionMetadata(G)


def test_a_state_of_a_later_version_is_unknown() -> None:
    value = bytes.fromhex("000000000003000000020901" + "0100")
    read = FORMAT.decode(bytes.fromhex("000800016700016d"), value)
    assert isinstance(read, CurrentAssignment)
    assert read.state is MemberState.UNKNOWN
