"""Which segments have to go: by the log start offset, by time, by size (`cleanup.policy=delete`).

As Kafka does it: from the oldest on, whole segments, and only below the high watermark. When all of them go, an empty
one is begun first. The files are renamed (`.deleted`) at once and removed in a thread: unlinking 1 GB takes a while.
"""

import logging
from collections.abc import Sequence
from typing import Final

from ottla.config.log import LogConfig
from ottla.log.fs import FileSystem
from ottla.log.segment import Segment

logger: Final = logging.getLogger(__name__)


class Deletion:
    """Segments that are out of the log, their files renamed, and still to be removed."""

    __slots__ = ("_fs", "_paths", "segment_count", "size_bytes")

    def __init__(self, fs: FileSystem, paths: list[str], *, segment_count: int, size_bytes: int) -> None:
        self._fs = fs
        self._paths = paths
        self.segment_count = segment_count
        self.size_bytes = size_bytes

    def remove(self) -> None:
        """Removes the files; slow, for any thread. Raises OSError; what is left goes at the next start."""
        for path in self._paths:
            try:
                self._fs.remove(path)
            except FileNotFoundError:
                logger.debug("%s was gone already", path)


def breached_count(
    segments: Sequence[Segment],
    config: LogConfig,
    *,
    now_ms: int,
    log_start_offset: int,
    high_watermark: int,
    log_end_offset: int,
) -> int:
    """How many segments, from the oldest on, have to go now. Raises OSError."""
    total = sum(segment.size for segment in segments)
    excess = total - config.retention_bytes if config.delete and config.retention_bytes >= 0 else 0
    by_time = config.delete and config.retention_ms >= 0
    for number, segment in enumerate(segments):
        is_last = number + 1 == len(segments)
        end = log_end_offset if is_last else segments[number + 1].base_offset
        if high_watermark < end or (is_last and not segment.size):
            return number
        if (
            (not is_last and end <= log_start_offset)
            or (excess > 0 and excess >= segment.size)
            or (by_time and now_ms - segment.largest_timestamp_ms() > config.retention_ms)
        ):
            excess -= segment.size
        else:
            return number
    return len(segments)
