"""Whole requests and responses: a length, a header and a body.

    request   size (int32) | api key, api version (int16) | correlation id (int32) | client id | tagged fields | body
    response  size (int32) | correlation id (int32) | tagged fields | body

The size counts what follows it. Tagged fields are in the flexible headers only; no client sends any today (KIP-482).
"""

from __future__ import annotations

import struct
from typing import Any, Final, NamedTuple

from ottla.protocol.api import request_header_version, response_class, response_header_version
from ottla.protocol.compiled import Steps, decode, encode_after, encode_steps
from ottla.protocol.errors import MalformedMessage
from ottla.protocol.limits import MAX_HEADER_TAGS
from ottla.protocol.primitives import Buffer, Piece, read_uvarint, skip_tagged_fields
from ottla.protocol.schema import Message

_REQUEST: Final = struct.Struct(">hhi")
_REQUEST_WITH_CLIENT: Final = struct.Struct(">hhih").unpack_from
_REQUEST_HEAD: Final = struct.Struct(">ihhi")
_RESPONSE_HEAD: Final = struct.Struct(">ii")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")

_header_versions: Final[dict[tuple[int, int], int]] = {}
_tagged_responses: Final[dict[tuple[type[Message], int], int]] = {}


class RequestHeader(NamedTuple):
    """What the broker needs before the body. `client_id` is None for a client without one."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def decode_request_header(buffer: Buffer, offset: int = 0) -> tuple[RequestHeader, int]:
    """The header of the request at `offset` (just past the size), and where its body starts.

    Raises `MalformedMessage`; `UnsupportedVersion` for an API that is not declared, since its header version
    is unknown (`peek_request` still returns the API key). A version that the API does not have is no error
    here.
    """
    try:
        api_key, version, correlation_id, length = _REQUEST_WITH_CLIENT(buffer, offset)
        header_version = _header_versions.get((api_key, version))
        if header_version is None:
            header_version = request_header_version(api_key, version)
            if len(_header_versions) < 2048:  # a hostile client can name 65,536 versions of each API
                _header_versions[api_key, version] = header_version
        if header_version == 0:
            return RequestHeader(api_key, version, correlation_id, None), offset + 8
        pos = offset + 10
        client_id = None
        if length >= 0:
            end = pos + length
            client_id = str(buffer[pos:end], "utf-8")
            pos = end
        if header_version > 1:
            count = buffer[pos]
            pos += 1
            if count:
                count, pos = read_uvarint(buffer, pos - 1)
                if count > MAX_HEADER_TAGS:
                    raise MalformedMessage(f"request header: {count} tagged fields")
                pos = skip_tagged_fields(buffer, pos, count)
        if pos > len(buffer):
            raise IndexError(f"{pos - len(buffer)} bytes are missing")
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise MalformedMessage(f"request header: {error}") from error
    return RequestHeader(api_key, version, correlation_id, client_id), pos


def peek_request(buffer: Buffer, offset: int = 0) -> tuple[int, int, int]:
    """API key, version and correlation id, which every request begins with, known or not."""
    try:
        api_key, version, correlation_id = _REQUEST.unpack_from(buffer, offset)
    except struct.error as error:
        raise MalformedMessage(f"request header: {error}") from error
    return api_key, version, correlation_id


def encode_request(message: Message, version: int, correlation_id: int, client_id: str | None = None) -> list[Piece]:
    """A framed request, size included, as pieces to be sent one after the other.

    Raises `UnsupportedVersion` or `UnencodableMessage`.
    """
    api_key = _api_key(message)
    header_version = request_header_version(api_key, version)
    head = bytearray(_REQUEST_HEAD.pack(0, api_key, version, correlation_id))
    if header_version > 0:
        raw = b"" if client_id is None else client_id.encode()
        head += _INT16.pack(-1 if client_id is None else len(raw)) + raw
    if header_version > 1:
        head.append(0)
    return _framed(head, encode_after(head, message, version))


def encode_response(message: Message, version: int, correlation_id: int) -> list[Piece]:
    """A framed response, size included, as pieces to be sent one after the other.

    Raises `UnsupportedVersion` or `UnencodableMessage`.
    """
    head = _response_head(message, version, correlation_id)
    return _framed(head, encode_after(head, message, version))


def encode_response_steps(message: Message, version: int, correlation_id: int) -> Steps[list[Piece]]:
    """`encode_response`, in steps. The message must not change meanwhile."""
    head = _response_head(message, version, correlation_id)
    return _framed(head, (yield from encode_steps(head, message, version)))


def _response_head(message: Message, version: int, correlation_id: int) -> bytearray:
    head = bytearray(_RESPONSE_HEAD.pack(0, correlation_id))
    cls = type(message)
    tagged = _tagged_responses.get((cls, version))
    if tagged is None:
        tagged = response_header_version(_api_key(message), version)
        if version in cls.VERSIONS:
            _tagged_responses[cls, version] = tagged
    if tagged:
        head.append(0)
    return head


def decode_response(api_key: int, version: int, buffer: Buffer, offset: int = 0) -> tuple[int, Any]:
    """Correlation id and message of the response at `offset` (just past the size).

    Raises `UnsupportedVersion` or `MalformedMessage`.
    """
    correlation_id, pos = decode_response_header(api_key, version, buffer, offset)
    return correlation_id, decode(response_class(api_key), buffer, version, pos)


def decode_response_header(api_key: int, version: int, buffer: Buffer, offset: int = 0) -> tuple[int, int]:
    """Correlation id of the response at `offset`, and where its body starts."""
    try:
        (correlation_id,) = _INT32.unpack_from(buffer, offset)
        pos = offset + 4
        if response_header_version(api_key, version):
            count, pos = read_uvarint(buffer, pos)
            pos = skip_tagged_fields(buffer, pos, count)
    except (struct.error, IndexError) as error:
        raise MalformedMessage(f"response header: {error}") from error
    return correlation_id, pos


def _framed(head: bytearray, pieces: list[Piece]) -> list[Piece]:
    _INT32.pack_into(head, 0, sum(map(len, pieces)) - 4)
    return pieces


def _api_key(message: Message) -> int:
    api_key = message.API_KEY
    if api_key is None:
        raise TypeError(f"{type(message).__name__} is neither a request nor a response")
    return api_key
