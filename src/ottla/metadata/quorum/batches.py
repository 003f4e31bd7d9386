"""The batches of metadata records in the log and its snapshots, as Kafka's controllers encode and limit them."""

from collections.abc import Sequence
from typing import Final

from ottla.quorum.control_records import encode_control_batch
from ottla.quorum.effects import Append, ControlRecord
from ottla.records.record import Record, encode_batch

MAX_BATCH_BYTES: Final = 8 << 20
RECORD_OVERHEAD_BYTES: Final = 24
"""At most what a record takes beside its value."""


def encode_records(values: Sequence[bytes], *, base_offset: int, epoch: int, now_ms: int) -> bytearray:
    """One batch of framed records, all appended at `now_ms`."""
    return encode_batch(
        [Record(base_offset + delta, now_ms, None, value) for delta, value in enumerate(values)], leader_epoch=epoch
    )


def encode_append(effect: Append, now_ms: int) -> bytes | bytearray:
    """The batch that a leader appends: of control records, or of metadata."""
    base, epoch = effect.base_offset, effect.epoch
    controls = [record for record in effect.records if isinstance(record, ControlRecord)]
    if controls:
        return encode_control_batch(controls, base_offset=base, epoch=epoch, now_ms=now_ms)
    values = [record for record in effect.records if isinstance(record, bytes)]
    return encode_records(values, base_offset=base, epoch=epoch, now_ms=now_ms)
