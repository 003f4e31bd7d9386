"""The checkpoints of a log directory: taken on the thread that owns its logs, written in any thread, in order."""

from collections.abc import Callable, Collection, Mapping
from threading import Lock
from typing import TYPE_CHECKING, Final, Protocol

from ottla.ids import Offset, TopicPartition
from ottla.log import checkpoints
from ottla.log.fs import FileSystem

if TYPE_CHECKING:
    from ottla.log.partition_log import PartitionLog

RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS: Final = "log-start-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"


class Written(Protocol):
    """Checkpoints to be written."""

    def write(self) -> None:
        """In any thread. Raises OSError."""
        ...


class NoCheckpoints:
    """For a log without checkpoints."""

    def write(self) -> None:
        """Does nothing."""


class CheckpointOrder:
    """Keeps checkpoints from being overwritten by earlier ones, in whatever thread they are written."""

    __slots__ = ("lock", "taken", "written")

    def __init__(self) -> None:
        self.lock = Lock()
        self.taken = 0
        self.written = 0


class DirectoryCheckpoints:
    """The content of a directory's checkpoint files at one moment. Owns a copy of it; written in any thread."""

    __slots__ = ("_files", "_fs", "_number", "_order", "_written")

    def __init__(
        self,
        fs: FileSystem,
        files: dict[str, dict[TopicPartition, Offset]],
        order: CheckpointOrder,
        written: Callable[[], None],
    ) -> None:
        """`written` is called when they are on the disk, in the thread that wrote them."""
        self._written = written
        self._fs = fs
        self._files = files
        self._order = order
        order.taken += 1
        self._number = order.taken

    def write(self) -> None:
        """Each atomically, unless newer ones are written; in any thread. Raises OSError."""
        with self._order.lock:
            if self._number < self._order.written:
                return
            for path, offsets in self._files.items():
                checkpoints.write(self._fs, path, checkpoints.encode_offsets(offsets))
            self._written()
            self._order.written = self._number


class DirectoryOffsets:
    """What the checkpoints say of a directory's partitions: as they were found, and as they are to become. Belongs to
    the thread that owns its logs."""

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self.recovery_points: dict[TopicPartition, Offset] = {}
        self.log_starts: dict[TopicPartition, Offset] = {}
        self.high_watermarks: dict[TopicPartition, Offset] = {}
        self._fs = fs
        self._directory = directory
        self._order = CheckpointOrder()
        self._named: set[TopicPartition] = set()
        """Partitions that the checkpoints name, or will name when what has been prepared is written."""
        self._on_disk: set[TopicPartition] = set()
        """Those that the newest checkpoints on the disk name."""

    def read(self) -> None:
        """Take over what is on the disk. Raises KafkaStorageError, OSError."""
        self.recovery_points = checkpoints.read_offsets(self._fs, self._file(RECOVERY_POINTS))
        self.log_starts = checkpoints.read_offsets(self._fs, self._file(LOG_START_OFFSETS))
        self.high_watermarks = checkpoints.read_offsets(self._fs, self._file(HIGH_WATERMARKS))
        self._on_disk = {*self.recovery_points, *self.log_starts, *self.high_watermarks}
        self._named = self._on_disk

    def names(self, partition: TopicPartition) -> bool:
        """Whether they name a partition, or will name it when what has been prepared is written."""
        return partition in self._named

    def prepare(
        self, logs: "Mapping[TopicPartition, PartitionLog]", missing: Collection[TopicPartition]
    ) -> DirectoryCheckpoints:
        """The checkpoints as of now, to be written in any thread. What was found of `missing` partitions is kept."""
        named = {*logs, *missing}
        if self._order.written == self._order.taken:
            self._named = self._on_disk
        self._named = self._named | named
        starts: dict[TopicPartition, Offset] = {}
        points: dict[TopicPartition, Offset] = {}
        for tp, log in logs.items():
            points[tp], start = log.checkpointed
            if start:
                starts[tp] = start
        files = {
            RECOVERY_POINTS: points,
            LOG_START_OFFSETS: starts,
            HIGH_WATERMARKS: {tp: log.high_watermark for tp, log in logs.items()},
        }
        for tp in missing:
            for file, was in (
                (RECOVERY_POINTS, self.recovery_points),
                (LOG_START_OFFSETS, self.log_starts),
                (HIGH_WATERMARKS, self.high_watermarks),
            ):
                if tp in was:
                    files[file][tp] = was[tp]
        by_path = {self._file(name): offsets for name, offsets in files.items()}

        def written() -> None:
            self._on_disk = named

        return DirectoryCheckpoints(self._fs, by_path, self._order, written)

    def _file(self, name: str) -> str:
        return f"{self._directory}/{name}"
