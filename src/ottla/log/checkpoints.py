"""Kafka's checkpoint files: a version line, a line with the number of entries, one line for each.

Written whole to a temporary file, synced, renamed. Formats:

- offsets (`recovery-point-offset-checkpoint` and others, one per log directory): ``topic partition offset``
- leader epochs (`leader-epoch-checkpoint`, one per partition): ``epoch start_offset``
- `partition.metadata`: ``version: 0`` and ``topic_id: <base64>``, without the count.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

from ottla.errors import KafkaStorageError
from ottla.ids import Offset, PartitionId, TopicId, TopicName, TopicPartition, uuid_from_text, uuid_to_text
from ottla.log.fs import FileSystem, replace_atomically

_VERSION: Final = 0
_BEFORE_TOPIC_ID: Final = f"version: {_VERSION}\ntopic_id: "
_TOPIC_ID_CHARACTERS: Final = 22
"""16 bytes in base 64."""


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    return _encode(f"{tp.topic} {tp.partition} {offset}" for tp, offset in offsets.items())


def read_offsets(fs: FileSystem, path: str) -> dict[TopicPartition, Offset]:
    """Offsets by partition; none if the file is empty or not there.

    Raises KafkaStorageError for a malformed one, OSError.
    """
    found: dict[TopicPartition, Offset] = {}
    for line in _read(fs, path):
        try:
            topic, partition, offset = line.split()
            found[TopicPartition(TopicName(topic), PartitionId(int(partition)))] = Offset(int(offset))
        except ValueError:
            raise _malformed(path, line) from None
    return found


def encode_epochs(entries: Iterable[tuple[int, int]]) -> bytes:
    return _encode(f"{epoch} {start}" for epoch, start in entries)


def read_epochs(fs: FileSystem, path: str) -> list[tuple[int, int]]:
    """(epoch, start offset) in the file's order; empty if there is no such file. Raises as `read_offsets`."""
    found: list[tuple[int, int]] = []
    for line in _read(fs, path):
        try:
            epoch, start = line.split()
            found.append((int(epoch), int(start)))
        except ValueError:
            raise _malformed(path, line) from None
    return found


def encode_partition_metadata(topic_id: TopicId) -> bytes:
    """The content of Kafka's `partition.metadata`."""
    return f"{_BEFORE_TOPIC_ID}{uuid_to_text(topic_id)}".encode()


def read_partition_metadata(fs: FileSystem, path: str) -> TopicId | None:
    """The topic's id; None if the file is not there, or is what a crash before its first sync leaves of it: nothing,
    zeros, or its beginning. Raises as `read_offsets`."""
    try:
        data = fs.read_bytes(path)
    except FileNotFoundError:
        return None
    try:
        return _topic_id(data)
    except (KeyError, ValueError):
        raise _malformed(path, data.decode(errors="replace")) from None


@lru_cache(maxsize=1024)
def _topic_id(data: bytes) -> TopicId | None:
    """As `read_partition_metadata`, of its content: all partitions of a topic have the same. Raises KeyError,
    ValueError."""
    text = data.decode().rstrip("\0")
    is_torn = len(text) < len(_BEFORE_TOPIC_ID) + _TOPIC_ID_CHARACTERS
    if is_torn and (_BEFORE_TOPIC_ID.startswith(text) or text.startswith(_BEFORE_TOPIC_ID)):
        return None
    fields = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
    if int(fields["version"]) < _VERSION:
        raise ValueError("unknown version")
    return TopicId(uuid_from_text(fields["topic_id"].strip()))


def write(fs: FileSystem, path: str, data: bytes, *, sync: bool = True) -> None:
    """Atomic and, with `sync`, durable. Raises OSError."""
    replace_atomically(fs, path, data, sync=sync)


def _encode(lines: Iterable[str]) -> bytes:
    rows = list(lines)
    return "\n".join([str(_VERSION), str(len(rows)), *rows, ""]).encode()


def _read(fs: FileSystem, path: str) -> list[str]:
    try:
        lines = fs.read_bytes(path).decode().splitlines()
    except FileNotFoundError:
        return []
    except UnicodeDecodeError:
        raise _malformed(path, "bytes that are no text") from None
    if not lines:  # a crash before the new file's first sync
        return []
    if len(lines) < 2 or lines[0].strip() != str(_VERSION) or not lines[1].strip().isdecimal():
        raise _malformed(path, " / ".join(lines[:2]))
    rows = [line for line in lines[2:] if line.strip()]
    if len(rows) != int(lines[1]):
        raise _malformed(path, f"{len(rows)} entries where {lines[1]} are announced")
    return rows


def _malformed(path: str, found: str) -> KafkaStorageError:
    return KafkaStorageError(f"{path} is malformed ({found[:100]!r}); remove it to have it rebuilt")
