"""The console's audit log: every login and action, also those that were refused, a line of JSON each (docs/acls.md).

An action is written down before it begins, and once more with its outcome. If it cannot be written down, it is refused.
Lines go to a file, or else to standard error.
"""

import asyncio
import contextlib
import math
import sys
import threading
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from ottla.log.fs import RealFileSystem
from ottla.security.audit_events import (
    AUTHENTICATION,
    CHANGE,
    FAILED,
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

BEGUN: Final = "begun"
LISTENER: Final = "CONSOLE"
NO_BROKER: Final = -1
MAX_FILE_BYTES: Final = 100 << 20
MAX_FILES: Final = 10
LINES_PER_SECOND: Final = 100


class AuditProblem(Exception):
    """An event could not be written down; the message has the reason."""


class Sender(NamedTuple):
    """Where a request comes from."""

    principal: str | None
    address: str


class Change(NamedTuple):
    """What an action changes, in Kafka's words: `DELETE_TOPICS` of `TOPIC` `orders`. `detail` has no secrets."""

    api: str
    resource_type: str
    resource: str
    detail: tuple[tuple[str, str | int], ...] = ()


class AuditTrail:
    """Writes events, in a thread."""

    def __init__(
        self,
        append: Callable[[bytes], None],
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`append` takes whole lines, and may raise OSError."""
        self._append = append
        self._now_ms = now_ms
        self._monotonic = monotonic
        self._limits = AuditLimits(LINES_PER_SECOND)
        self._lock = threading.Lock()

    async def login(self, sender: Sender, mechanism: str, problem: str | None) -> None:
        """A user has logged in, or has not. A name that was not proved may be a password in the wrong field, and is
        left out by the caller."""
        outcome, detail = (SUCCEEDED, ()) if problem is None else (FAILED, (("reason", problem),))
        await self._write(
            AuditEvent(
                AUTHENTICATION,
                sender.principal,
                sender.address,
                LISTENER,
                "LOGIN",
                outcome,
                detail=(("mechanism", mechanism), *detail),
            )
        )

    async def begun(self, sender: Sender, change: Change) -> None:
        """An action begins. Raises AuditProblem."""
        await self._write(self._event(sender, change, BEGUN))

    async def ended(self, sender: Sender, change: Change, error: str | None) -> None:
        """An action has ended, with Kafka's name of an error or a sentence if it failed. Raises AuditProblem."""
        more = () if error is None else (("error", error),)
        outcome = SUCCEEDED if error is None else FAILED
        await self._write(self._event(sender, change._replace(detail=(*change.detail, *more)), outcome))

    async def refused(self, sender: Sender, what: str, reason: str) -> None:
        """The console itself has refused a request; `what` is its method and path. Raises AuditProblem."""
        await self._write(
            AuditEvent(REFUSAL, sender.principal, sender.address, LISTENER, what, REFUSED, detail=(("reason", reason),))
        )

    @staticmethod
    def _event(sender: Sender, change: Change, outcome: str) -> AuditEvent:
        return AuditEvent(
            CHANGE,
            sender.principal,
            sender.address,
            LISTENER,
            change.api,
            outcome,
            None,
            change.resource_type,
            change.resource,
            change.detail,
        )

    async def flush(self) -> None:
        """Write how often events came again. What cannot be written is reported by the next action."""
        with contextlib.suppress(AuditProblem):
            await self._append_lines(self._repeated(self._monotonic()))

    async def close(self) -> None:
        """Write all that is left."""
        with contextlib.suppress(AuditProblem):
            await self._append_lines(self._repeated(math.inf))

    def _repeated(self, now_s: float) -> list[bytes]:
        now_ms = self._now_ms()
        return [
            line_of(event, now_ms, NO_BROKER, {"repeated": count, "since": time_text(began_ms)})
            for event, count, began_ms in self._limits.due(now_s)
        ]

    async def _write(self, event: AuditEvent) -> None:
        now_ms = self._now_ms()
        lines = self._repeated(self._monotonic())
        # actions are few, and a user's own: all of them are written. Refusals can come in floods
        if event.kind == CHANGE or self._limits.admits(event, self._monotonic(), now_ms):
            suppressed = self._limits.take_suppressed()
            lines += [
                suppressed_line(kind, count, reason, now_ms, NO_BROKER) for (kind, reason), count in suppressed.items()
            ]
            lines.append(line_of(event, now_ms, NO_BROKER))
        await self._append_lines(lines)

    async def _append_lines(self, lines: list[bytes]) -> None:
        if lines:
            await asyncio.to_thread(self._append_all, b"".join(lines))

    def _append_all(self, lines: bytes) -> None:
        try:
            with self._lock:
                self._append(lines)
        except OSError as problem:
            raise AuditProblem(f"the audit log cannot be written: {problem.strerror or problem}") from problem


def file_trail(path: str) -> AuditTrail:
    """An audit log in a file, which is renamed at 100 MB; ten are kept. Raises OSError."""
    return AuditTrail(RotatingFile(path, RealFileSystem(), max_bytes=MAX_FILE_BYTES, max_files=MAX_FILES).append)


def stderr_trail() -> AuditTrail:
    """An audit log on standard error."""

    def append(lines: bytes) -> None:
        sys.stderr.write(lines.decode())
        sys.stderr.flush()

    return AuditTrail(append)
