from dataclasses import replace

import pytest
from tests.unit.log.driver import NOW_MS, LogDriver, offsets, read_all

from ottla.errors import (
    CorruptMessage,
    InvalidProducerEpoch,
    InvalidTxnState,
    MessageTooLarge,
    OutOfOrderSequence,
    TransactionCoordinatorFenced,
)
from ottla.ids import LeaderEpoch
from ottla.log.partition_log import PartitionLog
from ottla.log.producer_state import Origin, ProducerState, decode_snapshot
from ottla.log.segment_list import ReadResult
from ottla.records.batch import MAX_PRODUCER_EPOCH
from ottla.records.control import ControlType, EndTransaction, encode_end_transaction


def _write(driver: LogDriver, log: PartitionLog, producer: int, sequence: int, *, epoch: int = 0) -> None:
    driver.append(
        log, 1, producer_id=producer, producer_epoch=epoch, base_sequence=sequence, transactional=True
    )  # fmt: skip
    log.high_watermark = log.log_end_offset


def _end(
    log: PartitionLog,
    producer: int,
    kind: ControlType,
    *,
    epoch: int = 0,
    coordinator: int = 1,
    next_epoch: bool = False,
) -> None:
    marker = EndTransaction(kind, coordinator, NOW_MS)
    batch = encode_end_transaction(marker, producer_id=producer, producer_epoch=epoch)
    log.append_as_leader(batch, LeaderEpoch(0), origin=Origin.COORDINATOR, bears_next_epoch=next_epoch)
    log.high_watermark = log.log_end_offset


def test_stable_up_to_the_first_open_transaction(driver: LogDriver, log: PartitionLog) -> None:
    driver.fill(log, 2)
    _write(driver, log, 1, 0)  # 4
    _write(driver, log, 2, 0)  # 5
    assert log.last_stable_offset == 4
    _end(log, 1, ControlType.COMMIT)  # 6
    assert log.last_stable_offset == 5
    _end(log, 2, ControlType.ABORT)  # 7
    assert log.last_stable_offset == 8
    assert log.aborted_transactions(0, 8) == [(2, 5, 7, 8)]
    assert log.aborted_transactions(0, 5) == []
    assert log.aborted_transactions(8, 9) == []


def test_a_reader_is_told_of_what_it_reads_only(driver: LogDriver, log: PartitionLog) -> None:
    for sequence in range(20):
        _write(driver, log, 1, sequence)
        _end(log, 1, ControlType.ABORT)
    assert len(log.aborted_transactions(0, 40)) == 20
    batch = log.read(0, 1, upper_bound=40, min_one_message=True)
    assert isinstance(batch, ReadResult)
    assert [entry.first_offset for entry in log.aborted_transactions(0, 40, batch.data)] == [0]
    everything = log.read(30, 1 << 20, upper_bound=40, min_one_message=True)
    assert isinstance(everything, ReadResult)
    assert len(log.aborted_transactions(30, 40, everything.data)) == 5


def test_what_is_sent_from_the_file_is_told_alike(driver: LogDriver, log: PartitionLog) -> None:
    for sequence in range(20):
        driver.append(
            log, 1, producer_id=1, producer_epoch=0, base_sequence=sequence, transactional=True, value_bytes=30_000
        )
        _end(log, 1, ControlType.ABORT)
    for offset in (0, 4, 5, 30):
        region = log.region(offset, 100_000, upper_bound=40)
        assert region is not None
        batches = log.read(offset, len(region), upper_bound=40, min_one_message=True)
        assert isinstance(batches, ReadResult)
        assert len(batches.data) == len(region)
        told = log.aborted_transactions(offset, 40, region)
        assert told == log.aborted_transactions(offset, 40, batches.data)
        assert len(told) < 20


def test_a_long_transaction_is_among_those_of_its_time(driver: LogDriver, log: PartitionLog) -> None:
    _write(driver, log, 9, 0)  # 0, until 11
    for sequence in range(5):
        _write(driver, log, 1, sequence)
        _end(log, 1, ControlType.ABORT)
    _end(log, 9, ControlType.ABORT)
    read = log.read(3, 1, upper_bound=12, min_one_message=True)
    assert isinstance(read, ReadResult)
    found = log.aborted_transactions(3, 12, read.data)
    assert {entry.producer_id: entry.first_offset for entry in found} == {1: 3, 9: 0}


def test_a_marker_above_the_high_watermark_ends_nothing_yet(driver: LogDriver, log: PartitionLog) -> None:
    _write(driver, log, 1, 0)
    marker = encode_end_transaction(EndTransaction(ControlType.COMMIT, 0, 5), producer_id=1, producer_epoch=0)
    log.append_as_leader(marker, LeaderEpoch(0), origin=Origin.COORDINATOR)
    assert log.last_stable_offset == 0
    log.high_watermark = log.log_end_offset
    assert log.last_stable_offset == 2


def test_a_late_marker_does_not_end_the_next_transaction(driver: LogDriver, log: PartitionLog) -> None:
    """KIP-1228: a marker of the second generation bears the epoch of the transaction after the one that it ends."""
    _write(driver, log, 1, 0, epoch=4)
    _end(log, 1, ControlType.COMMIT, epoch=5, next_epoch=True)
    _end(log, 1, ControlType.COMMIT, epoch=5, next_epoch=True)  # once more, as after a lost answer
    _write(driver, log, 1, 0, epoch=5)
    with pytest.raises(InvalidProducerEpoch, match="the transaction before"):
        _end(log, 1, ControlType.COMMIT, epoch=5, next_epoch=True)
    assert log.last_stable_offset == log.log_end_offset - 1
    _end(log, 1, ControlType.ABORT, epoch=6, next_epoch=True)
    assert log.last_stable_offset == log.log_end_offset


def test_the_last_epoch_ends_its_own_transaction(driver: LogDriver, log: PartitionLog) -> None:
    _write(driver, log, 1, 0, epoch=MAX_PRODUCER_EPOCH)
    _end(log, 1, ControlType.ABORT, epoch=MAX_PRODUCER_EPOCH, next_epoch=True)
    assert log.last_stable_offset == log.log_end_offset


def test_late_writers_and_coordinators_are_fenced(driver: LogDriver, log: PartitionLog) -> None:
    _write(driver, log, 1, 0, epoch=1)
    with pytest.raises(InvalidTxnState):
        driver.append(log, 1, producer_id=1, producer_epoch=1, base_sequence=1)
    _end(log, 1, ControlType.ABORT, epoch=2, coordinator=5)
    with pytest.raises(InvalidProducerEpoch):
        _write(driver, log, 1, 1, epoch=1)
    with pytest.raises(TransactionCoordinatorFenced):
        _end(log, 1, ControlType.ABORT, epoch=2, coordinator=4)
    _write(driver, log, 1, 0, epoch=2)
    assert log.last_stable_offset == 2


def test_a_marker_is_written_however_small_batches_have_to_be(driver: LogDriver) -> None:
    log = driver.open(clean=True)
    _write(driver, log, 1, 0)
    log.update_config(replace(log.config, max_message_bytes=10))
    with pytest.raises(MessageTooLarge):
        _write(driver, log, 1, 1)
    _end(log, 1, ControlType.COMMIT)
    assert log.last_stable_offset == log.log_end_offset


@pytest.mark.parametrize("how", ["reopen", "crash", "without snapshots"])
def test_transactions_survive_restarts(driver: LogDriver, how: str) -> None:
    log = driver.open(clean=True, segment_bytes=500)
    _write(driver, log, 1, 0)  # 0, stays open
    for number in range(6):
        _write(driver, log, 2, number)
        _end(log, 2, ControlType(number % 2))
    expected = log.aborted_transactions(0, log.log_end_offset)
    assert len(expected) == 3
    assert len(log.segments) > 2
    if how == "reopen":
        log = driver.reopen(log)
    else:
        if how == "without snapshots":
            for path in driver.directory.glob("*.snapshot"):
                path.unlink()
        log = driver.crash(log, recovery_point=0)
    log.high_watermark = log.log_end_offset
    assert log.last_stable_offset == 0
    assert log.aborted_transactions(0, log.log_end_offset) == expected
    _end(log, 1, ControlType.COMMIT)
    assert log.last_stable_offset == log.log_end_offset
    assert offsets(read_all(log)) == list(range(log.log_end_offset))
    log.release()


def test_silent_producers_are_forgotten_but_not_in_a_transaction(driver: LogDriver, log: PartitionLog) -> None:
    driver.append(log, 1, producer_id=1, producer_epoch=0, base_sequence=0)
    _write(driver, log, 2, 0)
    assert log.producer_state.remove_expired(NOW_MS + 999, 1000) == 0
    assert log.producer_state.remove_expired(NOW_MS + 1000, 1000) == 1
    assert list(log.producer_state.producers) == [2]


@pytest.mark.parametrize("timestamp_ms", [0, NOW_MS - 10**9, NOW_MS + 3_000_000])
def test_timestamps_do_not_say_how_long_a_producer_has_been_silent(
    driver: LogDriver, log: PartitionLog, timestamp_ms: int
) -> None:
    def write(sequence: int) -> bool:
        more = {"producer_id": 1, "producer_epoch": 0, "base_sequence": sequence}
        return driver.append(log, 1, timestamp_ms=timestamp_ms, **more).duplicate

    assert not write(0)
    for now_ms in (NOW_MS, NOW_MS + 999):
        assert log.producer_state.remove_expired(now_ms, 1000) == 0
    assert write(0), "it is still known"
    assert not write(1)
    assert log.producer_state.remove_expired(NOW_MS + 1500, 1000) == 0
    assert log.producer_state.remove_expired(NOW_MS + 2499, 1000) == 0
    assert log.producer_state.remove_expired(NOW_MS + 2500, 1000) == 1


def test_snapshots_refuse_damage(driver: LogDriver, log: PartitionLog) -> None:
    driver.append(log, 3, producer_id=1, producer_epoch=2, base_sequence=7)
    data = log.producer_state.encode()
    (entry,) = decode_snapshot(data)
    assert (entry.epoch, entry.last_sequence, entry.batches[0]) == (2, 9, (7, 9, 0, 2, NOW_MS + 2))
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 1
        with pytest.raises(CorruptMessage):
            decode_snapshot(bytes(damaged))
    for cut in range(len(data)):
        with pytest.raises(CorruptMessage):
            decode_snapshot(data[:cut])
    assert decode_snapshot(ProducerState(5).encode()) == []


def test_a_log_that_is_opened_forgets_nobody(driver: LogDriver, log: PartitionLog) -> None:
    """How long producers are remembered is a setting of the broker, which looks after it opens its logs."""
    driver.append(log, 1, producer_id=1, producer_epoch=0, base_sequence=0)
    driver.clock.ms += 10 * 24 * 3_600_000
    log = driver.reopen(log)
    assert list(log.producer_state.producers) == [1]
    assert list(driver.crash(log).producer_state.producers) == [1]


@pytest.mark.parametrize("rolled", [False, True])
@pytest.mark.parametrize("crash", [False, True])
def test_what_is_sent_again_after_a_restart_is_known(
    driver: LogDriver, log: PartitionLog, rolled: bool, crash: bool
) -> None:
    """All of the last five batches: a client sends again whatever it knows no answer for."""
    for sequence in range(8):
        driver.append(log, 1, producer_id=1, producer_epoch=0, base_sequence=sequence)
        driver.append(log, 1, producer_id=2, producer_epoch=sequence, base_sequence=0)
    if rolled:
        log.roll()
        driver.append(log, 1, producer_id=1, producer_epoch=0, base_sequence=8)
    log = driver.crash(log) if crash else driver.reopen(log)
    last = 8 if rolled else 7
    for sequence in range(last - 4, last + 1):
        info = driver.append(log, 1, producer_id=1, producer_epoch=0, base_sequence=sequence)
        assert (info.duplicate, info.first_offset) == (True, 2 * sequence)
    with pytest.raises(OutOfOrderSequence):
        driver.append(log, 1, producer_id=1, producer_epoch=0, base_sequence=0)
    assert not driver.append(log, 1, producer_id=1, producer_epoch=0, base_sequence=last + 1).duplicate
    assert len(log.producer_state.producers[2].batches) == 1, "earlier epochs are over"
