"""PURE: pairs of offsets that mean the same place in two clusters, and MirrorMaker 2's records of them.

    key    topic STRING, partition INT32 | slot INT32
    value  upstream offset INT64, downstream offset INT64 | number INT64

MirrorMaker 2 and its tools read what is left of the bars, and pass over the rest. The topic is compacted. MirrorMaker
keeps one pair of a partition there, the last; here the n-th pair goes into a slot that depends on n, so that compaction
leaves more of recent pairs and fewer of old ones: some of every age, each within a sixteenth of its age.
Source: `OffsetSync`, `OffsetSyncStore`.
"""

import bisect
import struct
from dataclasses import dataclass
from typing import Final

_PAIRS_KEPT: Final = 1_000
_OF_EACH_AGE: Final = 16
_NUMBER: Final = struct.Struct(">i")
_PAIR: Final = struct.Struct(">qq")
_COUNT: Final = struct.Struct(">q")
_LENGTH: Final = struct.Struct(">h")


class Translation:
    """Where a group that has read a partition there up to an offset has to go on here.

    It knows some pairs of offsets that mean the same place. In between it goes back to the last of them: records may
    come again to a group that moves here, none is missed.
    """

    def __init__(self) -> None:
        self._there: list[int] = []
        self._here: list[int] = []

    def add(self, there: int, here: int) -> None:
        """Records from `there` on are at `here` or later; both only grow. Of pairs with one `there` the latest counts.

        A pair that goes back begins anew: the topic was made again, or copied once more from its beginning.
        """
        if self.is_beyond(there, here):
            self._there.clear()
            self._here.clear()
        if self._there and self._there[-1] == there:
            self._here[-1] = here
            return
        self._there.append(there)
        self._here.append(here)
        if len(self._there) > _PAIRS_KEPT:  # every other one of the older half
            half = _PAIRS_KEPT // 2
            self._there[:half] = self._there[:half:2]
            self._here[:half] = self._here[:half:2]

    def is_beyond(self, there: int, here: int) -> bool:
        """Whether a pair that is known is of another topic than one in which these are the newest offsets."""
        return bool(self._there) and (there < self._there[-1] or here < self._here[-1])

    def begin(self, here: int) -> None:
        """Records before the first pair are at `here` or later."""
        if not self._there or self._there[0] > 0:
            self._there.insert(0, 0)
            self._here.insert(0, here)

    def here(self, there: int) -> int | None:
        """None: from before the first pair."""
        number = bisect.bisect_right(self._there, there)
        return self._here[number - 1] if number else None

    @property
    def last(self) -> tuple[int, int] | None:
        """The last pair."""
        return (self._there[-1], self._here[-1]) if self._there else None


@dataclass(frozen=True, slots=True)
class OffsetSync:
    """One record: the pair with a number, counted from 1, of a partition."""

    topic: str
    partition: int
    there: int
    here: int
    number: int | None = None

    @property
    def key(self) -> bytes:
        """The record's key."""
        name = self.topic.encode()
        slot = b"" if self.number is None else _NUMBER.pack(slot_of(self.number))
        return _LENGTH.pack(len(name)) + name + _NUMBER.pack(self.partition) + slot

    @property
    def value(self) -> bytes:
        """The record's value."""
        return _PAIR.pack(self.there, self.here) + (b"" if self.number is None else _COUNT.pack(self.number))


def parsed(key: bytes | None, value: bytes | None) -> OffsetSync | None:
    """Decode a record, also MirrorMaker's own; None for any other record."""
    try:
        (length,) = _LENGTH.unpack_from(key or b"")
        name = (key or b"")[_LENGTH.size : _LENGTH.size + length].decode()
        (partition,) = _NUMBER.unpack_from(key or b"", _LENGTH.size + length)
        there, here = _PAIR.unpack_from(value or b"")
        number = _COUNT.unpack_from(value or b"", _PAIR.size)[0] if len(value or b"") > _PAIR.size else None
    except (struct.error, UnicodeDecodeError):
        return None
    return OffsetSync(name, partition, there, here, number)


def slot_of(number: int) -> int:
    """The slot of the n-th pair: the next sixteen of its kind leave it there; every second is of a kind that lasts
    twice as long as the one before.
    """
    age = (number & -number).bit_length() - 1
    return age * _OF_EACH_AGE + (number >> (age + 1)) % _OF_EACH_AGE
