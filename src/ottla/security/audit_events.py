"""PURE. What an audit log is made of: one event, its line of JSON, and the limits that keep a flood of them small.

    {"time": "2026-11-27T12:00:00.000Z", "broker": 1, "event": "refusal", "principal": "User:bob",
     "address": "10.0.0.7", "listener": "OUTSIDE", "api": "PRODUCE", "outcome": "refused", "operation": "WRITE",
     "resource_type": "TOPIC", "resource": "orders"}

Lines are ASCII: everything else in a name, control characters included, is escaped.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

AUTHENTICATION: Final = "authentication"
REFUSAL: Final = "refusal"
CHANGE: Final = "change"
SUPPRESSED: Final = "suppressed"
"""A line with the number of events that have none."""
KINDS: Final = (AUTHENTICATION, REFUSAL, CHANGE)

SUCCEEDED: Final = "succeeded"
FAILED: Final = "failed"
REFUSED: Final = "refused"

LONGEST_TEXT: Final = 512
"""Characters that are kept of a name: a client chooses some of them, as long as its requests may be."""
REPEATS_S: Final = 10.0
"""Events that differ from an earlier one in nothing but the time are counted for so long, and get one line together."""
MOST_REMEMBERED: Final = 4096
"""Events that are compared with later ones."""


class AuditEvent(NamedTuple):
    """Something that a principal did, or tried to do."""

    kind: str
    principal: str | None
    """None where none was proved."""
    address: str
    listener: str
    api: str
    """Kafka's name of the request, or TLS for a handshake."""
    outcome: str
    operation: str | None = None
    """What was refused, by Kafka's name."""
    resource_type: str | None = None
    resource: str | None = None
    detail: tuple[tuple[str, str | int], ...] = ()
    """More members of the line, without secrets."""


def time_text(now_ms: int) -> str:
    """A time as the lines have it: UTC, to the millisecond."""
    return datetime.fromtimestamp(now_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def line_of(event: AuditEvent, now_ms: int, broker: int, more: Mapping[str, str | int] | None = None) -> bytes:
    """The line of an event, with its newline. Long texts are cut, and named in the line (`cut`)."""
    members: dict[str, Any] = {"time": time_text(now_ms), "broker": broker, "event": event.kind}
    members |= {name: value for name, value in event._asdict().items() if name not in ("kind", "detail")}
    if event.kind == AUTHENTICATION:  # these have no resource
        for name in ("operation", "resource_type", "resource"):
            members.pop(name)
    elif event.operation is None:
        members.pop("operation")
    members |= dict(event.detail) | dict(more or {})
    cut = [name for name, value in members.items() if isinstance(value, str) and len(value) > LONGEST_TEXT]
    for name in cut:
        members[name] = members[name][:LONGEST_TEXT]
    if cut:
        members["cut"] = cut
    return json.dumps(members).encode() + b"\n"


def suppressed_line(kind: str, count: int, reason: str, now_ms: int, broker: int) -> bytes:
    """The line that stands for events without one."""
    members = {"time": time_text(now_ms), "broker": broker, "event": SUPPRESSED}
    return json.dumps(members | {"suppressed": kind, "count": count, "reason": reason}).encode() + b"\n"


class AuditLimits:
    """Which events get a line of their own. Not for several threads at once.

    - Repeats of an authentication or a refusal get one line together, `REPEATS_S` after the first.
    - Of each kind there is a limited number a second, of which one address gets half: a client that invents names can
      neither fill the disk nor hide others. Changes that were made have no such limit.
    """

    def __init__(self, per_second: int) -> None:
        """`per_second`: lines of each kind."""
        self._per_second = per_second
        self._second = -1
        self._lines: Counter[str] = Counter()
        self._of_address: Counter[tuple[str, str]] = Counter()
        self._repeats: dict[AuditEvent, tuple[float, int, int]] = {}
        """When an event was first seen, in seconds and in milliseconds since the epoch, and how often since."""
        self.suppressed: Counter[tuple[str, str]] = Counter()
        """Events without a line, by kind and reason."""

    def admits(self, event: AuditEvent, now_s: float, now_ms: int) -> bool:
        """Whether an event gets a line now. `now_s` is of a monotonic clock."""
        if event.kind == CHANGE and event.outcome == SUCCEEDED:
            return True
        if event.kind != CHANGE:
            known = self._repeats.get(event)
            if known is not None:
                self._repeats[event] = (known[0], known[1], known[2] + 1)
                return False
        if not self._has_budget(event, int(now_s)):
            self.suppressed[event.kind, "rate"] += 1
            return False
        if event.kind != CHANGE and len(self._repeats) < MOST_REMEMBERED:
            self._repeats[event] = (now_s, now_ms, 0)
        return True

    def _has_budget(self, event: AuditEvent, second: int) -> bool:
        if second != self._second:
            self._second = second
            self._lines.clear()
            self._of_address.clear()
        of_address = (event.kind, event.address)
        if self._lines[event.kind] >= self._per_second:
            return False
        if self._of_address[of_address] >= max(1, self._per_second // 2):
            return False
        self._lines[event.kind] += 1
        self._of_address[of_address] += 1
        return True

    @property
    def is_waiting(self) -> bool:
        """Whether there is something to write later."""
        return bool(self._repeats or self.suppressed)

    def due(self, now_s: float) -> Iterator[tuple[AuditEvent, int, int]]:
        """Forget events that are old enough: those that came again, how often, and when they came first (ms)."""
        for event, (began_s, began_ms, count) in list(self._repeats.items()):
            if now_s - began_s < REPEATS_S:
                return  # they are in the order in which they began
            del self._repeats[event]
            if count:
                yield event, count, began_ms

    def take_suppressed(self) -> Counter[tuple[str, str]]:
        """How many events had no line since the last call."""
        taken, self.suppressed = self.suppressed, Counter()
        return taken
