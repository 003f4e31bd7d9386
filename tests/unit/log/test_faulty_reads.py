"""Flipped bits below the recovery point, and how little a recovery reads."""

from pathlib import Path

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from ottla.config.log import LogConfig
from ottla.errors import CorruptMessage
from ottla.ids import LeaderEpoch, Offset, PartitionId, TopicName, TopicPartition
from ottla.log.partition_log import PartitionLog
from ottla.log.reader import ColdRead
from ottla.records.record import Record, decode_records, encode_batch
from ottla.testing.faulty_fs import FaultyFS, Survival
from ottla.testing.manual_clock import ManualClock

TP = TopicPartition(TopicName("flights"), PartitionId(0))
DIRECTORY = Path("/data/flights-0")
CONFIG = LogConfig(segment_bytes=1500, index_interval_bytes=200)
RECORDS = 60


def make_log(fs: FaultyFS) -> PartitionLog:
    fs.make_directory("/data")
    fs.sync_directory("/")
    log = open_log(fs, 0)
    for number in range(RECORDS):
        record = Record(0, 1_700_000_000_000, b"k", b"%d" % number * 40)
        log.append_as_leader(encode_batch([record]), LeaderEpoch(0))
    log.flush()
    log.high_watermark = log.log_end_offset
    return log


def open_log(fs: FaultyFS, recovery_point: int) -> PartitionLog:
    return PartitionLog.open(
        DIRECTORY, TP, CONFIG, fs=fs, clock=ManualClock(), recovery_point=Offset(recovery_point)
    )  # fmt: skip


def read_one(log: PartitionLog, offset: int) -> bytes | None:
    """The value of the record at `offset`, read as a client would. Raises CorruptMessage."""
    result = log.read(offset, 100, upper_bound=RECORDS, min_one_message=True)
    data = (result.run() if isinstance(result, ColdRead) else result).data
    return next(record.value for record in decode_records(data) if record.offset == offset)


@settings(max_examples=100, deadline=None)
@example(place=0.17536082593046975, bit=1, crashed=False, point=0.0)  # a base offset at an index entry
@example(place=0.9602669915205013, bit=0, crashed=True, point=0.0)  # the last offset of the log's last batch
@example(place=0.9547815938291324, bit=0, crashed=False, point=0.0)  # the base offset of the last batch, with an entry
@example(place=0.69921875, bit=0, crashed=True, point=0.0)  # the base offset of a closed segment's last batch
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7), crashed=st.booleans(), point=st.floats(0, 1))
def test_a_flipped_bit_is_reported_never_served_and_never_cut_off(
    place: float, bit: int, crashed: bool, point: float
) -> None:
    fs = FaultyFS(seed=1)
    log = make_log(fs)
    number = int(place * len(log.segments))
    damaged = log.segments[number]
    end = RECORDS if number == len(log.segments) - 1 else log.segments[number + 1].base_offset
    byte = int((place * len(log.segments) - number) * damaged.size)
    in_batch = byte_in_batch(fs, damaged.path, byte)
    assume(not 12 <= in_batch < 16)  # nothing tells that a leader epoch is wrong
    # ... nor, at the end of the log, that a base offset is: both lie outside a batch's CRC
    assume(in_batch >= 8 or not (crashed and number == len(log.segments) - 1))
    fs.flip_bit(damaged.path, byte * 8 + bit)
    sizes = {name: size for name, _, size in fs.names(str(DIRECTORY)) if name.endswith(".log")}
    if crashed:
        recovery_point = end + round(point * (RECORDS - end))
        fs.crash(Survival.RANDOM)
        log = open_log(fs, recovery_point)
        assert log.log_end_offset == RECORDS
    else:
        fs.cold_reads = 1.0
    assert sizes == {name: size for name, _, size in fs.names(str(DIRECTORY)) if name in sizes}
    errors: list[CorruptMessage] = []
    for offset in range(RECORDS):
        try:
            assert read_one(log, offset) == b"%d" % offset * 40
        except CorruptMessage as problem:
            errors.append(problem)
    assert 1 <= len(errors) <= end - damaged.base_offset, "what lies behind a damaged length in the segment is hidden"
    for error in errors:
        assert damaged.path in str(error)
        assert "at position " in str(error)


def byte_in_batch(fs: FaultyFS, path: str, byte: int) -> int:
    """How far into its batch a byte lies; all batches of the log have nearly one size."""
    data = fs.read_bytes(path)
    at = 0
    while True:
        size = int.from_bytes(data[at + 8 : at + 12], "big") + 12
        if not 61 <= size <= 1000 or byte < at + size:
            return byte - at
        at += size


@pytest.mark.parametrize("recovery_point", [RECORDS, RECORDS - 7, 20])
def test_recovery_reads_only_from_the_recovery_point_on(recovery_point: int) -> None:
    fs = FaultyFS(seed=1)
    log = make_log(fs)
    first_checked = max(s.base_offset for s in log.segments if s.base_offset <= recovery_point)
    sizes = {segment.path: (segment.base_offset, segment.size) for segment in log.segments}
    assert len(sizes) > 4
    fs.crash(Survival.NOTHING)
    fs.reads.clear()
    log = open_log(fs, recovery_point)
    assert log.log_end_offset == RECORDS
    read = {path: sum(r.size for r in fs.reads if r.path == path) for path in sizes}
    for path, (base, size) in sizes.items():
        if base < first_checked:
            assert read[path] <= size / 2, f"{path} was read although all of it was synced"
    fs.reads.clear()
