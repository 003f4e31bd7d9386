"""PURE. Control records: the markers that end a transaction in a partition (KIP-98).

Key: ``version int16 (0) | type int16``; value of an end marker: ``version int16 (0) | coordinator_epoch int32``.
"""

from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

from ottla.errors import InvalidRecord
from ottla.records.batch import NO_LEADER_EPOCH, BatchHeader, Buffer
from ottla.records.record import Record, decode_records, encode_batch

_KEY: Final = Struct(">hh")
_VALUE: Final = Struct(">hi")


class ControlType(IntEnum):
    """Types of control records that may stand in a partition's log."""

    ABORT = 0
    COMMIT = 1


class EndTransaction(NamedTuple):
    """The outcome of one producer's transaction, as its coordinator wrote it."""

    type: ControlType
    coordinator_epoch: int
    timestamp_ms: int

    @property
    def is_abort(self) -> bool:
        return self.type is ControlType.ABORT


def decode_end_transaction(batch: Buffer, header: BatchHeader) -> EndTransaction | None:
    """The marker in a control batch; None when compaction left the batch empty.

    Raises InvalidRecord for other control records, CorruptMessage for malformed ones.
    """
    if not header.record_count:
        return None
    return end_transaction(next(decode_records(batch, header)))


def end_transaction(record: Record) -> EndTransaction:
    """Decode the end-of-transaction marker in a record of a control batch.

    Raises InvalidRecord for other control records.
    """
    if record.key is None or len(record.key) < _KEY.size or record.value is None:
        raise InvalidRecord(f"the control record at offset {record.offset} is incomplete")
    version, type_id = _KEY.unpack_from(record.key)
    if version < 0 or type_id not in (ControlType.ABORT, ControlType.COMMIT) or len(record.value) < _VALUE.size:
        raise InvalidRecord(f"the control record at offset {record.offset} (type {type_id}) is no end marker")
    _, coordinator_epoch = _VALUE.unpack_from(record.value)
    return EndTransaction(ControlType(type_id), coordinator_epoch, record.timestamp_ms)


def encode_end_transaction(
    marker: EndTransaction,
    *,
    producer_id: int,
    producer_epoch: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytearray:
    """A control batch with the one marker, ready to be appended."""
    record = Record(
        base_offset,
        marker.timestamp_ms,
        _KEY.pack(0, marker.type),
        _VALUE.pack(0, marker.coordinator_epoch),
    )
    return encode_batch(
        [record],
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )
