"""A line in the log for each refusal, and for floods of them a count: the logger `ottla.authorizer`."""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ottla.security.authorization import Operation, ResourceType

if TYPE_CHECKING:
    from ottla.server.access.access import Access
    from ottla.server.audit.audit_log import AuditLog

log = logging.getLogger("ottla.authorizer")

LINES_A_SECOND: Final = 20
"""A client that is refused all the time must not fill the disk."""
_LONGEST_NAME: Final = 256


class RefusalLog:
    """Notes refusals. Any thread may call it; two that do so at once may write a line too many."""

    def __init__(self, now: Callable[[], float], audit: "AuditLog | None" = None) -> None:
        """`now`: seconds of a monotonic clock. `audit` gets all refusals."""
        self._audit = audit
        self._now = now
        self._second = -1
        self._lines = 0
        self._left_out = 0

    def note(self, client: "Access", operation: Operation, kind: ResourceType, name: str) -> None:
        """A client was refused something. Names are quoted: a client chooses some of them."""
        if self._audit is not None:
            principal, host, listener, api = client.principal, client.host, client.listener, client.api_key.name
            self._audit.refused(principal, host, listener, api, operation, kind, name)
        second = int(self._now())
        if second != self._second:
            self._second, self._lines = second, 0
            left_out, self._left_out = self._left_out, 0
            if left_out:
                log.info("%d more refusals, of which no line was written", left_out)
        self._lines += 1
        if self._lines > LINES_A_SECOND:
            self._left_out += 1
            return
        shown = name[:_LONGEST_NAME]
        log.info("%r from %s was refused %s on %s %r", client.principal, client.host, operation.name, kind.name, shown)
