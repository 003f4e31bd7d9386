"""The audit log of a broker: events from the loop and from other threads, written by a thread of its own.

    loop, threads --> AuditLimits --> events (bounded) --> thread: lines of JSON --> RotatingFile

Nothing here waits for a disk but the thread. While the file cannot be written, events are kept, up to a number; what is
lost then is counted, and the count is written once there is room again.
"""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.errors import InvalidConfig, sentence
from ottla.security.audit_events import (
    AUTHENTICATION,
    CHANGE,
    FAILED,
    LONGEST_TEXT,
    REFUSAL,
    REFUSED,
    SUCCEEDED,
    AuditEvent,
    AuditLimits,
    line_of,
    suppressed_line,
    time_text,
)
from ottla.server.audit.rotating_file import RotatingFile

if TYPE_CHECKING:
    from ottla.clock import Clock
    from ottla.config.broker import BrokerConfig
    from ottla.log.fs import FileSystem
    from ottla.security.authorization import Operation, ResourceType
    from ottla.server.connection import Connection
    from ottla.server.context import RequestContext

log = logging.getLogger("ottla.audit")

MOST_ANSWERS: Final = 1000
"""Answers that wait until the thread has looked at what they change."""
MOST_PENDING: Final = 10_000
"""Events that wait for the thread; as many changes may wait besides. They take 20 MB at the very most."""
RETRY_S: Final = 1.0
CLOSE_S: Final = 5.0
"""How long the end of the broker waits for what is still to be written."""
_KINDS: Final = {"authentications": AUTHENTICATION, "refusals": REFUSAL, "changes": CHANGE}


class Change(NamedTuple):
    """The outcome of a change of one resource."""

    resource_type: str
    resource: str
    error: str | None
    """Kafka's name of the error with which it failed."""
    detail: tuple[tuple[str, str | int], ...] = ()


class AuditLog:
    """Takes events on any thread, and never waits."""

    def __init__(
        self,
        config: "BrokerConfig",
        file: RotatingFile,
        clock: "Clock",
        stop_broker: Callable[[str], None],
    ) -> None:
        """`stop_broker` is called, on the writing thread, where `ottla.audit.on.failure` asks for it."""
        self._broker = config.node_id
        self._kinds = frozenset(_KINDS[name] for name in config.ottla_audit_events)
        self._stop_broker = stop_broker if config.ottla_audit_on_failure == "stop" else None
        self._file = file
        self._clock = clock
        self._limits = AuditLimits(config.ottla_audit_max_events_per_second)
        self._pending: deque[tuple[AuditEvent, int]] = deque()
        self._waiting: dict[bool, int] = {False: 0, True: 0}
        """Pending events: changes, by True, and others."""
        self._answers: deque[tuple[tuple[str, str, str, str], Iterator[Change], int]] = deque()
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._unwritten = b""
        self._failed: str | None = None
        self._thread = threading.Thread(target=self._run, name="ottla-audit", daemon=True)
        self._thread.start()

    # -- events ------------------------------------------------------------------------------------------------------

    def authenticated(self, connection: "Connection | RequestContext", principal: str, mechanism: str) -> None:
        """A client has proved its name."""
        self._authentication(connection, principal, mechanism, SUCCEEDED)

    def not_authenticated(
        self, connection: "Connection | RequestContext", claimed: str | None, mechanism: str, reason: str
    ) -> None:
        """A client has not. `claimed`: the user that it claims to be, if there is such a user: others are not to be
        noted, since passwords are typed into the wrong field at times."""
        self._authentication(connection, claimed, mechanism, FAILED, ("reason", reason))

    def _authentication(
        self,
        connection: "Connection | RequestContext",
        principal: str | None,
        mechanism: str,
        outcome: str,
        *detail: tuple[str, str],
    ) -> None:
        if AUTHENTICATION not in self._kinds:
            return
        api = "TLS" if mechanism == "TLS" else "SASL_AUTHENTICATE"
        address, listener = connection.client_host, connection.listener
        detail = (("mechanism", mechanism), *detail)
        self._take(
            AuditEvent(AUTHENTICATION, principal, address, listener, api, outcome, detail=detail), self._clock.now_ms()
        )
        self._wake.set()

    def refused(
        self,
        principal: str,
        address: str,
        listener: str,
        api: str,
        operation: "Operation",
        kind: "ResourceType",
        name: str,
    ) -> None:
        """A client was refused something."""
        if REFUSAL in self._kinds:
            name = name[: LONGEST_TEXT + 1]  # remembered, and longer ones are cut anyhow
            self._take(
                AuditEvent(REFUSAL, principal, address, listener, api, REFUSED, operation.name, kind.name, name),
                self._clock.now_ms(),
            )
            self._wake.set()

    def changed(self, context: "RequestContext", changes: Iterator[Change]) -> None:
        """A client has changed something, or has failed to. The thread looks at `changes`, which may be many."""
        if CHANGE not in self._kinds:
            return
        if len(self._answers) >= MOST_ANSWERS:
            with self._lock:
                self._limits.suppressed[CHANGE, "memory"] += 1
        else:
            sender = context.principal, context.client_host, context.listener, context.api_key.name
            self._answers.append((sender, changes, self._clock.now_ms()))
        self._wake.set()

    def _take(self, event: AuditEvent, now_ms: int) -> None:
        with self._lock:
            if not self._limits.admits(event, self._clock.monotonic(), now_ms):
                return
            self._queue(event, now_ms)

    def _queue(self, event: AuditEvent, now_ms: int) -> None:
        is_change = event.kind == CHANGE
        if self._waiting[is_change] >= MOST_PENDING:
            self._limits.suppressed[event.kind, "memory"] += 1
            return
        self._waiting[is_change] += 1
        self._pending.append((event, now_ms))

    # -- the thread --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._lock:
                is_waiting = self._limits.is_waiting
            self._wake.wait(RETRY_S if self._unwritten or is_waiting else None)
            self._wake.clear()
            is_last = self._closing.is_set()
            self._write(is_last=is_last)
            if is_last:
                return
            if self._unwritten:
                self._closing.wait(RETRY_S)  # and not try again with every event

    def _take_changes(self) -> None:
        while self._answers:
            (principal, address, listener, api), changes, now_ms = self._answers.popleft()
            try:
                for change in changes:
                    detail = change.detail if change.error is None else (("error", change.error), *change.detail)
                    outcome = SUCCEEDED if change.error is None else FAILED
                    kind, name = change.resource_type, change.resource
                    self._take(
                        AuditEvent(CHANGE, principal, address, listener, api, outcome, None, kind, name, detail), now_ms
                    )
            except Exception:
                log.exception("the audit log lacks what an answer to %s has changed", api)

    def _write(self, *, is_last: bool) -> None:
        self._take_changes()
        try:
            if not self._unwritten:
                self._unwritten = self._take_lines(is_last=is_last)
            while self._unwritten:
                self._file.append(self._unwritten)
                self._unwritten = self._take_lines(is_last=is_last)
        except OSError as problem:
            self._report(sentence(problem))
            return
        if self._failed is not None:
            log.warning("the audit log %s is written again", self._file.path)
            self._failed = None

    def _report(self, problem: str) -> None:
        if self._failed == problem:
            return
        self._failed = problem
        log.error(
            "the audit log %s cannot be written: %s; make room or mend it. Events are kept, %d at most, and the number "
            "of those that are lost",
            self._file.path,
            problem,
            2 * MOST_PENDING,
        )
        if self._stop_broker is not None:
            self._stop_broker(f"the audit log cannot be written: {problem} (ottla.audit.on.failure=stop)")

    def _take_lines(self, *, is_last: bool) -> bytes:
        now_ms = self._clock.now_ms()
        with self._lock:
            taken = list(self._pending)
            self._pending.clear()
            self._waiting = {False: 0, True: 0}
            repeated = list(self._limits.due(float("inf") if is_last else self._clock.monotonic()))
            suppressed = self._limits.take_suppressed()
        lines = [line_of(event, when_ms, self._broker) for event, when_ms in taken]
        lines += [
            line_of(event, now_ms, self._broker, {"repeated": count, "since": time_text(began_ms)})
            for event, count, began_ms in repeated
        ]
        lines += [
            suppressed_line(kind, count, reason, now_ms, self._broker) for (kind, reason), count in suppressed.items()
        ]
        return b"".join(lines)

    # -- the end -----------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Write what is left, for some seconds at most."""
        self._closing.set()
        self._wake.set()
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._thread.join, CLOSE_S)
        if self._thread.is_alive():
            log.error("the audit log %s has not been written to its end: its disk does not answer", self._file.path)
            return
        try:
            self._file.close()
        except OSError as problem:
            log.error("the audit log %s cannot be closed: %s", self._file.path, sentence(problem))


async def open_audit_log(
    config: "BrokerConfig", fs: "FileSystem", clock: "Clock", stop_broker: Callable[[str], None]
) -> AuditLog | None:
    """The audit log; None without `ottla.audit.file`. Raises `InvalidConfig` if it cannot be opened."""
    path = config.ottla_audit_file
    if not path:
        return None
    loop = asyncio.get_running_loop()

    def opened() -> RotatingFile:
        return RotatingFile(
            path, fs, max_bytes=config.ottla_audit_max_file_bytes, max_files=config.ottla_audit_max_files
        )

    try:
        file = await loop.run_in_executor(None, opened)
    except BlockingIOError as problem:
        raise InvalidConfig(f"ottla.audit.file: another process writes {path}: give each broker its own") from problem
    except OSError as problem:
        raise InvalidConfig(f"ottla.audit.file: {path} cannot be opened: {sentence(problem)}") from problem

    def stop(reason: str) -> None:
        loop.call_soon_threadsafe(stop_broker, reason)

    return AuditLog(config, file, clock, stop)
