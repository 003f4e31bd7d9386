"""An event loop whose time is a number: a day of timers takes as long as the work in it.

Everything that asyncio code does on it happens in one thread, in an order that follows from the seed alone:

    time        moves only when nothing is left to do, to the next timer
    sockets     are those of `SimNetwork`: readable and writable as it says
    executors   run what they are given in this thread, after some virtual time that the seed decides

    lives       what was started as part of a `Life` ends with it, from one step to the next: no `finally` runs, nothing
                is flushed. That is how a process ends that is killed.

A future that nothing can complete any more is an error (`Deadlock`), not a test that hangs.
"""

import asyncio
import itertools
from asyncio import base_events
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from functools import partial
from random import Random
from typing import Any, Final, Protocol, TypeVar

from ottla.clock import Clock

ResultT = TypeVar("ResultT")

EXECUTOR_SECONDS: Final = 0.002
"""About how long what runs in an executor takes, unless `executor_seconds` says otherwise."""


class Deadlock(AssertionError):
    """Nothing is left to do, and what was waited for has not happened."""


class Life:
    """One process of the simulation, from its start to its end."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_over = False
        self.tasks: list[asyncio.Task[Any]] = []
        """Kept: a task that is collected while it waits would run its `finally` blocks."""

    def end(self) -> None:
        """Nothing of it happens any more."""
        self.is_over = True


_LIFE: Final[ContextVar[Life | None]] = ContextVar("life", default=None)


class Pollable(Protocol):
    """A socket, as the loop sees it."""

    def is_readable(self) -> bool: ...

    def is_writable(self) -> bool: ...


class _NoSelector:
    """What asyncio's loop asks for events: passes the time instead."""

    def __init__(self, loop: "SimLoop") -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise Deadlock(f"at {self._loop.time():.3f} s nothing is left to do")
        if timeout:
            self._loop.jump()
        return []

    def close(self) -> None:
        """There is nothing to close."""


class SimLoop(base_events.BaseEventLoop):
    """asyncio's own loop over virtual time. `random` decides what real machines leave to chance."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.random = Random(seed)
        self.executor_seconds: Callable[[], float] = lambda: self.random.expovariate(1 / EXECUTOR_SECONDS)
        self.set_task_factory(self._remember)
        self.lives: list[Life] = []
        self._now = 0.0
        self._selector = _NoSelector(self)
        self._clock_resolution = 1e-6  # asyncio adds it to the time, where less would be lost after some months
        self._numbers = itertools.count(1_000_000)  # no descriptor of the system's is mistaken for one of them
        self._sockets: dict[int, Pollable] = {}
        self._readers: dict[int, Callable[[], object]] = {}
        self._writers: dict[int, Callable[[], object]] = {}

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._now

    def jump(self) -> None:
        """To the next timer; exactly, since adding up what is missing would come to just before it."""
        timers: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]  # asyncio's heap
        self._now = max(self._now, timers[0].when())

    # -- lives ---------------------------------------------------------------------------------------------------------

    def start(self, life: Life, work: Coroutine[Any, Any, ResultT]) -> "asyncio.Task[ResultT]":
        """Run it as part of a life, with everything that it starts. The life is kept until the loop goes."""
        if life not in self.lives:
            self.lives.append(life)
        context = copy_context()
        context.run(_LIFE.set, life)
        return self.create_task(work, context=context)

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> asyncio.Handle:  # type: ignore[override]
        return super().call_soon(_while_alive(callback, context), *args, context=context)

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)  # there is one thread

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return super().call_at(when, _while_alive(callback, context), *args, context=context)

    def _remember(self, _loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> "asyncio.Task[Any]":
        task = asyncio.Task(work, loop=self, **options)
        life = (options.get("context") or copy_context()).get(_LIFE)
        if life is not None:
            life.tasks.append(task)
        return task

    # -- executors -----------------------------------------------------------------------------------------------------

    def run_in_executor(  # type: ignore[override]  # asyncio's is typed for coroutines of its own
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> "asyncio.Future[Any]":
        """Run it in one piece, some time from now; what it gives comes some time later."""
        future = self.create_future()

        def run() -> None:
            if future.cancelled():
                return
            try:
                result = func(*args)
            except BaseException as error:  # handed on, whatever it is: an executor does the same
                self.call_later(self.executor_seconds(), _complete, future.set_exception, future, error)
            else:
                self.call_later(self.executor_seconds(), _complete, future.set_result, future, result)

        self.call_later(self.executor_seconds(), run)
        return future

    # -- sockets -------------------------------------------------------------------------------------------------------

    def adopt(self, sock: Pollable) -> int:
        """The number that the socket has from now on instead of a descriptor."""
        number = next(self._numbers)
        self._sockets[number] = sock
        return number

    def drop(self, number: int) -> None:
        """The socket is closed."""
        self._sockets.pop(number, None)
        self.remove_reader(number)
        self.remove_writer(number)

    def poll(self, number: int) -> None:
        """Something about the socket has changed: call who waits for that, in a later turn."""
        sock = self._sockets.get(number)
        if sock is None:
            return
        if sock.is_readable() and number in self._readers:
            self.call_soon(self._serve, number, self._readers, sock.is_readable)
        if sock.is_writable() and number in self._writers:
            self.call_soon(self._serve, number, self._writers, sock.is_writable)

    def _serve(self, number: int, callbacks: "dict[int, Callable[[], object]]", is_ready: Callable[[], bool]) -> None:
        callback = callbacks.get(number)
        if callback is not None and is_ready():
            callback()
            if number in self._sockets and callbacks.get(number) is not None and is_ready():
                self.call_soon(self._serve, number, callbacks, is_ready)  # as epoll does, until all has been taken

    def add_reader(self, fd: Any, callback: Callable[..., object], *args: Any) -> None:  # type: ignore[override]
        self._readers[_number(fd)] = _while_alive(partial(callback, *args), None)
        self.poll(_number(fd))

    def add_writer(self, fd: Any, callback: Callable[..., object], *args: Any) -> None:  # type: ignore[override]
        self._writers[_number(fd)] = _while_alive(partial(callback, *args), None)
        self.poll(_number(fd))

    def remove_reader(self, fd: Any) -> bool:
        return self._readers.pop(_number(fd), None) is not None

    def remove_writer(self, fd: Any) -> bool:
        return self._writers.pop(_number(fd), None) is not None

    # -- what asyncio's loop wants from its implementations ------------------------------------------------------------

    def _process_events(self, event_list: list[Any]) -> None:
        assert not event_list

    def _write_to_self(self) -> None:
        """Nothing sleeps that would have to be woken."""


class SimClock(Clock):
    """A machine's clocks over the loop's time: the wall clock may jump, and each machine has its own."""

    def __init__(self, loop: SimLoop, *, epoch_ms: int = 1_750_000_000_000) -> None:
        self._loop = loop
        self.offset_ms = epoch_ms

    def now_ms(self) -> int:
        return self.offset_ms + int(self._loop.time() * 1_000)

    def monotonic(self) -> float:
        return self._loop.time()


def _while_alive(callback: Callable[..., object], context: Context | None) -> Callable[..., object]:
    life = _LIFE.get() if context is None else context.get(_LIFE)
    if life is None:
        return callback

    def guarded(*args: Any) -> None:
        if not life.is_over:
            callback(*args)

    return guarded


def _complete(complete: Callable[[Any], None], future: "asyncio.Future[Any]", outcome: Any) -> None:
    if not future.done():
        complete(outcome)


def _number(fd: Any) -> int:
    return fd if isinstance(fd, int) else int(fd.fileno())
