"""The batches of metadata records in the log and its snapshots, as Kafka's controllers encode and limit them."""

from collections.abc import Sequence
from typing import Final

from ottla.records.record import Record, encode_batch

MAX_BATCH_BYTES: Final = 8 << 20
RECORD_OVERHEAD_BYTES: Final = 24
"""At most what a record takes beside its value."""


def encode_records(values: Sequence[bytes], *, base_offset: int, epoch: int, now_ms: int) -> bytearray:
    """One batch of framed records, all appended at `now_ms`."""
    return encode_batch(
        [Record(base_offset + delta, now_ms, None, value) for delta, value in enumerate(values)], leader_epoch=epoch
    )
