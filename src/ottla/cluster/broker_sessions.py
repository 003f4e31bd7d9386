"""PURE. The sessions of brokers with the active controller of a quorum, and what their heartbeats ask for.

    registered ──▶ fenced ──── caught up with its registration ────▶ unfenced
                     ▲                                                │    │ wants to stop, and leads something
                     ├──── no heartbeat for the session timeout ──────┘    ▼
                     └───────────── no longer leads anything ◀──── controlled shutdown

Times are the controller's own, in seconds of a clock that only goes forward. They are not in the metadata log: a new
controller gives every broker a whole session before it fences one. Source: KIP-631; Kafka 4.3,
`BrokerHeartbeatManager`.
"""

from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

from ottla.ids import BrokerId

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig

NOTHING_READ = -1


def doubt_ms(config: "BrokerConfig") -> float:
    """How long before it received a heartbeat a controller that answers it certainly led the quorum.

    Another may have been elected since then. It gives every broker a whole session.
    """
    return min(config.controller_quorum_fetch_timeout_ms, config.broker_session_timeout_ms) / 2


def lease_ms(config: "BrokerConfig") -> float:
    """For how long after it was sent an answered heartbeat proves that no other broker was elected."""
    return config.broker_session_timeout_ms - doubt_ms(config)


class Standing(Enum):
    """What a broker may do."""

    FENCED = auto()
    """It leads nothing, and is in no in-sync set."""
    UNFENCED = auto()
    CONTROLLED_SHUTDOWN = auto()
    """Its leadership moves to others."""
    SHUTDOWN_NOW = auto()
    """It is fenced, and may stop."""

    @property
    def is_fenced(self) -> bool:
        """Whether it leads nothing."""
        return self in (Standing.FENCED, Standing.SHUTDOWN_NOW)


class Heartbeat(NamedTuple):
    """What a broker reports."""

    metadata_offset: int
    """It has read the metadata log up to this offset, included."""
    wants_fence: bool = False
    wants_shutdown: bool = False


class Contact(NamedTuple):
    """The last contact with a broker."""

    at_s: float
    """Its last heartbeat, its registration, or the beginning of the controller's term."""
    metadata_offset: int
    """What it had read then of the metadata log; `NOTHING_READ` before a heartbeat."""


def why_fenced(contact: Contact | None, registered_at: int, now_s: float, timeout_s: float, *, has_ended: bool) -> str:
    """Why a broker is fenced, for operators; `registered_at` is the offset of its registration."""
    if has_ended:
        return "its process has ended"
    if contact is None or contact.metadata_offset == NOTHING_READ:
        return "no heartbeat has come since it was registered, or since this controller became active"
    silent_s = now_s - contact.at_s
    if silent_s > timeout_s:
        return f"no heartbeat has come for {silent_s:.1f} s"
    if contact.metadata_offset < registered_at:
        return f"it has read the metadata log up to {contact.metadata_offset}; it registered at {registered_at}"
    return "its heartbeats ask for it: it starts, or stops"


class _Session:
    """What is known of one broker."""

    __slots__ = ("contact_s", "is_fenced", "metadata_offset", "shutdown_offset")

    def __init__(self, contact_s: float, *, is_fenced: bool) -> None:
        self.contact_s = contact_s
        self.is_fenced = is_fenced
        self.metadata_offset = NOTHING_READ
        self.shutdown_offset = NOTHING_READ
        """The end of the log when its controlled shutdown began."""


class BrokerSessions:
    """The sessions of one term of a controller."""

    def __init__(self, timeout_s: float) -> None:
        """`timeout_s`: `broker.session.timeout.ms`."""
        self._timeout_s = timeout_s
        self._sessions: dict[BrokerId, _Session] = {}

    def begin(self, brokers: Iterable[tuple[BrokerId, bool, bool]], now_s: float, end_offset: int) -> None:
        """Begin a term with these brokers: id, is it fenced, is it in controlled shutdown. Each has a whole session."""
        self._sessions.clear()
        for broker_id, is_fenced, is_stopping in brokers:
            self._sessions[broker_id] = session = _Session(now_s, is_fenced=is_fenced)
            if is_stopping and not is_fenced:
                session.shutdown_offset = end_offset

    def register(self, broker_id: BrokerId, now_s: float, *, is_fenced: bool) -> None:
        """A broker has registered: what was known of it is forgotten."""
        self._sessions[broker_id] = _Session(now_s, is_fenced=is_fenced)

    def remove(self, broker_id: BrokerId) -> None:
        """A broker is no longer registered."""
        self._sessions.pop(broker_id, None)

    def fence(self, broker_id: BrokerId) -> None:
        """A broker has been fenced."""
        session = self._sessions.get(broker_id)
        if session is not None:
            session.is_fenced = True
            session.shutdown_offset = NOTHING_READ

    def begin_shutdown(self, broker_id: BrokerId, end_offset: int) -> None:
        """A broker's leadership has begun to move; others know of it once they have read up to `end_offset`."""
        session = self._sessions.get(broker_id)
        if session is not None and session.shutdown_offset == NOTHING_READ:
            session.shutdown_offset = end_offset

    def touch(self, broker_id: BrokerId, heartbeat: Heartbeat, now_s: float, *, is_fenced: bool) -> None:
        """A heartbeat has been taken; `is_fenced` is what it leaves."""
        session = self._sessions.setdefault(broker_id, _Session(now_s, is_fenced=is_fenced))
        session.contact_s = now_s
        session.metadata_offset = heartbeat.metadata_offset
        session.is_fenced = is_fenced
        if is_fenced:
            session.shutdown_offset = NOTHING_READ

    def contact(self, broker_id: BrokerId) -> Contact | None:
        """The last contact with a broker; None if it has no session."""
        session = self._sessions.get(broker_id)
        return None if session is None else Contact(session.contact_s, session.metadata_offset)

    def is_valid(self, broker_id: BrokerId, now_s: float) -> bool:
        """Whether a broker is alive: not fenced, with a heartbeat within the session timeout."""
        session = self._sessions.get(broker_id)
        return session is not None and not session.is_fenced and self._deadline(session) >= now_s

    def stale(self, now_s: float) -> list[BrokerId]:
        """The brokers to fence, the longest silent first."""
        late = [
            (session.contact_s, broker_id)
            for broker_id, session in self._sessions.items()
            if not session.is_fenced and self._deadline(session) < now_s
        ]
        return [broker_id for _, broker_id in sorted(late)]

    def next_deadline(self) -> float | None:
        """When the first broker becomes stale unless a heartbeat comes; None without brokers that are not fenced."""
        return min((self._deadline(each) for each in self._sessions.values() if not each.is_fenced), default=None)

    def _deadline(self, session: _Session) -> float:
        return session.contact_s + self._timeout_s

    def after(
        self, broker_id: BrokerId, heartbeat: Heartbeat, registered_at: int, leads: Callable[[], bool]
    ) -> tuple[Standing, Standing]:
        """A broker's standing now, and after a heartbeat.

        `registered_at` is the offset of its registration, `leads` whether it leads anything that others could lead.
        """
        session = self._sessions.get(broker_id)
        if session is None or session.is_fenced:
            return Standing.FENCED, _fenced_after(heartbeat, registered_at)
        if session.shutdown_offset != NOTHING_READ:
            return Standing.CONTROLLED_SHUTDOWN, self._stopping_after(session, leads)
        if heartbeat.wants_fence:
            # A broker asks for it until it is ready, and not again in the same epoch: alone it is a late heartbeat, and
            # its sender, which is unfenced by now, counts on its lease.
            return Standing.UNFENCED, Standing.SHUTDOWN_NOW if heartbeat.wants_shutdown else Standing.UNFENCED
        if heartbeat.wants_shutdown:
            return Standing.UNFENCED, Standing.CONTROLLED_SHUTDOWN if leads() else Standing.SHUTDOWN_NOW
        return Standing.UNFENCED, Standing.UNFENCED

    def _stopping_after(self, session: _Session, leads: Callable[[], bool]) -> Standing:
        """It stops once the others know that it leads nothing, or clients would be sent to it."""
        if leads():
            return Standing.CONTROLLED_SHUTDOWN
        active = (
            other.metadata_offset
            for other in self._sessions.values()
            if not other.is_fenced and other.shutdown_offset == NOTHING_READ
        )
        slowest = min(active, default=session.shutdown_offset)
        return Standing.SHUTDOWN_NOW if slowest >= session.shutdown_offset else Standing.CONTROLLED_SHUTDOWN


def _fenced_after(heartbeat: Heartbeat, registered_at: int) -> Standing:
    if heartbeat.wants_shutdown:
        return Standing.SHUTDOWN_NOW
    is_ready = not heartbeat.wants_fence and heartbeat.metadata_offset >= registered_at
    return Standing.UNFENCED if is_ready else Standing.FENCED
