"""Notices when an event loop is held up, on a loaded machine too.

A thread requests a sign of life from the loop again and again. A late sign alone proves little where other threads
compete for the processor (or the interpreter's lock), so wall time does not count. While a sign is due, two things
count: the processor time of the loop's own thread, and the time it was seen in a system call in which no loop may wait
(for a disk, a peer, a child). Python's collector does not count either: the thread it runs in
is chance, and its duration depends on all objects of the process.
"""

import asyncio
import gc
import platform
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

SAMPLES_PER_LIMIT: Final = 8
MIN_WAITING_SAMPLES: Final = 4
STACKS_KEPT: Final = 3

# By the kernel's numbers: what waits for a disk, a peer, a child, a lock, or the time.
_WAITING_CALLS: Final = {
    "x86_64": {
        7: "poll",
        17: "pread64",
        35: "nanosleep",
        42: "connect",
        61: "wait4",
        73: "flock",
        74: "fsync",
        75: "fdatasync",
        230: "clock_nanosleep",
        295: "preadv",
        306: "syncfs",
        327: "preadv2",
    },
    "aarch64": {
        32: "flock",
        67: "pread64",
        69: "preadv",
        73: "ppoll",
        82: "fsync",
        83: "fdatasync",
        101: "nanosleep",
        115: "clock_nanosleep",
        203: "connect",
        260: "wait4",
        267: "syncfs",
        286: "preadv2",
    },
}.get(platform.machine(), {})


class LoopBlocked(AssertionError):
    """The event loop was held up for longer than it may be; the message shows by what."""


class _Blocked(NamedTuple):
    seconds: float
    how: str
    stack: str

    def __str__(self) -> str:
        return f"for {self.seconds * 1000:.0f} ms or more, {self.how}:\n{self.stack}"


class LoopWatch:
    """Watches the loop of the thread that makes it, from `start` to `stop`.

    limit_seconds: how long the loop may compute, or wait in a system call, before it looks for new events.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, limit_seconds: float) -> None:
        self._loop = loop
        self._limit_seconds = limit_seconds
        self._identity = threading.get_ident()
        self._syscall = Path(f"/proc/self/task/{threading.get_native_id()}/syscall")
        self._cpu_clock = time.pthread_getcpuclockid(self._identity)
        self._alive = threading.Event()
        self._stopping = threading.Event()
        self._found: list[_Blocked] = []
        self._collected_cpu = 0.0
        self._collecting_since: float | None = None
        self._thread = threading.Thread(target=self._watch, name="ottla loop watch", daemon=True)

    def start(self) -> None:
        """Start the watching thread, and count the pauses of garbage collection."""
        gc.callbacks.append(self._collector_ran)
        self._thread.start()

    def stop(self) -> None:
        """End the watch. Raises LoopBlocked if the loop was held up."""
        self._stopping.set()
        self._thread.join()
        gc.callbacks.remove(self._collector_ran)
        if self._found:
            worst = sorted(self._found, key=lambda blocked: -blocked.seconds)[:STACKS_KEPT]
            raise LoopBlocked(
                f"the event loop was held up {len(self._found)} times\n" + "\n".join(str(one) for one in worst)
            )

    def _collector_ran(self, phase: str, _info: dict[str, Any]) -> None:
        if threading.get_ident() != self._identity:
            return
        now = time.clock_gettime(self._cpu_clock)
        if phase == "start":
            self._collecting_since = now
        elif self._collecting_since is not None:
            began, self._collecting_since = self._collecting_since, None
            self._collected_cpu += now - began

    def _busy_cpu(self) -> float:
        """Processor seconds of the loop's thread so far, without the collector's."""
        began = self._collecting_since  # the loop's thread may be in the middle of it
        now = time.clock_gettime(self._cpu_clock) if began is None else began
        return now - self._collected_cpu

    def _watch(self) -> None:
        pause = self._limit_seconds / SAMPLES_PER_LIMIT
        while not self._stopping.is_set():
            self._alive.clear()
            asked_cpu = self._busy_cpu()
            try:
                self._loop.call_soon_threadsafe(self._alive.set)
            except RuntimeError:  # closed
                return
            blocked = self._await_sign(asked_cpu, pause)
            if blocked is not None:
                self._found.append(blocked)
            self._stopping.wait(pause)

    def _await_sign(self, asked_cpu: float, pause: float) -> _Blocked | None:
        blocked: _Blocked | None = None
        waiting_since = 0.0
        samples = 0
        while not self._alive.wait(pause) and not self._stopping.is_set():
            cpu_seconds = self._busy_cpu() - asked_cpu
            if cpu_seconds >= self._limit_seconds:
                blocked = self._describe(cpu_seconds, "computing", blocked)
            call = self._waiting_call()
            if call is None:
                samples = 0
                continue
            samples += 1
            if samples == 1:
                waiting_since = time.monotonic()
            waited = time.monotonic() - waiting_since
            if samples >= MIN_WAITING_SAMPLES and waited >= self._limit_seconds:
                blocked = self._describe(waited, f"waiting in {call}", blocked)
        return blocked

    def _waiting_call(self) -> str | None:
        try:
            number = self._syscall.read_text().split()[0]
        except OSError:  # no such system, or no right to look
            return None
        return _WAITING_CALLS.get(int(number)) if number.isdecimal() else None

    def _describe(self, seconds: float, how: str, earlier: _Blocked | None) -> _Blocked:
        if earlier is not None:  # the stack when it was first noticed is the telling one
            return earlier._replace(seconds=seconds)
        frame = sys._current_frames().get(self._identity)
        stack = "".join(traceback.format_stack(frame, limit=12)) if frame is not None else "(no stack)"
        return _Blocked(seconds, how, stack)


@contextmanager
def watched(loop: asyncio.AbstractEventLoop, limit_seconds: float | None) -> Iterator[None]:
    """Watch this thread's loop; without a limit, or on a system without processor times of threads, do nothing.

    Raises LoopBlocked at the end.
    """
    if limit_seconds is None or not hasattr(time, "pthread_getcpuclockid"):
        yield
        return
    watch = LoopWatch(loop, limit_seconds)
    watch.start()
    try:
        yield
    finally:
        watch.stop()
