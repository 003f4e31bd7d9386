"""Single requests over a socket of their own, in any version: what no client library would send."""

import socket
from typing import Any, Final

from ottla.protocol.framing import decode_response, encode_request
from ottla.protocol.schema import Message

TIMEOUT_SECONDS: Final = 20.0


class ClosedError(Exception):
    """The broker closed the connection instead of answering."""


def ask(bootstrap: str, request: Message, version: int, *, client_id: str = "raw") -> Any:
    """Send one request and return the response. Raises ClosedError, or TimeoutError."""
    host, _, port = bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), TIMEOUT_SECONDS) as connection:
        connection.sendall(b"".join(bytes(piece) for piece in encode_request(request, version, 1, client_id)))  # type: ignore[arg-type] # no records in it
        size = int.from_bytes(_receive(connection, 4), "big")
        frame = _receive(connection, size)
    api_key = type(request).API_KEY
    assert api_key is not None, "a request, not another message"
    return decode_response(api_key, version, frame)[1]


def _receive(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        part = connection.recv(size - len(received))
        if not part:
            raise ClosedError(f"the connection was closed after {len(received)} of {size} bytes")
        received += part
    return bytes(received)
