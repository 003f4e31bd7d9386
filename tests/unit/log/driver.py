"""Opens, fills and reads a partition log on a disk that makes trouble when asked to, by a clock that is set."""

import errno
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from ottla.config.log import LogConfig
from ottla.ids import LeaderEpoch, Offset, PartitionId, TopicName, TopicPartition
from ottla.log.appends import AppendInfo
from ottla.log.fs import File, RealFile, RealFileSystem
from ottla.log.partition_log import PartitionLog
from ottla.log.reader import ColdRead
from ottla.log.segment_list import ReadResult
from ottla.records.batch import Buffer, is_intact, iter_batches
from ottla.records.record import Record, decode_records, encode_batch

TP = TopicPartition(TopicName("flights"), PartitionId(3))
NOW_MS = 1_700_000_000_000


class SetClock:
    def __init__(self) -> None:
        self.ms = NOW_MS

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.ms / 1000

    def boottime(self) -> float:
        return self.ms / 1000


class DiskFile(RealFile):
    """Writes at most what there is room for; syncs unless told to fail."""

    __slots__ = ("_disk",)

    def __init__(self, fd: int, disk: "Disk") -> None:
        super().__init__(fd)
        self._disk = disk

    def write(self, position: int, data: Buffer) -> None:
        largest = self._disk.largest_file
        if largest is not None and position + len(data) > largest:
            super().write(position, memoryview(data)[: max(largest - position, 0)])
            raise OSError(errno.EFBIG, "File too large")
        room = self._disk.room
        if room is not None and len(data) > room:
            super().write(position, memoryview(data)[:room])
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write(position, data)

    def sync(self) -> None:
        self._disk.syncs += 1
        if self._disk.failing_syncs:
            self._disk.failing_syncs -= 1
            raise OSError(errno.EIO, "Input/output error")
        super().sync()

    def read_now(self, position: int, size: int) -> Buffer | None:
        return None if self._disk.cold else super().read_now(position, size)


class Disk(RealFileSystem):
    """The real filesystem with a dial for each kind of trouble."""

    def __init__(self) -> None:
        self.room: int | None = None
        self.largest_file: int | None = None
        self.failing_syncs = 0
        self.syncs = 0
        self.cold = False

    def open(self, path: str, *, create: bool = False) -> File:
        file = super().open(path, create=create)
        assert isinstance(file, RealFile)
        return DiskFile(os.dup(file.fd), self)

    def write_bytes(self, path: str, data: Buffer, *, sync: bool) -> None:
        if self.room is not None and len(data) > self.room:
            super().write_bytes(path, memoryview(data)[: self.room], sync=False)
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write_bytes(path, data, sync=sync)


class LogDriver:
    """Opens, fills and reads one log."""

    def __init__(self, directory: Path, fs: Disk, clock: SetClock) -> None:
        self.directory = directory
        self.fs = fs
        self.clock = clock
        self.config = LogConfig()

    def open(self, *, clean: bool = False, recovery_point: int = 0, log_start: int = 0, **config: Any) -> PartitionLog:
        self.config = replace(self.config, **config)
        return PartitionLog.open(
            self.directory,
            TP,
            self.config,
            fs=self.fs,
            clock=self.clock,
            clean_shutdown=clean,
            recovery_point=Offset(recovery_point),
            log_start_offset=Offset(log_start),
            may_be_planned=True,
        )

    def reopen(self, log: PartitionLog) -> PartitionLog:
        """After a clean shutdown."""
        log.close()
        return self.open(clean=True, recovery_point=log.recovery_point, log_start=log.log_start_offset)

    def crash(self, log: PartitionLog, *, recovery_point: int | None = None) -> PartitionLog:
        """What a new process finds after the old one was killed."""
        log.release()
        point = log.recovery_point if recovery_point is None else recovery_point
        return self.open(recovery_point=point, log_start=log.log_start_offset)

    def batch(
        self, count: int = 1, *, value_bytes: int = 100, timestamp_ms: int | None = None, key: bytes | None = b"k",
        **options: Any,
    ) -> memoryview:  # fmt: skip
        at = self.clock.ms if timestamp_ms is None else timestamp_ms
        records = [Record(i, at + i, key, bytes([i % 256]) * value_bytes) for i in range(count)]
        return memoryview(encode_batch(records, **options))

    def append(self, log: PartitionLog, count: int = 1, *, epoch: int = 0, **options: Any) -> AppendInfo:
        return log.append_as_leader(self.batch(count, **options), LeaderEpoch(epoch))

    def fill(self, log: PartitionLog, batches: int, *, count: int = 2, **options: Any) -> None:
        for _ in range(batches):
            self.append(log, count, **options)


def read(log: PartitionLog, offset: int, max_bytes: int = 1 << 20, *, upper: int | None = None) -> ReadResult:
    bound = log.log_end_offset if upper is None else upper
    result = log.read(offset, max_bytes, upper_bound=bound, min_one_message=True)
    return result.run() if isinstance(result, ColdRead) else result


def read_all(log: PartitionLog, *, max_bytes: int = 5000, start: int | None = None) -> list[Record]:
    """All records from `start` by consecutive reads; what is read is whole and intact."""
    offset = log.log_start_offset if start is None else start
    records: list[Record] = []
    while offset < log.log_end_offset:
        data = read(log, offset, max_bytes).data
        assert len(data)
        first = offset
        for header in iter_batches(data):
            assert is_intact(data, header)
            records += [record for record in decode_records(data, header) if record.offset >= first]
            offset = header.next_offset
    return records


def offsets(records: list[Record]) -> list[int]:
    return [record.offset for record in records]
