"""ZooKeeper on the simulated network: a tree on one host, sessions kept alive by pings, answers that get lost.

The guarantees of the real `ZooKeeperStore` hold here, too: a broker that is cut off learns by its own clock that
its session may be over, before the server removes its nodes; requests of one broker are executed in their order.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from functools import partial
from typing import Any, Final, TypeVar

from ottla.metadata.store.base import Node, Operation, SessionEvent, SessionListener, StoreUnavailable
from ottla.testing.memory_store import MemoryStore, MemoryTree
from ottla.testing.simulation.loop import NOBODY
from ottla.testing.simulation.network import SimNetwork

ResultT = TypeVar("ResultT")

LEASE: Final = 2 / 3
"""How long after its last answered ping a broker may trust its session, as a share of the session timeout."""
PINGS_PER_TIMEOUT: Final = 6
NOTICED_AFTER: Final = 0.1
"""How long a request waits for a missing answer, as a share of the session timeout."""


class SimZooKeeper:
    """The server. `run` lets sessions expire; it is part of no broker's life."""

    def __init__(self, network: SimNetwork, *, host: str = "zk", session_timeout_seconds: float = 6.0) -> None:
        self.network = network
        self.host = host
        self.session_timeout_seconds = session_timeout_seconds
        self.tree = MemoryTree()
        self.sessions: dict[str, _Session] = {}
        """The newest of each broker."""
        self.expired = 0

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(self.session_timeout_seconds / 10)
            now = self.network.loop.time()
            for name, session in list(self.sessions.items()):
                if now > session.heard_at + self.session_timeout_seconds:
                    self.expired += 1
                    self.end(name, session)

    def begin(self, name: str) -> "_Session":
        """A new session; one that the same broker had before is ended, as by the id that it has kept in a file."""
        before = self.sessions.get(name)
        if before is not None:
            self.end(name, before)
        session = self.sessions[name] = _Session(MemoryStore(self.tree), self.network.loop.time())
        return session

    def end(self, name: str, session: "_Session") -> None:
        """End a session and remove its ephemeral nodes."""
        if not session.is_over:
            session.is_over = True
            self.tree.end_session(session.owner)
        if self.sessions.get(name) is session:
            del self.sessions[name]


class _Session:
    def __init__(self, owner: MemoryStore, now: float) -> None:
        self.owner = owner
        self.heard_at = now
        self.is_over = False


class SimStore:
    """One broker's `MetadataStore`."""

    def __init__(self, server: SimZooKeeper, host: str) -> None:
        self._server = server
        self._network = server.network
        self._loop = server.network.loop
        self._host = host
        self._session: _Session | None = None
        self._lease_until = -1.0
        self._is_lost = False
        self._listeners: list[SessionListener] = []
        self.watches: list[tuple[str, Callable[[], None]]] = []
        self._has_missed = False
        self._pinging: asyncio.Task[None] | None = None
        self._last_there = 0.0
        """When the last request gets to the server: none overtakes another."""
        self._last_back = 0.0

    # -- MetadataStore -------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Begin a session."""
        asked_at = self._loop.time()
        self._session = await self._ask(lambda: self._server.begin(self._host))
        self._extend(asked_at)
        self._server.tree.watchers.append(self)
        self._pinging = self._loop.create_task(self._ping())

    async def read(self, prefix: str) -> dict[str, Node]:
        """The nodes at and below `prefix`, by path, as the server has them."""
        self._check_session()
        session = self._session

        def nodes() -> dict[str, Node]:
            tree = self._server.tree
            return {
                path: node._replace(is_own=session is not None and tree.owners.get(path) is session.owner)
                for path, node in tree.nodes.items()
                if prefix == "/" or path == prefix or path.startswith(prefix + "/")
            }

        return await self._ask(nodes)

    async def commit(self, operations: Sequence[Operation]) -> None:
        """Apply all operations or none at the server; the answer may get lost on the way."""
        self._check_session()
        session = self._session

        def carry_out() -> None:
            if session is None or session.is_over:
                raise StoreUnavailable("the session has expired")
            self._server.tree.commit(operations, session.owner)

        await self._ask(carry_out)

    def watch(self, prefix: str, changed: Callable[[], None]) -> Callable[[], None]:
        """Call `changed` after changes below `prefix`, until the returned function is called."""
        entry = (prefix, partial(self._tell, changed, copy_context()))
        self.watches.append(entry)

        def cancel() -> None:
            if entry in self.watches:
                self.watches.remove(entry)

        return cancel

    def on_session(self, listener: SessionListener) -> None:
        self._listeners.append(listener)

    def holds_session(self) -> bool:
        return self._loop.time() < self._lease_until

    async def close(self) -> None:
        """End the session."""
        if self._pinging is not None:
            self._pinging.cancel()
        session, self._session = self._session, None
        self.forget()
        if session is not None and self._network.reaches(self._host, self._server.host):
            self._server.end(self._host, session)

    def forget(self) -> None:
        """The process has ended: the server sends it nothing further."""
        self.watches.clear()
        if self in self._server.tree.watchers:
            self._server.tree.watchers.remove(self)

    # -- the connection ------------------------------------------------------------------------------------------------

    async def _ask(self, work: Callable[[], ResultT]) -> ResultT:
        """Return the server's answer. Raises StoreUnavailable; the request may have been executed all the same.

        A request under way is no longer part of the broker's process, and arrives even if that is killed.
        """
        answer: asyncio.Future[ResultT] = self._loop.create_future()
        self._last_there = max(self._last_there, self._loop.time() + self._network.delay())
        self._loop.call_at(self._last_there, self._serve, work, answer, context=NOBODY)
        return await answer

    def _serve(self, work: Callable[[], ResultT], answer: "asyncio.Future[ResultT]") -> None:
        """The server's side of a request."""
        if not self._network.reaches(self._host, self._server.host):
            self._lose_answer(answer)
            return
        try:
            settle = partial(_settle, answer, answer.set_result, work())
        except Exception as problem:  # whatever it is, the broker gets it
            settle = partial(_settle, answer, answer.set_exception, problem)
        if self._network.reaches(self._server.host, self._host):
            self._last_back = max(self._last_back, self._loop.time() + self._network.delay())
            self._loop.call_at(self._last_back, settle, context=NOBODY)
        else:
            self._lose_answer(answer)

    def _lose_answer(self, answer: "asyncio.Future[Any]") -> None:
        problem = StoreUnavailable(f"{self._server.host} cannot be reached from {self._host}")
        waits = self._server.session_timeout_seconds * NOTICED_AFTER
        self._loop.call_later(waits, _settle, answer, answer.set_exception, problem, context=NOBODY)

    async def _ping(self) -> None:
        while True:
            await asyncio.sleep(self._server.session_timeout_seconds / PINGS_PER_TIMEOUT)
            asked_at = self._loop.time()
            try:
                is_over = await self._ask(self._touch)
            except StoreUnavailable:
                continue
            if is_over:
                self._lose()
                asked_at = self._loop.time()
                try:
                    self._session = await self._ask(lambda: self._server.begin(self._host))
                except StoreUnavailable:
                    continue
            self._extend(asked_at)
            if self._is_lost and self.holds_session():
                self._is_lost = False
                self._say(SessionEvent.BEGUN if is_over else SessionEvent.RESUMED)
            if is_over or self._has_missed:
                self._has_missed = False
                for _, tell in list(self.watches):
                    tell()

    def _touch(self) -> bool:
        assert self._session is not None
        self._session.heard_at = self._loop.time()
        return self._session.is_over

    def _extend(self, asked_at: float) -> None:
        self._lease_until = asked_at + self._server.session_timeout_seconds * LEASE
        self._loop.call_at(self._lease_until, self._lease_may_have_ended)

    def _lease_may_have_ended(self) -> None:
        if not self.holds_session() and self._session is not None:
            self._lose()

    def _lose(self) -> None:
        if not self._is_lost:
            self._is_lost = True
            self._lease_until = -1.0
            self._say(SessionEvent.LOST)

    def _say(self, event: SessionEvent) -> None:
        for listener in self._listeners:
            listener(event)

    def _tell(self, changed: Callable[[], None], context: Context) -> None:
        """A watched node has changed: notify the broker when it can be reached."""
        if self._network.reaches(self._server.host, self._host):
            self._loop.call_later(self._network.delay(), changed, context=context)
        else:
            self._has_missed = True

    def _check_session(self) -> None:
        if self._session is None or self._is_lost:
            raise StoreUnavailable("there is no session with the metadata store")


def _settle(answer: "asyncio.Future[Any]", settle: Callable[[Any], None], outcome: Any) -> None:
    if not answer.done():
        settle(outcome)
