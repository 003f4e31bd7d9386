"""The index of aborted transactions on a machine that loses power: what was synced is read as before."""

import contextlib
from pathlib import Path

import pytest

from ottla.config.log import LogConfig
from ottla.ids import LeaderEpoch, Offset, PartitionId, TopicName, TopicPartition
from ottla.log.partition_log import PartitionLog
from ottla.log.producer_state import Origin
from ottla.records.control import ControlType, EndTransaction, encode_end_transaction
from ottla.records.record import Record, encode_batch
from ottla.testing.faulty_fs import Crashed, FaultyFS, Survival
from ottla.testing.manual_clock import ManualClock

EPOCH = LeaderEpoch(0)


class Machine:
    """One log on a disk that forgets what was not synced."""

    def __init__(self, segment_bytes: int = 1 << 20) -> None:
        self.fs = FaultyFS(seed=1)
        self.fs.make_directory("/log")
        self.fs.sync_directory("/")
        self.config = LogConfig(segment_bytes=segment_bytes)
        self.sequence = 0
        self.log = self.open()

    def open(self, *, clean: bool = False, recovery_point: int = 0) -> PartitionLog:
        return PartitionLog.open(
            Path("/log"),
            TopicPartition(TopicName("orders"), PartitionId(0)),
            self.config,
            fs=self.fs,
            clock=ManualClock(),
            clean_shutdown=clean,
            recovery_point=Offset(recovery_point),
        )

    def abort_some(self, count: int = 3) -> None:
        for _ in range(count):
            batch = encode_batch(
                [Record(0, 5, None, b"aborted")],
                producer_id=1,
                producer_epoch=0,
                base_sequence=self.sequence,
                transactional=True,
            )
            self.log.append_as_leader(batch, EPOCH)
            marker = EndTransaction(ControlType.ABORT, 0, 5)
            self.log.append_as_leader(
                encode_end_transaction(marker, producer_id=1, producer_epoch=0), EPOCH, origin=Origin.COORDINATOR
            )
            self.sequence += 1

    def lose_power(self, *, clean: bool = False) -> None:
        point = self.log.recovery_point
        self.fs.crash(Survival.NOTHING)
        self.log = self.open(clean=clean, recovery_point=point)

    def aborted(self) -> list[int]:
        """Where the aborted transactions begin."""
        return [entry.first_offset for entry in self.log.aborted_transactions(0, self.log.log_end_offset)]


def test_behind_a_snapshot_between_two_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.log.producer_snapshots._SNAPSHOT_EVERY_BYTES", 1)
    machine = Machine()
    machine.abort_some()
    machine.log.snapshot_producers_if_due()
    machine.abort_some()
    machine.log.flush()
    expected = machine.aborted()
    assert len(expected) == 6
    machine.lose_power()
    assert machine.aborted() == expected


def test_after_a_clean_shutdown() -> None:
    machine = Machine()
    machine.abort_some()
    expected = machine.aborted()
    machine.log.close()
    machine.lose_power(clean=True)
    assert machine.aborted() == expected


@pytest.mark.parametrize("done", range(8))
def test_while_what_a_new_segment_needs_is_synced(done: int) -> None:
    machine = Machine()
    machine.abort_some()
    machine.log.flush()
    expected = machine.aborted()
    machine.log.roll()
    machine.fs.sync_directory("/log")  # as some file systems do with a file
    machine.fs.crash_after(done)
    with contextlib.suppress(Crashed):
        machine.log.flush()
    machine.lose_power()
    assert machine.aborted() == expected


def test_again_before_anything_was_synced_after_the_first_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.log.producer_snapshots._SNAPSHOT_EVERY_BYTES", 1)
    machine = Machine()
    machine.abort_some()
    machine.log.flush()
    expected = machine.aborted()
    machine.lose_power()
    machine.log.snapshot_producers_if_due()
    machine.abort_some()
    machine.log.flush()
    machine.lose_power()
    assert machine.aborted()[:3] == expected


@pytest.mark.parametrize("torn", [b"", bytes(2 * 34), bytes(5 * 34)])
def test_of_an_earlier_segment_twice_in_a_row(torn: bytes) -> None:
    machine = Machine()
    machine.abort_some()
    machine.log.flush()
    machine.log.roll()
    machine.fs.sync_directory("/log")  # as some file systems do with a file
    point = machine.log.recovery_point
    machine.fs.crash(Survival.NOTHING)  # loses the index, which the recovery writes again
    machine.fs.write_bytes(f"/log/{0:020d}.txnindex", torn, sync=True)
    machine.log = machine.open(recovery_point=point)
    for _ in range(2):
        machine.abort_some()
        machine.log.roll()
        machine.log.flush()
    expected = machine.aborted()
    assert len(expected) == 9
    machine.lose_power()
    assert machine.aborted() == expected


@pytest.mark.parametrize("is_rolled", [True, False])
@pytest.mark.parametrize("torn", [None, b"", bytes(2 * 34), bytes(5 * 34)])
def test_behind_a_snapshot_that_reached_the_disk_by_itself_where_the_log_was_synced_before(
    monkeypatch: pytest.MonkeyPatch, torn: bytes | None, *, is_rolled: bool
) -> None:
    """The log was synced up to there, then the snapshot was written; no sync came before the power was lost."""
    monkeypatch.setattr("ottla.log.producer_snapshots._SNAPSHOT_EVERY_BYTES", 1)
    machine = Machine()
    machine.abort_some()
    machine.log.flush()
    expected = machine.aborted()
    if is_rolled:
        machine.log.roll()
    else:
        machine.log.snapshot_producers_if_due()
    point = machine.log.recovery_point
    machine.fs.open(f"/log/{point:020d}.snapshot").sync()
    machine.fs.sync_directory("/log")
    machine.fs.crash(Survival.NOTHING)
    if torn is not None:
        machine.fs.write_bytes(f"/log/{0:020d}.txnindex", torn, sync=True)
    machine.log = machine.open(recovery_point=point)
    assert machine.aborted() == expected
    assert machine.fs.exists(f"/log/{point:020d}.snapshot")
    machine.abort_some()
    machine.log.flush()
    machine.lose_power()
    assert machine.aborted()[:3] == expected


def test_written_by_a_killed_process_whose_successor_syncs_more() -> None:
    machine = Machine()
    machine.abort_some()
    machine.log.flush()
    expected = machine.aborted()
    machine.log.roll()
    point = machine.log.recovery_point
    machine.fs.end_process()
    machine.log = machine.open(recovery_point=point)
    machine.fs.open(f"/log/{point:020d}.snapshot").sync()
    machine.fs.sync_directory("/log")
    machine.abort_some()
    machine.log.flush()
    machine.lose_power()
    assert machine.aborted()[:3] == expected


def test_producers_are_known_by_a_snapshot_at_the_recovery_point_when_their_segments_are_gone() -> None:
    machine = Machine()
    machine.abort_some()
    machine.log.roll()
    machine.log.flush()
    point = machine.log.recovery_point
    machine.fs.crash(Survival.NOTHING)
    for suffix in ("log", "index", "timeindex", "txnindex"):  # as retention does
        machine.fs.remove(f"/log/{0:020d}.{suffix}")
    machine.log = machine.open(recovery_point=point)
    assert machine.log.producer_state.producers[1].epoch == 0
