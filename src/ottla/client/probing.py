"""Which security protocol a listener speaks, found out in a moment: for the sentence about one that does not fit.

Two requests by hand, since a command line that is about to start a client has no time to load more: ApiVersions 0,
which every broker answers before a login, and SaslHandshake 1 for a mechanism that nobody has, which a listener without
SASL refuses with ILLEGAL_SASL_STATE, and one with SASL with UNSUPPORTED_SASL_MECHANISM.
"""

import socket
import struct
from collections.abc import Callable
from typing import Final

from ottla.client.addresses import Address
from ottla.errors import ErrorCode

_API_VERSIONS: Final = struct.pack(">ihhih", 10, 18, 0, 1, -1)
_NO_MECHANISM: Final = b"OTTLA-PROBE"
_SASL_HANDSHAKE: Final = (
    struct.pack(">ihhihh", 12 + len(_NO_MECHANISM), 17, 1, 2, -1, len(_NO_MECHANISM)) + _NO_MECHANISM
)
_HEAD: Final = struct.Struct(">iih")  # size, correlation id, error code
_LARGEST: Final = 1 << 16


def protocol_of(address: Address, timeout_s: float) -> str | None:
    """`PLAINTEXT`, `SSL`, `SASL_PLAINTEXT` or `SASL_SSL`; None if it cannot be found out in this time."""
    for is_encrypted in (False, True):
        try:
            opened = socket.create_connection(address, timeout_s)
        except OSError:
            return None
        try:
            with _encrypted(opened) if is_encrypted else opened as connection:
                has_sasl = _has_sasl(connection)
        except TimeoutError:
            return None  # something that waits for more is neither, and to wait twice is no use
        except (OSError, ValueError):
            continue
        return ("SASL_" if has_sasl else "") + ("SSL" if is_encrypted else "PLAINTEXT")
    return None


def _encrypted(opened: socket.socket) -> socket.socket:
    """Nothing secret is sent, so that it does not matter whose certificate it is."""
    import ssl  # takes as long to load as all else

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        return context.wrap_socket(opened)
    except BaseException:
        opened.close()
        raise


def _has_sasl(connection: socket.socket) -> bool:
    """Raises OSError, ValueError for an end that is no broker."""
    connection.sendall(_API_VERSIONS)
    _answer(connection.recv, 1)
    connection.sendall(_SASL_HANDSHAKE)
    return _answer(connection.recv, 2) == ErrorCode.UNSUPPORTED_SASL_MECHANISM


def _answer(receive: Callable[[int], bytes], expected: int) -> int:
    received = b""
    size = _HEAD.size
    while len(received) < size:
        piece = receive(size - len(received))
        if not piece:
            raise ValueError("the other end hung up")
        received += piece
        if len(received) >= _HEAD.size:
            length, correlation_id, code = _HEAD.unpack_from(received)
            if correlation_id != expected or not _HEAD.size - 4 <= length <= _LARGEST:
                raise ValueError("the other end is no broker")
            size = 4 + length
    return int(code)
