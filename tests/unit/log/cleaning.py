"""Whole rounds of compaction in one thread, and keyed records to try them on."""

from collections.abc import Iterable
from typing import Any

from ottla.clock import Clock
from ottla.ids import LeaderEpoch
from ottla.log.cleaner import CleanerLimits, Cleaning, cleanable_log, find_dirt
from ottla.log.fs import FileSystem
from ottla.log.partition_log import PartitionLog
from ottla.log.replacement import replace_now
from ottla.records.batch import BatchHeader, iter_batches
from ottla.records.record import Record, decode_records, encode_batch


class Cleaner:
    """Compacts one log, round after round, and keeps its checkpoint."""

    def __init__(self, fs: FileSystem, clock: Clock) -> None:
        self.fs = fs
        self.clock = clock
        self.checkpoint: int | None = None
        self.limits = CleanerLimits(io_buffer_bytes=300)
        self.last: Cleaning | None = None

    def run(self, log: PartitionLog, *, due_only: bool = False) -> bool:
        """One round; whether there was anything to do."""
        now_ms = self.clock.now_ms()
        view = cleanable_log(log, log.recovery_point)
        dirty = find_dirt(view, self.checkpoint, now_ms)
        if dirty is None or (due_only and not dirty.is_due):
            return False
        self.last = cleaning = Cleaning(dirty, self.fs, now_ms, self.limits)
        cleaning.prepare()
        for group in cleaning.groups:
            cleaned = cleaning.clean(group)
            if cleaned is not None and not replace_now(log, self.fs, group, cleaned, view.generation):
                return False
        self.checkpoint = cleaning.end_offset
        return True


def put(log: PartitionLog, records: Iterable[tuple[str, str | None]], timestamp_ms: int, **options: Any) -> None:
    """Appends one batch of keys and values (None: a tombstone)."""
    rows = [
        Record(i, timestamp_ms, key.encode(), None if value is None else value.encode())
        for i, (key, value) in enumerate(records)
    ]
    log.append_as_leader(encode_batch(rows, **options), LeaderEpoch(0))


def close_segment(log: PartitionLog) -> None:
    """What is appended so far is closed, on the disk and committed: it can be compacted."""
    log.roll()
    log.flush()
    log.high_watermark = log.log_end_offset


def batches(log: PartitionLog) -> list[tuple[BatchHeader, list[Record]]]:
    """All batches that are left, by reads as clients make them."""
    found: list[tuple[BatchHeader, list[Record]]] = []
    offset: int = log.log_start_offset
    while True:
        data = log.read_blocking(offset, 1 << 20, upper_bound=log.log_end_offset, min_one_message=True).data
        if not len(data):
            return found
        for header in iter_batches(data):
            found.append((header, list(decode_records(data, header))))
            offset = header.next_offset


def contents(log: PartitionLog) -> list[tuple[int, str, str | None]]:
    """Offset, key and value of all data records that are left."""
    return [
        (r.offset, (r.key or b"").decode(), None if r.value is None else r.value.decode())
        for header, records in batches(log)
        if not header.is_control
        for r in records
    ]
