"""The fast codec: one flat function per message, version and direction, generated on first use.

Same signatures, bytes, messages and errors as `ottla.protocol.codec`, the one to read first. What makes it fast:

- Nested structures are inlined, so that a whole message is one function without calls per field.
- A run of fixed-width fields is one precompiled `struct.Struct`, and whatever single bytes follow it belong to the
  run: the one-byte case of a variable-length integer, and the (nearly always zero) count of tagged fields.
- Decoding does not check that each string ends inside the buffer. Positions only ever grow, so a lying length is
  met by the next read (`IndexError`, `struct.error`) or by one comparison at the end. Counts of arrays are checked
  where they are read, because they decide how much gets built.

This is the only module that calls `exec`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator
from typing import Any, Final, TypeVar

from ottla.protocol.decoder_source import DecoderSource
from ottla.protocol.encoder_source import EncoderSource
from ottla.protocol.errors import MalformedMessage, UnencodableMessage
from ottla.protocol.primitives import Buffer, Encoded, Piece
from ottla.protocol.schema import MISSING, Message, Struct, check_version, fields_of

M = TypeVar("M", bound=Message)

Encoder = Callable[[Any, bytearray, list[Piece]], bytearray]
"""Appends a message to the bytearray; moves that to the list and starts another around records; returns the last."""

Decoder = Callable[[Any, int], tuple[Any, int]]
"""The message at a position of a buffer, and the position after it."""

T = TypeVar("T")
Steps = Generator[None, None, T]
"""Yields after every few elements, and returns the result: what is large need not be done in one go."""

_encoders: Final[dict[tuple[type[Message], int], Encoder]] = {}
_step_encoders: Final[dict[tuple[type[Message], int], Callable[[Any, bytearray, list[Piece]], Steps[bytearray]]]] = {}
_step_decoders: Final[dict[tuple[type[Message], int], Callable[[Any, int], Steps[tuple[Any, int]]]]] = {}
_part_encoders: Final[dict[tuple[type[Struct], type[Message], int], Encoder]] = {}
_decoders: Final[dict[tuple[type[Message], int], Decoder]] = {}

DECODE_ERRORS: Final = (struct.error, IndexError, UnicodeDecodeError, MalformedMessage)
ENCODE_ERRORS: Final = (struct.error, UnicodeEncodeError, AttributeError, TypeError, ValueError)


def encode(message: Message, version: int) -> list[Piece]:
    """The body of `message` in `version`, as pieces to be sent one after the other.

    Everything but records is in `bytearray`s; the value of a records field is passed through as it is, flattened
    if it is a list or tuple. Raises `UnsupportedVersion`, or `UnencodableMessage` for a value that does not fit its
    field or that this version cannot carry.
    """
    return encode_after(bytearray(), message, version)


def encode_after(head: bytearray, message: Message, version: int) -> list[Piece]:
    """Like `encode`, with the body appended to `head`, which is the first piece of the result."""
    cls = type(message)
    encoder = _encoders.get((cls, version)) or _encoder(cls, version)
    pieces: list[Piece] = []
    try:
        pieces.append(encoder(message, head, pieces))
    except ENCODE_ERRORS as error:
        raise UnencodableMessage(f"{cls.__name__} version {version}: {error}") from error
    return pieces


def encode_steps(head: bytearray, message: Message, version: int) -> Steps[list[Piece]]:
    """`encode_after`, in steps. The message must not change meanwhile."""
    cls = type(message)
    encoder = _step_encoders.get((cls, version))
    if encoder is None:
        check_version(cls, version)
        source = EncoderSource(cls, version, in_steps=True)
        encoder = _run(source.text(), source.scope, f"encode_{cls.__name__}_{version}")
        _step_encoders[cls, version] = encoder
    pieces: list[Piece] = []
    try:
        pieces.append((yield from encoder(message, head, pieces)))
    except ENCODE_ERRORS as error:
        raise UnencodableMessage(f"{cls.__name__} version {version}: {error}") from error
    return pieces


def encode_part(part: Struct, message: type[Message], version: int) -> Encoded:
    """A structure as it stands in a list of `message` in `version`; records, which must be bytes, are copied into it.

    Raises `UnsupportedVersion`, or `UnencodableMessage` for a value that does not fit its field or that this version
    cannot carry.
    """
    cls = type(part)
    encoder = _part_encoders.get((cls, message, version))
    if encoder is None:
        check_version(message, version)
        source = EncoderSource(message, version, cls)
        encoder = _run(source.text(), source.scope, f"encode_{cls.__name__}_{version}")
        _part_encoders[cls, message, version] = encoder
    pieces: list[Any] = []
    try:
        pieces.append(encoder(part, bytearray(), pieces))
        return Encoded(pieces[0] if len(pieces) == 1 else b"".join(pieces))
    except ENCODE_ERRORS as error:
        raise UnencodableMessage(f"{cls.__name__} version {version}: {error}") from error


def decode(cls: type[M], buffer: Buffer, version: int, offset: int = 0) -> M:
    """The message of class `cls` and `version` that starts at `offset`; bytes after it are ignored, as Kafka does.

    Raises `UnsupportedVersion`, or `MalformedMessage` for anything that is not such a message.
    """
    decoder = _decoders.get((cls, version)) or _decoder(cls, version)
    try:
        message: M = decoder(buffer, offset)[0]
    except DECODE_ERRORS as error:
        raise MalformedMessage(f"{cls.__name__} version {version}: {error}") from error
    return message


def decode_steps(cls: type[M], buffer: Buffer, version: int, offset: int = 0) -> Steps[M]:
    """`decode`, in steps. The buffer must not change meanwhile."""
    decoder = _step_decoders.get((cls, version))
    if decoder is None:
        check_version(cls, version)
        source = DecoderSource(cls, version, in_steps=True)
        decoder = _run(source.text(), source.scope, f"decode_{cls.__name__}_{version}")
        _step_decoders[cls, version] = decoder
    try:
        message: M = (yield from decoder(buffer, offset))[0]
    except DECODE_ERRORS as error:
        raise MalformedMessage(f"{cls.__name__} version {version}: {error}") from error
    return message


def decode_from(cls: type[M], buffer: Buffer, version: int, offset: int = 0) -> tuple[M, int]:
    """Like `decode`; also returns the position after the message."""
    decoder = _decoders.get((cls, version)) or _decoder(cls, version)
    try:
        return decoder(buffer, offset)
    except DECODE_ERRORS as error:
        raise MalformedMessage(f"{cls.__name__} version {version}: {error}") from error


def _encoder(cls: type[Message], version: int) -> Encoder:
    check_version(cls, version)
    source = EncoderSource(cls, version)
    return _encoders.setdefault((cls, version), _run(source.text(), source.scope, f"encode_{cls.__name__}_{version}"))


def _decoder(cls: type[Message], version: int) -> Decoder:
    check_version(cls, version)
    source = DecoderSource(cls, version)
    return _decoders.setdefault((cls, version), _run(source.text(), source.scope, f"decode_{cls.__name__}_{version}"))


def constructor(cls: type[Struct]) -> Callable[..., None]:
    """`__init__` of a declared class: keywords only, lists and other factories called afresh each time."""
    scope: dict[str, Any] = {"MISSING": MISSING}
    parameters, body = [], []
    for field in fields_of(cls):
        name = field.name
        value = name
        if field.default_factory is not None:
            scope[f"make_{name}"] = field.default_factory
            parameters.append(f"{name}=MISSING")
            value = f"make_{name}() if {name} is MISSING else {name}"
        elif field.has_default:
            scope[f"default_{name}"] = field.default
            parameters.append(f"{name}=default_{name}")
        else:
            parameters.append(name)
        body.append(f"    self.{name} = {value}")
    signature = f"self, *, {', '.join(parameters)}" if parameters else "self"
    text = f"def __init__({signature}):\n" + ("\n".join(body) or "    pass")
    return _run(text, scope, "__init__", f"{cls.__name__}.__init__")


def _run(text: str, scope: dict[str, Any], name: str, title: str = "") -> Callable[..., Any]:
    exec(compile(text, f"<{title or name}>", "exec"), scope)
    function: Callable[..., Any] = scope[name]
    return function
