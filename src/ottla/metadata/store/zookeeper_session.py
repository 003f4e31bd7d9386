"""A session with ZooKeeper as the event loop sees it: connected or not, held or lost, and requests that are awaited.

    sync sent          sync answered                       lease ends           server may end the session
       |----------------------|---------------------------------|------------------------|
       |<--------------- 2/3 of the session timeout ----------->|
       |<------------------------------ session timeout -------------------------------->|  (and not before)

The server ends a session that is silent for the timeout. This side has to know first. It sends a `sync`
every tenth of the timeout; an answer proves that the session was alive at the server when the `sync` was sent, or
later.
Two thirds from then on, the session counts as lost. The remaining third is for ensembles: a server reports the sessions
it has seen to its leader only twice a tick, and a timeout is at least two ticks. (A plain ping would prove too
little: a server that has just been cut off from its leader answers it.)

Time is that of the system since it was started: it goes on while the machine or the process sleeps.
"""

import asyncio
import contextlib
import json
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from kazoo.exceptions import ConnectionClosedError, ConnectionLoss, SessionExpiredError, ZookeeperError
from kazoo.interfaces import IAsyncResult
from kazoo.protocol.serialization import Sync
from kazoo.protocol.states import KazooState, KeeperState

from ottla.clock import SystemClock
from ottla.errors import ErrorCode
from ottla.metadata.store.base import SessionEvent, SessionListener, StoreUnavailable
from ottla.metadata.store.zookeeper_address import ZooKeeperAddress
from ottla.metadata.store.zookeeper_wire import Client, SecureConnections
from ottla.tasks import supervised

log = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")

LEASE_SHARE: Final = 2 / 3
BEATS_PER_TIMEOUT: Final = 10
CLOSING_S: Final = 2.0
FIRST_REPORT_S: Final = 5.0
REPORT_EVERY_S: Final = 60.0
"""How soon, and how often, a lost session is reported again."""

LOST_CONNECTION: Final = (ConnectionLoss, ConnectionClosedError, SessionExpiredError)
"""The errors of a request whose outcome is unknown."""


class ZooKeeperUnavailable(StoreUnavailable):
    """ZooKeeper cannot be reached in time, or the answer was lost; clients are to try again."""

    code = ErrorCode.REQUEST_TIMED_OUT


now: Final = SystemClock().boottime
"""The session of a machine that sleeps may be over when it wakes."""


class Session:
    """One session after the other, until `close`. Everything is called on the loop's thread."""

    def __init__(
        self,
        address: ZooKeeperAddress,
        *,
        session_timeout_ms: int,
        session_file: Path | None,
        node_changed: Callable[[str], None],
        connected: Callable[[], None],
        secure: SecureConnections | None = None,
    ) -> None:
        """`node_changed` gets the whole path of every node that changes below a watched one; `connected` is called for
        each new connection, the first one too, before any other request can use it. Watches end with a connection."""
        self.address = address
        self._timeout_ms = session_timeout_ms
        self._file = session_file
        self._node_changed = node_changed
        self._on_connection = connected
        self._secure = secure
        self._loop: asyncio.AbstractEventLoop | None = None
        self._client: Client | None = None
        self._connected = asyncio.Event()
        self._unanswered: set[asyncio.Future[Any]] = set()
        self._listeners: list[SessionListener] = []
        self._session_id = 0
        self._lease_until = 0.0
        self._is_lost = False
        self._lost_id = 0
        self._writing: asyncio.Future[None] | None = None
        self._beating: asyncio.Task[None] | None = None
        self._lease_timer: asyncio.TimerHandle | None = None
        self._reporting: asyncio.Task[None] | None = None
        """While the session counts as lost: repeats that report."""

    # -- open and close ----------------------------------------------------------------------------------------------

    async def open(self, within_seconds: float) -> None:
        """Connect. The session of an earlier process, if the session file names one, is ended first: its nodes go.

        Raises `StoreUnavailable`.
        """
        self._loop = asyncio.get_running_loop()
        earlier = await self._loop.run_in_executor(None, self._read_file)
        deadline = now() + within_seconds
        if earlier is not None:
            await self._end_earlier(earlier, within_seconds)
        self._start_client()
        try:
            await self.until_connected(deadline)
            await self._beat()
        except (StoreUnavailable, ZookeeperError, asyncio.CancelledError) as failed:
            await self.close()
            if isinstance(failed, ZookeeperError):
                raise self.unavailable("the connection was lost") from failed
            raise
        self._beating = asyncio.ensure_future(self._keep_beating())

    async def close(self) -> None:
        """End the session, if ZooKeeper can be reached soon; if not, it ends by itself."""
        client, self._client = self._client, None
        if client is None:
            return
        self._lease_until = 0.0
        if self._lease_timer is not None:
            self._lease_timer.cancel()
        for task in (self._beating, self._reporting):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        self._beating = self._reporting = None
        was_connected = self._connected.is_set()
        self._connected.set()  # a task that waits for a connection need not wait until the deadline
        self._connected.clear()
        self._fail_unanswered(ConnectionClosedError)
        if self._writing is not None:
            await self._writing
        if await self._stopped(client) and was_connected and self._file is not None:
            self._file.unlink(missing_ok=True)

    def _start_client(self) -> None:
        loop = self._loop
        assert loop is not None

        def node_changed(path: str) -> None:
            with contextlib.suppress(RuntimeError):  # the loop may be closed while the last events come in
                loop.call_soon_threadsafe(self._node_changed, path)

        def state_changed(state: str) -> None:
            known = client.known_session() if state == KazooState.CONNECTED else None
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._state_changed, client, state, known)

        client = self._client = Client(
            self.address.hosts, session_timeout_ms=self._timeout_ms, node_changed=node_changed, secure=self._secure
        )
        client.add_listener(state_changed)
        client.start_async()

    async def _stopped(self, client: Client) -> bool:
        """Stop a client; whether it has come to its end within `CLOSING_S`. Its threads end with the process."""
        assert self._loop is not None
        ended: asyncio.Future[bool] = self._loop.create_future()
        loop = self._loop

        def end(done: bool) -> None:
            if not ended.done():
                ended.set_result(done)

        def stop() -> None:
            try:
                client.stop()
                client.close()
                done = True
            except Exception as failure:
                log.debug("the client of ZooKeeper did not stop: %s", failure)
                done = False
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(end, done)

        threading.Thread(target=stop, name="ottla zookeeper stop", daemon=True).start()
        timer = loop.call_later(CLOSING_S, end, False)
        try:
            return await ended
        finally:
            timer.cancel()

    # -- the session of an earlier process ---------------------------------------------------------------------------

    def _read_file(self) -> tuple[int, bytes] | None:
        if self._file is None:
            return None
        try:
            kept = json.loads(self._file.read_bytes())
            return int(kept["session"]), bytes.fromhex(kept["password"])
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as problem:
            log.warning("%s is left aside, it names no session of ZooKeeper: %s", self._file, problem)
            return None

    def _write_file(self, known: tuple[int, bytes]) -> None:
        if self._file is None:
            return
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            text = json.dumps({"session": known[0], "password": known[1].hex()})
            with open(os.open(self._file, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w") as file:
                file.write(text)
        except OSError as problem:
            log.warning("%s cannot be written, so a restart after a crash has to wait: %s", self._file, problem)

    async def _end_earlier(self, known: tuple[int, bytes], within_seconds: float) -> None:
        loop = self._loop
        assert loop is not None
        reached = asyncio.Event()
        client = Client(
            self.address.hosts,
            session_timeout_ms=self._timeout_ms,
            node_changed=lambda path: None,
            session=known,
            secure=self._secure,
        )

        def state_changed(state: str) -> None:
            if state == KazooState.CONNECTED:
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(reached.set)

        client.add_listener(state_changed)
        client.start_async()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_seconds):
                await reached.wait()
        await self._stopped(client)

    # -- connections and the lease -----------------------------------------------------------------------------------

    def on_event(self, listener: SessionListener) -> None:
        """Notify `listener` of lost, resumed and new sessions."""
        self._listeners.append(listener)

    @property
    def session_id(self) -> int:
        """That of the session last begun."""
        return self._session_id

    @property
    def newest_change(self) -> int:
        """The number of the newest transaction this session has seen."""
        return 0 if self._client is None else self._client.newest_change()

    def holds(self) -> bool:
        """Whether ZooKeeper is sure to keep the session at this moment."""
        return now() < self._lease_until

    async def until_connected(self, deadline: float) -> None:
        """Wait for a connection until `deadline` (of `now`). Raises `StoreUnavailable`."""
        if self._client is None:
            raise StoreUnavailable(f"the session with ZooKeeper at {self.address} is not open")
        if not self._connected.is_set():
            try:
                async with asyncio.timeout(max(0.0, deadline - now())):
                    await self._connected.wait()
            except TimeoutError:
                raise self.unavailable(self._why_not()) from None
            if self._client is None:
                raise StoreUnavailable(f"the session with ZooKeeper at {self.address} has been closed")

    def _why_not(self) -> str:
        """Why there is no connection."""
        problem = "" if self._client is None else self._client.problem
        return f"it cannot be reached{f': {problem}' if problem else ''}"

    def unavailable(self, why: str) -> ZooKeeperUnavailable:
        """The error with ZooKeeper's address and the reason why it is unavailable."""
        return ZooKeeperUnavailable(f"ZooKeeper at {self.address}: {why}")

    def send(self, request: object) -> "asyncio.Future[Any]":
        """Send a request in order with all others. The future fails with kazoo's errors (`LOST_CONNECTION`, or errors
        of the server)."""
        loop, client = self._loop, self._client
        assert loop is not None
        answer: asyncio.Future[Any] = loop.create_future()
        if client is None or not self._connected.is_set():
            answer.set_exception(ConnectionLoss())
            return answer
        self._unanswered.add(answer)
        answer.add_done_callback(self._unanswered.discard)

        def settle(result: IAsyncResult) -> None:
            if not answer.done():
                if result.exception is None:
                    answer.set_result(result.value)
                else:
                    answer.set_exception(result.exception)

        def answered(result: IAsyncResult) -> None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(settle, result)

        client.send(request).rawlink(answered)
        return answer

    def _fail_unanswered(self, failure: type[ZookeeperError]) -> None:
        """Kazoo keeps what it gets between two connections for the next one, for as long as that takes. It stands
        before all that is sent then, so it has come to its end when anything else is answered."""
        for answer in tuple(self._unanswered):
            if not answer.done():
                answer.set_exception(failure())

    def _state_changed(self, client: Client, state: str, known: tuple[int, bytes] | None) -> None:
        if client is not self._client or self._loop is None:
            return
        if state == KazooState.CONNECTED:
            if known is None:  # gone again in the meantime
                return
            if known[0] != self._session_id:
                if self._session_id:
                    log.warning("the session with ZooKeeper at %s has expired; a new one begins", self.address)
                    self._lose()
                self._session_id = known[0]
                self._writing = self._loop.run_in_executor(None, self._write_file, known)
            else:
                log.info("connected with ZooKeeper at %s again", self.address)
            self._connected.set()
            self._on_connection()
        else:
            if self._connected.is_set():
                self._connected.clear()
                log.warning("the connection with ZooKeeper at %s is lost; trying again", self.address)
            self._fail_unanswered(SessionExpiredError if state == KazooState.LOST else ConnectionLoss)
            if state == KazooState.LOST:
                self._lose()
                if client.client_state == KeeperState.CLOSED:  # it has given up by itself, since nothing here closes it
                    self._session_id = 0
                    self._start_client()

    async def _keep_beating(self) -> None:
        while True:
            await asyncio.sleep(self._granted_seconds() / BEATS_PER_TIMEOUT)
            await self._connected.wait()
            with contextlib.suppress(ZookeeperError):
                await self._beat()

    async def _beat(self) -> None:
        """Renew the lease. One at a time: kazoo finds a dead connection by its own pings, when nothing else is sent."""
        session_id, sent = self._session_id, now()
        await self.send(Sync(self.address.root or "/"))
        if session_id == self._session_id and self._client is not None:
            self._extend(sent + self._granted_seconds() * LEASE_SHARE)

    def _granted_seconds(self) -> float:
        return 1.0 if self._client is None else self._client.granted_timeout_ms / 1000

    def _extend(self, until: float) -> None:
        assert self._loop is not None
        self._lease_until = until
        if self._lease_timer is None:
            self._lease_timer = self._loop.call_later(max(0.0, until - now()), self._lease_may_have_ended)
        if self._is_lost and self.holds():
            self._is_lost = False
            self._notify(SessionEvent.RESUMED if self._session_id == self._lost_id else SessionEvent.BEGUN)

    def _lease_may_have_ended(self) -> None:
        assert self._loop is not None
        self._lease_timer = None
        if self.holds():
            self._lease_timer = self._loop.call_later(self._lease_until - now(), self._lease_may_have_ended)
        elif self._client is not None:
            self._lose()

    def _lose(self) -> None:
        self._lease_until = 0.0
        if not self._is_lost:
            self._is_lost = True
            self._lost_id = self._session_id
            if self._loop is not None and (self._reporting is None or self._reporting.done()):
                self._reporting = supervised(self._loop, self._report_absence(), "reports of a lost session")
            self._notify(SessionEvent.LOST)

    async def _report_absence(self) -> None:
        """Report once a minute while the session is lost. A server that has lost its data refuses clients that have
        seen more of it, without a reason: a client that has seen nothing finds out."""
        await asyncio.sleep(FIRST_REPORT_S)
        while self._is_lost:
            reason = (
                "it takes new clients, but none that have seen its earlier data: bring that data back, or stop all "
                "brokers before you go on without it"
                if await self._takes_new_clients()
                else self._why_not()
            )
            if self._is_lost:
                log.error(
                    "there is no session with ZooKeeper at %s: %s; this broker serves what it knows, and "
                    "nothing can be changed",
                    self.address,
                    reason,
                )
            await asyncio.sleep(REPORT_EVERY_S)

    async def _takes_new_clients(self) -> bool:
        loop = self._loop
        assert loop is not None
        reached = asyncio.Event()
        client = Client(
            self.address.hosts,
            session_timeout_ms=self._timeout_ms,
            node_changed=lambda path: None,
            secure=self._secure,
        )

        def state_changed(state: str) -> None:
            if state == KazooState.CONNECTED:
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(reached.set)

        client.add_listener(state_changed)
        client.start_async()
        try:
            async with asyncio.timeout(CLOSING_S):
                await reached.wait()
        except TimeoutError:
            return False
        finally:
            await self._stopped(client)
        return True

    def _notify(self, event: SessionEvent) -> None:
        log.log(
            logging.WARNING if event is SessionEvent.LOST else logging.INFO,
            "the session with ZooKeeper at %s %s",
            self.address,
            {
                SessionEvent.LOST: "counts as lost",
                SessionEvent.RESUMED: "goes on after all",
                SessionEvent.BEGUN: "has begun anew",
            }[event],
        )
        for listener in tuple(self._listeners):
            listener(event)
