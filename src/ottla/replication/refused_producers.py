"""Idempotent producers whose batches could not be written: what they have sent behind such a batch waits for it.

    sequence 7   no room left: KAFKA_STORAGE_ERROR
    sequence 8   sent before that answer came: refused likewise, even if there is room again
    sequence 7   sent again: appended; what follows may be appended, too

Sequence 8 would else be a gap (OUT_OF_ORDER_SEQUENCE_NUMBER), upon which clients begin a new epoch and send whatever is
not acknowledged yet again, to all partitions, also what others have appended meanwhile. Or it would be taken for the
first batch of a producer that is not known here yet.
"""

from typing import TYPE_CHECKING, Final

from ottla.errors import KafkaStorageError
from ottla.records.batch import NO_PRODUCER_ID, iter_batches

if TYPE_CHECKING:
    from ottla.records.batch import BatchHeader, Buffer

REMEMBERED_S: Final = 30.0
"""A producer that has not sent the refused batch again by then has given it up."""
PRODUCERS_KEPT: Final = 1000
"""The most producers that are remembered; the one whose last refusal is longest ago is forgotten first."""
SEQUENCES: Final = 1 << 31


class RefusedProducers:
    """The producers that one partition refuses. Times are seconds on a clock that never goes back."""

    __slots__ = ("_first",)

    def __init__(self) -> None:
        self._first: dict[int, tuple[int, int, float]] = {}
        """By producer id: its epoch, the lowest sequence that was refused, and how long that counts."""

    def __bool__(self) -> bool:
        return bool(self._first)

    def add(self, records: "Buffer", now: float) -> None:
        """These batches could not be written."""
        for header in _of_producers(records):
            known = self._first.pop(header.producer_id, None)
            sequence = header.base_sequence
            if known is not None and known[0] == header.producer_epoch and _is_later(sequence, known[1]):
                sequence = known[1]
            self._first[header.producer_id] = (header.producer_epoch, sequence, now + REMEMBERED_S)
            if len(self._first) > PRODUCERS_KEPT:
                del self._first[next(iter(self._first))]

    def check(self, records: "Buffer", now: float) -> None:
        """Raises KafkaStorageError for a batch whose predecessor was refused."""
        for header in _of_producers(records):
            epoch, sequence, until = self._first.get(header.producer_id, (header.producer_epoch, 0, now))
            if now < until and epoch == header.producer_epoch and _is_later(header.base_sequence, sequence):
                raise KafkaStorageError(
                    f"sequence {sequence} of producer {header.producer_id} could not be written, so "
                    f"{header.base_sequence} is not either; both are to be sent again"
                )

    def written(self, records: "Buffer") -> None:
        """These batches have been written: what follows them may be, too."""
        for header in _of_producers(records):
            known = self._first.get(header.producer_id)
            if known is not None and (known[0] != header.producer_epoch or known[1] == header.base_sequence):
                del self._first[header.producer_id]


def _of_producers(records: "Buffer") -> "list[BatchHeader]":
    headers = iter_batches(records)
    return [header for header in headers if header.producer_id != NO_PRODUCER_ID and header.base_sequence >= 0]


def _is_later(sequence: int, other: int) -> bool:
    """Sequences begin anew at 0 behind the largest."""
    return 0 < (sequence - other) % SEQUENCES < SEQUENCES // 2
