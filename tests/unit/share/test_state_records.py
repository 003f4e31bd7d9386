"""Records of `__share_group_state`, byte for byte as Kafka 4.3 writes them."""

from uuid import UUID

import pytest

from ottla.errors import CorruptMessage
from ottla.ids import GroupId, PartitionId, TopicId
from ottla.share.state import SharePartitionKey, StateBatch
from ottla.share.state_records import (
    ShareSnapshot,
    ShareStateDeleted,
    ShareStateRecord,
    ShareStateRecordFormat,
    ShareUpdate,
)

KEY = SharePartitionKey(GroupId("g"), TopicId(UUID(int=255)), PartitionId(2))
FORMAT = ShareStateRecordFormat()
SNAPSHOT = ShareSnapshot(KEY, 1, 2, 3, 4, 5, 6, (StateBatch(7, 8, 2, 1),))
UPDATE = ShareUpdate(KEY, 1, 3, -1, (StateBatch(7, 8, 0, 1),))
KEY_FIELDS = "000167" + "00" * 15 + "ff00000002"
BATCH = "0000000000000007" + "0000000000000008"


def test_a_snapshot() -> None:
    assert FORMAT.encode(SNAPSHOT) == (
        bytes.fromhex("0000" + KEY_FIELDS),
        bytes.fromhex(
            "0000"
            "00000001" "00000002" "00000003" "0000000000000004" "0000000000000005" "0000000000000006"
            "02" + BATCH + "02" "0001" "00" "00"
        ),
    )  # fmt: skip


def test_an_update() -> None:
    assert FORMAT.encode(UPDATE) == (
        bytes.fromhex("0001" + KEY_FIELDS),
        bytes.fromhex("0000" "00000001" "00000003" "ffffffffffffffff" "02" + BATCH + "00" "0001" "00" "00"),
    )  # fmt: skip


def test_a_tombstone_stands_under_the_snapshots_key() -> None:
    assert FORMAT.encode(ShareStateDeleted(KEY)) == (bytes.fromhex("0000" + KEY_FIELDS), None)


@pytest.mark.parametrize("record", [SNAPSHOT, UPDATE, ShareStateDeleted(KEY), SNAPSHOT._replace(batches=())])
def test_what_is_written_is_read(record: ShareStateRecord) -> None:
    assert FORMAT.decode(*FORMAT.encode(record)) == record


def test_keys_of_later_versions_are_passed_over() -> None:
    assert FORMAT.decode(bytes.fromhex("0009" + KEY_FIELDS), b"") is None


@pytest.mark.parametrize(
    ("key", "value"), [(b"\0", None), (b"\0\0\0", None), (bytes.fromhex("0000" + KEY_FIELDS), b"")]
)
def test_damaged_records_are_named(key: bytes, value: bytes | None) -> None:
    with pytest.raises(CorruptMessage, match="share coordinator"):
        FORMAT.decode(key, value)
