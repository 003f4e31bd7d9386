"""The dead letters of a partition that have been sent back, as in a commit of the redrive's group. PURE.

    offset  10   11   12   13   14   15   16   17   18
            sent sent left gone sent left gone sent new
                      ^ committed offset: all before it have been sent
    metadata          runs of sent letters from there: 14-14, 17-17

Letters that a filter left out stay for a later redrive, so one offset is not enough. Between the letters are offsets
without one (ends of transactions, compaction): a run goes on over those.
"""

import base64
import binascii
import zlib
from bisect import bisect_right
from collections.abc import Iterable
from typing import Final, NamedTuple

MAX_METADATA_BYTES: Final = 4096
"""The limit of brokers by default (`offset.metadata.max.bytes`)."""

_VERSION: Final = "1:"


class Run(NamedTuple):
    """Letters `start` to `stop` - 1."""

    start: int
    stop: int


class Redriven:
    """One partition's letters, passed in the order of their offsets: sent earlier, sent now, or left.

    `offset` and `metadata` are those of the group's last commit; an offset below 0 means that there is none. The log
    begins at `first`: letters before it have been deleted. Raises ValueError if the metadata was not written by a
    redrive.
    """

    def __init__(self, offset: int, metadata: str = "", *, first: int = 0) -> None:
        self.start: Final = max(first, offset)
        self._earlier: Final = _decoded(offset, metadata)
        self._earlier_starts: Final = [run.start for run in self._earlier]
        self._passed = self.start
        self._first_left: int | None = None
        self._runs: list[Run] = []
        self._in_run = False

    def includes(self, offset: int) -> bool:
        """Whether the letter was sent before the last commit."""
        number = bisect_right(self._earlier_starts, offset) - 1
        return offset < self.start or (number >= 0 and offset < self._earlier[number].stop)

    def pass_over(self, offset: int, *, sent: bool) -> None:
        """Go on to the letter at `offset`, which has been sent (now or before) or stays."""
        self._passed = offset + 1
        if not sent:
            if self._first_left is None:
                self._first_left = offset
            self._in_run = False
        elif self._first_left is not None:
            start = self._runs.pop().start if self._in_run else offset
            self._runs.append(Run(start, offset + 1))
            self._in_run = True

    def commit(self) -> tuple[int, str]:
        """The offset to commit and its metadata. Only its reader limits its length."""
        offset = self._passed if self._first_left is None else self._first_left
        later = [Run(max(run.start, self._passed), run.stop) for run in self._earlier if run.stop > self._passed]
        if self._first_left is None and later and later[0].start == offset:
            return later[0].stop, _encoded(later[0].stop, later[1:])
        return offset, _encoded(offset, [*self._runs, *later])


def _encoded(offset: int, runs: Iterable[Run]) -> str:
    numbers = bytearray()
    at = offset
    for run in runs:
        for number in (run.start - at, run.stop - run.start):
            while number > 127:
                numbers.append(number & 127 | 128)
                number >>= 7
            numbers.append(number)
        at = run.stop
    return _VERSION + base64.b64encode(zlib.compress(bytes(numbers), 9)).decode() if numbers else ""


def _decoded(offset: int, metadata: str) -> list[Run]:
    if not metadata:
        return []
    try:
        if not metadata.startswith(_VERSION):
            raise ValueError(metadata)
        packed = zlib.decompress(base64.b64decode(metadata.removeprefix(_VERSION), validate=True))
    except (ValueError, binascii.Error, zlib.error):
        raise ValueError(f"{metadata!r} does not list the letters that have been sent") from None
    numbers: list[int] = []
    number = shift = 0
    for byte in packed:
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            numbers.append(number)
            number = shift = 0
    runs: list[Run] = []
    at = offset
    for gap, length in zip(numbers[::2], numbers[1::2], strict=True):
        runs.append(Run(at + gap, at + gap + length))
        at = runs[-1].stop
    return runs
