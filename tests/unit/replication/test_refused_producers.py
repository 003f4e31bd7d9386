"""What follows a batch that could not be written."""

import pytest

from ottla.errors import KafkaStorageError
from ottla.records.record import Record, encode_batch
from ottla.replication.refused_producers import PRODUCERS_KEPT, REMEMBERED_S, RefusedProducers

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
