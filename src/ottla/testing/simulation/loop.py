"""An event loop whose time is a number: a day of timers takes as long as the work in it.

Everything that asyncio code does on it happens in one thread, in an order that follows from the seed alone:

    time        moves only when nothing is left to do, to the next timer
    sockets     are those of `SimNetwork`: readable and writable by its rules
    executors   run their work in this thread, after some virtual time that the seed decides

    lives       work started as part of a `Life` ends with it, between two steps: no `finally` runs, nothing
                is flushed. A killed process ends the same way.

A future that nothing can complete any longer is an error (`Deadlock`), not a test that hangs.
"""

import asyncio
import itertools
from asyncio import base_events
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from heapq import heappop, heappush
from random import Random
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from ottla.clock import Clock

ResultT = TypeVar("ResultT")

EXECUTOR_S: Final = 0.002
"""Approximate duration of work in an executor, unless `executor_seconds` sets another."""


class Deadlock(AssertionError):
    """Nothing is left to do, and what was waited for has not happened."""


class Life:
    """One process of the simulation, from its start to its end."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_over = False
        self.is_paused = False
        self.tasks: list[asyncio.Task[Any]] = []
        """Kept: a task that is collected while it waits would run its `finally` blocks."""
        self.held: list[_Handle] = []
        """What it would have done while it was paused."""
        self.open_connection: Callable[[SimLoop, Callable[[], Any], str, int], Awaitable[Any]] | None = None
        """How `create_connection` of asyncio connects from its host; None: it does not."""

    def end(self) -> None:
        """Nothing of it happens any more."""
        self.is_over = True
        self.held.clear()

    def pause(self) -> None:
        """SIGSTOP: nothing of it happens until it is resumed, and then all of it at once."""
        self.is_paused = True


_LIFE: Final[ContextVar[Life | None]] = ContextVar("life", default=None)
NOBODY: Final = Context()
"""The context outside every life: bytes under way arrive even after their sender has ended."""


class Pollable(Protocol):
    """A socket, as the loop sees it."""

    def is_readable(self) -> bool: ...

    def is_writable(self) -> bool: ...


class _SimTask(asyncio.Task[Any]):
    """A task whose place in a set follows from its number: asyncio's hash follows from an address in memory."""

    __slots__ = ("_number",)

    def __init__(self, number: int, work: Any, **options: Any) -> None:
        self._number = number
        super().__init__(work, **options)

    def __hash__(self) -> int:
        return self._number


class _SimFuture(asyncio.Future[Any]):
    """The same for a future."""

    __slots__ = ("_number",)

    def __init__(self, number: int, loop: asyncio.AbstractEventLoop) -> None:
        self._number = number
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._number


class _Handle(asyncio.TimerHandle):
    """A call that is to be made, now or at a time, as part of the life it was asked for in."""

    __slots__ = ("life",)

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: asyncio.AbstractEventLoop,
        context: Context,
    ) -> None:
        super().__init__(when, callback, args, loop, context)
        self.life = context.get(_LIFE)


class _Watch(NamedTuple):
    """The callback for a ready socket, and the life it belongs to."""

    callback: Callable[..., object]
    args: tuple[Any, ...]
    context: Context


class SimLoop(base_events.BaseEventLoop):
    """asyncio's own loop over virtual time. `random` decides what real machines leave to chance."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.random = Random(seed)
        self.executor_seconds: Callable[[], float] = lambda: self.random.expovariate(1 / EXECUTOR_S)
        self.turn_seconds = 0.0
        """What each turn of the loop takes. With 0, a program that polls without waiting stops the time."""
        self.set_task_factory(self._remember)
        self.lives: list[Life] = []
        self._now = 0.0
        self._timers: list[tuple[float, int, _Handle]] = []
        """A heap; asyncio's compares its handles in Python, which is slow."""
        self._timer_numbers = itertools.count()
        self._future_numbers = itertools.count()
        self._numbers = itertools.count(1_000_000)  # no descriptor of the system's is mistaken for one of them
        self._sockets: dict[int, Pollable] = {}
        self._readers: dict[int, _Watch] = {}
        self._writers: dict[int, _Watch] = {}

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._now

    def _run_once(self) -> None:
        """One turn: what is ready by now; time passes only if nothing is. asyncio's would ask a selector."""
        self._now += self.turn_seconds
        ready: deque[_Handle] = self._ready  # type: ignore[attr-defined]  # asyncio's queue
        timers = self._timers
        if not ready and not self._stopping:  # type: ignore[attr-defined]
            while timers and timers[0][2].cancelled():
                heappop(timers)
            if not timers:
                raise Deadlock(f"at {self._now:.3f} s nothing is left to do")
            self._now = max(self._now, timers[0][0])
        while timers and timers[0][0] <= self._now:
            ready.append(heappop(timers)[2])
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle.cancelled():
                continue
            life = handle.life
            if life is not None:
                if life.is_over:
                    continue
                if life.is_paused:
                    life.held.append(handle)
                    continue
            handle._run()

    # -- lives ---------------------------------------------------------------------------------------------------------

    def start(self, life: Life, work: Coroutine[Any, Any, ResultT]) -> "asyncio.Task[ResultT]":
        """Run it as part of a life, with everything that it starts. The life is kept until the loop goes."""
        if life not in self.lives:
            self.lives.append(life)
        context = copy_context()
        context.run(_LIFE.set, life)
        return self.create_task(work, context=context)

    def resume(self, life: Life) -> None:
        """SIGCONT: what has been held up happens in its order, and only then the rest."""
        life.is_paused = False
        held, life.held = life.held, []
        self._ready.extendleft(reversed(held))  # type: ignore[attr-defined]

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> asyncio.Handle:  # type: ignore[override]
        handle = _Handle(self._now, callback, args, self, copy_context() if context is None else context)
        self._ready.append(handle)  # type: ignore[attr-defined]
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)  # there is one thread

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = _Handle(when, callback, args, self, copy_context() if context is None else context)
        heappush(self._timers, (when, next(self._timer_numbers), handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It is dropped when its time comes."""

    def _remember(self, _loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> "asyncio.Task[Any]":
        task = _SimTask(next(self._future_numbers), work, loop=self, **options)
        life = (options.get("context") or copy_context()).get(_LIFE)
        if life is not None:
            life.tasks.append(task)
        return task

    def create_future(self) -> "asyncio.Future[Any]":
        return _SimFuture(next(self._future_numbers), self)

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

    async def create_connection(  # type: ignore[override]  # without asyncio's options for TLS and addresses
        self, protocol_factory: Callable[[], Any], host: str = "", port: int = 0, **_options: Any
    ) -> Any:
        """Connect over the simulated network, from the host of the process that asks for it."""
        life = _LIFE.get()
        if life is None or life.open_connection is None:
            raise RuntimeError(f"{host}:{port} can be reached only by processes that `Cluster.start` has started")
        return await life.open_connection(self, protocol_factory, host, port)

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
        """The state of the socket has changed: call its waiting callbacks in a later turn."""
        sock = self._sockets.get(number)
        if sock is None:
            return
        if number in self._readers and sock.is_readable():
            self._serve_soon(number, self._readers, sock.is_readable)
        if number in self._writers and sock.is_writable():
            self._serve_soon(number, self._writers, sock.is_writable)

    def _serve_soon(self, number: int, callbacks: "dict[int, _Watch]", is_ready: Callable[[], bool]) -> None:
        self.call_soon(self._serve, number, callbacks, is_ready, context=callbacks[number].context)

    def _serve(self, number: int, callbacks: "dict[int, _Watch]", is_ready: Callable[[], bool]) -> None:
        waiting = callbacks.get(number)
        if waiting is not None and is_ready():
            waiting.callback(*waiting.args)
            if number in self._sockets and number in callbacks and is_ready():
                self._serve_soon(number, callbacks, is_ready)  # as epoll does, until all has been taken

    def add_reader(self, fd: Any, callback: Callable[..., object], *args: Any) -> None:  # type: ignore[override]
        self._readers[_number(fd)] = _Watch(callback, args, copy_context())
        self.poll(_number(fd))

    def add_writer(self, fd: Any, callback: Callable[..., object], *args: Any) -> None:  # type: ignore[override]
        self._writers[_number(fd)] = _Watch(callback, args, copy_context())
        self.poll(_number(fd))

    def remove_reader(self, fd: Any) -> bool:
        return self._readers.pop(_number(fd), None) is not None

    def remove_writer(self, fd: Any) -> bool:
        return self._writers.pop(_number(fd), None) is not None


class SimClock(Clock):
    """A machine's clocks over the loop's time: the wall clock may jump, and each machine has its own."""

    def __init__(self, loop: SimLoop, *, epoch_ms: int = 1_750_000_000_000) -> None:
        self._loop = loop
        self.offset_ms = epoch_ms

    def now_ms(self) -> int:
        return self.offset_ms + int(self._loop.time() * 1_000)

    def monotonic(self) -> float:
        return self._loop.time()

    def boottime(self) -> float:
        return self._loop.time()


def _complete(complete: Callable[[Any], None], future: "asyncio.Future[Any]", outcome: Any) -> None:
    if not future.done():
        complete(outcome)


def _number(fd: Any) -> int:
    return fd if isinstance(fd, int) else int(fd.fileno())
