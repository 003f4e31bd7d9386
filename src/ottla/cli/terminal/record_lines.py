"""Records as lines: how `ottla produce` reads them and `ottla consume` writes them. Pure.

Text, the parts present only when asked for:

    produce   h1:v1,h2:v2 TAB key SEPARATOR value
    consume   topic TAB timestamp TAB partition TAB offset TAB h1:v1,h2:v2 TAB key TAB value

JSON, one object a line, the same shape both ways:

    {"topic": "t", "partition": 0, "offset": 7, "timestamp_ms": 1767225600000, "headers": [["h1", "v1"]],
     "key": "k", "value": "v"}

Bytes that are no UTF-8 stand under `key_base64` and `value_base64`, and as {"base64": "..."} in a header's place.
"""

import base64
import binascii
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from ottla.cli.terminal.times import format_instant, parse_instant_ms

Headers = list[tuple[str, bytes | None]]

ANY_PARTITION: Final = -1
BROKER_TIME: Final = 0
"""No timestamp of its own: the client puts the current time."""


class BadLine(ValueError):
    """A line that is no record; the text names the reason."""


@dataclass(slots=True)
class OutgoingRecord:
    """One record to be produced."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = field(default_factory=list)
    partition: int = ANY_PARTITION
    timestamp_ms: int = BROKER_TIME


@dataclass(slots=True)
class IncomingRecord:
    """One record that was consumed; `timestamp_ms` is None for records without one."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None
    headers: Headers = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class TextInput:
    """How a line of text is taken apart; `null_marker` stands for a key or value that is null (a tombstone)."""

    key_separator: bytes | None = None
    with_headers: bool = False
    null_marker: bytes | None = None

    def parse(self, line: bytes) -> OutgoingRecord:
        """One line (without its newline) as a record. Raises BadLine."""
        headers: Headers = []
        if self.with_headers:
            before, tab, line = line.partition(b"\t")
            if not tab:
                raise BadLine("no tab after the headers (h1:v1,h2:v2 TAB ...)")
            headers = self._headers(before)
        if self.key_separator is None:
            return OutgoingRecord(self._nullable(line), headers=headers)
        key, separator, value = line.partition(self.key_separator)
        if not separator:
            raise BadLine(f"no key separator {self.key_separator.decode(errors='replace')!r}")
        return OutgoingRecord(self._nullable(value), self._nullable(key), headers)

    def _headers(self, text: bytes) -> Headers:
        headers: Headers = []
        for pair in filter(None, text.split(b",")):
            name, colon, value = pair.partition(b":")
            if not colon:
                raise BadLine(f"header {pair.decode(errors='replace')!r} is not NAME:VALUE")
            headers.append((name.decode(errors="replace"), self._nullable(value)))
        return headers

    def _nullable(self, part: bytes) -> bytes | None:
        return None if part == self.null_marker else part


@dataclass(frozen=True, slots=True)
class JsonInput:
    """Lines of JSON; `now_ms` dates timestamps such as "10m"."""

    now_ms: int

    def parse(self, line: bytes) -> OutgoingRecord:
        """One object as a record. Raises BadLine.

        Strings become UTF-8; any other JSON value is kept as compact JSON; null or absent is null.
        """
        try:
            parsed = json.loads(line)
        except ValueError as problem:
            raise BadLine(f"no JSON: {problem}") from None
        if not isinstance(parsed, dict):
            raise BadLine('no JSON object such as {"key": "k", "value": "v"}')
        if not parsed.keys() & {"value", "value_base64", "key", "key_base64"}:
            raise BadLine('neither "value" nor "key" in the object; for plain JSON values leave out --json')
        partition = parsed.get("partition", ANY_PARTITION)
        if not isinstance(partition, int) or partition < ANY_PARTITION:
            raise BadLine(f'"partition" is {partition!r}, not a partition number')
        return OutgoingRecord(
            _bytes_of(parsed, "value"),
            _bytes_of(parsed, "key"),
            _headers_of(parsed.get("headers")),
            partition,
            self._timestamp(parsed),
        )

    def _timestamp(self, parsed: dict[str, object]) -> int:
        timestamp = parsed.get("timestamp_ms", parsed.get("timestamp"))
        if timestamp is None:
            return BROKER_TIME
        if isinstance(timestamp, int):
            return timestamp
        try:
            return parse_instant_ms(str(timestamp), self.now_ms)
        except ValueError as problem:
            raise BadLine(str(problem)) from None


def _bytes_of(parsed: dict[str, object], name: str) -> bytes | None:
    encoded = parsed.get(f"{name}_base64")
    if encoded is not None:
        return _from_base64(encoded)
    value = parsed.get(name)
    if value is None or isinstance(value, str):
        return None if value is None else value.encode("utf-8", "surrogatepass")
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _from_base64(encoded: object) -> bytes:
    try:
        return base64.b64decode(str(encoded), validate=True)
    except binascii.Error as problem:
        raise BadLine(f"{encoded!r} is not base 64: {problem}") from None


def _headers_of(given: object) -> Headers:
    if given is None:
        return []
    pairs: Iterable[object] = given.items() if isinstance(given, dict) else given if isinstance(given, list) else ()
    headers: Headers = []
    for pair in pairs:
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise BadLine(f"header {pair!r} is not [name, value]")
        name, value = pair
        if isinstance(value, dict) and "base64" in value:
            headers.append((str(name), _from_base64(value["base64"])))
        else:
            headers.append((str(name), None if value is None else str(value).encode()))
    if given and not headers:
        raise BadLine('"headers" is neither an object nor a list of [name, value]')
    return headers


def json_shape(record: IncomingRecord) -> dict[str, object]:
    """A record as the object that stands on a line of JSON."""
    shown: dict[str, object] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "headers": [[name, _header_json(value)] for name, value in record.headers],
    }
    for name, part in (("key", record.key), ("value", record.value)):
        try:
            shown[name] = None if part is None else part.decode()
        except UnicodeDecodeError:
            shown[f"{name}_base64"] = base64.b64encode(part or b"").decode()
    return shown


def to_json(record: IncomingRecord) -> bytes:
    """A record as one line of JSON, with the newline."""
    return json.dumps(json_shape(record), ensure_ascii=False).encode() + b"\n"


def _header_json(value: bytes | None) -> object:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


@dataclass(frozen=True, slots=True)
class TextOutput:
    """Which parts of a record a line shows, and what stands between them."""

    topic: bool = False
    timestamp: bool = False
    partition: bool = False
    offset: bool = False
    headers: bool = False
    key: bool = False
    separator: bytes = b"\t"
    null_marker: bytes = b"null"

    def renderer(self) -> Callable[[IncomingRecord], bytes]:
        """The function that turns a record into a line, with the newline."""
        null = self.null_marker
        parts: list[Callable[[IncomingRecord], bytes]] = []
        if self.topic:
            parts.append(lambda record: record.topic.encode())
        if self.timestamp:
            parts.append(lambda record: null if record.timestamp_ms is None else _instant(record.timestamp_ms))
        if self.partition:
            parts.append(lambda record: b"%d" % record.partition)
        if self.offset:
            parts.append(lambda record: b"%d" % record.offset)
        if self.headers:
            parts.append(self._headers)
        if self.key:
            parts.append(lambda record: null if record.key is None else record.key)
        if not parts:
            return lambda record: (null if record.value is None else record.value) + b"\n"
        parts.append(lambda record: null if record.value is None else record.value)
        separator = self.separator
        return lambda record: separator.join([part(record) for part in parts]) + b"\n"

    def _headers(self, record: IncomingRecord) -> bytes:
        return b",".join(
            name.encode() + b":" + (self.null_marker if value is None else value) for name, value in record.headers
        )


def _instant(timestamp_ms: int) -> bytes:
    return format_instant(timestamp_ms).encode()


# A record is shown on a terminal, never obeyed by it: control characters but tab and newline are spelled out.
_CONTROL: Final = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if code not in (9, 10)}


def for_terminal(line: bytes) -> str:
    """A rendered line as safe text."""
    return line.decode("utf-8", "backslashreplace").translate(_CONTROL)


def unescape(text: str) -> bytes:
    r"""A separator from the command line, with `\t`, `\n`, `\0`, `\\` and `\xNN` meaning what they say."""
    return text.encode().decode("unicode_escape").encode("latin-1") if text.isascii() else text.encode()
