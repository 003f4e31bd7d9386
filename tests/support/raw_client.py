"""Single requests over a socket of their own, in any version: what no client library would send."""

import socket
from collections.abc import Iterable
from typing import Any, Final, Self

from ottla.errors import ErrorCode
from ottla.protocol.framing import decode_response, encode_request
from ottla.protocol.schema import Message, Struct, fields_of

TIMEOUT_S: Final = 60.0


class ClosedError(Exception):
    """The broker closed the connection instead of answering."""


class RawConnection:
    """One connection, over which requests go one at a time."""

    def __init__(self, bootstrap: str, *, client_id: str = "raw", timeout_s: float = TIMEOUT_S) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout_s)
        self._client_id = client_id

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, request: Message, version: int) -> Any:
        """Send a request and return the response. Raises ClosedError, or TimeoutError."""
        self.send(request, version)
        return self.receive(request, version)

    def send(self, request: Message, version: int) -> None:
        """Send a request without waiting for the response."""
        self.send_together((request,), version)

    def send_together(self, requests: Iterable[Message], version: int) -> None:
        """Send several requests in one piece, without waiting for the responses."""
        pieces = [piece for request in requests for piece in encode_request(request, version, 1, self._client_id)]
        self._socket.sendall(b"".join(map(bytes, pieces)))  # type: ignore[arg-type] # no file region in a request

    def take(self, size: int) -> int:
        """Read at most so many bytes of what comes, whatever they are; how many that were."""
        return len(self._socket.recv(size))

    def receive(self, request: Message, version: int) -> Any:
        """The response to the request, which has been sent before. Raises ClosedError, or TimeoutError."""
        frame = self.receive_frame()
        api_key = type(request).API_KEY
        assert api_key is not None, "a request, not another message"
        return decode_response(api_key, version, frame)[1]

    def exchange_bytes(self, frame: bytes) -> bytes:
        """Send a frame that is no request, and return the next one. Raises as `ask`."""
        self._socket.sendall(len(frame).to_bytes(4, "big") + frame)
        return self.receive_frame()

    def receive_frame(self) -> bytes:
        """The next response, as it came. Raises ClosedError, or TimeoutError."""
        return _receive(self._socket, int.from_bytes(_receive(self._socket, 4), "big"))


def ask(bootstrap: str, request: Message, version: int, *, client_id: str = "raw") -> Any:
    """Send one request and return the response. Raises ClosedError, or TimeoutError."""
    with RawConnection(bootstrap, client_id=client_id) as connection:
        return connection.ask(request, version)


def errors_in(response: Any) -> set[ErrorCode]:
    """Every error anywhere in a response."""
    if isinstance(response, list):
        return set().union(*map(errors_in, response))
    found: set[ErrorCode] = set()
    if isinstance(response, (Message, Struct)):
        for field in fields_of(type(response)):
            held = getattr(response, field.name)
            if field.name.endswith("error_code"):
                found |= {ErrorCode(held)} if held else set()
            else:
                found |= errors_in(held)
    return found


def _receive(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        try:
            part = connection.recv(size - len(received))
        except ConnectionResetError:
            part = b""
        if not part:
            raise ClosedError(f"the connection was closed after {len(received)} of {size} bytes")
        received += part
    return bytes(received)
