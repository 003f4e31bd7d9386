"""The newest offset of each key, within a bound of memory: the working state of compaction.

Keys of fewer than 16 bytes stand for themselves, longer ones for a digest of 16 bytes; the digest is keyed with a
secret of this process, so that no client can construct colliding keys. When the bound is reached, compaction
goes as far as the map reaches and does the rest in its next round.
"""

import os
from typing import Final

from ottla.log.cleaner_records import Outline

DIGEST_BYTES: Final = 16
ENTRY_BYTES: Final = 144
"""What one entry takes, measured with a million of them: key 64, offset 32, its share of the table up to 48."""
MIN_ENTRIES: Final = 1000


class OffsetMap:
    """Keys and offsets; `latest_offset` is the last offset that is accounted for, -1 at first."""

    __slots__ = ("_offsets", "_secret", "capacity", "latest_offset")

    def __init__(self, max_bytes: int) -> None:
        self.capacity = max(MIN_ENTRIES, max_bytes // ENTRY_BYTES)
        self.latest_offset = -1
        self._offsets: dict[bytes, int] = {}
        self._secret = os.urandom(16)

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def is_full(self) -> bool:
        """Whether no more batches should be taken in. One batch may overrun the bound: it is taken in whole."""
        return len(self._offsets) >= self.capacity

    def put(self, records: list[Outline], base_offset: int, first_offset: int) -> None:
        """Takes in the keys of a batch, those from `first_offset` on. Offsets ascend from call to call."""
        offsets = self._offsets
        for _, _, delta, _, key, _ in records:
            if key is not None and base_offset + delta >= first_offset:
                if len(key) >= DIGEST_BYTES:
                    key = self._digest(key)
                offsets[key] = base_offset + delta

    def newest(self, records: list[Outline], base_offset: int) -> list[Outline]:
        """The records of a batch without a known newer record. Records without a key are included only
        past the end of the map, where all records are."""
        kept: list[Outline] = []
        newest = self._offsets.get
        latest = self.latest_offset
        for record in records:
            offset = base_offset + record[2]
            key = record[4]
            if offset > latest:
                kept.append(record)
            elif key is not None:
                if len(key) >= DIGEST_BYTES:
                    key = self._digest(key)
                if offset >= newest(key, -1):
                    kept.append(record)
        return kept

    def _digest(self, key: bytes) -> bytes:
        from hashlib import blake2b  # not before there is something to digest: it costs a broker's start 3 ms

        return blake2b(key, digest_size=DIGEST_BYTES, key=self._secret).digest()
