"""Many logs truncated below their recovery points with one write of checkpoints, and a crash between any two steps."""

from pathlib import Path
from typing import Final

import pytest

from ottla.config.log import LogConfig
from ottla.ids import BrokerId, LeaderEpoch, Offset, PartitionId, TopicName, TopicPartition
from ottla.log.directories import LogDirectories
from ottla.log.partition_log import PartitionLog
from ottla.records.batch import iter_batches
from ottla.records.record import Record, decode_records, encode_batch
from ottla.testing.faulty_fs import Crashed, FaultyFS, Survival
from ottla.testing.manual_clock import ManualClock

CONFIG: Final = LogConfig(segment_bytes=1200, index_interval_bytes=150, retention_ms=-1, segment_index_bytes=10_000)
LOGS: Final = [TopicPartition(TopicName("flights"), PartitionId(number)) for number in range(3)]
CUTS: Final = {LOGS[0]: 7, LOGS[1]: 0, LOGS[2]: 11}
END: Final = 12
STEPS: Final = 4
"""Changes of the disk from one crash to the next; where the first one is depends on what survives."""


def append(log: PartitionLog, count: int, kind: bytes, sequence: int) -> None:
    for number in range(count):
        records = [Record(0, 0, None, b"%s %d" % (kind, log.log_end_offset) + bytes(150))]
        batch = encode_batch(records, producer_id=7, producer_epoch=0, base_sequence=sequence + number)
        log.append_as_leader(bytearray(batch), LeaderEpoch(0))


def opened(fs: FaultyFS, clock: ManualClock) -> LogDirectories:
    directories = LogDirectories([Path("/data")], fs=fs, clock=clock)
    directories.acquire(cluster_id="c", node_id=BrokerId(1))
    directories.load_all(lambda _: CONFIG)
    return directories


def truncate_all(directories: LogDirectories, *, meanwhile: bool) -> None:
    (directory,) = directories.directories
    for tp, cut in CUTS.items():
        assert directory.logs[tp].expect_cut(Offset(cut))
    directory.prepare_checkpoints().write()
    for tp in LOGS:
        directory.logs[tp].cut_is_written()
    for tp, cut in CUTS.items():
        log = directory.logs[tp]
        if meanwhile:
            log.flush()
            directory.prepare_checkpoints().write()
        log.truncate_to(Offset(cut))
        log.end_cut()
        log.load_producers()
        assert log.log_end_offset == cut
        assert len(log.producer_state.producers) == (cut > 0)
        append(log, END - cut + 1, b"new", cut)


@pytest.mark.parametrize("survival", list(Survival))
@pytest.mark.parametrize("meanwhile", [False, True])
def test_a_crash_between_any_two_steps(survival: Survival, meanwhile: bool) -> None:
    """Nothing of what was cut, or written in its place and not synced, is taken for synced."""
    changes, has_crashed = len(survival.name) % STEPS, True
    while has_crashed:
        clock = ManualClock()
        fs = FaultyFS(seed=changes, clock=clock, block_bytes=64)
        fs.make_directory("/data")
        fs.sync_directory("/")
        directories = opened(fs, clock)
        for tp in LOGS:
            log = directories.create_log(tp, None, CONFIG)
            append(log, END, b"old", 0)
            log.flush()
            log.high_watermark = log.log_end_offset
        directories.directories[0].prepare_checkpoints().write()
        fs.crash_after(changes)
        try:
            truncate_all(directories, meanwhile=meanwhile)
            has_crashed = False
        except Crashed:
            changes += STEPS
        fs.crash(survival)
        for tp, log in opened(fs, clock).directories[0].logs.items():
            found = [
                (record.offset, (record.value or b"").rstrip(b"\0")) for batch in _batches(log) for record in batch
            ]
            assert [offset for offset, _ in found] == list(range(log.log_start_offset, log.log_end_offset))
            assert log.log_end_offset >= CUTS[tp]
            for offset, value in found:
                kinds = [b"old"] if offset < CUTS[tp] else [b"old", b"new"]
                assert value in [b"%s %d" % (kind, offset) for kind in kinds], (changes, tp)
    assert changes > 20


def _batches(log: PartitionLog) -> list[list[Record]]:
    offset, found = log.log_start_offset, []
    while offset < log.log_end_offset:
        data = log.read_blocking(offset, 1 << 20, upper_bound=log.log_end_offset, min_one_message=True).data
        for header in iter_batches(data):
            found.append(list(decode_records(data, header)))
            offset = Offset(header.next_offset)
    return found


def test_no_cut_below_the_recovery_point_no_checkpoint() -> None:
    clock = ManualClock()
    fs = FaultyFS(seed=1, clock=clock)
    fs.make_directory("/data")
    log = opened(fs, clock).create_log(LOGS[0], None, CONFIG)
    append(log, 4, b"old", 0)
    assert not log.expect_cut(Offset(2))  # nothing of it is synced
    log.flush()
    assert log.expect_cut(Offset(2))
    log.end_cut()
    assert not log.expect_cut(Offset(4))
    assert log.checkpointed == (4, 0)
