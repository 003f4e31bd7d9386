"""What `ottla log dump` shows of each kind of file."""

import os
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.cli.log.fields import Fields, plain
from ottla.cli.terminal.exits import CommandFailed
from ottla.cli.terminal.output import Column, Row, columns_of
from ottla.cli.terminal.record_lines import IncomingRecord, json_shape
from ottla.cli.terminal.times import format_instant
from ottla.errors import CorruptMessage, InvalidRecord, KafkaStorageError
from ottla.log import checkpoints, names
from ottla.log.fs import File, RealFile, RealFileSystem
from ottla.log.offset_index import OffsetIndex
from ottla.log.producer_state import decode_snapshot
from ottla.log.scan import InvalidBatch, scan
from ottla.log.time_index import TimeIndex
from ottla.log.transaction_index import TransactionIndex
from ottla.records.batch import CHECKED_FROM, NO_PRODUCER_ID, BatchHeader
from ottla.records.checksum import crc32c
from ottla.records.control import end_transaction
from ottla.records.record import Record, decode_records

if TYPE_CHECKING:
    from ottla.coordination.state_machine import RecordFormat

Rows = Iterator[Row | str]
"""Rows, followed by a sentence if reading ended early."""

_RECORD_COLUMNS = columns_of("offset# timestamp headers~ key~ value~")
_DECODED_COLUMNS = columns_of("offset# kind fields~")
_METADATA_COLUMNS = columns_of("offset# kind version# fields~")
_LINES = ("-checkpoint", ".properties")
_COLUMNS = {
    names.OFFSET_INDEX: columns_of("offset# position#"),
    names.TIME_INDEX: columns_of("timestamp offset#"),
    names.TRANSACTION_INDEX: columns_of(
        "producer first_offset=FIRST# last_offset=LAST# last_stable_offset=LAST_STABLE#"
    ),
    names.PRODUCER_SNAPSHOT: columns_of(
        "producer epoch last_sequence=SEQUENCE# last_offset# timestamp", "transaction_first_offset=OPEN_SINCE#"
    ),
}


def open_to_read(path: Path) -> File:
    """The file, for reading only: looking is allowed where writing is not. Raises OSError."""
    return RealFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC))


class ReadOnlyFileSystem(RealFileSystem):
    """The machine's files, opened for reading only, whatever is asked."""

    __slots__ = ()

    def open(self, path: str, *, create: bool = False) -> File:
        """The file, which must exist. Raises OSError."""
        return open_to_read(Path(path))


def files_to_dump(paths: Iterable[Path]) -> Iterator[Path]:
    """The files themselves, and for directories their .log files in order; a partition without records has none. Raises
    CommandFailed for another directory without such files."""
    for path in paths:
        if path.is_dir():
            segments = sorted(path.glob(f"*{names.LOG}"))
            if not segments and not (path / names.PARTITION_METADATA).exists():
                raise CommandFailed(f"there are no {names.LOG} files in {path}; name a partition's directory or a file")
            yield from segments
        else:
            yield path


def tables(path: Path, *, with_records: bool, decode: bool) -> tuple[Column, ...] | None:
    """The columns for a file's rows; None for batches."""
    if _has_batches(path):
        if not with_records:
            return None
        if decode:
            return _METADATA_COLUMNS if _is_metadata(path) else _DECODED_COLUMNS
        return _RECORD_COLUMNS
    return _COLUMNS.get(path.suffix, columns_of("line~"))


def _has_batches(path: Path) -> bool:
    return path.suffix in (names.LOG, names.METADATA_SNAPSHOT)


def _is_metadata(path: Path) -> bool:
    """Whether a file of batches is of KRaft's metadata log, or a snapshot of it."""
    partition = names.partition_of(path.parent.name)
    return path.suffix == names.METADATA_SNAPSHOT or (partition is not None and partition.topic == names.METADATA_TOPIC)


def dump_file(path: Path, *, with_records: bool, from_offset: int, max_rows: int | None, decode: bool) -> Rows:
    """The rows of one file, of whatever kind. Raises OSError."""
    if _has_batches(path):
        batches = _batches(path, from_offset)
        if decode:
            decoded = _metadata_decoded if _is_metadata(path) else _decoded
            yield from islice(decoded(path, batches), max_rows)
        elif with_records:
            yield from islice(_records(path, batches), max_rows)
        else:
            yield from islice(_batch_rows(batches), max_rows)
        return
    try:
        yield from islice(_entries(path), max_rows)
    except (CorruptMessage, KafkaStorageError) as problem:
        yield f"{path}: {problem}"


_Batch = tuple[BatchHeader, memoryview]


def _batches(path: Path, from_offset: int) -> Iterator[_Batch | str]:
    file = open_to_read(path)
    try:
        for header in scan(file, str(path), 0, file.size(), check_crc=False):
            if header.last_offset >= from_offset:
                yield header, memoryview(file.read(header.position, header.size_bytes))
    except InvalidBatch as problem:
        yield str(problem)


def _batch_rows(batches: Iterable[_Batch | str]) -> Rows:
    for batch in batches:
        if isinstance(batch, str):
            yield batch
            continue
        header, data = batch
        yield {
            "position": header.position,
            "base_offset": header.base_offset,
            "last_offset": header.last_offset,
            "records": header.record_count,
            "bytes": header.size_bytes,
            "compression": _codec(header),
            "max_timestamp": format_instant(header.max_timestamp) if header.max_timestamp >= 0 else None,
            "leader_epoch": header.leader_epoch,
            "producer": _producer(header),
            "sequence": header.base_sequence if header.base_sequence >= 0 else None,
            "flags": _flags(header),
            "crc": "ok" if crc32c(data[CHECKED_FROM:]) == header.crc else "WRONG",
        }


def _codec(header: BatchHeader) -> str:
    try:
        return header.compression.name.lower()
    except CorruptMessage as problem:
        return str(problem)


def _producer(header: BatchHeader) -> str | None:
    return f"{header.producer_id}:{header.producer_epoch}" if header.producer_id != NO_PRODUCER_ID else None


def _flags(header: BatchHeader) -> list[str]:
    flags = {
        "transactional": header.is_transactional,
        "control": header.is_control,
        "append-time": header.is_log_append_time,
        "delete-horizon": header.delete_horizon_ms is not None,
    }
    return [name for name, present in flags.items() if present]


def _opened(batches: Iterable[_Batch | str], path: Path) -> Iterator[tuple[BatchHeader, Record] | str]:
    """The records of batches, up to the first that cannot be unpacked."""
    for batch in batches:
        if isinstance(batch, str):
            yield batch
            return
        header, data = batch
        if crc32c(data[CHECKED_FROM:]) != header.crc:
            yield f"corrupt batch in {path} at position {header.position}: its CRC is wrong"
            return
        try:
            records = list(decode_records(data, header._replace(position=0)))
        except CorruptMessage as problem:
            yield f"corrupt batch in {path} at position {header.position}: {problem}"
            return
        for record in records:
            yield header, record


def _records(path: Path, batches: Iterable[_Batch | str]) -> Rows:
    partition = names.partition_of(path.parent.name)
    for opened in _opened(batches, path):
        if isinstance(opened, str):
            yield opened
            continue
        _, record = opened
        shown = json_shape(
            IncomingRecord(
                partition.topic if partition else "",
                partition.partition if partition else -1,
                record.offset,
                record.timestamp_ms if record.timestamp_ms >= 0 else None,
                record.key,
                record.value,
                list(record.headers),
            )
        )
        shown["timestamp"] = format_instant(record.timestamp_ms) if record.timestamp_ms >= 0 else None
        for part in ("key", "value"):
            if f"{part}_base64" in shown:
                shown[part] = f"base64:{shown[f'{part}_base64']}"
        yield shown


def _decoder(topic: str | None) -> "RecordFormat[Any]":
    """How the coordinator of this topic writes its records; that of groups for files without their directory."""
    if topic == "__transaction_state":
        from ottla.transactions.records import TransactionRecordFormat

        return TransactionRecordFormat(lambda: 0)
    if topic == "__share_group_state":
        from ottla.share.state_records import ShareStateRecordFormat

        return ShareStateRecordFormat()
    from ottla.groups.records import GroupRecordFormat

    return GroupRecordFormat()


def _decoded(path: Path, batches: Iterable[_Batch | str]) -> Rows:
    partition = names.partition_of(path.parent.name)
    decoder = _decoder(partition.topic if partition else None)
    for opened in _opened(batches, path):
        if isinstance(opened, str):
            yield opened
            continue
        header, record = opened
        if record.key is None:
            continue
        try:
            decoded = end_transaction(record) if header.is_control else decoder.decode(record.key, record.value)
        except (CorruptMessage, InvalidRecord) as problem:
            yield f"{path}, offset {record.offset}: {problem}; is it a partition of a coordinator's topic?"
            return
        if decoded is None:  # of a kind of group that has its own records
            yield {"offset": record.offset, "kind": None, "fields": None}
        else:
            within = {"producer": _producer(header)} if header.is_transactional else {}
            fields = Fields({**plain(decoded), **within})
            yield {"offset": record.offset, "kind": type(decoded).__name__, "fields": fields}


def _metadata_decoded(path: Path, batches: Iterable[_Batch | str]) -> Rows:
    """Records of the metadata log; those of a newer Kafka are passed over, and counted at the end."""
    from ottla.cli.log.metadata_log import spelled_out

    unread: list[str] = []
    for opened in _opened(batches, path):
        if isinstance(opened, str):
            yield opened
            return
        header, record = opened
        try:
            yield spelled_out(record, is_control=header.is_control)
        except CorruptMessage as problem:
            unread.append(f"offset {record.offset}: {problem}")
            yield {"offset": record.offset, "kind": None, "version": None, "fields": Fields(problem=str(problem))}
    if unread:
        more = f" (and {len(unread) - 1} more)" if unread[1:] else ""
        yield f"{path}, {unread[0]}{more}; is it of a newer Kafka?"


def _entries(path: Path) -> Rows:
    fs = ReadOnlyFileSystem()
    size = path.stat().st_size
    base_offset = names.offset_of(path.name) or 0
    if path.suffix == names.OFFSET_INDEX:
        for offset, position in OffsetIndex(fs, str(path), base_offset, size).entries():
            if (offset, position) == (base_offset, 0):
                break  # room that Kafka has set aside for entries to come
            yield {"offset": offset, "position": position}
    elif path.suffix == names.TIME_INDEX:
        for timestamp_ms, offset in TimeIndex(fs, str(path), base_offset, size).entries():
            if (timestamp_ms, offset) == (0, base_offset):
                break  # the same
            yield {"timestamp": format_instant(timestamp_ms), "offset": offset}
    elif path.suffix == names.TRANSACTION_INDEX:
        for aborted in TransactionIndex(fs, str(path), size).entries():
            yield {
                "producer": aborted.producer_id,
                "first_offset": aborted.first_offset,
                "last_offset": aborted.last_offset,
                "last_stable_offset": aborted.last_stable_offset,
            }
    elif path.suffix == names.PRODUCER_SNAPSHOT:
        for entry in decode_snapshot(path.read_bytes()):
            yield {
                "producer": entry.producer_id,
                "epoch": entry.epoch,
                "last_sequence": entry.last_sequence,
                "last_offset": entry.batches[-1].last_offset if entry.batches else None,
                "timestamp": format_instant(entry.last_timestamp_ms) if entry.last_timestamp_ms >= 0 else None,
                "transaction_first_offset": entry.transaction_first_offset,
            }
    elif path.name == names.LEADER_EPOCHS:
        for epoch, start in checkpoints.read_epochs(fs, str(path)):
            yield {"line": f"epoch {epoch} from offset {start}"}
    elif path.name == names.PARTITION_METADATA or path.name.endswith(_LINES):
        for line in path.read_text(errors="backslashreplace").splitlines():
            yield {"line": line}
    else:
        yield (
            f"{path} is no file of a log; those are .log, .checkpoint, .index, .timeindex, .txnindex, .snapshot, "
            f"checkpoints, meta.properties and {names.PARTITION_METADATA}"
        )
