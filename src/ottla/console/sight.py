"""What a viewer sees of a record: decoded, and then masked. Nothing else of the console reads a message's contents.

    message ─▶ Sight.record ─▶ Record ─▶ filters, columns       .key .value .headers    as values of JSON
                                     └─▶ pages, exports         .part("value")          as `Value`

A record is decoded when something of it is asked for, since a filter often needs one part alone.
"""

from collections.abc import Mapping
from typing import Any, Final, Protocol

from ottla.console.access.masks import MASKED, Masks
from ottla.console.values import NULL, Decode, Value, recognise


class Message(Protocol):
    """A record as confluent-kafka has it."""

    def key(self) -> Any:
        """Bytes, or None."""

    def value(self) -> Any:
        """Bytes, or None."""

    def headers(self) -> Any:
        """Pairs of a name, and bytes or None."""

    def timestamp(self) -> tuple[int, int]:
        """Its kind, 0 without one, and milliseconds since the Unix epoch."""

    def offset(self) -> int | None:
        """The offset."""

    def partition(self) -> int | None:
        """The partition's number."""


NO_MASKS: Final = Masks()


class Sight:
    """How one viewer sees records."""

    def __init__(self, decode: Decode | None = None, masks: Masks = NO_MASKS) -> None:
        self.decode = decode
        self.masks = masks
        self._hidden = frozenset(part for part in ("key", "value") if masks.hides(part))

    @property
    def is_masked(self) -> bool:
        """Whether something is hidden from this viewer."""
        return bool(self.masks)

    def record(self, message: Message) -> "Record":
        """The record of a message."""
        return Record(self, message)

    def seen(self, part: str, data: bytes | None) -> Value:
        """A key or value, decoded and masked: the one way to its contents."""
        found = recognise(data, self.decode)
        if part not in self._hidden or found.kind == "null":
            return found
        content = self.masks.applied(part, MASKED if found.content is None else found.content)
        if isinstance(content, (dict, list)):
            return Value(found.kind, content, None, found.note)
        return Value("text", content, None)

    def seen_header(self, name: str, data: bytes | None) -> Value:
        """A header's value, masked."""
        if self.masks.hides_header(name):
            return NULL if data is None else Value("text", MASKED, None)
        return recognise(data)


class Record:
    """A record, as a viewer sees it: what expressions are evaluated on (`expressions.Row`)."""

    __slots__ = ("_key", "_message", "_sight", "_value")

    def __init__(self, sight: Sight, message: Message) -> None:
        self._sight = sight
        self._message = message
        self._key: Value | None = None
        self._value: Value | None = None

    def part(self, name: str) -> Value:
        """`key` or `value`."""
        if name == "key":
            if self._key is None:
                self._key = self._sight.seen("key", as_bytes(self._message.key()))
            return self._key
        if self._value is None:
            self._value = self._sight.seen("value", as_bytes(self._message.value()))
        return self._value

    @property
    def offset(self) -> int:
        """The offset."""
        return self._message.offset() or 0

    @property
    def partition(self) -> int:
        """The number of the partition."""
        return self._message.partition() or 0

    def header_parts(self) -> tuple[tuple[str, Value], ...]:
        """Names and values of the headers, in their order."""
        return tuple((name, self._sight.seen_header(name, data)) for name, data in headers_of(self._message))

    @property
    def raw_key(self) -> bytes | None:
        """The key's bytes, to tell keys apart; never to be shown."""
        return as_bytes(self._message.key())

    @property
    def key(self) -> Any:
        """The key, as filters see it."""
        return self.part("key").content

    @property
    def value(self) -> Any:
        """The value, as filters see it."""
        return self.part("value").content

    @property
    def headers(self) -> Mapping[str, Any]:
        """The last header of each name, as text."""
        return {name: _text(self._sight, name, data) for name, data in headers_of(self._message)}

    @property
    def timestamp(self) -> int:
        """Milliseconds since the Unix epoch; 0 without one."""
        kind, timestamp = self._message.timestamp()
        return timestamp if kind else 0

    @property
    def size(self) -> int | None:
        """Bytes of key and value; None where masks hide fields."""
        if self._sight.is_masked:
            return None
        return len(self._message.key() or b"") + len(self._message.value() or b"")


def as_bytes(data: bytes | str | None) -> bytes | None:
    """Contents of a message, which confluent-kafka's types give as text, too."""
    return data.encode() if isinstance(data, str) else data


def headers_of(message: Message) -> list[tuple[str, bytes | None]]:
    """The headers of a message."""
    headers = message.headers() or []
    pairs = headers.items() if isinstance(headers, dict) else headers
    return [(name, as_bytes(value)) for name, value in pairs]


def _text(sight: Sight, name: str, data: bytes | None) -> str | None:
    if data is None:
        return None
    if sight.masks.hides_header(name):
        return MASKED
    return data.decode("utf-8", "replace")
