"""Records of share groups, byte for byte as Kafka 4.3 writes them."""

from uuid import UUID

import pytest

from ottla.errors import CorruptMessage
from ottla.groups.records import GroupRecord, GroupRecordFormat
from ottla.groups.share.records import (
    ShareAssignment,
    ShareAssignmentDeleted,
    ShareGroupDeleted,
    ShareGroupEpoch,
    ShareMemberDeleted,
    ShareMemberMetadata,
    ShareStatePartitions,
    ShareStatePartitionsDeleted,
    ShareTarget,
    ShareTargetDeleted,
    ShareTargetEpoch,
    ShareTargetEpochDeleted,
)
from ottla.ids import GroupId, MemberId, TopicId, TopicName

G, M = GroupId("g"), MemberId("m")
ID = TopicId(UUID(int=255))
ID_BYTES = "00" * 15 + "ff"
PARTITIONS = {ID: frozenset({2, 1})}
FORMAT = GroupRecordFormat()

RECORDS: list[tuple[GroupRecord, str, str | None]] = [
    (
        ShareMemberMetadata(G, M, None, "c", "/h", frozenset({TopicName("u"), TopicName("t")})),
        "000a 0001 67 0001 6d",
        "0000 00 02 63 03 2f68 03 02 74 02 75 00",
    ),
    (ShareMemberDeleted(G, M), "000a 0001 67 0001 6d", None),
    (ShareGroupEpoch(G, 3, -2), "000b 0001 67", "0000 00000003 fffffffffffffffe 00"),
    (ShareGroupDeleted(G), "000b 0001 67", None),
    (ShareTargetEpoch(G, 3), "000c 0001 67", "0000 00000003 00"),
    (ShareTargetEpochDeleted(G), "000c 0001 67", None),
    (ShareTarget(G, M, PARTITIONS), "000d 0001 67 0001 6d", f"0000 02 {ID_BYTES} 03 00000001 00000002 00 00"),
    (ShareTargetDeleted(G, M), "000d 0001 67 0001 6d", None),
    (
        ShareAssignment(G, M, 3, 2, PARTITIONS),
        "000e 0001 67 0001 6d",
        f"0000 00000003 00000002 00 02 {ID_BYTES} 03 00000001 00000002 00 00",
    ),
    (ShareAssignmentDeleted(G, M), "000e 0001 67 0001 6d", None),
    (
        ShareStatePartitions(G, {}, PARTITIONS, frozenset({ID}), {ID: TopicName("t")}),
        "000f 0001 67",
        f"0000 01 02 {ID_BYTES} 02 74 03 00000001 00000002 00 02 {ID_BYTES} 02 74 00 00",
    ),
    (ShareStatePartitionsDeleted(G), "000f 0001 67", None),
]


@pytest.mark.parametrize(("record", "key", "value"), RECORDS, ids=[type(record).__name__ for record, _, _ in RECORDS])
def test_a_record(record: GroupRecord, key: str, value: str | None) -> None:
    written = (bytes.fromhex(key), None if value is None else bytes.fromhex(value))
    assert FORMAT.encode(record) == written
    assert FORMAT.decode(*written) == record


def test_topics_without_a_name_are_called_unknown() -> None:
    value = FORMAT.encode(ShareStatePartitions(G, PARTITIONS))[1]
    assert value is not None
    assert b"\x0a<UNKNOWN>" in value


def test_damaged_records_are_named() -> None:
    with pytest.raises(CorruptMessage, match="group coordinator"):
        FORMAT.decode(bytes.fromhex("000b000167"), b"\0\0\1")
