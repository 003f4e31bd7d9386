"""What follows a batch that could not be written."""

import pytest

from ottla.errors import KafkaStorageError
from ottla.log.producer_state import ProducerEntry
from ottla.records.record import Record, encode_batch
from ottla.replication.refused_producers import (
    PRODUCERS_KEPT,
    REMEMBERED_S,
    SENT_BACK_KEPT,
    RefusedProducers,
    SentBack,
)

LARGEST = 2**31 - 1


def batch(sequence: int, producer: int = 7, epoch: int = 0) -> bytearray:
    return encode_batch([Record(0, 1, None, b"v")], producer_id=producer, producer_epoch=epoch, base_sequence=sequence)


def is_refused(refused: RefusedProducers, records: bytearray, now: float = 1.0) -> bool:
    try:
        refused.check(records, now)
    except KafkaStorageError:
        return True
    return False


@pytest.fixture
def refused() -> RefusedProducers:
    """Sequence 7 of producer 7 could not be written."""
    made = RefusedProducers()
    made.add(batch(7), 0.0)
    return made


def test_what_follows_waits_until_the_refused_batch_is_written(refused: RefusedProducers) -> None:
    assert is_refused(refused, batch(8))
    assert not is_refused(refused, batch(7))
    refused.written(batch(7))
    assert not is_refused(refused, batch(8))
    assert not refused


def test_what_precedes_and_others_go_on(refused: RefusedProducers) -> None:
    plain = encode_batch([Record(0, 1, None, b"v")])
    for records in (batch(6), batch(8, producer=8), batch(0, epoch=1), batch(9, epoch=1), plain):
        assert not is_refused(refused, records)
    refused.written(batch(6))
    assert is_refused(refused, batch(8))


def test_the_lowest_of_several_counts(refused: RefusedProducers) -> None:
    refused.add(batch(8), 0.0)
    assert not is_refused(refused, batch(7))
    refused.add(batch(6), 0.0)
    assert is_refused(refused, batch(7))


def test_sequences_begin_anew_behind_the_largest() -> None:
    made = RefusedProducers()
    made.add(batch(LARGEST), 0.0)
    assert is_refused(made, batch(0))
    assert not is_refused(made, batch(LARGEST - 1))


def test_a_producer_that_has_given_up_is_forgotten(refused: RefusedProducers) -> None:
    assert is_refused(refused, batch(8), REMEMBERED_S - 1)
    assert not is_refused(refused, batch(8), REMEMBERED_S)
    refused.written(batch(0, epoch=1))
    assert not refused


def test_so_many_are_remembered_and_no_more(refused: RefusedProducers) -> None:
    for producer in range(100, 100 + PRODUCERS_KEPT):
        refused.add(batch(3, producer), 0.0)
    assert not is_refused(refused, batch(8))
    assert is_refused(refused, batch(4, 100 + PRODUCERS_KEPT - 1))
    assert is_refused(refused, batch(4, 100))


PLACE = ("t", 0)


def known(last_sequence: int, epoch: int = 0) -> dict[int, ProducerEntry]:
    """What a partition knows of producer 7."""
    entry = ProducerEntry(7, epoch)
    entry.last_sequence = last_sequence
    return {7: entry}


@pytest.fixture
def sent_back() -> SentBack:
    """Sequences 8 and 7 of producer 7 were sent back."""
    made = SentBack()
    made.add(PLACE, batch(8), 0.0)
    made.add(PLACE, batch(7), 0.0)
    return made


@pytest.mark.parametrize("producers", [{}, known(6), known(6, epoch=-1)])
def test_what_follows_one_that_was_sent_back_is_to_come_after_it(
    sent_back: SentBack, producers: dict[int, ProducerEntry]
) -> None:
    assert sent_back.is_missing(PLACE, batch(9), producers, 1.0)
    assert not sent_back.is_missing(PLACE, batch(7), producers, 1.0)
    for other in (batch(6), batch(9, producer=8), batch(9, epoch=1), encode_batch([Record(0, 1, None, b"v")])):
        assert not sent_back.is_missing(PLACE, other, producers, 1.0)
    assert not sent_back.is_missing(("t", 1), batch(9), producers, 1.0)


def test_the_first_of_those_sent_back_may_have_been_written_before(sent_back: SentBack) -> None:
    assert sent_back.is_missing(PLACE, batch(9), known(7), 1.0)
    assert not sent_back.is_missing(PLACE, batch(8), known(7), 1.0)


@pytest.mark.parametrize("producers", [known(8), known(12), known(0, epoch=1)])
def test_what_was_written_since_is_not_missing(sent_back: SentBack, producers: dict[int, ProducerEntry]) -> None:
    assert not sent_back.is_missing(PLACE, batch(20), producers, 1.0)
    assert not sent_back


def test_what_is_not_sent_again_is_forgotten(sent_back: SentBack) -> None:
    assert sent_back.is_missing(PLACE, batch(9), {}, REMEMBERED_S - 1)
    sent_back.add(("t", 1), batch(7), REMEMBERED_S - 1)
    assert not sent_back.is_missing(PLACE, batch(9), {}, REMEMBERED_S)
    assert sent_back
    sent_back.add(("t", 2), encode_batch([Record(0, 1, None, b"v")]), 2 * REMEMBERED_S)
    assert not sent_back.is_missing(PLACE, batch(9), {}, 2 * REMEMBERED_S)
    assert not sent_back


def test_what_is_no_batch_is_passed_over() -> None:
    made = SentBack()
    for records in (None, b"", b"x" * 100, bytes(100)):
        made.add(PLACE, records, 0.0)
    made.add(("t" * 250, 0), batch(7), 0.0)
    assert not made
    made.add(PLACE, batch(7), 0.0)
    assert not made.is_missing(PLACE, b"x" * 100, {}, 0.0)


def test_so_many_are_remembered_as_sent_back_and_no_more(sent_back: SentBack) -> None:
    for partition in range(1, SENT_BACK_KEPT + 1):
        sent_back.add(("t", partition), batch(7), 0.0)
    assert not sent_back.is_missing(PLACE, batch(9), {}, 1.0)
    assert sent_back.is_missing(("t", 1), batch(9), {}, 1.0)
