"""Snapshots of the metadata log: files of record batches, named after the position they stand for (KIP-630).

    00000000000000000042-0000000003.checkpoint         all below offset 42, whose last record is of epoch 3
    ....checkpoint.part                                being written or fetched: not a snapshot yet
    ....checkpoint.deleted                             on its way out

    | SnapshotHeader, KRaftVersion, Voters | records | records ... | SnapshotFooter |

Header and footer are control batches of their own; offsets begin at 0. A file gets its final name only when all of it
is on the disk. Everything here may wait for the disk, and runs in any thread.
"""

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from ottla.errors import CorruptMessage, OttlaError
from ottla.log.fs import File, FileSystem
from ottla.log.names import METADATA_SNAPSHOT
from ottla.log.scan import scan
from ottla.metadata.quorum.batches import MAX_BATCH_BYTES, RECORD_OVERHEAD_BYTES, encode_records
from ottla.protocol.messages.quorum_records import SnapshotFooterRecord, SnapshotHeaderRecord
from ottla.quorum.control_records import (
    SNAPSHOT_FOOTER,
    SNAPSHOT_HEADER,
    decode_control_batch,
    encode_control_batch,
)
from ottla.quorum.effects import ControlRecord
from ottla.quorum.replicas import OffsetAndEpoch
from ottla.records.batch import HEADER_SIZE, BatchHeader, read_header
from ottla.records.record import decode_values

log = logging.getLogger(__name__)

PART: Final = f"{METADATA_SNAPSHOT}.part"
DELETED: Final = f"{METADATA_SNAPSHOT}.deleted"
_NAME: Final = re.compile(r"(\d{20})-(\d{10})(?:-\w*)?(\.checkpoint(?:\.part|\.deleted)?)")


class FoundSnapshots(NamedTuple):
    """Whole snapshots with their sizes in bytes, and the names of files that are left from others."""

    whole: dict[OffsetAndEpoch, int]
    leftovers: list[str]


class Outline(NamedTuple):
    """The ends of a snapshot that has been checked."""

    last_append_time_ms: int
    """The time of the last record that it stands for, in milliseconds."""
    control_batches: list[bytes]


def file_name(snapshot: OffsetAndEpoch, suffix: str = METADATA_SNAPSHOT) -> str:
    """The name of a snapshot's file."""
    return f"{snapshot.offset:020d}-{snapshot.epoch:010d}{suffix}"


def find(fs: FileSystem, directory: str) -> FoundSnapshots:
    """The snapshots in the directory of the metadata log. Raises OSError."""
    found = FoundSnapshots({}, [])
    for name, is_directory, size in fs.names(directory):
        match = None if is_directory else _NAME.fullmatch(name)
        if match is None:
            continue
        if match[3] == METADATA_SNAPSHOT:
            found.whole[OffsetAndEpoch(int(match[1]), int(match[2]))] = size
        else:
            found.leftovers.append(name)
    return found


def check(fs: FileSystem, path: str) -> Outline:
    """Read a snapshot from its header to its footer, with all checksums.

    Raises CorruptMessage if it is damaged or incomplete, or is none; OSError.
    """
    file = fs.open(path)
    controls: list[bytes] = []
    next_offset = 0
    last: BatchHeader | None = None
    for header in scan(file, path, 0, file.size(), check_crc=True):
        if header.base_offset != next_offset:
            raise CorruptMessage(f"{path}: the records from {next_offset} to {header.base_offset - 1} are missing")
        next_offset = header.next_offset
        last = header
        if header.is_control:
            controls.append(bytes(file.read(header.position, header.size_bytes)))
    first_control = next(_control_records(controls[:1]), None)
    if (
        first_control is None
        or first_control.type != SNAPSHOT_HEADER
        or not isinstance(first_control.value, SnapshotHeaderRecord)
    ):
        raise CorruptMessage(f"{path} is no snapshot: it does not begin with the header of one")
    ends = [record.type for record in _control_records(controls[-1:])]
    if last is None or not last.is_control or not ends or ends[-1] != SNAPSHOT_FOOTER:
        raise CorruptMessage(f"{path} is incomplete: it does not end with the footer of a snapshot")
    return Outline(first_control.value.last_contained_log_timestamp, controls)


def last_append_time_ms(fs: FileSystem, path: str) -> int:
    """When the last record that a snapshot stands for was appended. Raises CorruptMessage, OSError."""
    file = fs.open(path)
    header = read_header(file.read(0, HEADER_SIZE))
    for record in _control_records([bytes(file.read(0, header.size_bytes))]):
        if isinstance(record.value, SnapshotHeaderRecord):
            return record.value.last_contained_log_timestamp
    raise CorruptMessage(f"{path} is no snapshot: it does not begin with the header of one")


def _control_records(batches: Iterable[bytes]) -> Iterator[ControlRecord]:
    for batch in batches:
        for _, record in decode_control_batch(batch, read_header(batch)):
            yield record


def read_records(fs: FileSystem, path: str) -> Iterator[bytes]:
    """The framed metadata records of a snapshot. Raises CorruptMessage, OSError."""
    file = fs.open(path)
    for header in scan(file, path, 0, file.size(), check_crc=True):
        if not header.is_control:
            batch = bytes(file.read(header.position, header.size_bytes))
            for value in decode_values(batch, header._replace(position=0)):
                if value is not None:
                    yield value


class SnapshotWriter:
    """A snapshot of this node's own, in the making; `add`, then `finish` or `discard`."""

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        snapshot: OffsetAndEpoch,
        *,
        last_append_time_ms: int,
        of_voters: Sequence[ControlRecord],
        now_ms: int,
        name: str | None = None,
    ) -> None:
        """`of_voters`: the records that name `kraft.version` and the voters at that position.

        `name`: the file's, where it is not named after the position. Raises OSError.
        """
        self._name = name
        self._fs = fs
        self._directory = directory
        self._snapshot = snapshot
        self._now_ms = now_ms
        self._next_offset = 0
        self._position = 0
        self._values: list[bytes] = []
        self._values_bytes = 0
        self._path = f"{directory}/{file_name(snapshot, '-own' + PART)}"
        self._file: File = fs.open(self._path, create=True)
        header = ControlRecord(
            SNAPSHOT_HEADER, SnapshotHeaderRecord(version=0, last_contained_log_timestamp=last_append_time_ms)
        )
        try:
            self._file.truncate(0)
            self._write_controls([header, *of_voters])
        except OSError:
            self.discard()
            raise

    def add(self, value: bytes) -> None:
        """The next framed record. Raises OSError."""
        self._values_bytes += len(value) + RECORD_OVERHEAD_BYTES
        if self._values and self._values_bytes + HEADER_SIZE > MAX_BATCH_BYTES:
            self._write_values()
            self._values_bytes = len(value) + RECORD_OVERHEAD_BYTES
        self._values.append(value)

    def add_all(self, values: Iterable[bytes]) -> None:
        """The next framed records. Raises OSError."""
        for value in values:
            self.add(value)

    def finish(self) -> int:
        """Bring the whole file to the disk, then give it its name; returns its size in bytes. Raises OSError."""
        self._write_values()
        self._write_controls([ControlRecord(SNAPSHOT_FOOTER, SnapshotFooterRecord(version=0))])
        seal(self._fs, self._directory, self._path, self._snapshot, self._file, name=self._name)
        return self._position

    def discard(self) -> None:
        """Give up. Raises nothing: what is left goes at the next start."""
        remove_quietly(self._fs, self._path)

    def _write_values(self) -> None:
        if not self._values:
            return
        batch = encode_records(
            self._values, base_offset=self._next_offset, epoch=self._snapshot.epoch, now_ms=self._now_ms
        )
        self._write(batch, len(self._values))
        self._values = []

    def _write_controls(self, records: list[ControlRecord]) -> None:
        batch = encode_control_batch(
            records, base_offset=self._next_offset, epoch=self._snapshot.epoch, now_ms=self._now_ms
        )
        self._write(batch, len(records))

    def _write(self, batch: bytearray, count: int) -> None:
        self._file.write(self._position, batch)
        self._position += len(batch)
        self._next_offset += count


def seal(
    fs: FileSystem, directory: str, path: str, snapshot: OffsetAndEpoch, file: File, *, name: str | None = None
) -> None:
    """Make a complete file the snapshot; durable when this returns. Raises OSError."""
    file.sync()
    fs.rename(path, f"{directory}/{name or file_name(snapshot)}")
    fs.sync_directory(directory)


def remove_quietly(fs: FileSystem, path: str) -> None:
    """Remove a file that is of no use; a failure is logged, and the next start removes it."""
    try:
        fs.remove(path)
    except FileNotFoundError:
        return
    except (OSError, OttlaError) as problem:
        log.warning("cannot remove %s, which is of no use any more: %s", path, problem)
