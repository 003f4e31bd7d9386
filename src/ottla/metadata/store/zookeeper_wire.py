"""Kazoo's client with what it lacks: reads of many nodes at once, watches of whole trees, the granted session timeout.

    multiRead   (22)  MultiHeader(getData | getChildren) + request, ...   ->  MultiHeader + response, ...
    addWatch   (106)  path, mode 1: persistent and recursive              ->  error code

Both are there since ZooKeeper 3.6. Everything that leans on kazoo's inner names is in this file.

Source: `ZooDefs.OpCode`, `MultiOperationRecord`, `MultiResponse` and `AddWatchMode` of ZooKeeper 3.8.
"""

import logging
import socket
import ssl
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple, Protocol

from kazoo.client import KazooClient
from kazoo.exceptions import EXCEPTIONS, ConnectionDropped, ZookeeperError
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.interfaces import IAsyncResult
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import (
    SASL,
    Connect,
    GetChildren,
    GetData,
    Watch,
    read_buffer,
    read_string,
    write_string,
)
from kazoo.protocol.states import ZnodeStat

MULTI_HEADER: Final = struct.Struct("!i?i")
STAT: Final = struct.Struct("!qqqqiiiqiiq")
INT: Final = struct.Struct("!i")
ERROR_RESULT: Final = -1
PERSISTENT_RECURSIVE: Final = 1
OPEN_RETRY: Final = {"max_tries": -1, "delay": 0.05, "backoff": 2, "max_delay": 1.0, "max_jitter": 0.2}

# Kazoo warns of every single attempt to connect; its user reports once that the connection is gone.
_quiet: Final = logging.getLogger("ottla.zookeeper.client")
_quiet.setLevel(logging.ERROR)


class Found(NamedTuple):
    """A node as it was read."""

    data: bytes | None
    stat: ZnodeStat


@dataclass(frozen=True, slots=True)
class MultiRead:
    """Read the data (and statistics), or else the names of the children, of many nodes; an error is that of one."""

    requests: "tuple[GetData | GetChildren, ...]"

    type: ClassVar[int] = 22

    def serialize(self) -> bytes:
        """The request's bytes, each operation behind a header."""
        parts: list[bytes] = []
        for request in self.requests:
            parts += MULTI_HEADER.pack(request.type, False, -1), write_string(request.path), b"\0"
        return b"".join((*parts, MULTI_HEADER.pack(-1, True, -1)))

    @classmethod
    def deserialize(cls, buffer: bytes, offset: int) -> "list[Found | list[str] | ZookeeperError]":
        """The results in the order of the requests; a request that failed alone is an error among them."""
        results: list[Found | list[str] | ZookeeperError] = []
        while True:
            kind, done, _ = MULTI_HEADER.unpack_from(buffer, offset)
            offset += MULTI_HEADER.size
            if done:
                return results
            if kind == GetData.type:
                data, offset = read_buffer(buffer, offset)
                results.append(Found(data, ZnodeStat._make(STAT.unpack_from(buffer, offset))))
                offset += STAT.size
            elif kind == GetChildren.type:
                (count,) = INT.unpack_from(buffer, offset)
                offset += INT.size
                children: list[str] = []
                for _ in range(count):
                    child, offset = read_string(buffer, offset)
                    children.append(child)
                results.append(children)
            else:
                results.append(EXCEPTIONS[INT.unpack_from(buffer, offset)[0]]())
                offset += INT.size


@dataclass(frozen=True, slots=True)
class AddWatch:
    """Watch every change at a path and below, until the connection ends."""

    path: str

    type: ClassVar[int] = 106

    def serialize(self) -> bytes:
        return bytes(write_string(self.path)) + INT.pack(PERSISTENT_RECURSIVE)

    @classmethod
    def deserialize(cls, buffer: bytes, offset: int) -> bool:
        return True


class Login(Protocol):
    """One authentication by SASL. Everything raised is a ConnectionError."""

    def respond(self, challenge: bytes | None) -> bytes | None:
        """What to send after `challenge`, which is None at first; None when nothing is left to send."""
        ...


class SecureConnections(Protocol):
    """TLS and logins of connections; in the client's threads."""

    def encrypted(self, opened: socket.socket, host: str) -> socket.socket:
        """The socket with TLS, if that is wanted. Raises OSError."""
        ...

    def login(self, host: str) -> Login | None:
        """A login at a server; None for none. Raises ConnectionError."""
        ...


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """Opens connections with a timeout for one server, not for the whole session: there may be others to try."""

    def __init__(self, connect_seconds: float, secure: SecureConnections | None) -> None:
        super().__init__()
        self._connect_seconds = connect_seconds
        self._secure = secure
        self.problem = ""

    def create_connection(self, *, address: Any, hostname: str, timeout: float, **_: Any) -> Any:
        timeout = min(timeout, self._connect_seconds)
        opened = super().create_connection(address, timeout=timeout)
        if self._secure is None:
            return opened
        try:
            opened.settimeout(timeout)
            return self._secure.encrypted(opened, hostname)
        except OSError as problem:
            self.problem = str(problem)
            opened.close()
            raise

    def select(self, readable: list[Any], writable: list[Any], failed: list[Any], timeout: float | None) -> Any:
        """Also what TLS has decrypted and nobody has read: the system knows of nothing more to read there."""
        decrypted = [each for each in readable if isinstance(each, ssl.SSLSocket) and each.pending()]
        if not decrypted:
            return super().select(readable, writable, failed, timeout)
        found = super().select(readable, writable, failed, 0)
        return [*found[0], *(each for each in decrypted if each not in found[0])], *found[1:]


class _Connection(ConnectionHandler):  # type: ignore[misc]
    client: "Client"

    def _connect(self, host: str, hostip: str, port: int) -> Any:
        self._server = host
        return super()._connect(host, hostip, port)

    def _invoke(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        answer = super()._invoke(timeout, request, xid)
        if isinstance(request, Connect):
            self.client.granted_timeout_ms = answer[0].time_out
            secure = self.client.secure
            if secure is not None and answer[0].time_out > 0:
                self._log_in(secure.login(self._server), timeout)
            self.handler.problem = ""
        return answer

    def _log_in(self, login: Login | None, timeout: float) -> None:
        """Before the session counts as connected. A login that fails ends the connection, and there is another try."""
        try:
            token = None if login is None else login.respond(None)
            number = 0
            while login is not None and token is not None:
                number += 1
                self._submit(SASL(token), timeout, number)
                header, buffer, offset = self._read_header(timeout)
                if header.xid != number or header.err:
                    raise ConnectionError("the server refuses the login")
                challenge, _ = SASL.deserialize(buffer, offset)
                token = login.respond(challenge or b"")
        except (ConnectionError, ConnectionDropped) as problem:
            self.handler.problem = (
                str(problem)
                if isinstance(problem, ConnectionError)
                else "the server hangs up during the login: is the password the right one?"
            )
            raise ConnectionDropped(self.handler.problem) from problem

    def _read_watch_event(self, buffer: bytes, offset: int) -> None:
        watch, _ = Watch.deserialize(buffer, offset)
        self.client.node_changed(watch.path)


class Client(KazooClient):  # type: ignore[misc]
    """A session with ZooKeeper, in threads of its own.

    `node_changed` is called in one of them with the path of every node that changes below a watched one.
    """

    def __init__(
        self,
        hosts: str,
        *,
        session_timeout_ms: int,
        node_changed: Callable[[str], None],
        session: tuple[int, bytes] | None = None,
        secure: SecureConnections | None = None,
    ) -> None:
        """`session`, id and password, is one to go on with if it still exists."""
        self.secure = secure
        self.granted_timeout_ms = 0
        """What the server has agreed to; 0 until it has."""
        self.node_changed = node_changed
        servers = hosts.count(",") + 1
        super().__init__(
            hosts=hosts,
            timeout=session_timeout_ms / 1000,
            client_id=session,
            handler=_Handler(session_timeout_ms / 1000 / 3 / servers, secure),
            connection_retry=dict(OPEN_RETRY),
            logger=_quiet,
        )
        self._connection = _Connection(self, self._conn_retry.copy(), logger=_quiet)

    def send(self, request: object) -> IAsyncResult:
        """Send a request of ZooKeeper's protocol, in order with all others."""
        result = self.handler.async_result()
        self._call(request, result)
        return result

    @property
    def problem(self) -> str:
        """Why TLS or a login has failed the last time; empty if it has not."""
        return str(self.handler.problem)

    def known_session(self) -> tuple[int, bytes] | None:
        """Id and password of the session, if there is one at this moment."""
        session: tuple[int, bytes] | None = self.client_id
        return session

    def newest_change(self) -> int:
        """The number of the newest transaction in any answer."""
        return int(self.last_zxid)
