"""Changes of rows in files, to look up the version of a row that was valid at a time.

    run 1  ████████████████████   the oldest changes        each run is sorted by the hash of the key, and for one key
    run 2  █████                  later ones                in the order of the source: a later run has later changes
    run 3  █                      the newest

A run is never changed. New changes make a new one; runs of like size are merged, so that there are few, and a change is
written again only now and then. Files are mapped into memory, which the processes of a machine share.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ottla.pipeline.rows.key_hashes import Hashes, are_exact, key_hashes

Rows = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

HASH: Final = "__ottla_hash"
AT: Final = "__ottla_at"
"""When the change was made, in microseconds since 1970; never before the change of the same key before it."""
OP: Final = "__ottla_op"
"""The change as `change_columns.OP` has it, in one byte."""
CREATED: Final = ord("c")
DELETED: Final = ord("d")

NONE: Final = -1


class CollisionError(Exception):
    """Two keys have one hash: another seed is needed."""


class Found(NamedTuple):
    """For each of the keys that were looked up: the row of the last change up to the time, or `NONE`; and whether the
    run knows the key at all."""

    rows: Rows
    known: Flags


@dataclass(frozen=True, slots=True)
class Run:
    """Changes sorted by hash and order. `hashes` are those that occur, `starts` where each begins in `changes`, and
    where the last one ends."""

    changes: pa.Table
    hashes: Hashes
    starts: Rows
    at: Rows
    op: npt.NDArray[np.uint8]

    @classmethod
    def of(cls, changes: pa.Table) -> "Run":
        """`changes` are sorted, and at least one."""
        hashes = _numbers(changes, HASH)
        is_first = np.empty(len(hashes), np.bool_)
        is_first[0] = True
        np.not_equal(hashes[1:], hashes[:-1], out=is_first[1:])
        starts = np.flatnonzero(is_first)
        return cls._opened(changes, hashes[starts], np.append(starts, len(hashes)))

    @classmethod
    def open(cls, file: Path) -> "Run":
        """A run that was saved."""
        keys = _mapped(file.with_suffix(".keys"))
        starts = _numbers(keys, "start")
        return cls._opened(_mapped(file), _numbers(keys, HASH)[:-1], starts)

    @classmethod
    def _opened(cls, changes: pa.Table, hashes: Hashes, starts: Rows) -> "Run":
        return cls(changes, hashes, starts, _numbers(changes, AT), _numbers(changes, OP))

    def save(self, file: Path) -> None:
        """Write keys and changes beside their targets, and rename them when both are complete."""
        keys = pa.table({HASH: np.append(self.hashes, np.uint64(0)), "start": self.starts})
        for table, path in ((keys, file.with_suffix(".keys")), (self.changes, file)):
            writing = path.with_name(f"{path.name}.new")
            with pa.OSFile(str(writing), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table.combine_chunks())
            os.replace(writing, path)

    def find(self, hashes: Hashes, times: Rows) -> Found:
        """The last change of each of these keys up to the time beside it."""
        place = np.minimum(np.searchsorted(self.hashes, hashes), len(self.hashes) - 1)
        known = self.hashes[place] == hashes
        first = self.starts[place]
        low, high = first.copy(), np.where(known, self.starts[place + 1], first)
        while True:
            left = np.flatnonzero(low < high)
            if not len(left):
                break
            middle = (low[left] + high[left]) >> 1
            is_past = self.at[middle] <= times[left]
            low[left] = np.where(is_past, middle + 1, low[left])
            high[left] = np.where(is_past, high[left], middle)
        return Found(np.where(low > first, low - 1, NONE), known)

    def first_rows(self, hashes: Hashes) -> Rows:
        """The first change of each key, which the run knows."""
        return self.starts[np.searchsorted(self.hashes, hashes)]


def run_of(changes: pa.Table, key: Sequence[str], seed: int, before: Sequence[Run]) -> Run:
    """A run of new changes, which come in their order in the source, with the columns of the table, `AT` and `OP`.

    Where clocks went back, a change gets the time of the one before it. Raises CollisionError.
    """
    hashes = key_hashes([changes[name] for name in key], seed)
    order = np.argsort(hashes, kind="stable")
    table = changes.take(pa.array(order)).append_column(HASH, pa.array(hashes[order]))
    run = Run.of(table.combine_chunks())
    _check_keys(run, key, before)
    at = _in_order(run, before)
    if at is run.at:
        return run
    place = table.schema.get_field_index(AT)
    return Run.of(table.set_column(place, AT, pa.array(at)).combine_chunks())


def merged(older: Run, newer: Run) -> Run:
    """One run of two."""
    table = pa.concat_tables([older.changes, newer.changes.select(older.changes.schema.names)]).combine_chunks()
    order = np.argsort(_numbers(table, HASH), kind="stable")
    return Run.of(table.take(pa.array(order)).combine_chunks())


def pruned(run: Run, since: int) -> Run | None:
    """The changes without those that another one had taken the place of by `since`, and rows deleted by then; None if
    nothing is left."""
    is_last = np.zeros(len(run.at), np.bool_)
    is_last[run.starts[1:] - 1] = True
    is_past = np.zeros(len(run.at), np.bool_)
    is_past[:-1] = (run.at[1:] <= since) & ~is_last[:-1]
    is_past |= is_last & (run.op == DELETED) & (run.at <= since)
    if not is_past.any():
        return run
    kept = np.flatnonzero(~is_past)
    return Run.of(run.changes.take(pa.array(kept)).combine_chunks()) if len(kept) else None


def _check_keys(run: Run, key: Sequence[str], before: Sequence[Run]) -> None:
    types = [run.changes.schema.field(name).type for name in key]
    if are_exact(types):
        return
    repeated = np.ones(len(run.at), np.bool_)
    repeated[run.starts[:-1]] = False
    later = np.flatnonzero(repeated)
    _compare(run, later, run, later - 1, key)
    for other in before:
        place = np.minimum(np.searchsorted(other.hashes, run.hashes), len(other.hashes) - 1)
        common = np.flatnonzero(other.hashes[place] == run.hashes)
        _compare(run, run.starts[common], other, other.starts[place[common]], key)


def _compare(run: Run, rows: Rows, other: Run, others: Rows, key: Sequence[str]) -> None:
    if not same_keys([run.changes[name].take(pa.array(rows)) for name in key], other, others, key).all():
        raise CollisionError


def same_keys(keys: Sequence[pa.Array], run: Run, rows: Rows, names: Sequence[str]) -> Flags:
    """Whether these keys, column by column, are those of the rows of a run."""
    same = np.ones(len(rows), np.bool_)
    for column, name in zip(keys, names, strict=True):
        found = run.changes[name].take(pa.array(rows))
        equal = pc.fill_null(pc.equal(column.cast(found.type), found), False)
        same &= equal.to_numpy(zero_copy_only=False) if isinstance(equal, pa.Array) else equal.to_numpy()
    return same


def _in_order(run: Run, before: Sequence[Run]) -> Rows:
    """The times of the changes, none before the one of the change before."""
    at = run.at
    forever = np.full(len(run.hashes), np.iinfo(np.int64).max)
    for other in reversed(before):
        rows = other.find(run.hashes, forever).rows
        floor = np.where(rows == NONE, np.iinfo(np.int64).min, other.at[rows])
        if (at[run.starts[:-1]] < floor).any():
            at = np.maximum(at, np.repeat(floor, np.diff(run.starts)))
    goes_back = np.zeros(len(at), np.bool_)
    np.less(at[1:], at[:-1], out=goes_back[1:])
    goes_back[run.starts[:-1]] = False  # another key
    if not goes_back.any():
        return at
    at = at.copy()
    groups = np.unique(np.searchsorted(run.starts, np.flatnonzero(goes_back), "right") - 1)
    for begin, end in zip(run.starts[groups], run.starts[groups + 1], strict=True):
        at[begin:end] = np.maximum.accumulate(at[begin:end])
    return at


def _mapped(path: Path) -> pa.Table:
    with pa.memory_map(str(path)) as source:
        return pa.ipc.open_file(source).read_all()


def _numbers(table: pa.Table, name: str) -> Any:
    column = table[name]
    assert column.num_chunks == 1, "runs are written in one piece"
    return column.chunk(0).to_numpy()
