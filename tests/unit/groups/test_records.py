"""Records of `__consumer_offsets`, byte for byte as Kafka 4.3 writes them."""

from uuid import UUID

import pytest

from ottla.errors import CorruptMessage
from ottla.groups.classic.records import GroupDeleted, GroupMetadata, StoredMember
from ottla.groups.offsets.records import OffsetCommitted, OffsetDeleted
from ottla.groups.records import GroupRecord, GroupRecordFormat
from ottla.ids import GroupId, InstanceId, MemberId, PartitionId, TopicId, TopicName

G, T, P = GroupId("g"), TopicName("t"), PartitionId(2)
FORMAT = GroupRecordFormat()
MEMBER = StoredMember(MemberId("m"), InstanceId("i"), "c", "/h", 300, 200, b"sub", b"assign")
GROUP = GroupMetadata(G, "consumer", 5, "range", MemberId("m"), 1_000, (MEMBER,))


def test_an_offset_is_written_in_version_4() -> None:
    record = OffsetCommitted(G, T, P, 7, 3, "x", 1_000)
    assert FORMAT.encode(record) == (
        bytes.fromhex("000100016700017400000002"),
        bytes.fromhex("0004000000000000000700000003027800000000000003e800"),
    )


def test_the_topics_id_is_a_tagged_field() -> None:
    record = OffsetCommitted(G, T, P, 7, 3, "", 1_000, topic_id=TopicId(UUID(int=255)))
    assert FORMAT.encode(record)[1] == bytes.fromhex(
        "00040000000000000007000000030100000000000003e8010010" + "00" * 15 + "ff"
    )


def test_an_offset_with_its_own_end_is_written_in_version_1() -> None:
    record = OffsetCommitted(G, T, P, 7, -1, "x", 1_000, 2_000)
    assert FORMAT.encode(record)[1] == bytes.fromhex("0001000000000000000700017800000000000003e800000000000007d0")


def test_a_group_is_written_in_version_3() -> None:
    key, value = FORMAT.encode(GROUP)
    assert key == bytes.fromhex("0002000167")
    member = b"\0\1m\0\1i\0\1c\0\2/h\0\0\1\x2c\0\0\0\xc8\0\0\0\3sub\0\0\0\6assign"
    assert value == b"\0\3\0\x08consumer\0\0\0\5\0\5range\0\1m\0\0\0\0\0\0\3\xe8\0\0\0\1" + member


def test_the_size_of_a_group_is_known_before_it_is_written() -> None:
    group = GROUP._replace(members=(MEMBER, MEMBER, MEMBER._replace(instance_id=None, subscription=b"s" * 5_000)))
    value = FORMAT.encode(group)[1]
    assert value is not None
    assert 0 <= len(value) - group.approximate_size_bytes < 64


@pytest.mark.parametrize(
    "record",
    [
        GROUP,
        GroupMetadata(G, "", 0, None, None, -1, ()),
        GroupDeleted(G),
        OffsetCommitted(G, T, P, 7, 3, "ü", 1_000),
        OffsetCommitted(G, T, P, 7, -1, "", 1_000, 2_000),
        OffsetDeleted(G, T, P),
    ],
)
def test_what_is_written_is_read(record: GroupRecord) -> None:
    assert FORMAT.decode(*FORMAT.encode(record)) == record


def test_older_versions_are_read() -> None:
    key = bytes.fromhex("000000016700017400000002")
    value = bytes.fromhex("00000000000000000007000000000000000003e8")
    assert FORMAT.decode(key, value) == OffsetCommitted(G, T, P, 7, -1, "", 1_000)
    group = bytes.fromhex("0000000000000001ffffffff00000000")
    assert FORMAT.decode(b"\0\2\0\1g", group) == GroupMetadata(G, "", 1, None, None, -1, ())


@pytest.mark.parametrize("kind", [9, 18, 99, -1])
def test_other_kinds_of_records_are_passed_over(kind: int) -> None:
    assert FORMAT.decode(kind.to_bytes(2, "big", signed=True) + b"\0\1g", b"\0\0") is None


@pytest.mark.parametrize(
    ("key", "value"), [(b"", b""), (b"\0\1\0\1g", b""), (b"\0\2\0\1g", b"\0\x09"), (b"\0\2\0\1g", b"\0\3\0")]
)
def test_what_cannot_be_read_is_corrupt(key: bytes, value: bytes) -> None:
    with pytest.raises(CorruptMessage):
        FORMAT.decode(key, value)
