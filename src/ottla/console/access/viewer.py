"""The viewer of a page, with what it shows them and what they may do."""

import secrets
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from ottla.console.access.masks import Masks
from ottla.console.access.roles import Role
from ottla.console.access.sessions import Session
from ottla.console.cluster import ClusterView

_TOKEN_BYTES: Final = 32
_MOST_NOTICES: Final = 20


@dataclass(eq=False, slots=True)
class Viewer:
    """A user that has logged in; or, where the console asks for no login, everybody (`user` None)."""

    view: ClusterView
    """The cluster, by connections of this user."""
    user: str | None
    role: Role
    masks: Masks
    changes: bool
    """Whether this console changes anything at all."""
    session: Session | None = None
    token: str = field(default_factory=lambda: secrets.token_urlsafe(_TOKEN_BYTES), repr=False)
    """In every form of this viewer: pages of others cannot know it."""
    _notices: OrderedDict[str, str] = field(default_factory=OrderedDict)

    def may(self, role: Role | str) -> bool:
        """Whether the viewer may do what takes this role."""
        needed = Role[role.upper()] if isinstance(role, str) else role
        return self.role >= needed and (self.changes or needed <= Role.VIEWER)

    @property
    def principal(self) -> str | None:
        """As the audit log has it."""
        return None if self.user is None else f"User:{self.user}"

    def knows(self, token: str) -> bool:
        """Whether a form has this viewer's token."""
        return secrets.compare_digest(token.encode("utf-8", "surrogateescape"), self.token.encode())

    def leave_notice(self, text: str) -> str:
        """Keep a sentence for the next page; returns the key that its address has."""
        key = secrets.token_urlsafe(8)
        self._notices[key] = text
        while len(self._notices) > _MOST_NOTICES:
            self._notices.popitem(last=False)
        return key

    def take_notice(self, key: str) -> str | None:
        """The sentence of a key, once."""
        return self._notices.pop(key, None)
