"""Sessions of users that have logged in: random ids, of which only a digest is kept; idle and absolute expiry."""

import hashlib
import math
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

IDLE_S: Final = 30 * 60.0
LONGEST_S: Final = 12 * 3600.0
MOST_SESSIONS: Final = 200
MOST_OF_USER: Final = 10
_ID_BYTES: Final = 32


class TooManySessions(Exception):
    """There is room for no further user."""


@dataclass(eq=False, slots=True)
class Session:
    """A login. `holder` is what belongs to it, `ended` whether it is over."""

    user: str
    holder: Any
    began: float
    seen: float
    ended: bool = False
    until: float = math.inf
    """When it is over in any case, such as with the token of its user."""
    digest: bytes = field(default=b"", repr=False)


class Sessions:
    """All sessions, the one not seen for longest first. On one event loop."""

    def __init__(self, now: Callable[[], float], ended: Callable[[Session], None]) -> None:
        """`now`: seconds of a monotonic clock. `ended` is called with each session that is over."""
        self._now = now
        self._ended = ended
        self._sessions: OrderedDict[bytes, Session] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, user: str, holder: Any) -> str:
        """The id of a new session. A user's oldest session gives way to one too many. Raises TooManySessions."""
        self.expire()
        own = [each for each in self._sessions.values() if each.user == user]
        if len(own) >= MOST_OF_USER:
            self.end(own[0])
        if len(self._sessions) >= MOST_SESSIONS:
            raise TooManySessions(f"{MOST_SESSIONS} users are logged in: wait until one has logged out")
        session_id = secrets.token_urlsafe(_ID_BYTES)
        now = self._now()
        session = Session(user, holder, now, now, digest=_digest(session_id))
        self._sessions[session.digest] = session
        return session_id

    def find(self, session_id: str, *, is_used: bool) -> Session | None:
        """The session of an id, if it is not over. `is_used`: a user did something, so that it is not idle."""
        session = self._sessions.get(_digest(session_id))
        if session is None or not self.is_on(session):
            return None
        if is_used:
            session.seen = self._now()
            self._sessions.move_to_end(session.digest)
        return session

    def is_on(self, session: Session) -> bool:
        """Whether the session goes on; one whose time has come is ended."""
        now = self._now()
        if not session.ended and (now - session.seen >= IDLE_S or now >= min(session.began + LONGEST_S, session.until)):
            self.end(session)
        return not session.ended

    def end(self, session: Session) -> None:
        """The user has logged out, or the time is over."""
        if self._sessions.pop(session.digest, None) is not None:
            session.ended = True
            self._ended(session)

    def expire(self) -> None:
        """End the sessions whose time is over."""
        for session in list(self._sessions.values()):
            self.is_on(session)

    def end_all(self) -> None:
        """The console ends."""
        for session in list(self._sessions.values()):
            self.end(session)


def _digest(session_id: str) -> bytes:
    return hashlib.sha256(session_id.encode("utf-8", "surrogateescape")).digest()
