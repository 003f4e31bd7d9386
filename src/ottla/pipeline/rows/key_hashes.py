"""PURE: keys of rows as 64 bits each, a whole column at a time.

Whole numbers, dates and times come out different if they are. Texts and several columns are almost certain to: a
lookup by the hash compares the key, too. The hash of a text is that of a polynomial over its bytes, modulo
2^64; differences of prefix sums give those of all texts of a column at once.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Hashes = npt.NDArray[np.uint64]

_MULTIPLIER: Final = np.uint64(0x9E3779B97F4A7C15)
_BYTES_AT_ONCE: Final = 1 << 20


def key_hashes(columns: Sequence[pa.Array], seed: int) -> Hashes:
    """The hash of each row's key, whose columns these are; without meaning where one is null."""
    found: Hashes | None = None
    for column in columns:
        own = _column(column, seed)
        found = own if found is None else _mixed(found * _MULTIPLIER + own)
    assert found is not None
    return found


def are_exact(types: Sequence[pa.DataType]) -> bool:
    """Whether two keys of these types have one hash only if they are one key."""
    return len(types) == 1 and _is_number(types[0])


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_temporal(kind) or pa.types.is_boolean(kind))


def _column(column: pa.Array, seed: int) -> Hashes:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    kind = column.type
    if _is_number(kind):
        if pa.types.is_temporal(kind):
            column = column.cast(pa.int32() if kind.bit_width == 32 else pa.int64())
        numbers = pc.fill_null(column.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
        return _mixed(numbers.view(np.uint64) ^ _seeded(seed))
    if kind not in (pa.binary(), pa.large_binary(), pa.string(), pa.large_string()):
        column = column.cast(pa.large_string())
    return _of_bytes(pc.fill_null(column.cast(pa.large_binary()), b""), seed)


def _of_bytes(column: Any, seed: int) -> Hashes:
    rows = len(column)
    offsets = np.frombuffer(column.buffers()[1], np.int64, rows + 1, column.offset * 8) if rows else np.zeros(1, int)
    data = column.buffers()[2]
    whole = np.frombuffer(data, np.uint8) if data is not None and len(data) else np.zeros(0, np.uint8)
    found = np.empty(rows, np.uint64)
    begin = 0
    while begin < rows:
        end = int(np.searchsorted(offsets, offsets[begin] + _BYTES_AT_ONCE, "right")) - 1
        end = min(max(end, begin + 1), rows)
        places = offsets[begin : end + 1] - offsets[begin]
        found[begin:end] = _of_some(whole[offsets[begin] : offsets[end]], places, seed)
        begin = end
    return found


def _of_some(data: npt.NDArray[np.uint8], places: npt.NDArray[np.int64], seed: int) -> Hashes:
    """`places`: where each of the texts begins in the data, and where the last one ends."""
    base = _seeded(seed) | np.uint64(1)  # odd, so that it has an inverse
    letters = _mixed(np.arange(256, dtype=np.uint64) + base)
    sums = np.zeros(len(data) + 1, np.uint64)
    np.cumsum(letters[data] * _powers(base, len(data)), out=sums[1:])
    back = _powers(np.uint64(pow(int(base), -1, 1 << 64)), len(data) + 1)
    lengths = np.diff(places).astype(np.uint64)
    return _mixed((sums[places[1:]] - sums[places[:-1]]) * back[places[:-1]] + lengths)


def _powers(base: np.uint64, count: int) -> Hashes:
    powers = np.full(count, base, np.uint64)
    powers[:1] = 1
    return np.multiply.accumulate(powers)


def _seeded(seed: int) -> np.uint64:
    mixed: np.uint64 = _mixed(np.array([seed + 1], np.uint64))[0]
    return mixed


def _mixed(values: Any) -> Hashes:
    """A permutation of all 64-bit numbers (SplitMix64's) that makes neighbours unlike."""
    with np.errstate(over="ignore"):
        mixed = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        found: Hashes = mixed ^ (mixed >> np.uint64(31))
    return found
