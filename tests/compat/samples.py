"""Records that tell apart a client or broker that keeps everything from one that keeps most of it."""

from dataclasses import dataclass
from typing import Final

# A quarter past noon on a day in 2013: far from now, so that a timestamp replaced by the clock is seen.
BASE_TIMESTAMP_MS: Final = 1_370_088_900_000


@dataclass(frozen=True, slots=True)
class Sample:
    """One record as a user gives it to a producer and expects it back from a consumer."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int


def samples(count: int = 300, *, null_headers: bool = True) -> list[Sample]:
    """`count` records: keyed and not, empty, tombstones, binary, with none, one and repeated headers.

    Without `null_headers`, for clients that cannot send one, every header has a value.
    """
    shapes: list[tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]] = [
        (b"key", b"value", ()),
        (None, b"no key", (("trace", b"\x00\x01\xff"),)),
        (b"tombstone", None, ()),
        (b"", b"", (("", b""), ("null", None))),
        ("schlüssel".encode(), bytes(range(256)) * 4, (("twice", b"1"), ("twice", b"2"))),
        (b"compressible", b"abcdefgh" * 500, (("größe", b"4000"),)),
    ]
    made = []
    for index in range(count):
        key, value, headers = shapes[index % len(shapes)]
        if not null_headers:
            headers = tuple(header for header in headers if header[1] is not None)
        tagged = None if value is None else value + str(index).encode() if value else b""
        made.append(Sample(key, tagged, headers, BASE_TIMESTAMP_MS + index))
    return made
