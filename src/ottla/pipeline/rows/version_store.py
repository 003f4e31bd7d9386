"""The history of a captured table on one machine: the runs of its changes, and up to where the topic was read.

    changes ──▶ a new run ──▶ merged with runs of like size     7.run  7.keys  9.run  9.keys
       ▲                                                        current.json   which runs count, up to which offsets
       └── only those from these offsets on

What is known of a time does not change any more once the topic was read `delay` after it: so rows of the past are
looked up without a question to the brokers, and a row of now waits for that long. A change that came later than that
is counted, and logged: rows joined before may have got the version before it.
"""

import json
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ottla.pipeline.change_columns import TRUNCATE
from ottla.pipeline.rows.key_hashes import are_exact, key_hashes
from ottla.pipeline.rows.table_cache import locked_directory
from ottla.pipeline.rows.version_runs import (
    AT,
    CREATED,
    DELETED,
    NONE,
    OP,
    CollisionError,
    Flags,
    Rows,
    Run,
    merged,
    pruned,
    run_of,
    same_keys,
)
from ottla.spark.offsets import FlatOffsets, OffsetRange, Partition

log = logging.getLogger(__name__)

Read = Callable[[OffsetRange], Iterable[pa.Table]]
"""The changes in a range, in their order: the columns of the table, `AT` in microseconds, `OP` as a number. Those of a
truncate are null."""

FOUND: Final = 0
ABSENT: Final = 1
"""There was no row with this key at that time."""
TOO_OLD: Final = 2
"""The history does not reach back to that time, so that nobody knows."""
AHEAD: Final = 3
"""The time is ahead of what was read."""
TIMELESS: Final = 4
"""There is no time."""
STATUSES: Final = ("found", "absent", "too old", "ahead", "no time")

_CURRENT: Final = "current.json"
_SUFFIX: Final = ".run"
_MERGED_BELOW: Final = 2
"""A run is merged with the next if it has fewer than so many times its changes."""
_SEEDS: Final = 8
_OPENED_AGAIN: Final = 10


class HistoryError(Exception):
    """A history cannot be read, or does not know what is asked; the message names the history, and what to do."""


class State(NamedTuple):
    """What `current.json` holds. `runs`: names of files, the oldest first. `at`: when the topic was read up to
    `offsets`, `since`: from when on all is known, both in microseconds since 1970. `complete`: the topic had its
    beginning when it was first read, so that a key without changes had no row. `late`: changes that came too late."""

    runs: tuple[str, ...]
    offsets: FlatOffsets
    topic_id: str
    at: int
    since: int | None
    complete: bool
    truncates: tuple[int, ...]
    seed: int
    late: int


class Answer(NamedTuple):
    """Rows of the table, all null where there is none, and the status of each."""

    rows: pa.Table
    statuses: npt.NDArray[np.int8]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A state with its runs opened. `delay` is in microseconds."""

    state: State
    runs: tuple[Run, ...]
    key: tuple[str, ...]
    schema: pa.Schema
    delay: int

    @property
    def settled(self) -> int:
        """Up to when what is known does not change any more, in microseconds since 1970."""
        return self.state.at - self.delay

    def look_up(self, keys: Sequence[pa.Array], times: pa.Array, columns: Sequence[str]) -> Answer:
        """These columns of the rows with these keys, which are given column by column, as they were at these times
        (microseconds since 1970)."""
        rows = len(times)
        asked_at = pc.fill_null(times, 0).to_numpy(zero_copy_only=False)
        is_null = np.zeros(rows, np.bool_)
        for column in keys:
            is_null |= pc.is_null(column).to_numpy(zero_copy_only=False)
        types = [self.schema.field(name).type for name in self.key]
        keys = [column.cast(kind) for column, kind in zip(keys, types, strict=True)]
        hashes = key_hashes(keys, self.state.seed)
        run_of_row, row_in_run = np.full(rows, NONE), np.full(rows, NONE)
        begins_with = np.zeros(rows, np.uint8)  # of keys that are known only later, what the first change was
        left = np.flatnonzero(~is_null)
        for number in range(len(self.runs) - 1, -1, -1):
            run = self.runs[number]
            found = run.find(hashes[left], asked_at[left])
            known = np.flatnonzero(found.known)
            firsts = run.first_rows(hashes[left[known]])
            if not are_exact(types) and len(known):
                same = same_keys([column.take(pa.array(left[known])) for column in keys], run, firsts, self.key)
                known, firsts = known[same], firsts[same]
            begins_with[left[known]] = run.op[firsts]
            hits = known[found.rows[known] != NONE]
            run_of_row[left[hits]], row_in_run[left[hits]] = number, found.rows[hits]
            left = left[run_of_row[left] == NONE]
        wanted = pa.schema([self.schema.field(name) for name in columns])
        return self._answer(wanted, run_of_row, row_in_run, begins_with, asked_at, is_null, pc.is_null(times))

    def _answer(
        self,
        wanted: pa.Schema,
        run_of_row: Rows,
        row_in_run: Rows,
        begins_with: npt.NDArray[np.uint8],
        asked_at: Rows,
        is_null: Flags,
        is_timeless: pa.Array,
    ) -> Answer:
        rows = len(asked_at)
        statuses = np.full(rows, ABSENT, np.int8)
        misses = (run_of_row == NONE) & ~is_null
        since = self.state.since if self.state.since is not None else np.iinfo(np.int64).max
        is_certain = np.where(begins_with == 0, self.state.complete, begins_with == CREATED)
        statuses[misses & (~is_certain | (asked_at < since))] = TOO_OLD
        taken: list[pa.Table] = []
        place, count = np.full(rows, NONE), 0
        truncates = np.array(self.state.truncates, np.int64)
        for number, run in enumerate(self.runs):
            of_run = np.flatnonzero(run_of_row == number)
            changes = row_in_run[of_run]
            is_there = run.op[changes] != DELETED
            if len(truncates):
                after = np.searchsorted(truncates, run.at[changes], "right")
                next_one = np.append(truncates, np.iinfo(np.int64).max)[after]
                is_there &= next_one > asked_at[of_run]
            of_run, changes = of_run[is_there], changes[is_there]
            statuses[of_run] = FOUND
            place[of_run] = np.arange(count, count + len(of_run))
            count += len(of_run)
            taken.append(run.changes.select(wanted.names).take(pa.array(changes)))
        statuses[(asked_at > self.settled) & ~is_null] = AHEAD
        statuses[is_timeless.to_numpy(zero_copy_only=False)] = TIMELESS
        all_taken = pa.concat_tables(taken) if taken else _stored(wanted, {}).empty_table()
        is_missing = statuses != FOUND
        found = all_taken.combine_chunks().take(pa.array(np.maximum(place, 0), mask=is_missing | (place == NONE)))
        return Answer(found.cast(wanted), statuses)


@dataclass(slots=True)
class VersionStore:
    """One captured table below `directory`. `schema`: of its columns, those of the `key` among them. `depth` is how
    long versions that are over are kept (None: for ever), `delay` how long changes may take into the topic, both in
    microseconds. `clock` is in seconds."""

    directory: Path
    schema: pa.Schema
    key: tuple[str, ...]
    delay: int
    depth: int | None = None
    clock: Callable[[], float] = field(default=time.time)
    _opened: Snapshot | None = None
    _runs: dict[str, Run] = field(default_factory=dict)

    def locked(self) -> AbstractContextManager[None]:
        """While it is brought up to date."""
        return locked_directory(self.directory)

    def current(self) -> Snapshot | None:
        """What is known; None if nothing is, or it cannot be read."""
        for _ in range(_OPENED_AGAIN):
            state = self._state()
            if state is None:
                return None
            if self._opened is not None and self._opened.state == state:
                return self._opened
            try:
                runs = self._open(state)
            except FileNotFoundError:  # merged meanwhile
                continue
            except (OSError, pa.ArrowException, KeyError):
                return None
            self._opened = Snapshot(state, runs, self.key, self.schema, self.delay)
            return self._opened
        return None

    def follow(self, begins: FlatOffsets, ends: FlatOffsets, topic_id: str, at: int, read: Read) -> Snapshot:
        """What is known when the topic was read up to `ends`, which it had at the time `at`. `begins` are the earliest
        offsets there are. Raises HistoryError, and whatever `read` raises. To be called while `locked`."""
        before = self.current()
        state = before.state if before is not None else None
        if state is not None and not _goes_on(state, begins, ends, topic_id):
            log.warning("%s is read anew: the topic was made again, or what was not read yet is gone", self.directory)
            state = None
        if state is None:
            complete = all(offset == 0 for offset in begins.values())
            state = State((), {}, topic_id, at, None, complete, (), 0, 0)
        while True:
            try:
                return self._followed(state, begins, ends, at, read)
            except CollisionError:
                if state.seed + 1 == _SEEDS:
                    raise HistoryError(f"{self.directory}: its keys have too many hashes in common") from None
                state = State((), {}, topic_id, at, None, state.complete, (), state.seed + 1, state.late)

    def keep(self, changes: pa.Table, since: int, at: int) -> Snapshot:
        """Make these changes all that is known, up to the time `at` and from `since` on: those of a table that keeps
        all versions. They are ordered by key and time. Raises HistoryError. To be called while `locked`."""
        stored = changes.cast(_stored(self.schema, {AT: pa.int64(), OP: pa.uint8()}))
        for seed in range(_SEEDS):
            with suppress(CollisionError):
                names = self._saved([run_of(stored, self.key, seed, [])], [None])
                state = State(names, {}, "", at, since, True, (), seed, 0)
                self._save_state(state)
                self._clean(state)
                snapshot = self.current()
                assert snapshot is not None, "it was saved a moment ago"
                return snapshot
        raise HistoryError(f"{self.directory}: its keys have too many hashes in common")

    def _followed(self, state: State, begins: FlatOffsets, ends: FlatOffsets, at: int, read: Read) -> Snapshot:
        settled = state.at - self.delay if state.offsets else None
        runs = list(self._open(state))
        names: list[str | None] = list(state.runs)
        truncates, since, late, worst = list(state.truncates), state.since, state.late, 0
        for partition, end in sorted(ends.items()):
            start = max(state.offsets.get(partition, 0), begins[partition])
            if start >= end:
                continue
            for changes in read(OffsetRange(partition, start, end)):
                times = changes[AT].combine_chunks().to_numpy(zero_copy_only=False)
                if not len(times):
                    continue
                if since is None or not state.offsets:
                    first = int(times.min())
                    since = first if since is None else min(first, since)
                if settled is not None:
                    late += int((times <= settled).sum())
                    worst = max(worst, settled + self.delay - int(times.min()))
                is_truncate = pc.equal(changes[OP], ord(TRUNCATE))
                truncates += changes.filter(is_truncate)[AT].to_pylist()
                rows = changes.filter(pc.invert(is_truncate))
                if rows.num_rows:
                    stored = rows.cast(_stored(self.schema, {AT: pa.int64(), OP: pa.uint8()}))
                    run = run_of(stored, self.key, state.seed, runs)
                    names.append(None)
                    runs.append(run)
                    _merge(runs, names)
        if late > state.late:
            log.warning(
                "%s: %d changes came into the topic later than %s s after they were made (up to %s s): rows of that "
                "time may have been joined with the versions before them. Give history(...) a longer delay",
                self.directory, late - state.late, self.delay / 1e6, worst / 1e6,
            )  # fmt: skip
        since = self._prune(runs, names, since, at)
        made = state._replace(
            runs=self._saved(runs, names),
            offsets=dict(ends),
            at=at,
            since=since,
            truncates=tuple(sorted(truncates)),
            late=late,
        )
        self._save_state(made)
        self._clean(made)
        snapshot = self.current()
        assert snapshot is not None, "it was saved a moment ago"
        return snapshot

    def _open(self, state: State) -> tuple[Run, ...]:
        for name in self._runs.keys() - set(state.runs):
            del self._runs[name]
        for name in state.runs:
            if name not in self._runs:
                self._runs[name] = Run.open(self.directory / name)
        return tuple(self._runs[name] for name in state.runs)

    def _prune(self, runs: list[Run], names: list[str | None], since: int | None, now: int) -> int | None:
        """Leave out what is older than the depth, when there is as much of it as is worth a rewrite: of the oldest run,
        which has nearly all."""
        if self.depth is None or not runs or since is None or since > now - self.depth - self.depth // 4:
            return since
        horizon = now - self.depth
        run = pruned(runs[0], horizon)
        if run is None:
            del runs[0], names[0]
        elif run is not runs[0]:
            runs[0], names[0] = run, None
        return horizon

    def _saved(self, runs: list[Run], names: list[str | None]) -> tuple[str, ...]:
        """The names of the runs; those that have none are written."""
        number = max((int(file.stem) for file in self.directory.glob(f"*{_SUFFIX}")), default=0)
        saved = []
        for run, name in zip(runs, names, strict=True):
            if name is None:
                number += 1
                name = f"{number}{_SUFFIX}"
                run.save(self.directory / name)
            saved.append(name)
        return tuple(saved)

    def _state(self) -> State | None:
        try:
            found = json.loads((self.directory / _CURRENT).read_text())
            offsets = {Partition(topic, number): offset for topic, number, offset in found.pop("offsets")}
            runs, truncates = tuple(found.pop("runs")), tuple(found.pop("truncates"))
            return State(runs=runs, truncates=truncates, offsets=offsets, **found)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _save_state(self, state: State) -> None:
        offsets = [[each.topic, each.number, offset] for each, offset in sorted(state.offsets.items())]
        writing = self.directory / f".{_CURRENT}.new"
        writing.write_text(json.dumps({**state._asdict(), "offsets": offsets}))
        os.replace(writing, self.directory / _CURRENT)

    def _clean(self, state: State) -> None:
        """Processes that have a file open go on reading it."""
        kept = {Path(name).stem for name in state.runs}
        for suffix in (_SUFFIX, ".keys"):
            for file in self.directory.glob(f"*{suffix}"):
                if file.stem not in kept:
                    with suppress(OSError):
                        file.unlink()


def _merge(runs: list[Run], names: list[str | None]) -> None:
    """Merge runs of like size at the end, the newest."""
    while len(runs) > 1 and len(runs[-2].at) < _MERGED_BELOW * len(runs[-1].at):
        newer, older = runs.pop(), runs.pop()
        del names[-2:]
        runs.append(merged(older, newer))
        names.append(None)


def _goes_on(state: State, begins: FlatOffsets, ends: FlatOffsets, topic_id: str) -> bool:
    """Whether what is known is the beginning of what there is now, without a hole."""
    return state.topic_id == topic_id and all(
        begins.get(partition, offset) <= offset <= ends.get(partition, -1)
        for partition, offset in state.offsets.items()
    )


def _stored(schema: pa.Schema, own: Mapping[str, pa.DataType]) -> pa.Schema:
    """How rows of the schema are kept, with more columns behind theirs: texts may be of any size together."""
    large = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
    fields = [pa.field(each.name, large.get(each.type, each.type)) for each in schema]
    return pa.schema([*fields, *(pa.field(name, kind) for name, kind in own.items())])
