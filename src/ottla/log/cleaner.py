"""Compaction (`cleanup.policy=compact`): of each key the newest record stays, offsets stay as they are.

One round over one log, as Kafka does it::

      cleaned in earlier rounds      dirty: closed, old enough, on the disk      may not be touched
    |----------------------------|-------------------------------------------|----------------------|
    log start             first_dirty                                first_uncleanable        log end

1. The keys of the dirty part go into a map with their newest offsets (`cleaner_map`), as many as there is memory for.
2. All segments up to there are copied, several small ones into one, without the records that the map has a newer one
   of. Batches keep their first and last offset and their sequences, whatever is taken out of them.
3. Each copy takes its segments' place (`replacement`), and the cleaner checkpoint moves up.

Tombstones stay for `delete.retention.ms` from the round that first meets them: it writes the time when they may go
into the batch's header as its delete horizon (KIP-534). Batches that are left without records are dropped, except the
last one of an active producer (for its sequence) and the one at the end of the round (for its offset).

A batch that cannot be read (records that were never checked, damage on the disk) stays as it is, and the rest is
compacted; only damage that hides where the next batch begins ends the round.

All of this runs in a thread, over a `CleanableLog` that the thread that owns the log has handed out.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.config.log import LogConfig
from ottla.ids import TopicPartition
from ottla.log import names
from ottla.log.cleaner_map import OffsetMap
from ottla.log.cleaner_records import Outline, read_outlines, rebased
from ottla.log.cleaner_transactions import CleanedTransactions
from ottla.log.fs import FileSystem
from ottla.log.scan import InvalidBatch
from ottla.log.segment import MAX_RELATIVE_OFFSET, Segment
from ottla.log.transaction_index import AbortedTransaction
from ottla.records.batch import (
    CHECKED_FROM,
    COMPRESSION_MASK,
    DELETE_HORIZON_FLAG,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_FLAG,
    MAGIC_V2,
    NO_TIMESTAMP,
    BatchHeader,
    Buffer,
    seal,
)
from ottla.records.checksum import crc32c
from ottla.records.compression import compress

if TYPE_CHECKING:
    from ottla.log.partition_log import PartitionLog

logger: Final = logging.getLogger(__name__)

_NO_HORIZON: Final = -1


class CleaningAborted(Exception):
    """The round was stopped; nothing is lost, it begins again another time."""


class LastRecord(NamedTuple):
    """The last that a producer has written to a log."""

    data_offset: int | None
    """Offset of its last batch of data; None if only a marker is known."""
    epoch: int


@dataclass(frozen=True, slots=True)
class CleanableLog:
    """A log as of one moment, for other threads to look at."""

    topic_partition: TopicPartition
    directory: str
    segments: tuple[Segment, ...]
    """Ascending, the active one last."""
    config: LogConfig
    log_start_offset: int
    log_end_offset: int
    stable_end: int
    """All below is committed, decided, and below the recovery point that is written down."""
    generation: int
    last_records: Mapping[int, LastRecord]
    """By producer id."""


@dataclass(frozen=True, slots=True)
class DirtyLog:
    """A log with something to compact."""

    log: CleanableLog
    first_dirty: int
    first_uncleanable: int
    clean_bytes: int
    dirty_bytes: int
    overdue: bool
    """The oldest dirty record is older than `max.compaction.lag.ms`."""

    @property
    def ratio(self) -> float:
        """The dirty share of all that could be cleaned."""
        return self.dirty_bytes / (self.clean_bytes + self.dirty_bytes)

    @property
    def is_due(self) -> bool:
        return self.overdue or self.ratio > self.log.config.min_cleanable_dirty_ratio


def cleanable_log(log: "PartitionLog", written_recovery_point: int) -> CleanableLog:
    """The log as of now, for the thread that owns it. `written_recovery_point`: the one in the checkpoint file.

    A round does not go past that: what it takes out must not be needed by what a crash may leave, and recovery must
    not take the gaps that it makes for losses.
    """
    last_records = {
        producer_id: LastRecord(entry.batches[-1].last_offset if entry.batches else None, entry.epoch)
        for producer_id, entry in log.producer_state.producers.items()
    }
    return CleanableLog(
        log.topic_partition,
        str(log.directory),
        log.segments,
        log.config,
        log.log_start_offset,
        log.log_end_offset,
        min(log.last_stable_offset, written_recovery_point),
        log.generation,
        last_records,
    )


def first_dirty_offset(log: CleanableLog, checkpoint: int | None) -> int:
    """Where the dirty part begins: at the cleaner's checkpoint, if the log still reaches there."""
    if checkpoint is None or not log.log_start_offset <= checkpoint <= log.log_end_offset:
        return log.log_start_offset
    return checkpoint


def find_dirt(log: CleanableLog, checkpoint: int | None, now_ms: int) -> DirtyLog | None:
    """What there is to compact, due or not; None if nothing. In any thread. Raises OSError, CorruptMessage."""
    config = log.config
    first_dirty = first_dirty_offset(log, checkpoint)
    closed = log.segments[:-1]
    following = [segment.base_offset for segment in log.segments[1:]]
    first_uncleanable = log.segments[0].base_offset
    for segment, end in zip(closed, following, strict=True):
        if end > log.stable_end:
            break
        recent = config.min_compaction_lag_ms > 0 and (
            end > first_dirty and segment.largest_timestamp_ms() > now_ms - config.min_compaction_lag_ms
        )
        if recent:
            break
        first_uncleanable = end
    dirty = [
        segment
        for segment, end in zip(closed, following, strict=True)
        if end > first_dirty and segment.base_offset < first_uncleanable
    ]
    dirty_bytes = sum(segment.size for segment in dirty)
    if not dirty_bytes:
        return None
    written_ms = [timestamp for segment in dirty if (timestamp := segment.first_timestamp_ms()) > 0]
    overdue = bool(written_ms) and min(written_ms) < now_ms - config.max_compaction_lag_ms
    clean_bytes = sum(segment.size for segment in closed if segment.base_offset < dirty[0].base_offset)
    return DirtyLog(log, first_dirty, first_uncleanable, clean_bytes, dirty_bytes, overdue)


@dataclass(slots=True)
class CleaningStats:
    """What a round has done so far."""

    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_written: int = 0
    keys: int = 0
    unreadable: dict[int, str] = field(default_factory=dict)
    """By base offset, what is wrong with batches that were kept as they are."""


@dataclass(frozen=True, slots=True)
class CleanerLimits:
    """What a round may use. `pause(bytes)` is called after each batch that was read and each that was written:
    it waits as the throughput allows, gives way to other threads, and raises CleaningAborted to end the round."""

    dedupe_buffer_bytes: int = 128 << 20
    io_buffer_bytes: int = 512 << 10
    pause: Callable[[int], None] = field(default=lambda _: None)


class Cleaning:
    """One round over one log. `prepare`, then `clean` for each of the `groups`; in one thread at a time.

    All raise OSError, CorruptMessage naming file and position, CleaningAborted.
    """

    def __init__(self, dirty: DirtyLog, fs: FileSystem, now_ms: int, limits: CleanerLimits) -> None:
        self.dirty = dirty
        self.stats = CleaningStats()
        self.groups: list[list[Segment]] = []
        self.end_offset = dirty.first_dirty
        """The next round's first dirty offset, when all groups are cleaned."""
        self._fs = fs
        self._now_ms = now_ms
        self._limits = limits
        self._map = OffsetMap(limits.dedupe_buffer_bytes)
        self._transactions = CleanedTransactions([])

    def prepare(self) -> None:
        """Reads the keys of the dirty segments, and chooses the segments to be copied together."""
        dirty = self.dirty
        segments = [s for s in dirty.log.segments if s.base_offset < dirty.first_uncleanable]
        first = max((s.base_offset for s in segments if s.base_offset <= dirty.first_dirty), default=0)
        transactions = CleanedTransactions(self._aborted(first))
        for number, segment in enumerate(segments):
            if segment.base_offset < first:
                continue
            if not self._map_segment(segment, transactions):
                break
            following = segments[number + 1].base_offset if number + 1 < len(segments) else dirty.first_uncleanable
            self._map.latest_offset = following - 1  # also where batches at the end are gone already
        self.end_offset = max(dirty.first_dirty, self._map.latest_offset + 1)
        self.stats.keys = len(self._map)
        self.groups = self._grouped([s for s in segments if s.base_offset < self.end_offset])
        self._transactions = CleanedTransactions(self._aborted(segments[0].base_offset))

    def clean(self, group: list[Segment]) -> Segment | None:
        """Copies the group's segments into one `.cleaned`, complete and on the disk; None if nothing would change."""
        log = self.dirty.log
        cleaned = Segment.create(
            self._fs, log.directory, group[0].base_offset, created_ms=group[-1].created_ms, suffix=names.CLEANED
        )
        try:
            self._transactions.index = cleaned.transaction_index
            changed = len(group) > 1
            for segment in group:
                changed |= self._clean_into(cleaned, segment)
            if changed:
                if self.stats.unreadable:
                    cleaned.forget_checks()  # what is damaged must not be served for having been copied
                cleaned.finish()
                cleaned.sync()
                return cleaned
        except BaseException:
            cleaned.discard()
            raise
        cleaned.discard()
        return None

    # --- the map -----------------------------------------------------------------------------------------------

    def _map_segment(self, segment: Segment, transactions: CleanedTransactions) -> bool:
        """Whether there was room in the map for all of it."""
        first_dirty = self.dirty.first_dirty
        position = segment.offset_index.floor(first_dirty, blocking=True)[1]
        for header, batch in self._batches(segment, position):
            if header.base_offset in self.stats.unreadable:
                pass
            elif header.is_control:
                transactions.is_spent(batch, header)
            elif not transactions.is_aborted(header):
                if self._map.is_full:
                    return False
                outlines = self._outlines(segment, header, batch)
                if outlines is not None:
                    self._map.put(outlines[1], header.base_offset, first_dirty)
            if header.last_offset >= first_dirty:
                self._map.latest_offset = header.last_offset
        return True

    def _aborted(self, first_offset: int) -> list[AbortedTransaction]:
        found: list[AbortedTransaction] = []
        for segment in self.dirty.log.segments:
            if segment.base_offset >= first_offset:
                some, complete = segment.transaction_index.overlapping(first_offset, self.dirty.first_uncleanable)
                found += some
                if complete:
                    break
        return found

    def _grouped(self, segments: list[Segment]) -> list[list[Segment]]:
        """Neighbours that fit into one segment together, whatever is taken out of them."""
        config = self.dirty.log.config
        groups: list[list[Segment]] = []
        size = entries = 0
        ends = [*(segment.base_offset for segment in segments[1:]), self.dirty.first_uncleanable]
        for segment, end in zip(segments, ends, strict=True):
            more = max(len(segment.offset_index), len(segment.time_index))
            fits = (
                groups
                and size + segment.size <= config.segment_bytes
                and (entries + more) * 12 <= config.segment_index_bytes
                and end - 1 - groups[-1][0].base_offset <= MAX_RELATIVE_OFFSET
            )
            if fits:
                groups[-1].append(segment)
                size += segment.size
                entries += more
            else:
                groups.append([segment])
                size, entries = segment.size, more
        return groups

    # --- copying -----------------------------------------------------------------------------------------------

    def _clean_into(self, cleaned: Segment, segment: Segment) -> bool:
        """Copies what stays of a segment; whether that is not all of it."""
        changed = False
        stats = self.stats
        for header, batch in self._batches(segment, 0):
            stats.bytes_read += header.size_bytes
            stats.records_read += header.record_count
            kept = self._filtered(segment, header, batch)
            if kept is None:
                changed = True
                continue
            data, max_timestamp_ms = kept
            changed |= data is not batch
            cleaned.append(
                data,
                first_offset=header.base_offset,
                last_offset=header.last_offset,
                max_timestamp_ms=max_timestamp_ms,
                offset_of_max_timestamp=header.last_offset,
                index_interval_bytes=self.dirty.log.config.index_interval_bytes,
            )
            stats.bytes_written += len(data)
            self._limits.pause(len(data))
        return changed

    def _filtered(self, segment: Segment, header: BatchHeader, batch: memoryview) -> tuple[Buffer, int] | None:
        """What stays of a batch, with its largest timestamp: None, the batch itself, or a new one."""
        if header.base_offset in self.stats.unreadable:
            return batch, NO_TIMESTAMP
        horizon = header.base_timestamp if header.attributes & DELETE_HORIZON_FLAG else _NO_HORIZON
        if header.is_control:
            spent = self._transactions.is_spent(batch, header)
            if not spent or not header.record_count:
                drop, new_horizon = spent, _NO_HORIZON
            else:
                drop = horizon != _NO_HORIZON and horizon <= self._now_ms
                new_horizon = self._now_ms + self._delete_retention_ms if horizon == _NO_HORIZON else _NO_HORIZON
            if drop:
                return self._emptied(header, batch)
            self.stats.records_written += header.record_count
            if new_horizon == _NO_HORIZON:
                return batch, header.max_timestamp
            return self._rebuilt(header, *read_outlines(segment.path, header, batch), new_horizon)
        if self._transactions.is_aborted(header):
            return self._emptied(header, batch)
        outlines = self._outlines(segment, header, batch)
        if outlines is None:
            return batch, header.max_timestamp
        records, all_of_it = outlines
        kept = self._map.newest(all_of_it, header.base_offset)
        if horizon != _NO_HORIZON and horizon <= self._now_ms:
            latest_delta = self._map.latest_offset - header.base_offset
            kept = [record for record in kept if record[5] or record[2] > latest_delta]
        if not kept:
            return self._emptied(header, batch)
        self.stats.records_written += len(kept)
        if horizon == _NO_HORIZON and not all(record[5] for record in kept):  # a tombstone is among them
            return self._rebuilt(header, records, kept, self._now_ms + self._delete_retention_ms)
        if len(kept) == header.record_count:
            return batch, header.max_timestamp
        return self._rebuilt(header, records, kept, _NO_HORIZON)

    @property
    def _delete_retention_ms(self) -> int:
        return self.dirty.log.config.delete_retention_ms

    def _emptied(self, header: BatchHeader, batch: Buffer) -> tuple[Buffer, int] | None:
        """The header alone, where that is still needed; None where it is not."""
        if not self._keeps_empty(header):
            return None
        if header.record_count:
            attributes = header.attributes & ~(COMPRESSION_MASK | DELETE_HORIZON_FLAG)
            batch = _batch(header, attributes, NO_TIMESTAMP, header.max_timestamp, 0, b"")
        return batch, header.max_timestamp

    def _keeps_empty(self, header: BatchHeader) -> bool:
        if header.next_offset == self.dirty.first_uncleanable:
            return True
        last = self.dirty.log.last_records.get(header.producer_id) if header.has_producer_id else None
        if last is None:
            return False
        if last.data_offset is not None:
            return header.last_offset == last.data_offset
        return header.is_control and header.producer_epoch == last.epoch

    def _rebuilt(self, header: BatchHeader, plain: bytes, kept: list[Outline], new_horizon: int) -> tuple[Buffer, int]:
        """The batch with the records of `kept` only. Their bytes are copied as they are, unless a new delete horizon
        takes the place of the timestamp that theirs are counted from."""
        attributes, base_timestamp = header.attributes, header.base_timestamp
        if new_horizon == _NO_HORIZON:
            records: Buffer = b"".join([plain[record[0] : record[1]] for record in kept])
        else:
            attributes |= DELETE_HORIZON_FLAG
            base_timestamp = new_horizon
            records = rebased(plain, kept, header.base_timestamp - new_horizon)
        max_timestamp = header.max_timestamp
        if not attributes & LOG_APPEND_TIME_FLAG:
            max_timestamp = header.base_timestamp + max(record[3] for record in kept)
        if attributes & COMPRESSION_MASK:
            records = compress(header.compression, records)
        return _batch(header, attributes, base_timestamp, max_timestamp, len(kept), records), max_timestamp

    def _outlines(self, segment: Segment, header: BatchHeader, batch: Buffer) -> tuple[bytes, list[Outline]] | None:
        """The records of a batch and their outlines; None, having noted it, if they cannot be read."""
        try:
            return read_outlines(segment.path, header, batch)
        except InvalidBatch as problem:
            self.stats.unreadable[header.base_offset] = str(problem)
            return None

    def _batches(self, segment: Segment, position: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        """The batches of a segment with their bytes. One with a wrong CRC behind which the next one can be found is
        noted in `stats.unreadable` before it comes. Raises InvalidBatch, OSError, CleaningAborted.
        """
        file, path, end = segment.file, segment.path, segment.size
        next_offset = segment.base_offset
        unpack = HEADER.unpack_from
        wanted = max(self._limits.io_buffer_bytes, HEADER_SIZE)
        while position < end:
            chunk = memoryview(file.read(position, min(wanted, end - position)))
            available, at = len(chunk), 0
            while at + HEADER_SIZE <= available:
                header = BatchHeader(position + at, *unpack(chunk, at))
                following = at + header.batch_length + LENGTH_OVERHEAD
                if header.magic != MAGIC_V2 or following < at + HEADER_SIZE or position + following > end:
                    raise InvalidBatch(
                        path, position + at, f"it claims magic {header.magic} and {header.batch_length} bytes"
                    )
                if following > available:
                    if at:
                        break
                    chunk = memoryview(file.read(position, following))
                    available = len(chunk)
                    if available < following:
                        raise InvalidBatch(path, position, "the file ends within it")
                batch = chunk[at:following]
                found = crc32c(batch[CHECKED_FROM:])
                if found != header.crc:
                    wrong = InvalidBatch(
                        path, position + at, f"its CRC is {found:08x}, it was written with {header.crc:08x}"
                    )
                    if not self._is_in_place(segment, header, next_offset):
                        raise wrong
                    self.stats.unreadable[header.base_offset] = str(wrong)
                next_offset = max(next_offset, header.next_offset)
                yield header, batch
                self._limits.pause(header.size_bytes)
                at = following
            if not at:
                raise InvalidBatch(path, position, "the file ends within its header")
            position += at

    def _is_in_place(self, segment: Segment, header: BatchHeader, next_offset: int) -> bool:
        """Whether a damaged batch has offsets between the offsets of its neighbours."""
        segments = self.dirty.log.segments
        end = min((s.base_offset for s in segments if s.base_offset > segment.base_offset), default=0)
        return next_offset <= header.base_offset <= header.last_offset < end


def _batch(
    header: BatchHeader, attributes: int, base_timestamp: int, max_timestamp: int, record_count: int, payload: Buffer
) -> bytearray:
    """A batch in another's place: offsets, producer and sequences are the other's."""
    batch = bytearray(HEADER_SIZE)
    HEADER.pack_into(
        batch,
        0,
        header.base_offset,
        HEADER_SIZE - LENGTH_OVERHEAD + len(payload),
        header.leader_epoch,
        MAGIC_V2,
        0,
        attributes,
        header.last_offset_delta,
        base_timestamp,
        max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        record_count,
    )
    batch += payload
    seal(batch)
    return batch
