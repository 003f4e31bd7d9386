"""Fingerprints of the bytes before an offset, which show that a file is still the one that was read.

    {"bytes": 70000, "head": "9f…", "tail": "03…", "crc": 2774…}

`head` and `tail` are hashes of the first and the last kilobyte before the position, `crc` is the CRC-32 of all bytes
before it. The kilobytes are compared whenever reading continues. All bytes are compared when the file's attributes show
that
it may be another one: another inode or ETag, or another time of change at the same size. Bytes of compressed files are
counted, and compared, as they are after decompression.
"""

import hashlib
import zlib
from collections.abc import Mapping
from typing import Any, Final, Protocol

KILOBYTE: Final = 1024
BLOCK: Final = 1 << 18
_WHERE: Final = {
    "head": "at its beginning",
    "tail": "before the position",
    "crc": "between its beginning and the position",
}


class Bytes(Protocol):
    """A file as a stream of bytes."""

    def read(self, most: int) -> bytes:
        """Some bytes; none at the end of what is there."""

    def skip_to(self, at: int) -> None:
        """Go to a place after the present one."""


class Replaced(Exception):
    """A file that is not the one that was read. The text names the difference, after the file's name."""


class Unfinished(Exception):
    """A file that has fewer bytes than were read, and may be in the middle of being written anew."""


class Trail:
    """Fingerprints of the first `at` bytes of a file, which grow as the file is read."""

    def __init__(self) -> None:
        self.at = 0
        self.head = b""
        self.tail = b""
        self._crc: int = 0
        self._added: list[bytes] = []

    def add(self, read: bytes) -> None:
        """Take in the bytes that follow."""
        self._added.append(read)
        self.at += len(read)

    def extend(self, lines: list[bytes], at: int) -> None:
        """Take in the lines that follow, up to a place."""
        self._added += lines
        self.at = at

    def jump(self, at: int, tail: bytes, crc: int) -> None:
        """Go on at a place whose last kilobyte and checksum are known."""
        self.settle()
        self.at, self.tail, self._crc = at, tail, crc

    def facts(self) -> dict[str, Any]:
        """The position with its fingerprints."""
        self.settle()
        return {"bytes": self.at, "head": _hash(self.head), "tail": _hash(self.tail), "crc": self._crc}

    def ends_with(self, end: bytes) -> bool:
        """Whether these are the last bytes before the position."""
        self.settle()
        return self.tail.endswith(end)

    def settle(self) -> None:
        """Count what was added, whose memory is then free."""
        added = b"".join(self._added)
        self._added.clear()
        self._crc = zlib.crc32(added, self._crc)
        if len(self.head) < KILOBYTE:
            self.head += added[: KILOBYTE - len(self.head)]
        self.tail = (self.tail + added)[-KILOBYTE:]


def follow(file: Bytes, position: Mapping[str, Any], *, thoroughly: bool) -> Trail:
    """Go to a position of a file that is at its beginning, and compare what is before it.

    thoroughly: compare all bytes, not the fingerprints of two kilobytes alone. A position without fingerprints, as
    earlier versions wrote them, is taken as it is and gains them. Raises Replaced, Unfinished.
    """
    at: int = position.get("bytes", 0)
    trail = Trail()
    _add(trail, file, min(at, KILOBYTE))
    if trail.at == min(at, KILOBYTE):
        _compare("head", trail, position)
    if thoroughly or at <= 2 * KILOBYTE or "crc" not in position:
        _add(trail, file, at)
    else:
        file.skip_to(at - KILOBYTE)
        last = Trail()
        _add(last, file, KILOBYTE)
        trail.jump(at - KILOBYTE + last.at, last.tail, position["crc"])
    if trail.at < at:
        raise Unfinished(f"has {trail.at} of the {at} bytes that were read of it")
    _compare("tail", trail, position)
    _compare("crc", trail, position)
    return trail


def head_of(file: Bytes) -> bytes:
    """The first kilobyte of a file, or what is there of it."""
    trail = Trail()
    _add(trail, file, KILOBYTE)
    return trail.head


def may_follow(head: bytes, position: Mapping[str, Any]) -> bool:
    """Whether a file that begins so may begin with what was read up to a position."""
    return bool(position.get("head") == _hash(head[: position["bytes"]]))


def _add(trail: Trail, file: Bytes, until: int) -> None:
    while trail.at < until and (read := file.read(min(BLOCK, until - trail.at))):
        trail.add(read)
        trail.settle()


def _compare(what: str, trail: Trail, position: Mapping[str, Any]) -> None:
    found = trail.facts()[what]
    if position.get(what, found) != found:
        raise Replaced(f"has other bytes than those that were read, {_WHERE[what]}")


def _hash(read: bytes) -> str:
    return hashlib.sha256(read).hexdigest()[:16]
