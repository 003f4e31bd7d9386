"""What of a share group's records was delivered, and will be again."""

import pytest

from ottla.admin import Deliveries, Partition, ShareProgress
from ottla.console import share_keys
from ottla.console.share_deliveries import Row, rows
from ottla.console.share_keys import MOST_RECORDS, MOST_WINDOWS, Window, windows
from ottla.console.sight import Sight

ONE, TWO = Partition("t", 0), Partition("t", 1)


def test_records_by_their_fate() -> None:
    kept = [
        Deliveries(5, 9, "acknowledged", 1),  # before the start offset, and forgotten soon
        Deliveries(10, 12, "available", 3),
        Deliveries(13, 13, "available", 0),
        Deliveries(14, 20, "acknowledged", 1),
        Deliveries(21, 22, "archived", 5),
        Deliveries(23, 23, "available", 4),
    ]
    found = rows({TWO: ShareProgress(None, None), ONE: ShareProgress(10, 30)}, {ONE: kept}, {ONE: 2})
    assert found == [Row(ONE, 10, 30, 2, 4, 4, 10, 7, 2), Row(TWO, None, None, 0, 0, 0, None, 0, 0)]


def test_few_records_are_read_for_their_keys_the_oldest_first() -> None:
    kept = [Deliveries(0, 9, "available", 1), Deliveries(10, 19, "available", 0), Deliveries(20, 5_000, "available", 2)]
    assert windows({TWO: kept, ONE: kept}) == {
        ONE: [Window(0, 10, 1), Window(20, 20 + MOST_RECORDS - 10, 2)],
    }
    scattered = [Deliveries(2 * number, 2 * number, "available", 1) for number in range(1_000)]
    assert len(windows({ONE: scattered})[ONE]) == MOST_WINDOWS
    assert windows({ONE: [Deliveries(1, 2, "archived", 5)]}) == {}


def test_a_broker_that_is_silent_is_a_problem_not_a_wait_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share_keys, "LONGEST_S", 0.1)
    kept = {ONE: [Deliveries(0, 1, "available", 1)]}
    found = share_keys.by_key({"bootstrap.servers": "127.0.0.1:1", "log_level": 0}, kept, Sight())
    assert (found.rows, found.read, found.wanted) == ([], 0, 2)
    assert "stopped after" in found.problem
