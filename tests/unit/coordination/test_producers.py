"""Which producers may append within a transaction, as of the end of the queue."""

import pytest

from ottla.coordination.markers import TransactionMarker
from ottla.coordination.producers import Producers, ProducerStateEntry, Verification
from ottla.errors import InvalidProducerEpoch, InvalidTxnState, TransactionCoordinatorFenced
from ottla.ids import ProducerIdAndEpoch
from ottla.records.batch import MAX_PRODUCER_EPOCH

P5 = ProducerIdAndEpoch(9, 5)
END5 = TransactionMarker(9, 5, 1, committed=True)
BATCH, LATER = object(), object()


def producers(*log: tuple[int, ProducerStateEntry]) -> Producers:
    return Producers(dict(log).get)


def verified(found: Producers, producer: ProducerIdAndEpoch, *, implicit: bool = False) -> Verification:
    begun = found.begin_verification(producer, implicit=implicit)
    assert begun is not None
    return begun


def test_the_first_records_of_a_transaction_are_verified() -> None:
    found = producers()
    verification = verified(found, P5)
    found.check(P5, verification)
    with pytest.raises(InvalidTxnState):
        found.check(P5, None)


def test_an_open_transaction_needs_no_verification() -> None:
    in_log = producers((9, ProducerStateEntry(5, 0, in_transaction=True)))
    assert in_log.begin_verification(P5, implicit=False) is None
    in_log.check(P5, None)
    queued = producers()
    queued.appended(P5, BATCH)
    assert queued.begin_verification(P5, implicit=False) is None


def test_a_transaction_of_an_earlier_epoch_is_another_one() -> None:
    found = producers((9, ProducerStateEntry(4, 0, in_transaction=True)))
    assert found.begin_verification(P5, implicit=False) is not None
    with pytest.raises(InvalidTxnState):
        found.check(P5, None)


def test_a_marker_voids_what_was_asked_before_it() -> None:
    """The answer may be about the transaction that has just ended (KIP-890)."""
    found = producers()
    verification = verified(found, P5)
    found.ended(END5, BATCH)
    with pytest.raises(InvalidTxnState):
        found.check(P5, verification)


def test_a_marker_of_the_second_generation_leaves_the_next_transaction_alone() -> None:
    found = producers()
    verification = verified(found, P5, implicit=True)
    found.ended(END5, BATCH)
    found.check(P5, verification)
    found.ended(END5._replace(producer_epoch=6), BATCH)
    with pytest.raises(InvalidProducerEpoch):
        found.check(P5, verification)


def test_a_verification_serves_whoever_began_it() -> None:
    found = producers()
    first, second = verified(found, P5), verified(found, P5)
    found.end_verification(first)
    with pytest.raises(InvalidTxnState):
        found.check(P5, first)
    found.check(P5, second)
    found.end_verification(second)
    found.end_verification(second)


def test_what_is_queued_counts_more_than_the_log_until_it_is_written() -> None:
    log = {9: ProducerStateEntry(5, 0, in_transaction=True)}
    found = Producers(log.get)
    found.ended(END5, BATCH)
    found.appended(P5, LATER)
    found.written(9, BATCH)
    assert found.state_entry(9) == ProducerStateEntry(5, 1, in_transaction=True)
    log[9] = ProducerStateEntry(5, 2, in_transaction=False)
    found.written(9, LATER)
    assert found.state_entry(9) == log[9]
    assert found.state_entry(8) is None


def test_markers_of_the_past_are_refused() -> None:
    found = producers((9, ProducerStateEntry(5, 3, in_transaction=True)))
    with pytest.raises(TransactionCoordinatorFenced, match="coordinator epoch 1, already at 3"):
        found.check_marker(END5)
    with pytest.raises(InvalidProducerEpoch):
        found.check_marker(END5._replace(producer_epoch=4, coordinator_epoch=3))
    found.check_marker(END5._replace(coordinator_epoch=3))
    found.check_marker(END5._replace(producer_id=1))


def test_a_late_marker_does_not_end_the_next_transaction() -> None:
    """KIP-1228: a marker of the second generation bears the epoch of the transaction after the one that it ends."""
    late = END5._replace(coordinator_epoch=3, transaction_version=2)
    with pytest.raises(InvalidProducerEpoch, match="the transaction before"):
        producers((9, ProducerStateEntry(5, 3, in_transaction=True))).check_marker(late)
    producers((9, ProducerStateEntry(5, 3, in_transaction=False))).check_marker(late)
    producers((9, ProducerStateEntry(4, 3, in_transaction=True))).check_marker(late)
    last = late._replace(producer_epoch=MAX_PRODUCER_EPOCH)
    producers((9, ProducerStateEntry(MAX_PRODUCER_EPOCH, 3, in_transaction=True))).check_marker(last)
