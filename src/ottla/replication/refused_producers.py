"""Idempotent producers whose batches were refused: what they have sent behind such a batch waits for it.

    sequence 7   no room left: KAFKA_STORAGE_ERROR
    sequence 8   sent before that answer came: refused likewise, even if there is room again
    sequence 7   sent again: appended; what follows may be appended, too

Sequence 8 would else be a gap (OUT_OF_ORDER_SEQUENCE_NUMBER), upon which clients begin a new epoch and send whatever is
not acknowledged yet again, to all partitions, also what others have appended meanwhile. Or it would be taken for the
first batch of a producer that is not known here yet.
"""

from typing import TYPE_CHECKING, Final
from uuid import UUID

from ottla.errors import ErrorCode, KafkaStorageError, OttlaError
from ottla.records.batch import NO_PRODUCER_ID, iter_batches, read_header

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.log.producer_state import ProducerEntry
    from ottla.records.batch import BatchHeader, Buffer

REMEMBERED_S: Final = 30.0
"""A producer that has not sent the refused batch again by then has given it up."""
PRODUCERS_KEPT: Final = 1000
"""The most producers that are remembered; the one whose last refusal is longest ago is forgotten first."""
SENT_BACK_KEPT: Final = 10_000
"""The most batches that are remembered as sent back; the oldest is forgotten first."""
MAX_NAME_CHARS: Final = 249
"""No topic has a longer name."""
SENT_BACK_WITH: Final = frozenset(
    (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
    )
)
"""Errors upon which a producer sends a batch again, and which may be over before the batch behind it comes."""
SEQUENCES: Final = 1 << 31

Place = tuple[str | UUID, int]
"""A partition, as produce requests name it."""


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


class SentBack:
    """What idempotent producers have sent to partitions that did not take it yet: not led here, too few in sync.

    The batch behind it may come when that is over. Without the first one it leaves a gap, or is taken for the first
    batch of a producer that is not known here yet. Of one broker, whether it holds the partitions or not. Times are
    seconds on a clock that never goes back.
    """

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[tuple[Place, int, int], tuple[int, int, float]] = {}
        """By place, producer id and epoch: the lowest and the highest sequence that were sent back (the first ones may
        have been written before), and how long that counts."""

    def __bool__(self) -> bool:
        return bool(self._known)

    def add(self, place: Place, records: "Buffer | None", now: float) -> None:
        """Note these unchecked records as refused. Their first batch counts: clients send one."""
        header = _first_of_producer(records)
        if header is None or (isinstance(place[0], str) and len(place[0]) > MAX_NAME_CHARS):
            return
        self._forget_expired(now)
        key = (place, header.producer_id, header.producer_epoch)
        lowest = highest = header.base_sequence
        known = self._known.pop(key, None)
        if known is not None:
            lowest = known[0] if _is_later(lowest, known[0]) else lowest
            highest = known[1] if _is_later(known[1], highest) else highest
        self._known[key] = (lowest, highest, now + REMEMBERED_S)
        if len(self._known) > SENT_BACK_KEPT:
            del self._known[next(iter(self._known))]

    def is_missing(
        self, place: Place, records: "Buffer | None", producers: "Mapping[int, ProducerEntry]", now: float
    ) -> bool:
        """Whether a batch before these records was sent back and has not been written since. `producers` are those that
        the partition knows, by id."""
        self._forget_expired(now)
        header = _first_of_producer(records)
        if header is None:
            return False
        epoch = header.producer_epoch
        key = (place, header.producer_id, epoch)
        known = self._known.get(key)
        if known is None:
            return False
        expected, highest, _ = known
        last = producers.get(header.producer_id)
        if last is not None and last.epoch >= epoch:
            expected = (last.last_sequence + 1) % SEQUENCES
            if last.epoch > epoch or _is_later(expected, highest):
                del self._known[key]  # all of it has been written since
                return False
        return _is_later(header.base_sequence, expected)

    def _forget_expired(self, now: float) -> None:
        """A producer that has not sent the batch again for so long has given it up."""
        while self._known:
            oldest = next(iter(self._known))
            if self._known[oldest][2] > now:
                return
            del self._known[oldest]


def _first_of_producer(records: "Buffer | None") -> "BatchHeader | None":
    try:
        header = None if records is None else read_header(records)
    except OttlaError:  # to be refused for that
        return None
    if header is None or header.producer_id == NO_PRODUCER_ID or header.base_sequence < 0:
        return None
    return header


def _of_producers(records: "Buffer") -> "list[BatchHeader]":
    headers = iter_batches(records)
    return [header for header in headers if header.producer_id != NO_PRODUCER_ID and header.base_sequence >= 0]


def _is_later(sequence: int, other: int) -> bool:
    """Sequences begin anew at 0 behind the largest."""
    return 0 < (sequence - other) % SEQUENCES < SEQUENCES // 2
