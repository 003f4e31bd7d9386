"""Messages that carry their version in front, as an int16: coordinator records, consumer subscriptions.

version (int16) | body in that version
"""

from __future__ import annotations

from typing import TypeVar

from ottla.protocol.compiled import decode, encode_after
from ottla.protocol.errors import MalformedMessage
from ottla.protocol.primitives import Buffer
from ottla.protocol.schema import Message

M = TypeVar("M", bound=Message)


def encode_versioned(message: Message, version: int) -> bytes:
    """`message` in `version`, with the version in front. Raises like `ottla.protocol.codec.encode`."""
    pieces = encode_after(bytearray(version.to_bytes(2, "big")), message, version)
    return b"".join(pieces)  # type: ignore[arg-type]  # such messages hold no records, the only opaque pieces


def version_of(buffer: Buffer) -> int:
    """The version in front. Raises `MalformedMessage` for less than two bytes."""
    if len(buffer) < 2:
        raise MalformedMessage("no room for a version")
    return int.from_bytes(buffer[:2], "big", signed=True)


def decode_versioned(cls: type[M], buffer: Buffer) -> M:
    """The message of class `cls` behind its version; raises `UnsupportedVersion` or `MalformedMessage`."""
    return decode(cls, buffer, version_of(buffer), 2)
