"""The newest offset of each key, within a bound of memory: what compaction knows while it works.

Keys of fewer than 16 bytes stand for themselves, longer ones for a digest of 16 bytes; the digest is keyed with a
secret of this process, so that nobody can make up two keys that fall together. When the bound is reached, compaction
goes as far as the map reaches and does the rest in its next round.
"""

import os
from typing import Final

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

    def put(self, key: bytes, offset: int) -> None:
        """Offsets ascend from call to call."""
        if len(key) >= DIGEST_BYTES:
            key = self._digest(key)
        self._offsets[key] = offset

    def newest(self, key: bytes) -> int:
        """The newest offset that has been put for the key; -1 if none."""
        if len(key) >= DIGEST_BYTES:
            key = self._digest(key)
        return self._offsets.get(key, -1)

    def _digest(self, key: bytes) -> bytes:
        from hashlib import blake2b  # not before there is something to digest: it costs a broker's start 3 ms

        return blake2b(key, digest_size=DIGEST_BYTES, key=self._secret).digest()
