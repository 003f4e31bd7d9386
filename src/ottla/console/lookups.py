"""Records by their key, a header, or a text in their value: where they may be, and what they are. PURE.

Source: Kafka's `Utils.murmur2` and `BuiltInPartitioner.partitionForKey`; librdkafka's documentation of `partitioner`.
"""

import zlib
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from ottla.console.expressions import Row, Test
from ottla.console.sight import Record
from ottla.console.skipping import Possible
from ottla.console.values import Value, plain, read_json

PARTS: Final = ("key", "header", "value")
PARTITIONERS: Final[Mapping[str, tuple[str, Callable[[bytes], int]]]] = {
    "murmur2": ("Kafka's default partitioner", lambda key: murmur2(key) & 0x7FFFFFFF),
    "crc32": ("librdkafka's default partitioner", zlib.crc32),
}
"""By their name: what they are, and the number of which the partition is the rest."""
_NOT_AS_WRITTEN: Final = b"\0{[ \t\r\n"
"""First bytes of keys that may be decoded, and so be equal to what has other bytes."""


class Lookup(NamedTuple):
    """What is looked for."""

    test: Test
    possible: Possible
    key: bytes | None
    """The key's bytes, where its text has all of them."""


class LookupProblem(ValueError):
    """Nothing can be looked up so; the message has the reason."""


def lookup(part: str, text: str, header: str = "") -> Lookup:
    """The records whose key is the text, whose header is, or whose value has it in it. Raises LookupProblem.

    A key may be given as `0x` and hexadecimal digits; a key that is JSON by any JSON of the same meaning.
    """
    if part == "key":
        return _by_key(text)
    if part == "header":
        if not header:
            raise LookupProblem("a header is looked up by its name, and its value if given")
        return Lookup(
            lambda row: header in row.headers and (not text or row.headers[header] == text),
            lambda key, value: True,
            None,
        )
    if part == "value":
        data = text.encode("utf-8", "surrogatepass")
        return Lookup(
            lambda row: text in _listed(_part(row, "value")),
            lambda key, value: value is not None and (data in value or value[:1] == b"\0"),
            None,
        )
    raise LookupProblem(f"records are looked up by {', '.join(PARTS)}, not by {part!r}")


def _by_key(text: str) -> Lookup:
    wanted = read_json(text.encode("utf-8", "surrogatepass"))
    if wanted is not None:
        return Lookup(lambda row: row.key == wanted, lambda key, value: key is not None, None)
    if text.startswith("0x"):
        try:
            data = bytes.fromhex(text[2:])
        except ValueError:
            raise LookupProblem(f"{text!r} has other letters than hexadecimal digits after 0x") from None
        return Lookup(lambda row: _part(row, "key").data == data, lambda key, value: key == data, data)
    data = text.encode("utf-8", "surrogatepass")
    return Lookup(
        lambda row: bool(row.key == text),
        lambda key, value: key == data or (key is not None and key[:1] in _NOT_AS_WRITTEN),
        data,
    )


def _part(row: Row, name: str) -> Value:
    assert isinstance(row, Record)
    return row.part(name)


def _listed(value: Value) -> str:
    """The text that a list shows of a value, all of it."""
    if value.kind == "json" and value.data is not None:
        return value.data.decode("utf-8", "replace")
    return plain(value) or ""


def partition_of(key: bytes, count: int, partitioner: str) -> int:
    """The partition that a partitioner gives a key, of so many."""
    return PARTITIONERS[partitioner][1](key) % count


def murmur2(data: bytes) -> int:
    """Kafka's hash of keys, of 32 bits, without a sign."""
    multiplier, mask, length = 0x5BD1E995, 0xFFFFFFFF, len(data)
    found = 0x9747B28C ^ length
    whole = length & ~3
    for at in range(0, whole, 4):
        each = int.from_bytes(data[at : at + 4], "little") * multiplier & mask
        each ^= each >> 24
        found = (found * multiplier & mask) ^ (each * multiplier & mask)
    if length > whole:
        found = (found ^ int.from_bytes(data[whole:], "little")) * multiplier & mask
    found ^= found >> 13
    found = found * multiplier & mask
    return found ^ (found >> 15)


def both(one: Test | None, other: Test | None) -> Test | None:
    """What passes both tests."""
    if one is None or other is None:
        return one or other
    return lambda row: one(row) and other(row)


def both_possible(one: Possible | None, other: Possible | None) -> Possible | None:
    """What may pass both tests."""
    if one is None or other is None:
        return one or other
    return lambda key, value: one(key, value) and other(key, value)
