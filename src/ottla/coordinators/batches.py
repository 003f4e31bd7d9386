"""What a coordinator's runtime has queued for its log, batch by batch."""

import asyncio
from collections.abc import Iterable
from typing import Any, Final

from ottla.coordination.markers import TransactionMarker
from ottla.coordination.producers import Producers
from ottla.coordination.state_machine import Reply
from ottla.ids import ProducerIdAndEpoch
from ottla.records.control import ControlType, EndTransaction, encode_end_transaction
from ottla.records.record import Record, encode_batch

MAX_BATCH_BYTES: Final = 900_000
"""Below the default of max.message.bytes, with room for what a record adds to its key and value."""

MAX_RECORD_BYTES: Final = 1_000_000
"""A record that is larger than a batch gets one of its own, which that default still takes."""

RECORD_OVERHEAD_BYTES: Final = 40


class QueuedBatch:
    """Records of one batch on their way into the log, and the replies that must not overtake them."""

    __slots__ = (
        "continues",
        "is_late",
        "marker",
        "messages",
        "producer",
        "records",
        "replies",
        "size_bytes",
        "timeout",
    )

    def __init__(
        self,
        producer: ProducerIdAndEpoch | None = None,
        marker: TransactionMarker | None = None,
        *,
        continues: bool = False,
    ) -> None:
        self.continues = continues
        """It begins with the rest of what has been decided at once, and did not fit into the batch before."""
        self.producer = producer
        """Whose transaction the records are part of."""
        self.marker = marker
        """Instead of records: the end of a transaction."""
        self.records: list[Record] = []
        self.size_bytes = 0
        self.replies: list[Reply[Any]] = []
        self.messages: list[Any] = []
        """The messages of `Notify` effects."""
        self.is_late = False
        """Not committed in time. Its waiting requests have been answered with an error."""
        self.timeout: asyncio.TimerHandle | None = None

    def takes(self, producer: ProducerIdAndEpoch | None, size_bytes: int) -> bool:
        """May a record of this producer go into it as well?"""
        return self.marker is None and self.producer == producer and self.size_bytes + size_bytes <= MAX_BATCH_BYTES

    def add(self, key: bytes, value: bytes | None, timestamp_ms: int, size_bytes: int) -> None:
        """Add a record; check `takes` first."""
        self.records.append(Record(len(self.records), timestamp_ms, key, value))
        self.size_bytes += size_bytes

    def encode(self, now_ms: int) -> bytearray:
        """`now_ms` is the marker's time; records have their own."""
        marker, producer = self.marker, self.producer
        if marker is not None:
            outcome = ControlType.COMMIT if marker.committed else ControlType.ABORT
            return encode_end_transaction(
                EndTransaction(outcome, marker.coordinator_epoch, now_ms),
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
            )
        if producer is not None:
            return encode_batch(
                self.records, producer_id=producer.producer_id, producer_epoch=producer.epoch, transactional=True
            )
        return encode_batch(self.records)

    def put_in_log(self, producers: Producers) -> None:
        """It has been written: from now on the log knows of its producer."""
        if self.marker is not None:
            producers.written(self.marker.producer_id, self)
        elif self.producer is not None:
            producers.written(self.producer.producer_id, self)


def next_write(queued: Iterable[QueuedBatch]) -> list[QueuedBatch]:
    """Those at the head of the queue that go into one write: one at least, then as many as one batch may be large. What
    continues goes along with what it continues."""
    room = MAX_BATCH_BYTES
    taken: list[QueuedBatch] = []
    for batch in queued:
        room -= batch.size_bytes
        if taken and room < 0 and not batch.continues:
            break
        taken.append(batch)
    return taken
