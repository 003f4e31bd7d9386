from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from ottla.pipeline.rows.table_cache import NoKeyError, TableCache
from ottla.spark.offsets import OffsetRange, Partition

SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
    ]
)
Record = tuple[bytes | None, bytes | None]


@dataclass
class Log:
    """A topic in memory; `read` is what was asked for."""

    topic_id: str = "first"
    partitions: dict[int, list[tuple[int, Record, int]]] = field(default_factory=lambda: {0: []})
    read: list[tuple[int, int, int]] = field(default_factory=list)
    first: int = 0

    def append(self, *records: Record, partition: int = 0, at: int = 0) -> None:
        log = self.partitions.setdefault(partition, [])
        for record in records:
            log.append((len(log), record, at))

    def follow(self, cache: TableCache) -> dict[bytes, bytes]:
        begins = {Partition("t", number): self.first for number in self.partitions}
        ends = {Partition("t", number): len(log) for number, log in self.partitions.items()}
        with cache.locked():
            snapshot = cache.follow(begins, ends, self.topic_id, self._fetch)
        rows = snapshot.read()
        assert snapshot.rows == rows.num_rows
        return dict(zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True))

    def _fetch(self, wanted: OffsetRange) -> Iterable[pa.RecordBatch]:
        number = wanted.partition.number
        self.read.append((number, wanted.start, wanted.end))
        for offset, (key, value), at in self.partitions[number]:
            if wanted.start <= offset < wanted.end:
                time = datetime.fromtimestamp(at, UTC)
                yield pa.RecordBatch.from_arrays(
                    [
                        pa.array([each], kind)
                        for each, kind in zip((key, value, "t", number, offset, time), SCHEMA.types, strict=True)
                    ],
                    schema=SCHEMA,
                )


@pytest.fixture
def now() -> list[float]:
    return [1_000.0]


@pytest.fixture
def cache(tmp_path: Path, now: list[float]) -> TableCache:
    return TableCache(tmp_path / "tables" / "t", SCHEMA, lambda: now[0])


def test_the_newest_record_of_a_key_counts_and_one_without_a_value_deletes_it(cache: TableCache) -> None:
    log = Log()
    log.append((b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"b", None), (b"c", b"1"))

    assert log.follow(cache) == {b"a": b"2", b"c": b"1"}


def test_only_what_is_new_is_read(cache: TableCache) -> None:
    log = Log()
    log.append((b"a", b"1"), (b"b", b"1"))
    log.follow(cache)
    log.append((b"a", None), (b"c", b"1"))

    assert log.follow(cache) == {b"b": b"1", b"c": b"1"}
    assert log.follow(cache) == {b"b": b"1", b"c": b"1"}
    assert log.read == [(0, 0, 2), (0, 2, 4)]


def test_a_key_that_moved_to_another_partition_has_its_newest_record_there(cache: TableCache) -> None:
    log = Log()
    log.append((b"a", b"old"), partition=1, at=1)
    log.append((b"a", b"new"), partition=0, at=2)

    assert log.follow(cache) == {b"a": b"new"}


def test_within_a_partition_the_offset_decides_whatever_the_clocks_said(cache: TableCache) -> None:
    log = Log()
    log.append((b"a", b"first"), at=9)
    log.append((b"a", b"second"), at=5)

    assert log.follow(cache) == {b"a": b"second"}


def test_a_topic_that_was_made_again_is_read_anew(cache: TableCache) -> None:
    log = Log()
    log.append((b"a", b"1"), (b"b", b"1"))
    log.follow(cache)

    again = Log(topic_id="second")
    again.append((b"c", b"1"), (b"c", b"2"), (b"c", b"3"))
    assert again.follow(cache) == {b"c": b"3"}


def test_a_log_that_lost_its_end_is_read_anew(cache: TableCache) -> None:
    log = Log()
    log.append((b"a", b"1"), (b"b", b"1"))
    log.follow(cache)
    log.partitions[0].pop()

    assert log.follow(cache) == {b"a": b"1"}


def test_a_table_not_used_for_long_is_read_anew_since_deletions_are_forgotten(
    cache: TableCache, now: list[float]
) -> None:
    log = Log()
    log.append((b"a", b"1"), (b"b", b"1"))
    log.follow(cache)
    log.partitions[0] = [(1, (b"b", b"1"), 0), (2, (b"c", b"1"), 0)]  # the deletion of a, and a, are compacted away
    log.partitions[0].insert(0, log.partitions[0][0])
    now[0] += 13 * 3600

    assert log.follow(cache) == {b"b": b"1", b"c": b"1"}


def test_a_snapshot_stays_for_who_is_reading_it_and_goes_in_time(cache: TableCache, now: list[float]) -> None:
    log = Log()
    log.append((b"a", b"1"))
    log.follow(cache)
    before = cache.current()
    assert before is not None
    log.append((b"a", b"2"))
    log.follow(cache)
    assert before.read()["value"].to_pylist() == [b"1"]

    now[0] = before.file.stat().st_mtime + 3_600
    log.append((b"a", b"3"))
    log.follow(cache)
    assert not before.file.exists()


def test_a_snapshot_that_was_damaged_is_made_again(cache: TableCache) -> None:
    log = Log()
    log.append((b"a", b"1"))
    log.follow(cache)
    (cache.directory / "current.json").write_text("{")

    assert log.follow(cache) == {b"a": b"1"}


def test_a_record_without_a_key_is_no_row(cache: TableCache) -> None:
    log = Log()
    log.append((b"a", b"1"), (None, b"2"))

    with pytest.raises(NoKeyError, match=r"offset 1 of t-0 has no key"):
        log.follow(cache)
    assert cache.current() is None


def test_a_topic_without_records_is_a_table_without_rows(cache: TableCache) -> None:
    assert Log().follow(cache) == {}
