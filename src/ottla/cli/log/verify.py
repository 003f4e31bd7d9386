"""Checking a log's files against one another, without changing them.

Damage is what no crash explains: a wrong byte before the recovery point, offsets out of order, an index that points
between batches. What a crash may leave at the very end of a partition's last segment is reported as a torn tail.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, Literal

from ottla.cli.log.dump import ReadOnlyFileSystem, open_to_read
from ottla.errors import CorruptMessage, KafkaStorageError
from ottla.log import checkpoints, names
from ottla.log.fs import File
from ottla.log.offset_index import ENTRY_BYTES as OFFSET_ENTRY_BYTES
from ottla.log.offset_index import OffsetIndex
from ottla.log.preallocated import is_zero
from ottla.log.producer_state import decode_snapshot
from ottla.log.scan import InvalidBatch, find_batch, scan
from ottla.log.time_index import ENTRY_BYTES as TIME_ENTRY_BYTES
from ottla.log.time_index import TimeIndex
from ottla.log.transaction_index import TransactionIndex
from ottla.records.batch import HEADER, HEADER_SIZE, LENGTH_OVERHEAD, MAGIC_V2, BatchHeader
from ottla.records.record import decode_records

_SNAPSHOT_HEADER: Final = b"\0\0\0\3"
_SNAPSHOT_FOOTER: Final = b"\0\0\0\4"
"""Keys of the control records around a snapshot of metadata (KIP-630)."""
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"

Severity = Literal["damage", "torn tail"]


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is not as it was written."""

    path: Path
    position: int | None
    severity: Severity
    text: str


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """One .log file; `is_last` if it is the one being written in its partition."""

    path: Path
    base_offset: int
    size_bytes: int
    is_last: bool
    recovery_point: int | None


def segments_of(paths: Iterable[Path]) -> list[SegmentFile]:
    """The segments below log directories, partitions' directories, or given as files; each once, in order.

    Raises OSError and KafkaStorageError (a malformed recovery point checkpoint).
    """
    found: dict[Path, SegmentFile] = {}
    for path in paths:
        if path.is_file():
            directories = [path.parent] if path.suffix == names.LOG else []
        elif any(path.glob(f"*{names.LOG}")):
            directories = [path]
        else:
            directories = sorted(each for each in path.iterdir() if each.is_dir() and names.partition_of(each.name))
        for directory in directories:
            for segment in _segments_in(directory):
                if path.is_dir() or segment.path == path:
                    found[segment.path] = segment
    return list(found.values())


def has_partitions(path: Path) -> bool:
    """Whether it is a partition's directory, or has such, with or without records."""
    return any(path.glob(names.PARTITION_METADATA)) or any(path.glob(f"*/{names.PARTITION_METADATA}"))


def _segments_in(directory: Path) -> list[SegmentFile]:
    partition = names.partition_of(directory.name)
    try:
        points = checkpoints.read_offsets(ReadOnlyFileSystem(), str(directory.parent / RECOVERY_POINTS))
    except KafkaStorageError:  # reported with the directory's other checkpoints
        points = {}
    files = sorted(
        (offset, file) for file in directory.glob(f"*{names.LOG}") if (offset := names.offset_of(file.name)) is not None
    )
    return [
        SegmentFile(
            file,
            offset,
            file.stat().st_size,
            number == len(files) - 1,
            points.get(partition) if partition is not None else None,
        )
        for number, (offset, file) in enumerate(files)
    ]


@dataclass(slots=True)
class Verification:
    """The account of one run over any number of segments."""

    with_records: bool = False
    batches: int = 0
    records: int = 0
    bytes: int = 0
    problems: list[Problem] = field(default_factory=list)

    def check_segment(self, segment: SegmentFile, progress: Callable[[], None]) -> None:
        """Check one .log file and its indexes. Raises OSError."""
        file = open_to_read(segment.path)
        walk = _Walk(segment, file, self._offset_index(segment))
        begun = self.bytes
        while walk.position < segment.size_bytes:
            try:
                for header in scan(file, str(segment.path), walk.position, segment.size_bytes, check_crc=True):
                    self._take(walk, header)
                    self.bytes = begun + header.end_position
                    if not self.batches & 255:
                        progress()
            except InvalidBatch as invalid:
                self._step_over(walk, invalid)
        self.bytes = begun + segment.size_bytes
        progress()
        self._finish_index(walk)
        self._check_time_index(segment, walk.next_offset)
        self._check_transaction_index(segment)

    def _offset_index(self, segment: SegmentFile) -> deque[tuple[int, int]]:
        path = segment.path.with_suffix(names.OFFSET_INDEX)
        size_bytes = self._index_size(path, OFFSET_ENTRY_BYTES)
        if not size_bytes:
            return deque()
        entries: deque[tuple[int, int]] = deque()
        for entry in OffsetIndex(ReadOnlyFileSystem(), str(path), segment.base_offset, size_bytes).entries():
            if entry == (segment.base_offset, 0):
                break  # room that Kafka has set aside for entries to come
            if entries and (entry[0] <= entries[-1][0] or entry[1] <= entries[-1][1]):
                self._damage(path, None, f"the entry for offset {entry[0]} at {entry[1]} follows a later one")
                break
            entries.append(entry)
        return entries

    def _index_size(self, path: Path, entry_bytes: int) -> int:
        """Size of an index, 0 if there is none: the broker makes it anew."""
        if not path.exists():
            return 0
        size_bytes = path.stat().st_size
        if size_bytes % entry_bytes:
            self._damage(path, None, f"its size, {size_bytes} bytes, is no multiple of {entry_bytes}")
        return size_bytes - size_bytes % entry_bytes

    def _take(self, walk: "_Walk", header: BatchHeader) -> None:
        self.batches += 1
        self.records += header.record_count
        if header.base_offset < walk.next_offset:
            self._damage(
                walk.segment.path,
                header.position,
                f"the batch begins at offset {header.base_offset}, where {walk.next_offset} or later is due",
            )
        if self.with_records:
            self._unpack(walk, header)
        self._match_index(walk, header)
        walk.next_offset = max(walk.next_offset, header.next_offset)
        walk.position = header.end_position

    def _unpack(self, walk: "_Walk", header: BatchHeader) -> None:
        data = memoryview(walk.file.read(header.position, header.size_bytes))
        try:
            for record in decode_records(data, header._replace(position=0)):
                if not header.base_offset <= record.offset <= header.last_offset:
                    raise CorruptMessage(f"a record of offset {record.offset} outside its batch")
        except CorruptMessage as problem:
            self._damage(walk.segment.path, header.position, f"the batch does not unpack: {problem}")

    def _step_over(self, walk: "_Walk", invalid: InvalidBatch) -> None:
        """Report an invalid batch, and go on with the next one that can be found."""
        segment = walk.segment
        walk.position = invalid.position
        end = _claimed_end(walk.file, invalid.position, segment.size_bytes)
        if end is None:
            following = find_batch(walk.file, invalid.position + 1, segment.size_bytes, min_offset=walk.next_offset)
            end = segment.size_bytes if following is None else following.position
        is_tail = end >= segment.size_bytes and segment.is_last
        synced = segment.recovery_point is not None and walk.next_offset < segment.recovery_point
        if is_tail and not synced and is_zero(walk.file, invalid.position, end):
            pass  # preallocated: nothing was written there
        elif is_tail and not synced:
            self.problems.append(
                Problem(
                    segment.path,
                    invalid.position,
                    "torn tail",
                    f"{end - invalid.position} bytes that were never acknowledged ({invalid.problem}); "
                    "the broker cuts them off when it starts",
                )
            )
        else:
            self._damage(
                segment.path, invalid.position, f"{invalid.problem} ({end - invalid.position} bytes are affected)"
            )
        # An index entry for a damaged batch is as right as it ever was.
        while walk.entries and walk.entries[0][1] < end:
            walk.entries.popleft()
        walk.position = end

    def _match_index(self, walk: "_Walk", header: BatchHeader) -> None:
        while walk.entries and walk.entries[0][1] <= header.position:
            offset, position = walk.entries.popleft()
            if position != header.position:
                self._damage(
                    walk.index_path, None, f"offset {offset} is indexed at position {position}, where no batch begins"
                )
            elif offset < header.base_offset:
                self._damage(
                    walk.index_path,
                    None,
                    f"offset {offset} is indexed at position {position}, where offset {header.base_offset} begins",
                )

    def _finish_index(self, walk: "_Walk") -> None:
        for offset, position in walk.entries:
            self._damage(
                walk.index_path, None, f"offset {offset} is indexed at position {position}, past the last batch"
            )

    def _check_time_index(self, segment: SegmentFile, next_offset: int) -> None:
        path = segment.path.with_suffix(names.TIME_INDEX)
        size_bytes = self._index_size(path, TIME_ENTRY_BYTES)
        entries = (
            TimeIndex(ReadOnlyFileSystem(), str(path), segment.base_offset, size_bytes).entries() if size_bytes else []
        )
        previous: tuple[int, int] | None = None
        for timestamp_ms, offset in entries:
            if previous is not None and (timestamp_ms, offset) == (0, segment.base_offset):
                break  # room that Kafka has set aside for entries to come
            if previous is not None and (timestamp_ms < previous[0] or offset < previous[1]):
                self._damage(path, None, f"timestamp {timestamp_ms} of offset {offset} follows a later one")
                break
            if not segment.base_offset <= offset < max(next_offset, segment.base_offset + 1):
                self._damage(path, None, f"it names offset {offset}, which the segment does not hold")
                break
            previous = (timestamp_ms, offset)

    def _check_transaction_index(self, segment: SegmentFile) -> None:
        path = segment.path.with_suffix(names.TRANSACTION_INDEX)
        if not path.exists():
            return
        try:
            TransactionIndex(ReadOnlyFileSystem(), str(path), path.stat().st_size).entries()
        except CorruptMessage as problem:
            self._damage(path, None, str(problem))

    def check_directories(self, directories: Iterable[Path]) -> None:
        """Check what lies beside the segments: producer snapshots, epochs, ids and checkpoints. Raises OSError."""
        fs = ReadOnlyFileSystem()
        checked = sorted(directories)
        for directory in checked:
            for snapshot in sorted(directory.glob(f"*{names.PRODUCER_SNAPSHOT}")):
                self._check(snapshot, partial(_read_snapshot, snapshot))
            epochs = directory / names.LEADER_EPOCHS
            self._check(epochs, partial(checkpoints.read_epochs, fs, str(epochs)))
            metadata = directory / names.PARTITION_METADATA
            self._check(metadata, partial(checkpoints.read_partition_metadata, fs, str(metadata)))
            for snapshot in sorted(directory.glob(f"*{names.METADATA_SNAPSHOT}")):
                self._check(snapshot, partial(_read_metadata_snapshot, snapshot))
        for parent in sorted({directory.parent for directory in checked}):
            for path in sorted(parent.glob("*-offset-checkpoint")):
                self._check(path, partial(checkpoints.read_offsets, fs, str(path)))

    def _check(self, path: Path, read: Callable[[], object]) -> None:
        try:
            read()
        except (CorruptMessage, KafkaStorageError) as problem:
            self._damage(path, None, str(problem))

    def _damage(self, path: Path, position: int | None, text: str) -> None:
        self.problems.append(Problem(path, position, "damage", text))


@dataclass(slots=True)
class _Walk:
    """How far the check of one segment has come, and the index entries that are still ahead."""

    segment: SegmentFile
    file: File
    entries: deque[tuple[int, int]]
    position: int = 0
    next_offset: int = 0

    def __post_init__(self) -> None:
        self.next_offset = self.segment.base_offset

    @property
    def index_path(self) -> Path:
        return self.segment.path.with_suffix(names.OFFSET_INDEX)


def _claimed_end(file: File, position: int, size_bytes: int) -> int | None:
    """Where the batch at `position` ends by its own account, if what follows there bears that out; else None."""
    header_bytes = file.read(position, HEADER_SIZE)
    if len(header_bytes) < HEADER_SIZE:
        return None
    header = BatchHeader(position, *HEADER.unpack(header_bytes))
    end = header.end_position
    if header.magic != MAGIC_V2 or header.batch_length < HEADER_SIZE - LENGTH_OVERHEAD or end > size_bytes:
        return None
    following = file.read(end, HEADER_SIZE)
    if end == size_bytes or (len(following) == HEADER_SIZE and BatchHeader(end, *HEADER.unpack(following)).magic == 2):
        return end
    return None


def _read_metadata_snapshot(path: Path) -> None:
    """Read a snapshot of KRaft's metadata log. Raises CorruptMessage if it is damaged or incomplete."""
    file = open_to_read(path)
    kinds: list[bytes | None] = []
    try:
        for header in scan(file, str(path), 0, file.size(), check_crc=True):
            records = decode_records(
                memoryview(file.read(header.position, header.size_bytes)), header._replace(position=0)
            )
            kinds += [record.key if header.is_control else None for record in records]
    except InvalidBatch as invalid:
        raise CorruptMessage(f"the snapshot ends at position {invalid.position}: {invalid.problem}") from invalid
    for kind, number in ((_SNAPSHOT_HEADER, 0), (_SNAPSHOT_FOOTER, -1)):
        if not kinds or kinds[number] != kind:
            raise CorruptMessage(f"the snapshot has no {'footer: it is incomplete' if number else 'header'}")


def _read_snapshot(path: Path) -> object:
    return decode_snapshot(path.read_bytes())
