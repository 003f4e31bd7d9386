"""PURE. Control records of the metadata log: leaders, voters, levels of kraft.version, ends of snapshots.

Key: ``version int16 (0) | type int16``; the value is a flexible message whose first field is its version.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final

from ottla.errors import CorruptMessage
from ottla.protocol.codec import decode, encode
from ottla.protocol.errors import ProtocolError
from ottla.protocol.messages.control_records import LeaderChangeMessage
from ottla.protocol.messages.quorum_records import (
    KRaftVersionRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from ottla.protocol.schema import Message
from ottla.quorum.effects import ControlRecord
from ottla.records.batch import BatchHeader, Buffer
from ottla.records.record import Record, decode_records, encode_batch

_KEY: Final = Struct(">hh")
LEADER_CHANGE: Final = 2
SNAPSHOT_HEADER: Final = 3
SNAPSHOT_FOOTER: Final = 4
KRAFT_VERSION: Final = 5
VOTERS: Final = 6
_CLASSES: Final[dict[int, type[Message]]] = {
    LEADER_CHANGE: LeaderChangeMessage,
    SNAPSHOT_HEADER: SnapshotHeaderRecord,
    SNAPSHOT_FOOTER: SnapshotFooterRecord,
    KRAFT_VERSION: KRaftVersionRecord,
    VOTERS: VotersRecord,
}


def encode_control_batch(records: Sequence[ControlRecord], *, base_offset: int, epoch: int, now_ms: int) -> bytearray:
    """A batch for the log or a snapshot; `now_ms` is wall-clock time."""
    return encode_batch(
        [
            Record(base_offset + delta, now_ms, _KEY.pack(0, record.type), _encode(record.value))
            for delta, record in enumerate(records)
        ],
        leader_epoch=epoch,
        control=True,
    )


def decode_control_batch(batches: Buffer, header: BatchHeader) -> Iterator[tuple[int, ControlRecord]]:
    """The control records of a batch with their offsets; types that are not known are left out.

    Raises CorruptMessage for malformed ones.
    """
    for record in decode_records(batches, header):
        if record.key is None or len(record.key) < _KEY.size or record.value is None or len(record.value) < 2:
            raise CorruptMessage(f"the control record at offset {record.offset} is incomplete")
        _, kind = _KEY.unpack_from(record.key)
        if kind not in _CLASSES:
            continue
        version = int.from_bytes(record.value[:2], "big", signed=True)
        try:
            yield record.offset, ControlRecord(kind, decode(_CLASSES[kind], record.value, version))
        except ProtocolError as error:
            raise CorruptMessage(f"the control record at offset {record.offset}: {error}") from error


def _encode(value: Message) -> bytes:
    version: int = value.version  # type: ignore[attr-defined]  # the first field of each of these messages
    return b"".join(encode(value, version))  # type: ignore[arg-type]  # no records in them, the only opaque pieces
