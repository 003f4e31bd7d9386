"""Compaction on real files, rule by rule."""

from collections.abc import Sequence
from dataclasses import replace as with_changes

import pytest
from tests.unit.log.cleaning import Cleaner, batches, close_segment, contents, put
from tests.unit.log.driver import Disk, LogDriver, SetClock

from ottla.errors import CorruptMessage
from ottla.ids import LeaderEpoch, Offset
from ottla.log import names
from ottla.log.cleaner import CleanerLimits, Cleaning, CleaningAborted, cleanable_log, find_dirt
from ottla.log.partition_log import PartitionLog
from ottla.log.producer_state import Origin
from ottla.records.batch import CHECKED_FROM, HEADER_SIZE, MAGIC_AT, Compression, iter_batches, seal
from ottla.records.control import ControlType, EndTransaction, encode_end_transaction
from ottla.records.record import Record, decode_records, encode_batch

DAY_MS = 24 * 3600 * 1000


@pytest.fixture
def log(driver: LogDriver) -> PartitionLog:
    return driver.open(clean=True, compact=True, delete=False, retention_ms=-1, index_interval_bytes=100)


@pytest.fixture
def cleaner(disk: Disk, clock: SetClock) -> Cleaner:
    return Cleaner(disk, clock)


def fill(log: PartitionLog, clock: SetClock, *segments: Sequence[tuple[str, str | None]]) -> None:
    for records in segments:
        put(log, records, clock.ms)
        close_segment(log)


def files(log: PartitionLog) -> list[str]:
    return sorted(path.name for path in log.directory.iterdir() if path.suffix in (".log", ".swap", ".cleaned"))


def test_the_newest_of_each_key_stays_at_its_offset(log: PartitionLog, cleaner: Cleaner, clock: SetClock) -> None:
    fill(log, clock, [("a", "1"), ("b", "1"), ("a", "2")], [("c", "1"), ("b", "2")])
    put(log, [("c", "2")], clock.ms)
    assert cleaner.run(log)
    assert contents(log) == [(2, "a", "2"), (3, "c", "1"), (4, "b", "2"), (5, "c", "2")]
    assert cleaner.checkpoint == 5
    assert log.log_start_offset == 0
    assert log.log_end_offset == 6
    headers = [header for header, _ in batches(log)]
    assert [(h.base_offset, h.last_offset) for h in headers] == [(0, 2), (3, 4), (5, 5)], "batches keep their ends"


def test_the_active_segment_is_untouched(log: PartitionLog, cleaner: Cleaner, clock: SetClock) -> None:
    put(log, [("a", "1"), ("a", "2")], clock.ms)
    log.flush()
    log.high_watermark = log.log_end_offset
    assert not cleaner.run(log)


def test_what_is_not_committed_or_not_synced_is_untouched(log: PartitionLog, cleaner: Cleaner, clock: SetClock) -> None:
    put(log, [("a", "1"), ("a", "2")], clock.ms)
    log.roll()
    assert not cleaner.run(log)
    log.flush()
    assert not cleaner.run(log)
    log.high_watermark = log.log_end_offset
    assert cleaner.run(log)


def test_small_segments_become_one(log: PartitionLog, cleaner: Cleaner, clock: SetClock) -> None:
    fill(log, clock, *([("a", str(n)), (str(n), "x")] for n in range(20)))
    assert len(log.segments) == 21
    assert cleaner.run(log)
    assert files(log) == ["00000000000000000000.log", "00000000000000000040.log"]
    assert [offset for offset, key, _ in contents(log) if key == "a"] == [38]
    for offset in range(40):
        data = log.read_blocking(Offset(offset), 100, upper_bound=40, min_one_message=True).data
        assert len(data), "every offset leads to the next batch"


def test_groups_keep_to_the_segment_size(driver: LogDriver, cleaner: Cleaner, clock: SetClock) -> None:
    log = driver.open(clean=True, compact=True, segment_bytes=1000)
    for number in range(40):
        put(log, [(str(number), "x" * 100)], clock.ms)
    close_segment(log)
    before = len(log.segments)
    assert cleaner.run(log)
    assert max(segment.size for segment in log.segments) <= 1000
    assert len(log.segments) <= before
    assert len(contents(log)) == 40


def test_tombstones_stay_for_delete_retention_and_then_go(log: PartitionLog, cleaner: Cleaner, clock: SetClock) -> None:
    fill(log, clock, [("a", "1"), ("b", "1"), ("a", None)])
    assert cleaner.run(log)
    assert contents(log) == [(1, "b", "1"), (2, "a", None)]
    ((header, records),) = batches(log)
    assert header.delete_horizon_ms == clock.ms + DAY_MS
    assert [r.timestamp_ms for r in records] == [clock.ms] * 2, "timestamps are what they were"
    assert header.max_timestamp == clock.ms
    clock.ms += DAY_MS - 1
    fill(log, clock, [("c", "1")])
    assert cleaner.run(log)
    assert (2, "a", None) in contents(log)
    clock.ms += 1
    fill(log, clock, [("d", "1")])
    assert cleaner.run(log)
    assert contents(log) == [(1, "b", "1"), (3, "c", "1"), (4, "d", "1")]


def test_a_value_after_a_tombstone_takes_it_away_at_once(log: PartitionLog, cleaner: Cleaner, clock: SetClock) -> None:
    fill(log, clock, [("a", "1"), ("a", None)], [("a", "2")])
    assert cleaner.run(log)
    assert contents(log) == [(2, "a", "2")]


def test_min_compaction_lag_keeps_what_is_recent(driver: LogDriver, cleaner: Cleaner, clock: SetClock) -> None:
    log = driver.open(clean=True, compact=True, min_compaction_lag_ms=60_000)
    fill(log, clock, [("a", "1"), ("a", "2")])
    clock.ms += 30_000
    fill(log, clock, [("b", "1"), ("b", "2")])
    clock.ms += 30_000
    assert cleaner.run(log)
    assert contents(log) == [(1, "a", "2"), (2, "b", "1"), (3, "b", "2")]
    clock.ms += 30_000
    assert cleaner.run(log)
    assert contents(log) == [(1, "a", "2"), (3, "b", "2")]


def test_the_dirty_ratio_and_the_largest_lag_decide_when(driver: LogDriver, cleaner: Cleaner, clock: SetClock) -> None:
    log = driver.open(clean=True, compact=True, min_cleanable_dirty_ratio=0.5, max_compaction_lag_ms=60_000)
    fill(log, clock, [(str(n), "x") for n in range(100)])
    assert cleaner.run(log, due_only=True), "all is dirty"
    fill(log, clock, [("1", "y")])
    assert not cleaner.run(log, due_only=True)
    clock.ms += 60_001
    assert cleaner.run(log, due_only=True), "too old to wait for more"


def test_offsets_before_the_checkpoint_are_not_read_for_keys_again(
    log: PartitionLog, cleaner: Cleaner, clock: SetClock
) -> None:
    fill(log, clock, [("a", "1"), ("b", "1")])
    assert cleaner.run(log)
    fill(log, clock, [("a", "2")])
    assert cleaner.run(log)
    assert cleaner.last is not None
    assert cleaner.last.stats.keys == 1
    assert contents(log) == [(1, "b", "1"), (2, "a", "2")]


@pytest.mark.parametrize("checkpoint", [-1, 99])
def test_a_checkpoint_outside_the_log_means_all_of_it(
    log: PartitionLog, cleaner: Cleaner, clock: SetClock, checkpoint: int
) -> None:
    fill(log, clock, [("a", "1"), ("a", "2")])
    cleaner.checkpoint = checkpoint
    assert cleaner.run(log)
    assert contents(log) == [(1, "a", "2")]


def test_a_full_map_takes_more_rounds(log: PartitionLog, cleaner: Cleaner, clock: SetClock) -> None:
    cleaner.limits = CleanerLimits(dedupe_buffer_bytes=0, io_buffer_bytes=4096)
    for number in range(30):
        put(log, [(f"{number}-{n}", "old") for n in range(100)], clock.ms)
        put(log, [(f"{number}-{n}", "new") for n in range(100)], clock.ms)
    close_segment(log)
    rounds = 0
    while cleaner.run(log):
        rounds += 1
    assert rounds > 2
    left = contents(log)
    assert len(left) == 3000
    assert {value for _, _, value in left} == {"new"}


@pytest.mark.parametrize("codec", list(Compression))
def test_batches_keep_their_codec(log: PartitionLog, cleaner: Cleaner, clock: SetClock, codec: Compression) -> None:
    records = [Record(n, clock.ms + n, b"key-%d" % (n % 50), b"v" * 50) for n in range(100)]
    log.append_as_leader(encode_batch(records, compression=codec), LeaderEpoch(0))
    close_segment(log)
    assert cleaner.run(log)
    ((header, kept),) = batches(log)
    assert header.compression is codec
    assert [(r.offset, r.timestamp_ms, r.key, r.value) for r in kept] == [
        (r.offset, r.timestamp_ms, r.key, r.value) for r in records[50:]
    ]


def test_headers_and_timestamps_survive(log: PartitionLog, cleaner: Cleaner, clock: SetClock) -> None:
    rows = [
        Record(0, clock.ms + 500, b"gone", b"1"),
        Record(1, clock.ms + 7, b"k", b"v" * 200, (("name", b"value"), ("none", None))),
        Record(2, clock.ms - 9, b"t", None, (("why", b"gone"),)),
        Record(3, clock.ms + 1, b"gone", b"2"),
    ]
    log.append_as_leader(encode_batch(rows), LeaderEpoch(0))
    close_segment(log)
    assert cleaner.run(log)
    ((header, kept),) = batches(log)
    assert kept == rows[1:]
    assert header.max_timestamp == clock.ms + 7
    found = log.offset_for_timestamp(clock.ms + 5)
    assert found is not None
    assert found.offset == 1


def test_the_last_batch_of_an_active_producer_stays_empty(
    log: PartitionLog, cleaner: Cleaner, clock: SetClock, driver: LogDriver
) -> None:
    put(log, [("a", "1")], clock.ms, producer_id=7, producer_epoch=0, base_sequence=0)
    last = encode_batch([Record(0, clock.ms, b"a", b"2")], producer_id=7, producer_epoch=0, base_sequence=1)
    log.append_as_leader(bytearray(last), LeaderEpoch(0))
    fill(log, clock, [("a", "3")])
    assert cleaner.run(log)
    headers = [(header.base_offset, header.base_sequence, header.record_count) for header, _ in batches(log)]
    assert headers == [(1, 1, 0), (2, -1, 1)]
    log = driver.crash(log, recovery_point=0)
    info = log.append_as_leader(bytearray(last), LeaderEpoch(0))
    assert info.duplicate
    assert info.first_offset == 1


def test_the_end_of_the_round_stays_as_an_empty_batch(log: PartitionLog, cleaner: Cleaner, clock: SetClock) -> None:
    fill(log, clock, [("a", None)])
    assert cleaner.run(log)
    clock.ms += DAY_MS
    cleaner.checkpoint = 0
    assert cleaner.run(log)
    ((header, records),) = batches(log)
    assert (header.base_offset, header.record_count, records) == (0, 0, [])
    fill(log, clock, [("b", "1")])
    assert cleaner.run(log)
    assert [header.base_offset for header, _ in batches(log)] == [1]


def transact(
    log: PartitionLog,
    clock: SetClock,
    kind: ControlType,
    *written: list[tuple[str, str | None]],
    marker_epoch: int = 1,
) -> None:
    entry = log.producer_state.producers.get(9)
    sequence = 0 if entry is None else entry.last_sequence + 1
    for records in written:
        put(log, records, clock.ms, producer_id=9, producer_epoch=1, base_sequence=sequence, transactional=True)
        sequence += len(records)
    marker = encode_end_transaction(EndTransaction(kind, 3, clock.ms), producer_id=9, producer_epoch=marker_epoch)
    log.append_as_leader(marker, LeaderEpoch(0), origin=Origin.COORDINATOR)


def test_aborted_data_goes_and_its_marker_follows_later(log: PartitionLog, cleaner: Cleaner, clock: SetClock) -> None:
    put(log, [("a", "0")], clock.ms)
    transact(log, clock, ControlType.ABORT, [("a", "1"), ("b", "1")], [("c", "1")])
    transact(log, clock, ControlType.COMMIT, [("d", "1")])
    close_segment(log)
    assert len(log.aborted_transactions(0, 10)) == 1
    assert cleaner.run(log)
    assert contents(log) == [(0, "a", "0"), (5, "d", "1")], "aborted records hide nothing"
    assert [header.base_offset for header, _ in batches(log) if header.is_control] == [4, 6]
    assert len(log.aborted_transactions(0, 10)) == 1, "the marker's transaction was seen in this round"
    fill(log, clock, [("e", "1")])
    assert cleaner.run(log)
    assert log.aborted_transactions(0, 10) == []
    (abort,) = [header for header, _ in batches(log) if header.base_offset == 4]
    assert abort.delete_horizon_ms == clock.ms + DAY_MS
    clock.ms += DAY_MS
    fill(log, clock, [("f", "1")])
    assert cleaner.run(log)
    assert [header.base_offset for header, _ in batches(log)] == [0, 5, 6, 7, 8]


def test_the_marker_that_fences_a_producer_stays(log: PartitionLog, cleaner: Cleaner, clock: SetClock) -> None:
    transact(log, clock, ControlType.ABORT, [("a", "1")], marker_epoch=2)
    fill(log, clock, [("a", "2")])
    for _ in range(3):
        assert cleaner.run(log)
        clock.ms += DAY_MS
        fill(log, clock, [("b", "1")])
    header, records = batches(log)[0]
    assert (header.base_offset, header.is_control, header.producer_epoch) == (1, True, 2)
    assert len(records) == 0


def test_an_open_transaction_stops_the_round_before_it(log: PartitionLog, cleaner: Cleaner, clock: SetClock) -> None:
    fill(log, clock, [("a", "1"), ("a", "2")])
    put(log, [("a", "3")], clock.ms, producer_id=9, producer_epoch=1, base_sequence=0, transactional=True)
    close_segment(log)
    assert cleaner.run(log)
    assert contents(log) == [(1, "a", "2"), (2, "a", "3")]
    assert cleaner.checkpoint == 2


def test_readers_of_the_old_segments_go_on(log: PartitionLog, cleaner: Cleaner, clock: SetClock) -> None:
    fill(log, clock, [("a", "1")], [("a", "2")], [("b", "1")])
    old = log.segments
    before = [bytes(segment.file.read(0, segment.size)) for segment in old]
    handles = [segment.file for segment in old]
    assert cleaner.run(log)
    assert [bytes(file.read(0, len(data))) for file, data in zip(handles, before, strict=True)] == before
    assert log.read_blocking(Offset(0), 100, upper_bound=3, min_one_message=True).segment_base_offset == 0


def test_a_log_that_changed_meanwhile_keeps_its_segments(
    log: PartitionLog, cleaner: Cleaner, clock: SetClock, disk: Disk
) -> None:
    from ottla.log.replacement import Replacement

    fill(log, clock, [("a", "1"), ("a", "2")], [("a", "3")])
    view = cleanable_log(log, log.recovery_point)
    dirty = find_dirt(view, None, clock.ms)
    assert dirty is not None
    cleaning = Cleaning(dirty, disk, clock.ms, CleanerLimits())
    cleaning.prepare()
    (group,) = cleaning.groups
    cleaned = cleaning.clean(group)
    assert cleaned is not None
    log.truncate_to(Offset(2))
    assert not Replacement(log, disk, group, cleaned, view.generation).begin()
    assert contents(log) == [(0, "a", "1"), (1, "a", "2")]
    assert not [name for name in files(log) if name.endswith((names.CLEANED, names.SWAP))]


def test_retention_may_take_the_segment_while_it_is_swapped(
    driver: LogDriver, cleaner: Cleaner, clock: SetClock, disk: Disk
) -> None:
    from ottla.log.replacement import Replacement

    log = driver.open(clean=True, compact=True, delete=True, retention_ms=1000)
    fill(log, clock, [("a", "1"), ("a", "2")], [("a", "3")])
    view = cleanable_log(log, log.recovery_point)
    dirty = find_dirt(view, None, clock.ms)
    assert dirty is not None
    cleaning = Cleaning(dirty, disk, clock.ms, CleanerLimits())
    cleaning.prepare()
    (group,) = cleaning.groups
    cleaned = cleaning.clean(group)
    assert cleaned is not None
    replacement = Replacement(log, disk, group, cleaned, view.generation)
    assert replacement.begin()
    replacement.sync()
    assert replacement.swap()
    clock.ms += 2000
    deletion = log.apply_retention(clock.ms)
    assert deletion is not None
    deletion.remove()
    replacement.finish()
    replacement.remove()
    assert files(log) == ["00000000000000000003.log"]


def test_nothing_is_rewritten_when_nothing_would_change(log: PartitionLog, cleaner: Cleaner, clock: SetClock) -> None:
    fill(log, clock, [("a", "1"), ("b", "1")])
    segment = log.segments[0]
    assert cleaner.run(log)
    assert cleaner.checkpoint == 2
    assert log.segments[0] is segment
    assert files(log) == ["00000000000000000000.log", "00000000000000000002.log"]


def damage(log: PartitionLog, position: int) -> None:
    with open(log.segments[0].path, "r+b") as file:
        file.seek(position)
        file.write(b"\xff")


def test_damage_that_hides_the_next_batch_ends_the_round_and_is_named(
    log: PartitionLog, cleaner: Cleaner, clock: SetClock, driver: LogDriver
) -> None:
    fill(log, clock, [("a", "1"), ("a", "2")])
    damage(log, MAGIC_AT)
    with pytest.raises(CorruptMessage, match=r"00000000000000000000\.log at position 0"):
        cleaner.run(log)
    assert files(log) == ["00000000000000000000.log", "00000000000000000002.log"]


def test_a_damaged_batch_stays_as_it_is_and_the_rest_is_compacted(
    log: PartitionLog, cleaner: Cleaner, clock: SetClock, driver: LogDriver
) -> None:
    fill(log, clock, [("a", "1")], [("b", "1"), ("b", "2")], [("a", "2")], [("c", "1")])
    damaged = log.segments[0].path
    size = log.segments[0].size
    damage(log, size - 1)
    with open(damaged, "rb") as file:
        before = file.read()
    assert cleaner.run(log)
    assert cleaner.last is not None
    assert list(cleaner.last.stats.unreadable) == [0]
    assert f"in {damaged} at position 0: its CRC" in cleaner.last.stats.unreadable[0]
    with open(log.segments[0].path, "rb") as file:
        assert file.read(len(before)) == before
    with pytest.raises(CorruptMessage, match="CRC"):
        log.read_blocking(0, 1 << 20, upper_bound=log.log_end_offset, min_one_message=True)
    log.delete_records_before(Offset(1))
    assert contents(log) == [(2, "b", "2"), (3, "a", "2"), (4, "c", "1")]


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.ZSTD])
def test_garbage_of_older_times_stays_as_it_is_and_the_rest_is_compacted(
    log: PartitionLog, cleaner: Cleaner, clock: SetClock, codec: Compression
) -> None:
    """Records that a client could once write into a topic that was not compacted then."""
    fill(log, clock, [("a", "1"), ("b", "1")])
    garbage = encode_batch([Record(n, clock.ms, b"a", b"v" * 40) for n in range(5)], compression=codec)
    garbage[HEADER_SIZE:] = bytes(range(7, 7 + len(garbage) - HEADER_SIZE))
    seal(garbage)
    log.append_as_leader(garbage, LeaderEpoch(0), origin=Origin.COORDINATOR)
    fill(log, clock, [("a", "2")], [("c", "1"), ("c", "2")])
    assert cleaner.run(log)
    assert cleaner.checkpoint == 10
    assert cleaner.last is not None
    assert list(cleaner.last.stats.unreadable) == [2]
    data = bytes(log.read_blocking(0, 1 << 20, upper_bound=10, min_one_message=True).data)
    assert bytes(garbage[CHECKED_FROM:]) in data
    kept = [header.base_offset for header in iter_batches(data)]
    assert kept == [0, 2, 7, 8]
    readable = [r for h in iter_batches(data) if h.base_offset != 2 for r in decode_records(data, h)]
    assert [(r.offset, r.key, r.value) for r in readable] == [(1, b"b", b"1"), (7, b"a", b"2"), (9, b"c", b"2")]


def test_a_round_can_be_stopped_and_leaves_nothing(log: PartitionLog, cleaner: Cleaner, clock: SetClock) -> None:
    fill(log, clock, [("a", "1"), ("a", "2")], [("a", "3")])
    calls = 0

    def pause(size: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise CleaningAborted

    cleaner.limits = with_changes(cleaner.limits, pause=pause)
    with pytest.raises(CleaningAborted):
        cleaner.run(log)
    assert len(contents(log)) == 3
    assert len(files(log)) == 3


def test_a_full_disk_leaves_the_log_as_it_was(log: PartitionLog, cleaner: Cleaner, clock: SetClock, disk: Disk) -> None:
    fill(log, clock, [("a", "x" * 500), ("b", "x" * 500), ("a", "y" * 500)])
    disk.room = 400
    with pytest.raises(OSError, match="No space"):
        cleaner.run(log)
    assert len(contents(log)) == 3
    assert len(files(log)) == 2
    disk.room = None
    assert cleaner.run(log)
    assert len(contents(log)) == 2


def test_a_cleaned_log_survives_restarts(
    log: PartitionLog, cleaner: Cleaner, clock: SetClock, driver: LogDriver
) -> None:
    fill(log, clock, *([("a", str(n)), (f"k{n % 7}", str(n))] for n in range(20)))
    assert cleaner.run(log)
    expected = contents(log)
    log = driver.reopen(log)
    assert contents(log) == expected
    log = driver.crash(log)
    assert contents(log) == expected
    assert log.log_end_offset == 40


def test_the_largest_lag_closes_segments_in_time(driver: LogDriver, cleaner: Cleaner, clock: SetClock) -> None:
    log = driver.open(clean=True, compact=True, max_compaction_lag_ms=60_000, min_cleanable_dirty_ratio=1.0)
    put(log, [("a", "1"), ("a", "2")], clock.ms)
    clock.ms += 60_001
    put(log, [("b", "1")], clock.ms)
    log.flush()
    log.high_watermark = log.log_end_offset
    assert cleaner.run(log, due_only=True)
    assert contents(log) == [(1, "a", "2"), (2, "b", "1")]
