"""PURE: from a table of versions with validity intervals to the changes that made them.

table of versions                     changes
key  valid_from  valid_to             key  at  op
1    10          17                   1    10  r   the first: read or inserted, which the table does not tell
1    17          20                   1    17  u
                                      1    20  d   no other version begins there
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ottla.pipeline.change_columns import VALID_FROM, VALID_TO
from ottla.pipeline.rows.version_runs import AT, CREATED, DELETED, OP
from ottla.pipeline.times import time_text

_READ: Final = ord("r")
_UPDATED: Final = ord("u")

Flags = npt.NDArray[np.bool_]


class NoVersionsError(ValueError):
    """A table does not hold versions of rows with the times between which they were valid."""


def changes_of(table: pa.Table, key: Sequence[str], since: int | None) -> pa.Table:
    """The changes that made these versions, ordered by key and time: the table's columns without the two times, `AT` in
    microseconds since 1970, and `OP`.

    The first version of a key that begins after `since` is an insert; of others nobody knows whether the row was there
    before. Raises NoVersionsError for versions that overlap, or lack a key or a beginning.
    """
    order = [
        (name, "ascending") for name in (*key, VALID_FROM, VALID_TO)
    ]  # a version that lasts is the last of its key
    rows = table.sort_by(order).combine_chunks()
    begins, ends, lasts = _times(rows, key)
    same = _same_as_next(rows, key)
    next_begins = np.append(begins[1:], 0)
    wrong = (same & (lasts | (next_begins < ends))) | (~lasts & (ends < begins))
    if wrong.any():
        first = int(np.flatnonzero(wrong)[0])
        values = ", ".join(str(rows[name][first].as_py()) for name in key)
        raise NoVersionsError(
            f"the versions of the row with key {values} overlap, from {time_text(int(begins[first]))} on: "
            f"{', '.join(key)} is not its key, or the table was not written by apply_changes(..., history='all')"
        )
    is_deleted = np.flatnonzero(~lasts & ~(same & (next_begins == ends)))
    is_first = np.append(True, ~same[:-1]) if len(same) else same
    ops = np.where(is_first, _READ, _UPDATED)
    if since is not None:
        ops[is_first & (begins > since)] = CREATED
    place = np.append(np.arange(len(begins)) * 2, is_deleted * 2 + 1)
    in_order = np.argsort(place, kind="stable")
    chosen = (place // 2)[in_order]
    at = np.append(begins, ends[is_deleted])[in_order]
    op = np.append(ops, np.full(len(is_deleted), DELETED))[in_order].astype(np.uint8)
    made = rows.drop_columns([VALID_FROM, VALID_TO]).take(pa.array(chosen))
    return made.append_column(AT, pa.array(at)).append_column(OP, pa.array(op))


def _times(rows: pa.Table, key: Sequence[str]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], Flags]:
    """When versions began and ended, and which last (their end is 0)."""
    for name in (*key, VALID_FROM):
        if rows[name].null_count:
            raise NoVersionsError(f"{rows[name].null_count} of its rows have no {name!r}")
    times = [rows[name].cast(pa.timestamp("us", "UTC")).cast(pa.int64()) for name in (VALID_FROM, VALID_TO)]
    begins, ends = (pc.fill_null(each, 0).to_numpy() for each in times)
    return begins, ends, pc.is_null(times[1]).to_numpy()


def _same_as_next(rows: pa.Table, key: Sequence[str]) -> Flags:
    """Which versions are followed by another one of their key."""
    same = np.ones(rows.num_rows, np.bool_)
    same[-1:] = False
    for name in key:
        column = rows[name].combine_chunks()
        same[:-1] &= pc.equal(column[:-1], column[1:]).to_numpy(zero_copy_only=False)
    return same
