"""The first batch of a transaction needs to be verified (KIP-890)."""

import pytest
from tests.unit.log.driver import NOW_MS, LogDriver

from ottla.errors import InvalidProducerEpoch, InvalidTxnState, OutOfOrderSequence
from ottla.ids import LeaderEpoch
from ottla.log.appends import AppendInfo
from ottla.log.partition_log import PartitionLog
from ottla.log.producer_state import Origin, Verification
from ottla.records.batch import read_header
from ottla.records.control import ControlType, EndTransaction, encode_end_transaction


class Bench:
    """One producer on one log."""

    def __init__(self, driver: LogDriver, log: PartitionLog) -> None:
        self.driver = driver
        self.log = log

    def batch(self, sequence: int, epoch: int = 0) -> memoryview:
        return self.driver.batch(1, producer_id=7, producer_epoch=epoch, base_sequence=sequence, transactional=True)

    def begin(self, sequence: int = 0, epoch: int = 0, *, implicit: bool = False) -> Verification | None:
        header = read_header(self.batch(sequence, epoch))
        return self.log.producer_state.begin_verification(header, NOW_MS, implicit=implicit)

    def append(self, sequence: int, verification: Verification | None = None, epoch: int = 0) -> AppendInfo:
        return self.log.append_as_leader(
            self.batch(sequence, epoch), LeaderEpoch(0), verification=verification, require_verification=True
        )

    def end(self, epoch: int = 0) -> None:
        marker = EndTransaction(ControlType.ABORT, 1, NOW_MS)
        batch = encode_end_transaction(marker, producer_id=7, producer_epoch=epoch)
        self.log.append_as_leader(batch, LeaderEpoch(0), origin=Origin.COORDINATOR)


@pytest.fixture
def bench(driver: LogDriver, log: PartitionLog) -> Bench:
    return Bench(driver, log)


def test_nothing_begins_a_transaction_unverified(bench: Bench) -> None:
    with pytest.raises(InvalidTxnState, match="producer 7 has no transaction that its records belong to"):
        bench.append(0)
    assert bench.log.log_end_offset == 0
    bench.append(0, bench.begin())
    assert bench.begin(1) is None
    bench.append(1)
    assert bench.log.log_end_offset == 2


def test_verification_can_be_left_out(bench: Bench) -> None:
    bench.log.append_as_leader(bench.batch(0), LeaderEpoch(0))
    assert bench.log.log_end_offset == 1


def test_a_marker_in_between_voids_the_answer(bench: Bench) -> None:
    """It may be about the transaction that has just ended: its records would never be ended."""
    verification = bench.begin()
    bench.end()
    with pytest.raises(InvalidTxnState):
        bench.append(0, verification)
    bench.append(0, bench.begin())


def test_an_old_answer_is_not_taken_for_a_later_transaction(bench: Bench) -> None:
    old = bench.begin()
    bench.end()
    new = bench.begin()
    with pytest.raises(InvalidTxnState):
        bench.append(0, old)
    bench.append(0, new)


def test_a_marker_of_the_second_generation_bears_the_epoch_of_the_next_transaction(bench: Bench) -> None:
    verification = bench.begin(epoch=1, implicit=True)
    bench.end(epoch=1)
    bench.append(0, verification, epoch=1)
    bench.end(epoch=2)
    verification = bench.begin(epoch=2, implicit=True)
    bench.end(epoch=3)
    with pytest.raises(InvalidProducerEpoch):
        bench.append(0, verification, epoch=2)


def test_who_waits_together_is_verified_together(bench: Bench) -> None:
    first, second = bench.begin(0), bench.begin(1)
    bench.append(0, first)
    bench.append(1, second)
    assert bench.log.log_end_offset == 2


def test_a_later_batch_does_not_go_first(bench: Bench) -> None:
    """The first one's verification failed; had the second been appended, the first could never follow."""
    bench.begin(5)
    verification = bench.begin(6)
    with pytest.raises(OutOfOrderSequence, match="sequence 6 before"):
        bench.append(6, verification)
    bench.append(5, bench.begin(5))
    bench.append(6)


def test_a_new_epoch_begins_with_sequences_of_its_own(bench: Bench) -> None:
    bench.begin(5)
    bench.append(0, bench.begin(0, epoch=1), epoch=1)


def test_an_unknown_producer_of_the_second_generation_begins_with_sequence_0(bench: Bench) -> None:
    verification = bench.begin(3, implicit=True)
    with pytest.raises(OutOfOrderSequence, match="sequence 3 before 0"):
        bench.append(3, verification)


def test_a_producer_of_the_past_is_not_even_verified(bench: Bench) -> None:
    bench.append(0, bench.begin(epoch=3), epoch=3)
    with pytest.raises(InvalidProducerEpoch):
        bench.begin(epoch=2)
    with pytest.raises(InvalidProducerEpoch):
        bench.append(0, epoch=2)


def test_a_batch_that_is_sent_again_needs_no_verification(bench: Bench) -> None:
    bench.append(0, bench.begin())
    bench.end()
    assert bench.append(0).duplicate


def test_verifications_that_nobody_comes_back_to_are_forgotten(bench: Bench) -> None:
    verification = bench.begin()
    bench.log.producer_state.remove_expired(NOW_MS + 999, 1_000)
    assert bench.begin() is verification
    bench.log.producer_state.remove_expired(NOW_MS + 1_000, 1_000)
    with pytest.raises(InvalidTxnState):
        bench.append(0, verification)
