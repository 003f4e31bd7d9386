"""What a search keeps: the first, the newest, the latest of each key."""

from collections.abc import Iterable

import pytest
from tests.unit.console.messages import Sent

from ottla.console.collecting import Collector, First, Found, LatestPerKey, Newest
from ottla.console.expressions import compile_filter
from ottla.console.sight import Record, Sight

PASSES = compile_filter("value.id >= 0")


def record(key: str | None, number: int, at: int, partition: int = 0, offset: int = 0) -> Record:
    data = b'{"id": %d}' % number
    return Sight().record(Sent(None if key is None else key.encode(), data, (), at, offset, partition))


def offered(collector: Collector, *windows: Iterable[Record]) -> list[tuple[str, str]]:
    for window in windows:
        for each in window:
            collector.offer(each)
        collector.end_window()
    return [(found.key.text, found.value.text) for found in collector.records()]


def test_the_first_are_kept_in_their_order() -> None:
    first = First(2, PASSES, Found.of)
    assert offered(first, [record("a", -1, 1), record("b", 1, 9), record("c", 2, 3), record("d", 3, 4)]) == [
        ("b", '{"id": 1}'),
        ("c", '{"id": 2}'),
    ]
    assert first.is_full


def test_the_newest_are_kept_whatever_their_order() -> None:
    newest = Newest(2, PASSES, Found.of)
    assert not newest.is_complete
    found = offered(newest, [record("a", 1, 5), record("b", 2, 1), record("c", 3, 4)], [record("d", -1, 9)])
    assert [key for key, _ in found] == ["a", "c"]
    assert newest.is_complete
    assert not newest.is_full


def test_the_latest_of_each_key_is_in_the_first_window_that_has_the_key() -> None:
    latest = LatestPerKey(10, None, Found.of)
    later = [record("a", 3, 10, offset=3), record("b", 4, 11, offset=4), record("a", 5, 12, offset=5)]
    earlier = [record("b", 1, 1, offset=1), record("c", 2, 2, offset=2), record(None, 9, 3, offset=3)]
    assert offered(latest, later, earlier) == [("a", '{"id": 5}'), ("b", '{"id": 4}'), ("c", '{"id": 2}')]
    assert latest.keys == 3


def test_an_earlier_record_does_not_stand_for_a_latest_one_that_a_filter_refuses() -> None:
    latest = LatestPerKey(10, PASSES, Found.of)
    found = offered(latest, [record("a", 1, 9), record("a", -1, 10)], [record("a", 2, 1), record("b", 1, 1)])
    assert found == [("b", '{"id": 1}')]
    assert latest.keys == 2


def test_the_newest_of_the_latest_are_kept_and_keys_are_bounded() -> None:
    latest = LatestPerKey(2, None, Found.of, most_keys=4)
    found = offered(latest, [record(f"k{number}", number, number) for number in range(3)])
    assert [key for key, _ in found] == ["k2", "k1"]
    assert (latest.is_complete, latest.problem) == (False, "")
    offered(latest, [record("k9", 9, -1)])
    assert latest.is_complete
    assert latest.problem == "stopped at 4 keys, the newest ones"


@pytest.mark.parametrize("kind", [First, Newest, LatestPerKey])
def test_nothing_is_found_in_nothing(kind: type[Collector]) -> None:
    assert offered(kind(5, None, Found.of), []) == []
