"""The history of a table in files: what was valid when, what nobody knows, and what is read of the topic."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.pipeline.rows import version_runs
from ottla.pipeline.rows.key_hashes import are_exact, key_hashes
from ottla.pipeline.rows.version_runs import AT, OP
from ottla.pipeline.rows.version_store import STATUSES, HistoryError, Snapshot, VersionStore
from ottla.pipeline.times import microseconds
from ottla.spark.offsets import OffsetRange, Partition

S = 1_000_000
SCHEMA = pa.schema([("shop", pa.string()), ("id", pa.int32()), ("note", pa.string())])
KEY = ("shop", "id")
CHANGES = pa.schema([*SCHEMA, (AT, pa.int64()), (OP, pa.uint8())])


class Change(NamedTuple):
    key: int
    op: str
    at: int
    note: str | None


@dataclass
class Log:
    """A topic in memory. Keys are whole numbers: 12 is the shop `1` and the id 2."""

    partitions: dict[int, list[Change]] = field(default_factory=lambda: {0: []})
    topic_id: str = "first"
    first: int = 0
    read: list[tuple[int, int, int]] = field(default_factory=list)
    at_once: int = 3

    def append(self, *changes: tuple[int, str, int], partition: int = 0) -> None:
        log = self.partitions.setdefault(partition, [])
        for key, op, at in changes:
            log.append(Change(key, op, at, None if op in "dt" else f"{partition}.{len(log)}"))

    def follow(self, store: VersionStore, now: int) -> Snapshot:
        begins = {Partition("t", number): self.first for number in self.partitions}
        ends = {Partition("t", number): len(log) for number, log in self.partitions.items()}
        with store.locked():
            return store.follow(begins, ends, self.topic_id, now * S, self._read)

    def _read(self, wanted: OffsetRange) -> Iterator[pa.Table]:
        number = wanted.partition.number
        self.read.append((number, wanted.start, wanted.end))
        for start in range(wanted.start, wanted.end, self.at_once):
            some = self.partitions[number][start : min(start + self.at_once, wanted.end)]
            columns: list[list[Any]] = [
                [None if each.op == "t" else str(each.key // 10) for each in some],
                [None if each.op == "t" else each.key % 10 for each in some],
                [each.note for each in some],
                [each.at * S for each in some],
                [ord(each.op) for each in some],
            ]
            yield pa.table(
                [pa.array(values, kind) for values, kind in zip(columns, CHANGES.types, strict=True)], CHANGES
            )


def store_in(directory: Path, **options: Any) -> VersionStore:
    return VersionStore(directory, SCHEMA, KEY, delay=5 * S, **options)


def look_up(snapshot: Snapshot, *asked: tuple[int | None, int | None]) -> list[tuple[str, str | None]]:
    """Status and note of keys at times in seconds."""
    shops = pa.array([None if key is None else str(key // 10) for key, _ in asked], pa.string())
    ids = pa.array([None if key is None else key % 10 for key, _ in asked], pa.int32())
    times = pa.array([None if at is None else at * S for _, at in asked], pa.int64())
    found = snapshot.look_up([shops, ids], times, ["note", "id"])
    assert found.rows.schema.names == ["note", "id"]
    return [
        (STATUSES[status], note) for status, note in zip(found.statuses, found.rows["note"].to_pylist(), strict=True)
    ]


def test_the_version_of_a_time_is_the_last_change_up_to_it(tmp_path: Path) -> None:
    log, store = Log(), store_in(tmp_path)
    log.append((11, "c", 10), (12, "r", 10), (11, "u", 20), (11, "d", 30), (11, "c", 40), (12, "u", 40), (12, "u", 40))
    snapshot = log.follow(store, 100)
    assert look_up(snapshot, (11, 10), (11, 19), (11, 20), (11, 30), (11, 39), (11, 40), (12, 39), (12, 95)) == [
        ("found", "0.0"), ("found", "0.0"), ("found", "0.2"), ("absent", None), ("absent", None), ("found", "0.4"),
        ("found", "0.1"), ("found", "0.6"),
    ]  # fmt: skip
    assert look_up(snapshot, (99, 50), (None, 50), (99, None)) == [
        ("absent", None),
        ("absent", None),
        ("no time", None),
    ]


def test_what_nobody_knows_is_said(tmp_path: Path) -> None:
    log, store = Log(), store_in(tmp_path)
    assert look_up(log.follow(store, 5), (11, 0)) == [("too old", None)]
    log.append((11, "r", 10), (12, "c", 20), (13, "u", 30))
    snapshot = log.follow(store, 100)
    asked = [(11, 9), (12, 15), (12, 9), (13, 29), (13, 30), (99, 10), (99, 9), (11, 95), (11, 96)]
    assert [status for status, _ in look_up(snapshot, *asked)] == [
        "too old", "absent", "too old", "too old", "found", "absent", "too old", "found", "ahead",
    ]  # fmt: skip


def test_a_topic_without_its_beginning_does_not_know_who_was_not_there(tmp_path: Path) -> None:
    log, store = Log(), store_in(tmp_path)
    log.append((11, "c", 10), (12, "u", 20), (13, "c", 30))
    log.first = 1
    snapshot = log.follow(store, 100)
    assert [status for status, _ in look_up(snapshot, (11, 50), (12, 50), (13, 25), (13, 50), (99, 50))] == [
        "too old", "found", "absent", "found", "too old",
    ]  # fmt: skip


def test_only_new_changes_are_read_and_a_hole_is_not_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log, store = Log(), store_in(tmp_path)
    log.append((11, "c", 10), (12, "c", 10))
    log.follow(store, 100)
    log.append((11, "u", 101))
    again = store_in(tmp_path)  # as another process has it
    assert look_up(log.follow(again, 110), (11, 99), (11, 102)) == [("found", "0.0"), ("found", "0.2")]
    current = store.current()
    assert current is not None
    assert look_up(current, (11, 102)) == [("found", "0.2")]
    log.follow(again, 120)
    assert log.read == [(0, 0, 2), (0, 2, 3)]
    log.append((12, "u", 121), (12, "u", 122))
    log.first = 4
    assert look_up(log.follow(store, 130), (11, 120), (12, 123)) == [("too old", None), ("found", "0.4")]
    assert "is read anew" in caplog.text
    log.topic_id, log.first, log.partitions = "second", 0, {0: []}
    log.append((11, "c", 131))
    assert look_up(log.follow(store, 140), (11, 132), (12, 132)) == [("found", "0.0"), ("absent", None)]


def test_changes_that_come_too_late_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log, store = Log(), store_in(tmp_path)
    log.append((11, "c", 10))
    log.follow(store, 100)
    log.append((11, "u", 96), (11, "u", 98))
    assert log.follow(store, 110).state.late == 0
    log.append((12, "c", 104), (12, "u", 105), (12, "u", 106))
    snapshot = log.follow(store, 120)
    assert snapshot.state.late == 2
    assert "2 changes came into the topic later than 5.0 s after they were made (up to 6.0 s)" in caplog.text


def test_a_truncate_ends_all_rows(tmp_path: Path) -> None:
    log, store = Log(partitions={0: [], 1: []}), store_in(tmp_path)
    log.append((11, "c", 10), (11, "u", 40))
    log.append((0, "t", 30), (12, "c", 30), (13, "c", 29), partition=1)
    snapshot = log.follow(store, 100)
    assert look_up(snapshot, (11, 29), (11, 30), (11, 40), (12, 31), (13, 29), (13, 31)) == [
        ("found", "0.0"), ("absent", None), ("found", "0.1"), ("found", "1.1"), ("found", "1.2"), ("absent", None),
    ]  # fmt: skip


def test_depth_limits_what_is_kept(tmp_path: Path) -> None:
    log, store = Log(at_once=50), store_in(tmp_path, depth=100 * S)
    log.append(*((11, "u" if at else "c", at) for at in range(0, 400, 10)), (12, "c", 50), (12, "d", 60), (13, "c", 1))
    snapshot = log.follow(store, 500)
    assert snapshot.state.since == 400 * S
    assert sum(run.changes.num_rows for run in snapshot.runs) == 2
    assert look_up(snapshot, (11, 395), (11, 380), (13, 400), (12, 450), (12, 399)) == [
        ("found", "0.39"), ("too old", None), ("found", "0.42"), ("absent", None), ("too old", None),
    ]  # fmt: skip
    log.append((11, "u", 500), (11, "u", 510))
    assert log.follow(store, 515).state.since == 400 * S
    log.append((13, "d", 520))
    later = log.follow(store, 700)
    assert later.state.since == 600 * S
    assert [run.changes.num_rows for run in later.runs] == [2, 1]
    assert look_up(later, (11, 600), (11, 505), (13, 600)) == [("found", "0.44"), ("too old", None), ("absent", None)]
    assert len(list(tmp_path.glob("*.run"))) == len(list(tmp_path.glob("*.keys"))) == 2


def test_keys_with_one_hash_are_told_apart_or_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, store = Log(), store_in(tmp_path)
    log.append((11, "c", 10), (12, "c", 10), (13, "c", 20))
    seeds: list[int] = []

    def poor(columns: Any, seed: int) -> Any:
        seeds.append(seed)
        return key_hashes(columns, seed) if seed > 2 else np.zeros(len(columns[0]), np.uint64)

    monkeypatch.setattr(version_runs, "key_hashes", poor)
    monkeypatch.setattr("ottla.pipeline.rows.version_store.key_hashes", poor)
    snapshot = log.follow(store, 100)
    assert look_up(snapshot, (11, 50), (12, 50), (14, 50)) == [("found", "0.0"), ("found", "0.1"), ("absent", None)]
    assert max(seeds) == snapshot.state.seed == 3
    monkeypatch.setattr(version_runs, "key_hashes", lambda columns, _seed: np.zeros(len(columns[0]), np.uint64))
    with pytest.raises(HistoryError, match="too many hashes in common"):
        log.follow(store_in(tmp_path / "other"), 100)


_KEYS = st.sampled_from([11, 12, 21, 105])
_OPS = st.tuples(_KEYS, st.sampled_from("cud"), st.integers(0, 30))


@given(st.lists(st.lists(_OPS, max_size=12), min_size=1, max_size=5), st.integers(1, 5))
@settings(max_examples=60, deadline=None)
def test_it_knows_what_a_list_of_all_changes_knows(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[tuple[int, str, int]]], at_once: int
) -> None:
    log, store = Log(at_once=at_once), store_in(tmp_path_factory.mktemp("store"))
    last: dict[int, int] = {}
    valid: dict[int, list[Change]] = {}
    for number, batch in enumerate(batches):
        log.append(*batch)
        snapshot = log.follow(store, 100 + number)
    for change in log.partitions[0]:
        at = last[change.key] = max(change.at, last.get(change.key, 0))
        valid.setdefault(change.key, []).append(change._replace(at=at))
    asked = [(key, at) for key in (11, 12, 21, 105) for at in range(32)]
    for (key, at), (status, note) in zip(asked, look_up(snapshot, *asked), strict=True):
        past = [each for each in valid.get(key, ()) if each.at <= at]
        assert note == (past[-1].note if past else None)
        assert (status == "found") == (note is not None)
    assert len(snapshot.runs) <= 6


def test_hashes_of_texts_depend_on_every_byte_and_not_on_where_they_stand() -> None:
    texts = ["", "a", "b", "ab", "ba", "aa", "aaa", "ä", "a\0", "\0a", *(f"key-{number}" for number in range(5_000))]
    column = pa.array(texts)
    found = key_hashes([column], 0)
    assert len(set(found.tolist())) == len(texts)
    assert key_hashes([column.slice(7, 20)], 0).tolist() == found[7:27].tolist()
    assert key_hashes([column.cast(pa.large_binary())], 0).tolist() == found.tolist()
    assert key_hashes([column], 1).tolist() != found.tolist()
    pairs = key_hashes([column, pa.array(range(len(texts)))], 0)
    assert len(set(pairs.tolist())) == len(texts)
    big = pa.array([f"{'x' * 2_000}{number}" for number in range(2_000)])  # more than is hashed at once
    assert len(set(key_hashes([big], 0).tolist())) == 2_000


@pytest.mark.parametrize(
    "kind",
    [
        pa.int16(),
        pa.int64(),
        pa.date32(),
        pa.timestamp("us", "UTC"),
        pa.timestamp("us"),
        pa.bool_(),
        pa.decimal128(12, 2),
    ],
)
def test_keys_of_other_types_have_hashes(kind: Any) -> None:
    numbers = pa.array([0, 1, None, 1], pa.int64() if pa.types.is_timestamp(kind) else pa.int32())
    found = key_hashes([numbers.cast(kind)], 0)
    assert found[1] == found[3] != found[0]
    assert are_exact([kind]) != pa.types.is_decimal(kind)


def test_durations() -> None:
    texts = ["500 ms", "2 milliseconds", "1 second", "3m", "2 minutes", "1 min", "1 hour", "90 days", "soon", "1"]
    assert [microseconds(text) for text in texts] == [
        500_000, 2_000, S, 180 * S, 120 * S, 60 * S, 3600 * S, 90 * 86400 * S, None, None,
    ]  # fmt: skip
