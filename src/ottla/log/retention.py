"""Which segments have to go: by the log start offset, by time, by size (`cleanup.policy=delete`).

As Kafka does it: from the oldest on, whole segments, and only below the high watermark. When all of them go, an empty
one is begun first. The files are renamed (`.deleted`) at once and removed in a thread: unlinking 1 GB takes a while.
"""

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ottla.config.log import LogConfig
from ottla.ids import Offset
from ottla.log.fs import FileSystem
from ottla.log.segment import Segment
from ottla.log.segment_files import SegmentFiles

if TYPE_CHECKING:
    from ottla.log.partition_log import PartitionLog

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


def take_breached(
    log: "PartitionLog", fs: FileSystem, files: SegmentFiles, now_ms: int, before: Offset | None
) -> Deletion | None:
    """See `PartitionLog.apply_retention`. Raises OSError."""
    segments = files.segments
    for segment in segments.all[:-1]:
        segment.release()
    count = breached_count(
        segments.all,
        log.config,
        now_ms=now_ms,
        log_start_offset=log.log_start_offset,
        high_watermark=log.high_watermark if before is None else min(log.high_watermark, before),
        log_end_offset=log.log_end_offset,
    )
    if not count:
        return None
    if count == len(segments.all):
        files.roll(log.log_end_offset, log.config, log.producer_state)
    if before is not None and not files.may_begin_at(segments.all[count]):
        # A crash could take the one that is to stay, and bring back one that is gone: the log would end there, and give
        # its offsets away again.
        return None
    gone = files.take_oldest(count)
    size = sum(segment.size for segment in gone)
    log.delete_records_before(Offset(max(log.log_start_offset, segments.all[0].base_offset)))
    paths = files.retire(gone)
    logger.info("%s: deleted %d segments, now begins at %d", log.topic_partition, count, log.log_start_offset)
    return Deletion(fs, paths, segment_count=count, size_bytes=size)
