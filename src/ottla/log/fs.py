"""The filesystem seam: every file operation of the log goes through a `FileSystem`.

The real one is here; one that tears, loses and reorders unsynced writes is in `ottla.testing`. Paths are
strings, errors are OSError. A `File` may be read and synced from any thread; its descriptor is closed when the
last reference to it goes, so that a segment can be deleted while a thread still reads it.
"""

import contextlib
import errno
import fcntl
import os
import shutil
from collections.abc import Callable
from functools import cache
from typing import Final, Protocol

from ottla.records.batch import Buffer

_NOWAIT: Final[int] = getattr(os, "RWF_NOWAIT", 0)
_SYNC_FILE_RANGE_WRITE: Final = 2
_FALLOC_FL_KEEP_SIZE: Final = 1
_RESIDENCE_SAMPLE_BYTES: Final = 128 * 1024
BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"
_RENAME_EXCHANGE: Final = 2
_AT_FDCWD: Final = -100
_CANNOT_TELL: Final = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})
LACKS_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""EFBIG: a file may not grow, by a limit of the process or of the filesystem; the disk itself is sound."""
LACKING: Final = LACKS_ROOM | {errno.EMFILE, errno.ENFILE, errno.ENOMEM}
"""Errors that a later attempt may not meet: room, descriptors or memory may come back."""
_SPARE_BYTES: Final = 4096
"""The room of a spare behind what it has to hold now: a block of most filesystems."""
_SMALL_FILE_BYTES: Final = 4096


class WouldBlock(Exception):
    """The requested bytes have to come from the disk (or take long to check): ask again in a thread."""


class File(Protocol):
    """One open file; positions and sizes are bytes."""

    def size(self) -> int: ...

    def read(self, position: int, size: int) -> Buffer:
        """Up to `size` bytes, fewer only at the end of the file; waits for the disk."""
        ...

    def read_now(self, position: int, size: int) -> Buffer | None:
        """The bytes in memory of the `size` bytes from `position` on; None if there are none and it would have to
        wait."""
        ...

    def prefetch(self, position: int, size: int) -> None:
        """Only a hint, and never an error: this will be read soon."""
        ...

    def is_in_memory(self, position: int, size: int) -> bool:
        """Whether reading would not wait for the disk, as far as samples show."""
        ...

    def write(self, position: int, data: Buffer) -> None:
        """Writes all of `data`. On OSError any part of it may have been written."""
        ...

    def truncate(self, size: int) -> None:
        """Change the length; what was reserved behind it is given back."""
        ...

    def reserve(self, size: int) -> bool:
        """Let writes below `size` find room, even on a disk that is full by then. The length stays. False if there is
        not so much room; True also where the filesystem cannot reserve any."""
        ...

    def descriptor(self) -> int | None:
        """The operating system's descriptor, for `KernelSync`; None if there is none behind this file."""
        ...

    def begin_sync(self) -> None:
        """Only a hint, and never an error: let the disk begin with what a `sync` will soon wait for."""
        ...

    def sync(self) -> None:
        """fdatasync: what was written is on the disk."""
        ...


class FileSystem(Protocol):
    """Files by path; nothing is on the disk until `File.sync`, no name is until `sync_directory`."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Opens for reading and writing; FileNotFoundError unless `create`."""
        ...

    def read_bytes(self, path: str) -> bytes: ...

    def write_bytes(self, path: str, data: Buffer, *, sync: bool) -> None:
        """Creates or replaces the content of a file, not atomically."""
        ...

    def names(self, directory: str) -> list[tuple[str, bool, int]]:
        """Name, whether it is a directory, and size of each entry, in no order."""
        ...

    def exists(self, path: str) -> bool: ...

    def modified_ms(self, path: str) -> int:
        """When the file's content last changed, in milliseconds since the epoch."""
        ...

    def make_directory(self, path: str) -> None:
        """Makes it and its parents; no error if it is there."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Atomic; replaces `target` if it is a file."""
        ...

    def exchange(self, first: str, second: str) -> None:
        """Atomic: gives each of two files the other's name. OSError if one is not there, or the filesystem cannot."""
        ...

    def remove(self, path: str) -> None:
        """FileNotFoundError if it is not there."""
        ...

    def remove_tree(self, path: str) -> None: ...

    def sync_directory(self, path: str) -> None: ...

    def sync_all(self, directory: str) -> bool:
        """Brings everything in `directory`, and perhaps more, to the disk; False if that cannot be done at once.

        Cheaper than hundreds of single syncs, dearer than a few.
        """
        ...

    def lock(self, path: str) -> object:
        """Holds the lock file until the returned object is dropped. BlockingIOError if another process has it."""
        ...

    def boot_id(self) -> str:
        """The machine's start: while it is the same, everything that was written is there, synced or not. Empty where
        it is not known."""
        ...


def is_lacking(problem: BaseException) -> bool:
    """Whether it, or the error of the disk behind it, is a lack of something that a later attempt may find."""
    cause = problem if isinstance(problem, OSError) else problem.__cause__
    return isinstance(cause, OSError) and cause.errno in LACKING


@cache
def _sync_file_range() -> "Callable[[int, int, int, int], int] | None":
    """Linux's sync_file_range(2), which Python does not offer."""
    import ctypes

    return getattr(ctypes.CDLL(None), "sync_file_range", None)


@cache
def _fallocate() -> "Callable[[int, int, int, int], int] | None":
    """Linux's fallocate(2): Python offers only the call that changes the length, too."""
    import ctypes

    call = getattr(ctypes.CDLL(None, use_errno=True), "fallocate64", None)
    if call is not None:
        call.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return call


@cache
def _renameat2() -> "Callable[[int, bytes, int, bytes, int], int] | None":
    """Linux's renameat2(2), which Python does not offer."""
    import ctypes

    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is not None:
        call.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    return call


def _begin_writeback(fd: int) -> None:
    # fdatasync of one grown file after the other costs a commit of the filesystem's journal for each. When all of
    # them are being written before the first is waited for, they share one: rounds over six files take half as long.
    call = _sync_file_range()
    if call is not None:
        call(fd, 0, 0, _SYNC_FILE_RANGE_WRITE)


@cache
def _syncfs() -> "Callable[[int], int] | None":
    """Linux's syncfs(2), which Python does not offer; it reports errors since Linux 5.8."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    return getattr(libc, "syncfs", None)


def replace_atomically(fs: FileSystem, path: str, data: Buffer, *, sync: bool = True) -> None:
    """`path` has either its old content or all of `data`, whatever happens meanwhile; with `sync` it has `data` when
    this returns, also after a power failure. Raises OSError."""
    temporary = path + ".tmp"
    fs.write_bytes(temporary, data, sync=sync)
    fs.rename(temporary, path)
    if sync:
        fs.sync_directory(os.path.dirname(path))


def replace_in_spare(fs: FileSystem, path: str, data: Buffer) -> None:
    """As `replace_atomically`, durably and on a full disk, too: `data` is written over a spare file, which has its room
    (`keep_spare`), and the old content is the next spare. Raises OSError.

        path      old       | data        the names are exchanged
        path.tmp  spare     | old
    """
    spare = f"{path}.tmp"
    file = fs.open(spare, create=True)
    file.write(0, data)
    if file.size() > len(data):
        file.truncate(len(data))
    file.sync()
    try:
        fs.exchange(spare, path)
    except OSError as problem:
        if problem.errno not in {*_CANNOT_TELL, errno.ENOENT}:
            raise
        fs.rename(spare, path)
    fs.sync_directory(os.path.dirname(path))
    keep_spare(fs, path, len(data))


def keep_spare(fs: FileSystem, path: str, size: int) -> bool:
    """Have room for each next `replace_in_spare` of a file, which now has `size` bytes; whether there is. Never an
    error."""
    room_bytes = size + _SPARE_BYTES
    try:
        has_room = fs.open(f"{path}.tmp", create=True).reserve(room_bytes)
        return (not fs.exists(path) or fs.open(path).reserve(room_bytes)) and has_room
    except OSError:
        return False


class _Descriptor:
    """Closes itself with its last reference."""

    __slots__ = ("fd",)

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __del__(self) -> None:
        os.close(self.fd)


class RealFile(_Descriptor):
    """A file of the operating system."""

    __slots__ = ()

    def size(self) -> int:
        return os.fstat(self.fd).st_size

    def read(self, position: int, size: int) -> Buffer:
        data = os.pread(self.fd, size, position)
        if len(data) == size or not data:
            return data
        parts = [data]  # one read of the kernel ends at 2 GB, or at a signal
        missing = size - len(data)
        while missing:
            position += len(parts[-1])
            more = os.pread(self.fd, missing, position)
            if not more:
                break
            parts.append(more)
            missing -= len(more)
        return b"".join(parts)

    if _NOWAIT:

        def read_now(self, position: int, size: int) -> Buffer | None:
            buffer = bytearray(size)
            try:
                got = os.preadv(self.fd, [buffer], position, _NOWAIT)
            except BlockingIOError:
                return None
            except OSError as problem:
                if problem.errno in _CANNOT_TELL:
                    return self.read(position, size)
                raise
            return buffer if got == size else memoryview(buffer)[:got]

        def is_in_memory(self, position: int, size: int) -> bool:
            sample = bytearray(1)
            last = position + size - 1
            try:
                for at in (*range(position, last, _RESIDENCE_SAMPLE_BYTES), last):
                    if os.preadv(self.fd, [sample], at, _NOWAIT) != 1:
                        return False
            except OSError:
                return False
            return True

    else:

        def is_in_memory(self, position: int, size: int) -> bool:
            return False

        def read_now(self, position: int, size: int) -> Buffer | None:
            return self.read(position, size)

    def write(self, position: int, data: Buffer) -> None:
        written = os.pwrite(self.fd, data, position)
        if written == len(data):
            return
        view = memoryview(data)
        while written < len(view):
            written += os.pwrite(self.fd, view[written:], position + written)

    def truncate(self, size: int) -> None:
        os.ftruncate(self.fd, size)

    def reserve(self, size: int) -> bool:
        call = _fallocate()
        if call is None or not call(self.fd, _FALLOC_FL_KEEP_SIZE, 0, size):
            return True
        import ctypes

        return ctypes.get_errno() not in LACKS_ROOM

    if hasattr(os, "posix_fadvise"):

        def prefetch(self, position: int, size: int) -> None:
            with contextlib.suppress(OSError):
                os.posix_fadvise(self.fd, position, size, os.POSIX_FADV_WILLNEED)

    else:

        def prefetch(self, position: int, size: int) -> None:
            pass

    def descriptor(self) -> int | None:
        return self.fd

    def begin_sync(self) -> None:
        _begin_writeback(self.fd)

    if hasattr(os, "fdatasync"):

        def sync(self) -> None:
            os.fdatasync(self.fd)

    else:

        def sync(self) -> None:
            os.fsync(self.fd)


class RealFileSystem:
    """The machine's."""

    __slots__ = ()

    def open(self, path: str, *, create: bool = False) -> File:
        """See `FileSystem.open`."""
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return RealFile(os.open(path, flags, 0o644))

    def read_bytes(self, path: str) -> bytes:
        """The whole file, by system calls alone."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = os.read(fd, _SMALL_FILE_BYTES)
            if len(data) < _SMALL_FILE_BYTES:  # of a file, a read gives fewer bytes at its end only
                return data
            with os.fdopen(fd, "rb", buffering=0, closefd=False) as file:
                return data + file.readall()
        finally:
            os.close(fd)

    def write_bytes(self, path: str, data: Buffer, *, sync: bool) -> None:
        """See `FileSystem.write_bytes`."""
        file = RealFile(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644))
        file.write(0, data)
        if sync:
            os.fsync(file.fd)

    def names(self, directory: str) -> list[tuple[str, bool, int]]:
        """See `FileSystem.names`."""
        found: list[tuple[str, bool, int]] = []
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    found.append((entry.name, True, 0))
                else:
                    with contextlib.suppress(FileNotFoundError):  # a thread may have renamed or removed it just now
                        found.append((entry.name, False, entry.stat(follow_symlinks=False).st_size))
        return found

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def make_directory(self, path: str) -> None:
        try:
            os.mkdir(path)
        except OSError:  # the one above it may be missing, or it may be there
            os.makedirs(path, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def exchange(self, first: str, second: str) -> None:
        """By renameat2(2)."""
        call = _renameat2()
        if call is None:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), first)
        if call(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _RENAME_EXCHANGE):
            import ctypes

            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), first, None, second)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def remove_tree(self, path: str) -> None:
        shutil.rmtree(path)

    def sync_directory(self, path: str) -> None:
        """By fsync(2) of the directory."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def sync_all(self, directory: str) -> bool:
        """By syncfs(2), where the system has it."""
        call = _syncfs()
        if call is None:
            return False
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if call(fd):
                import ctypes

                raise OSError(ctypes.get_errno(), f"syncfs failed for {directory}")
        finally:
            os.close(fd)
        return True

    def boot_id(self) -> str:
        """Linux's; other systems have none."""
        try:
            return self.read_bytes(BOOT_ID).decode("ascii").strip()
        except (OSError, ValueError):
            return ""

    def lock(self, path: str) -> object:
        """Lock by flock(2), which excludes nodes in this process, too, and by fcntl(2), as nodes in Java do."""
        held = RealFile(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644))
        fcntl.flock(held.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.lockf(held.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return held
