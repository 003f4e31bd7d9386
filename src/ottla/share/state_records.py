"""What `__share_group_state` holds, in Kafka's format. PURE.

    key     int16 what it is | group, topic id, partition      0  everything about a share partition
    value   int16 version    | its fields, or none             1  what has changed since

No value under key 0 is a tombstone: the share partition is forgotten, updates before it included. The topic is not
compacted; what lies before the oldest of the newest snapshots is deleted (`ShareStateMachine.needed_from`).

Source: ShareSnapshot and ShareUpdate among the coordinator records of Kafka 4.3 (KIP-932).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from ottla.errors import CorruptMessage
from ottla.ids import GroupId, PartitionId, TopicId
from ottla.protocol.errors import MalformedMessage, UnsupportedVersion
from ottla.protocol.primitives import Int8, Int16, Int32, Int64
from ottla.protocol.schema import Message, Struct, message, since, struct
from ottla.protocol.versioned import decode_versioned, encode_versioned, version_of
from ottla.share.state import UNKNOWN_COUNT, SharePartitionKey, StateBatch

# --- on the wire -----------------------------------------------------------------------------------------------


@message(versions=(0, 1))
class ShareStateKey(Message):
    """Kafka's ShareSnapshotKey (0) and ShareUpdateKey (1), which have the same fields."""

    group_id: str
    topic_id: UUID
    partition: Int32


@message(versions=(0, 0), flexible=0)
class ShareSnapshotValue(Message):
    """The whole delivery state of a share partition; times in milliseconds since the epoch."""

    snapshot_epoch: Int32
    state_epoch: Int32
    leader_epoch: Int32
    start_offset: Int64
    delivery_complete_count: Int32 = since(0, tag=0, default=UNKNOWN_COUNT)
    create_timestamp: Int64
    write_timestamp: Int64
    state_batches: list[ShareStateBatch]


@message(versions=(0, 0), flexible=0)
class ShareUpdateValue(Message):
    """Changes of the delivery state since the snapshot of this epoch."""

    snapshot_epoch: Int32
    leader_epoch: Int32
    start_offset: Int64
    delivery_complete_count: Int32 = since(0, tag=0, default=UNKNOWN_COUNT)
    state_batches: list[ShareStateBatch]


@struct
class ShareStateBatch(Struct):
    """Offsets, both ends included, with the same delivery state and count."""

    first_offset: Int64
    last_offset: Int64
    delivery_state: Int8
    delivery_count: Int16


# --- in here ---------------------------------------------------------------------------------------------------


class ShareSnapshot(NamedTuple):
    """All that is known of a share partition. Times are milliseconds since the epoch: of the last write, and of this
    record, which is later where a quiet partition was written anew."""

    key: SharePartitionKey
    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    created_ms: int
    written_ms: int
    batches: tuple[StateBatch, ...] = ()
    complete_count: int = UNKNOWN_COUNT
    """How many of the records from the start offset on are finished (KIP-1226)."""


class ShareUpdate(NamedTuple):
    """One write: `start_offset` and `leader_epoch` -1 leave them as they are."""

    key: SharePartitionKey
    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    batches: tuple[StateBatch, ...] = ()
    complete_count: int = UNKNOWN_COUNT


class ShareStateDeleted(NamedTuple):
    """The tombstone of a share partition's state."""

    key: SharePartitionKey


ShareStateRecord: TypeAlias = ShareSnapshot | ShareUpdate | ShareStateDeleted

_SNAPSHOT_KEY: Final = 0
_UPDATE_KEY: Final = 1
_VALUE: Final = 0


class ShareStateRecordFormat:
    """A `ottla.coordination.state_machine.RecordFormat` for `ShareStateRecord`."""

    __slots__ = ()

    def encode(self, record: ShareStateRecord) -> tuple[bytes, bytes | None]:
        match record:
            case ShareUpdate():
                return _key(record.key, _UPDATE_KEY), _update_value(record)
            case ShareSnapshot():
                return _key(record.key, _SNAPSHOT_KEY), _snapshot_value(record)
            case ShareStateDeleted():
                return _key(record.key, _SNAPSHOT_KEY), None

    def decode(self, key: bytes, value: bytes | None) -> ShareStateRecord | None:
        try:
            kind = version_of(key)
            if kind not in (_SNAPSHOT_KEY, _UPDATE_KEY):
                return None
            raw = decode_versioned(ShareStateKey, key)
            of = SharePartitionKey(GroupId(raw.group_id), TopicId(raw.topic_id), PartitionId(raw.partition))
            if kind == _SNAPSHOT_KEY:
                return ShareStateDeleted(of) if value is None else _read_snapshot(of, value)
            return None if value is None else _read_update(of, value)
        except (MalformedMessage, UnsupportedVersion) as error:
            raise CorruptMessage(f"a record in the log of the share coordinator: {error}") from error


def _key(key: SharePartitionKey, kind: int) -> bytes:
    return encode_versioned(ShareStateKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition), kind)


def _snapshot_value(record: ShareSnapshot) -> bytes:
    value = ShareSnapshotValue(
        snapshot_epoch=record.snapshot_epoch,
        state_epoch=record.state_epoch,
        leader_epoch=record.leader_epoch,
        start_offset=record.start_offset,
        delivery_complete_count=record.complete_count,
        create_timestamp=record.created_ms,
        write_timestamp=record.written_ms,
        state_batches=_wire_batches(record.batches),
    )
    return encode_versioned(value, _VALUE)


def _read_snapshot(key: SharePartitionKey, raw: bytes) -> ShareSnapshot:
    value = decode_versioned(ShareSnapshotValue, raw)
    return ShareSnapshot(
        key,
        value.snapshot_epoch,
        value.state_epoch,
        value.leader_epoch,
        value.start_offset,
        value.create_timestamp,
        value.write_timestamp,
        _batches(value.state_batches),
        value.delivery_complete_count,
    )


def _update_value(record: ShareUpdate) -> bytes:
    value = ShareUpdateValue(
        snapshot_epoch=record.snapshot_epoch,
        leader_epoch=record.leader_epoch,
        start_offset=record.start_offset,
        delivery_complete_count=record.complete_count,
        state_batches=_wire_batches(record.batches),
    )
    return encode_versioned(value, _VALUE)


def _read_update(key: SharePartitionKey, raw: bytes) -> ShareUpdate:
    value = decode_versioned(ShareUpdateValue, raw)
    return ShareUpdate(
        key,
        value.snapshot_epoch,
        value.leader_epoch,
        value.start_offset,
        _batches(value.state_batches),
        value.delivery_complete_count,
    )


def _wire_batches(batches: Iterable[StateBatch]) -> list[ShareStateBatch]:
    return [
        ShareStateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
        for first, last, state, count in batches
    ]


def _batches(batches: Iterable[ShareStateBatch]) -> tuple[StateBatch, ...]:
    return tuple(
        StateBatch(batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
        for batch in batches
    )
