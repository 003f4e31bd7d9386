"""fdatasync of many files at once, done by the kernel's workers: Linux AIO with `IOCB_CMD_FDSYNC`.

A thread that calls fdatasync file by file has to win the interpreter back after each call, from a loop that is busy
with exactly the requests whose data it syncs, and pays for a commit of the filesystem's journal each time. Here one
system call hands all files over; the kernel syncs them side by side, so that they share a journal commit, and an
eventfd notifies the loop when they are done. See docs/adr/0003-kernel-aio.md.

    io_submit([fd, fd, fd]) ---> kernel workers: fdatasync ---> eventfd readable ---> io_getevents

Where this is not to be had (another system, a container whose seccomp profile forbids it, `fs.aio-max-nr` used up),
`open_kernel_sync` returns None and a thread does the work.
"""

import ctypes
import os
import platform
import struct
import sys
from collections.abc import Sequence
from typing import Final

MAX_FILES: Final = 1024
"""Most files in one submission."""

_SETUP, _DESTROY, _SUBMIT, _GETEVENTS = range(4)
_SYSCALLS: Final[dict[str, tuple[int, int, int, int]]] = {"x86_64": (206, 207, 209, 208), "aarch64": (0, 1, 2, 4)}
_FDSYNC: Final = 3
_USES_EVENTFD: Final = 1

# struct iocb: data, key, rw_flags, opcode, priority, fd, buf, nbytes, offset, reserved, flags, resfd
_IOCB: Final = struct.Struct("<QIIHhIQQqQII")
# struct io_event: data, obj, res, res2
_EVENT: Final = struct.Struct("<QQqq")


class KernelSync:
    """One AIO context; one submission at a time. Not thread-safe."""

    def __init__(self, context: ctypes.c_ulong, libc: ctypes.CDLL, syscalls: tuple[int, int, int, int]) -> None:
        self._context = context
        self._libc = libc
        self._syscalls = syscalls
        self._taken = 0
        self._done = 0
        self.event_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        """Readable when files are done; then call `reap`."""
        self._requests = bytearray(_IOCB.size * MAX_FILES)
        first = ctypes.addressof((ctypes.c_char * len(self._requests)).from_buffer(self._requests))
        self._request_pointers = (ctypes.c_void_p * MAX_FILES)(
            *(first + _IOCB.size * number for number in range(MAX_FILES))
        )
        self._events = bytearray(_EVENT.size * MAX_FILES)
        self._events_pointer = (ctypes.c_char * len(self._events)).from_buffer(self._events)

    def submit(self, descriptors: Sequence[int]) -> int:
        """Hand over at most `MAX_FILES` files; returns how many the kernel took, from the first on.

        The descriptors must stay open until all of them have been reaped.
        """
        for number, descriptor in enumerate(descriptors):
            _IOCB.pack_into(
                self._requests,
                number * _IOCB.size,
                *(number, 0, 0, _FDSYNC, 0, descriptor, 0, 0, 0, 0, _USES_EVENTFD, self.event_fd),
            )
        taken = 0
        while taken < len(descriptors):
            pointers = ctypes.byref(self._request_pointers, taken * ctypes.sizeof(ctypes.c_void_p))
            count = self._libc.syscall(self._syscalls[_SUBMIT], self._context, len(descriptors) - taken, pointers)
            if count <= 0:
                break
            taken += count
        self._taken = taken
        return taken

    def reap(self) -> list[tuple[int, int]]:
        """All of a submission, once all are done: the number of each, and an errno or 0. Empty before. Never waits."""
        try:
            self._done += os.eventfd_read(self.event_fd)
        except BlockingIOError:
            return []
        if self._done < self._taken:
            return []
        self._done = self._taken = 0
        count = self._libc.syscall(
            self._syscalls[_GETEVENTS], self._context, ctypes.c_long(0), MAX_FILES, self._events_pointer, None
        )
        if count < 0:
            raise OSError(ctypes.get_errno(), f"io_getevents: {os.strerror(ctypes.get_errno())}")
        return [
            (number, -result if result < 0 else 0)
            for number, _, result, _ in _EVENT.iter_unpack(memoryview(self._events)[: count * _EVENT.size])
        ]

    def close(self) -> None:
        """Wait for what is under way and free the context."""
        self._libc.syscall(self._syscalls[_DESTROY], self._context)
        os.close(self.event_fd)


def open_kernel_sync() -> KernelSync | None:
    """A context, or None if this machine does not give one."""
    syscalls = _SYSCALLS.get(platform.machine()) if sys.platform == "linux" else None
    if syscalls is None:
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    context = ctypes.c_ulong(0)
    if libc.syscall(syscalls[_SETUP], MAX_FILES, ctypes.byref(context)) != 0:
        return None
    return KernelSync(context, libc, syscalls)


def sync_error(code: int) -> OSError:
    """The error of a file that could not be synced."""
    return OSError(code, os.strerror(code))
