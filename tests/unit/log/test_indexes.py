import random
from bisect import bisect_right
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.errors import CorruptMessage
from ottla.log.checked_ranges import CheckedRanges
from ottla.log.fs import RealFileSystem
from ottla.log.offset_index import OffsetIndex
from ottla.log.time_index import TimeIndex
from ottla.log.transaction_index import AbortedTransaction, TransactionIndex

BASE = 1000


def _offset_index(path: Path) -> OffsetIndex:
    return OffsetIndex(RealFileSystem(), str(path), BASE, path.stat().st_size if path.exists() else 0)


def test_offset_entries_have_kafkas_bytes(tmp_path: Path) -> None:
    path = tmp_path / "x.index"
    index = _offset_index(path)
    index.append(BASE + 5, 4096)
    index.append(BASE + 300, 70000)
    assert not path.exists()
    index.store()
    assert path.read_bytes().hex() == "0000000500001000" + "0000012c00011170"


@pytest.mark.parametrize("count", [0, 1, 511, 512, 513, 1024, 2000])
@pytest.mark.parametrize("stored", [True, False])
def test_offset_lookups_find_the_floor(tmp_path: Path, count: int, stored: bool) -> None:
    path = tmp_path / "x.index"
    index = _offset_index(path)
    numbers = random.Random(count)
    offset, position = BASE, 0
    offsets: list[int] = []
    positions: list[int] = []
    for _ in range(count):
        offset += numbers.randint(1, 9)
        position += numbers.randint(1, 5000)
        index.append(offset, position)
        offsets.append(offset)
        positions.append(position)
    if stored:
        index.store()
        index = _offset_index(path)
    assert len(index) == count
    assert list(index.entries()) == list(zip(offsets, positions, strict=True))
    for target in [BASE - 5, BASE, *(numbers.randint(BASE, offset + 10) for _ in range(200)), *offsets[::97]]:
        found = bisect_right(offsets, target) - 1
        expected = (offsets[found], positions[found]) if found >= 0 else (BASE, 0)
        assert index.floor(target, blocking=True) == expected
        assert index.floor(target, blocking=False) == expected
    for target in [0, *(numbers.randint(0, position + 10) for _ in range(200)), *positions[::97]]:
        found = bisect_right(positions, target) - 1
        assert index.floor_position(target, blocking=True) == (positions[found] if found >= 0 else 0)
    assert index.last() == ((offsets[-1], positions[-1]) if count else (BASE, 0))


@pytest.mark.parametrize("kept", [0, 1, 511, 512, 513, 700, 1199, 1200])
def test_offset_index_goes_on_after_truncation(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "x.index"
    index = _offset_index(path)
    for number in range(1200):
        index.append(BASE + number, 100 * number)
    index.truncate_before(BASE + kept)
    assert len(index) == kept
    for number in range(kept, 1500):
        index.append(BASE + number, 100 * number + 1)
    index.store()
    again = _offset_index(path)
    expected = [(BASE + n, 100 * n + (n >= kept)) for n in range(1500)]
    assert list(again.entries()) == list(index.entries()) == expected
    assert all(again.floor(offset, blocking=True) == (offset, position) for offset, position in expected[::29])


def test_time_entries_have_kafkas_bytes_and_ascend(tmp_path: Path) -> None:
    path = tmp_path / "x.timeindex"
    index = TimeIndex(RealFileSystem(), str(path), BASE, 0)
    assert index.last() == (-1, BASE)
    for timestamp, offset in ((-1, 1000), (500, 1001), (500, 1009), (400, 1010), (0x1_0000_0000, 1011)):
        index.append(timestamp, offset)
    index.store()
    assert path.read_bytes().hex() == "00000000000001f400000001" + "00000001000000000000000b"
    again = TimeIndex(RealFileSystem(), str(path), BASE, 24)
    assert again.last() == (0x1_0000_0000, 1011)
    assert [again.floor(ms) for ms in (0, 500, 501, 2**40)] == [(-1, BASE), (500, 1001), (500, 1001), (2**32, 1011)]
    again.truncate_before(1005)
    assert list(again.entries()) == [(500, 1001)]


def test_time_index_over_many_blocks(tmp_path: Path) -> None:
    path = tmp_path / "x.timeindex"
    index = TimeIndex(RealFileSystem(), str(path), 0, 0)
    for number in range(1000):
        index.append(10 * number, number)
    assert 0 < path.stat().st_size < 12_000
    for ms in range(-3, 10_005, 7):
        expected = (ms // 10 * 10, ms // 10) if ms >= 0 else (-1, 0)
        assert index.floor(min(ms, 9990)) == (expected if ms < 9990 else (9990, 999))
    index.truncate_to_entries(400)
    index.append(99_999, 500)
    index.store()
    assert path.stat().st_size == 401 * 12


def test_aborted_transactions(tmp_path: Path) -> None:
    path = tmp_path / "x.txnindex"
    index = TransactionIndex(RealFileSystem(), str(path), 0)
    entries = [AbortedTransaction(7, 0, 10, 5), AbortedTransaction(8, 5, 20, 12), AbortedTransaction(9, 30, 40, 41)]
    assert not index.has_file
    for entry in entries:
        index.append(entry)
    assert path.stat().st_size == 3 * 34
    assert path.read_bytes()[:10].hex() == "0000" + "0000000000000007"
    again = TransactionIndex(RealFileSystem(), str(path), 102)
    assert again.overlapping(0, 100) == (entries, False)
    assert again.overlapping(11, 12) == ([entries[1]], True)
    assert again.overlapping(21, 30) == ([], True)
    again.truncate_before(20)
    assert again.entries() == entries[:1]
    assert path.stat().st_size == 34
    path.write_bytes(b"\0\1" + bytes(32))
    with pytest.raises(CorruptMessage):
        TransactionIndex(RealFileSystem(), str(path), 34).entries()


@pytest.mark.parametrize("torn", [bytes(34), b"\0\1" + bytes(32)])
@pytest.mark.parametrize("lost", range(3))
def test_aborted_transactions_behind_what_was_never_written_are_dropped(tmp_path: Path, lost: int, torn: bytes) -> None:
    """As recovery does, which then finds them in the log: an index with a hole would let aborted records be read."""
    path = tmp_path / "x.txnindex"
    entries = [AbortedTransaction(7, 0, 10, 5), AbortedTransaction(8, 5, 20, 12), AbortedTransaction(9, 30, 40, 41)]
    written = TransactionIndex(RealFileSystem(), str(path), 0)
    for entry in entries:
        written.append(entry)
    data = bytearray(path.read_bytes())
    data[34 * lost : 34 * (lost + 1)] = torn
    path.write_bytes(data)
    found = TransactionIndex(RealFileSystem(), str(path), 102)
    found.truncate_before(100)
    assert found.entries() == entries[:lost]
    assert path.stat().st_size == 34 * lost
    for entry in entries[lost:]:
        found.append(entry)
    assert TransactionIndex(RealFileSystem(), str(path), 102).entries() == entries


@settings(max_examples=200)
@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 10)), max_size=25))
def test_checked_ranges_are_the_union(ranges: list[tuple[int, int]]) -> None:
    checked = CheckedRanges()
    covered: set[int] = set()
    for start, length in ranges:
        checked.add(start, start + length)
        covered.update(range(start, start + length))
    for start in range(71):
        for end in range(start + 1, 72):
            assert checked.covers(start, end) == covered.issuperset(range(start, end))
    checked.clear()
    assert not checked.covers(0, 1)
