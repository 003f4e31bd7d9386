"""What `ottla log strays` finds: directories of partitions that a broker has set aside."""

from datetime import UTC, datetime
from pathlib import Path
from shutil import rmtree
from typing import NamedTuple
from uuid import UUID

from ottla.cli.terminal.output import Row
from ottla.errors import KafkaStorageError
from ottla.ids import uuid_to_text
from ottla.log import names
from ottla.log.checkpoints import read_partition_metadata
from ottla.log.fs import RealFileSystem


class Stray(NamedTuple):
    """One `-stray` directory; `topic_id` is None where its files do not say."""

    path: Path
    topic: str
    partition: int
    topic_id: UUID | None
    size_bytes: int
    modified_s: float
    """When something in it was written last, in seconds since 1970."""

    def row(self) -> Row:
        """What `ottla log strays` shows of it."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "topic_id": self.topic_id and uuid_to_text(self.topic_id),
            "bytes": self.size_bytes,
            "written": datetime.fromtimestamp(self.modified_s, UTC).isoformat(timespec="seconds"),
            "path": str(self.path),
        }


def find_strays(log_directories: tuple[Path, ...]) -> list[Stray]:
    """All of them, the largest first. Raises OSError."""
    found = []
    for directory in log_directories:
        for path in directory.iterdir():
            place = names.set_apart_partition_of(path.name)
            if place is not None and path.name.endswith(names.STRAY) and path.is_dir() and not path.is_symlink():
                files = [file.stat() for file in path.iterdir()]
                found.append(
                    Stray(
                        path,
                        place.topic,
                        place.partition,
                        _topic_id(path),
                        sum(file.st_size for file in files),
                        max((file.st_mtime for file in files), default=path.stat().st_mtime),
                    )
                )
    return sorted(found, key=lambda stray: (-stray.size_bytes, stray.path))


def remove(stray: Stray) -> None:
    """Remove its files for good. Raises OSError."""
    rmtree(stray.path)


def _topic_id(path: Path) -> UUID | None:
    try:
        return read_partition_metadata(RealFileSystem(), str(path / names.PARTITION_METADATA))
    except (OSError, KafkaStorageError):
        return None
