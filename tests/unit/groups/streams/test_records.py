"""Records of streams groups, byte for byte as Kafka 4.3 writes them."""

import pytest

from ottla.errors import CorruptMessage
from ottla.groups.records import GroupRecord, GroupRecordFormat
from ottla.groups.streams.members import Endpoint, MemberState
from ottla.groups.streams.records import (
    StreamsAssignment,
    StreamsAssignmentDeleted,
    StreamsGroupDeleted,
    StreamsGroupEpoch,
    StreamsMemberDeleted,
    StreamsMemberMetadata,
    StreamsTarget,
    StreamsTargetDeleted,
    StreamsTargetEpoch,
    StreamsTargetEpochDeleted,
    StreamsTopology,
    StreamsTopologyDeleted,
)
from ottla.groups.streams.tasks import NOTHING, TaskId, TaskSets
from ottla.groups.streams.topology import CopartitionGroup, InternalTopicInfo, Subtopology, Topology
from ottla.ids import GroupId, MemberId, ProcessId, SubtopologyId, TopicName

G, M, S = GroupId("g"), MemberId("m"), SubtopologyId("0")
FORMAT = GroupRecordFormat()
SETS = TaskSets({S: frozenset({2, 1})}, {S: frozenset({3})})

RECORDS: list[tuple[GroupRecord, str, str | None]] = [
    (
        StreamsMemberMetadata(
            G, M, None, "r", "c", "/h", 9, 1, ProcessId("p"), Endpoint("e", 65535), {"zone": "z", "a": "b"}
        ),
        "0013 0001 67 0001 6d",
        "0000 00 02 72 02 63 03 2f68 00000009 00000001 02 70 01 02 65 ffff 0003 02 61 02 62 00 05 7a6f6e65 02 7a 00 00",
    ),
    (
        StreamsMemberMetadata(G, M, None, None, "c", "/h", -1, 0, ProcessId("p"), None, {}),
        "0013 0001 67 0001 6d",
        "0000 00 00 02 63 03 2f68 ffffffff 00000000 02 70 ff 01 00",
    ),
    (StreamsMemberDeleted(G, M), "0013 0001 67 0001 6d", None),
    (
        StreamsGroupEpoch(G, 3, -2, 0, {"num.standby.replicas": "1"}),
        "0011 0001 67",
        "0000 00000003 fffffffffffffffe02 00 04 00000000 01 19 02 15 6e756d2e7374616e6462792e7265706c69636173 02 31 00",
    ),
    (StreamsGroupDeleted(G), "0011 0001 67", None),
    (StreamsTargetEpoch(G, 3, 5), "0014 0001 67", "0000 00000003 01 00 08 0000000000000005"),
    (StreamsTargetEpoch(G, 3, 0), "0014 0001 67", "0000 00000003 00"),
    (StreamsTargetEpochDeleted(G), "0014 0001 67", None),
    (
        StreamsTarget(G, M, SETS),
        "0015 0001 67 0001 6d",
        "0000 02 02 30 03 00000001 00000002 00 02 02 30 02 00000003 00 01 00",
    ),
    (StreamsTargetDeleted(G, M), "0015 0001 67 0001 6d", None),
    (
        StreamsAssignment(G, M, 4, 3, MemberState.UNRELEASED_TASKS, SETS, NOTHING, {TaskId(S, 1): 4, TaskId(S, 2): 2}),
        "0016 0001 67 0001 6d",
        "0000 00000004 00000003 03"
        "02 02 30 03 00000001 00000002 01 00 09 03 00000004 00000002"
        "02 02 30 02 00000003 00 01 01 01 01 00",
    ),
    (StreamsAssignmentDeleted(G, M), "0016 0001 67 0001 6d", None),
    (
        StreamsTopology(
            G,
            Topology(
                2,
                (
                    Subtopology(
                        S,
                        (TopicName("s"),),
                        (),
                        (InternalTopicInfo(TopicName("c"), 0, 3, (("k", "v"),)),),
                        (TopicName("w"),),
                        (InternalTopicInfo(TopicName("r"), 4),),
                        (CopartitionGroup((0,), (), (0,)),),
                    ),
                ),
            ),
        ),
        "0017 0001 67",
        "0000 00000002 02 02 30 02 02 73 01"
        "02 02 63 00000000 0003 02 02 6b 02 76 00 00"
        "02 02 77"
        "02 02 72 00000004 0000 01 00"
        "02 02 0000 01 02 0000 00 00 00",
    ),
    (StreamsTopologyDeleted(G), "0017 0001 67", None),
]


@pytest.mark.parametrize(("record", "key", "value"), RECORDS, ids=[type(record).__name__ for record, _, _ in RECORDS])
def test_a_record(record: GroupRecord, key: str, value: str | None) -> None:
    written = (bytes.fromhex(key), None if value is None else bytes.fromhex(value))
    assert FORMAT.encode(record) == written
    assert FORMAT.decode(*written) == record


def test_what_earlier_brokers_wrote_without_epochs_was_assigned_at_the_members_epoch() -> None:
    value = "0000 00000004 00000003 01 02 02 30 03 00000001 00000002 00 01 01 01 01 01 00"
    record = FORMAT.decode(bytes.fromhex("0016 0001 67 0001 6d"), bytes.fromhex(value))
    assert isinstance(record, StreamsAssignment)
    assert record.assignment_epochs == {TaskId(S, 1): 4, TaskId(S, 2): 4}


def test_what_earlier_brokers_wrote_about_a_group_says_less() -> None:
    record = FORMAT.decode(bytes.fromhex("0011 0001 67"), bytes.fromhex("0000 00000003 0000000000000001 00"))
    assert record == StreamsGroupEpoch(G, 3, 1, -1, {})


def test_states_of_later_versions_are_unknown() -> None:
    value = "0000 00000004 00000003 09 01 01 01 01 01 01 00"
    record = FORMAT.decode(bytes.fromhex("0016 0001 67 0001 6d"), bytes.fromhex(value))
    assert isinstance(record, StreamsAssignment)
    assert record.state is MemberState.UNKNOWN


def test_damaged_records_are_named() -> None:
    with pytest.raises(CorruptMessage, match="group coordinator"):
        FORMAT.decode(bytes.fromhex("0011000167"), b"\0\0\1")
