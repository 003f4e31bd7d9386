"""The viewer of a request: the settings of a console put together with its sessions."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from starlette.requests import cookie_parser

from ottla.console.access.audit import AuditTrail, stderr_trail
from ottla.console.access.logins import Check, Connect, Logins, takes
from ottla.console.access.masks import Masks
from ottla.console.access.openid_logins import OpenIdLogins
from ottla.console.access.openid_provider import OpenIdProvider, OpenIdSettings
from ottla.console.access.origins import origin_of
from ottla.console.access.roles import Role, Roles
from ottla.console.access.sessions import Session, Sessions
from ottla.console.access.viewer import Viewer
from ottla.console.cluster import ClusterView
from ottla.console.connectors import WorkerAddress
from ottla.console.schemas import unconfigured
from ottla.console.values import Decode


@dataclass(frozen=True, slots=True)
class Settings:
    """What a console is asked for."""

    bootstrap: str
    properties: Mapping[str, str]
    """Security and time-outs, as librdkafka names them."""
    asks_login: bool = False
    openid: OpenIdSettings | None = None
    """The provider by which users log in; None: by names and passwords of the brokers."""
    changes: bool = False
    """Whether anything can be changed."""
    roles: Roles = field(default_factory=Roles)
    masks: Masks = field(default_factory=Masks)
    decode: Decode = unconfigured
    """Reads values by the schemas of a registry."""
    names: frozenset[str] = frozenset()
    """Hosts by which browsers reach the console, beside this machine's own."""
    scheme: str = "http"
    """By which browsers reach it."""
    is_loopback: bool = True
    has_proxy: bool = False
    """Whether a proxy on this machine is between browsers and the console."""
    port: int = 8080
    trail: AuditTrail = field(default_factory=stderr_trail)
    workers: tuple[WorkerAddress, ...] = ()
    """Workers of connectors, one of each Connect cluster."""
    home: Path | None = None
    """Where runs of jobs are kept; None: none are shown."""
    promotes: bool = False
    """Whether administrators may promote replays of that home."""


class Access:
    """Finds the viewer of a request. On one event loop; `close` it."""

    def __init__(
        self,
        settings: Settings,
        now: Callable[[], float] = time.monotonic,
        connect: Connect = ClusterView,
        check: Check = takes,
    ) -> None:
        """`now`: seconds of a monotonic clock. `connect` and `check` reach the brokers."""
        self.settings: Final = settings
        self.sessions: Final = Sessions(now, self._ended)
        self.logins: Logins | None = None
        self.openid: OpenIdLogins | None = None
        self.streams: Final[dict[asyncio.Task[Any], Viewer | None]] = {}
        """Answers that have begun and go on, such as a page that is watched, with their viewers."""
        self._everybody: Viewer | None = None
        if settings.asks_login:
            self.logins = Logins(
                settings.bootstrap,
                settings.properties,
                self.sessions,
                now,
                settings.roles,
                settings.masks,
                changes=settings.changes,
                connect=connect,
                check=check,
            )
            if settings.openid is not None:
                self.openid = OpenIdLogins(
                    OpenIdProvider(settings.openid, now), self.logins, self.sessions, now, self.base
                )
        else:
            # without names there are no administrators to show masked fields to
            view = connect(settings.bootstrap, settings.properties)
            self._everybody = Viewer(view, None, Role.ADMIN, settings.masks, settings.changes)

    def _ended(self, session: Session) -> None:
        self.end_streams(session)
        if self.openid is not None:
            self.openid.ended(session)
        if self.logins is not None:
            self.logins.ended(session)

    def end_streams(self, session: Session | None = None) -> None:
        """End what is still being sent: to this session, or None: to everybody."""
        for task, viewer in list(self.streams.items()):
            if session is None or (viewer is not None and viewer.session is session):
                task.cancel()

    @property
    def cookie(self) -> str:
        """The name of the cookie. Cookies of all ports of a host are one; `__Host-` makes browsers ask for TLS."""
        prefix = "__Host-" if self.settings.scheme == "https" else ""
        return f"{prefix}ottla-console-{self.settings.port}"

    @property
    def base(self) -> str:
        """Where browsers reach the console, without a slash at the end."""
        openid = self.settings.openid
        if openid is not None and openid.base is not None:
            return origin_of(openid.base)
        host = "127.0.0.1" if openid is None else openid.host
        return origin_of(f"{self.settings.scheme}://{f'[{host}]' if ':' in host else host}:{self.settings.port}")

    def viewer(self, headers: Mapping[str, str]) -> Viewer | None:
        """The sender of a request; None without a login. Events of an open page keep no session alive."""
        if self._everybody is not None:
            return self._everybody
        is_used = "text/event-stream" not in headers.get("accept", "")
        session = self.sessions.find(_cookie(headers.get("cookie", ""), self.cookie), is_used=is_used)
        if session is None:
            return None
        viewer: Viewer = session.holder[0]
        return viewer

    def is_on(self, viewer: Viewer) -> bool:
        """Whether what a viewer watches may go on."""
        return viewer.session is None or self.sessions.is_on(viewer.session)

    def close(self) -> None:
        """Hang up."""
        self.sessions.end_all()
        if self.openid is not None:
            self.openid.close()
        if self._everybody is not None:
            self._everybody.view.close()


def _cookie(header: str, name: str) -> str:
    """The cookie of a name. Those of other servers of the host come along, and Python's own parser ends at some."""
    return cookie_parser(header).get(name, "")
