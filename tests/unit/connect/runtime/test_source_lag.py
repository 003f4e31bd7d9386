"""What statuses say about a source's last change and its lag."""

import time
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.connect.api import ConnectError, SourceRecord
from ottla.connect.connectors.capture.envelope import changed_at, heartbeat
from ottla.connect.connectors.mysql.identity import Binlog
from ottla.connect.connectors.mysql.settings import MysqlSettings
from ottla.connect.herder.state import TaskId
from ottla.connect.runtime import source_lag
from ottla.connect.runtime.reports import Reports
from ottla.connect.runtime.task import Delivery

NOW = 1_000_000


@pytest.mark.parametrize(
    ("reported", "idle_since"),
    [
        ({"started_at": 5, "delivered_at": None, "changed_at": None}, 5),
        ({"started_at": 5, "delivered_at": NOW - 9_999, "changed_at": 1}, None),
        ({"started_at": 5, "delivered_at": NOW - 10_000, "changed_at": 1}, NOW - 10_000),
    ],
)
def test_a_source_is_idle_since_its_last_change_or_its_begin(
    reported: dict[str, int | None], idle_since: int | None
) -> None:
    found = source_lag.delivery(reported, NOW)
    assert found is not None
    assert found["idle_since"] == idle_since
    assert found["changed_at"] == reported["changed_at"]


def test_a_sink_delivers_nothing() -> None:
    assert source_lag.delivery(None, NOW) is None


def test_a_task_that_begins_again_keeps_the_last_change_until_it_has_one() -> None:
    before = {"started_at": 1, "delivered_at": 3, "changed_at": 2}
    assert Delivery(9).reported(before) == {"started_at": 9, "delivered_at": 3, "changed_at": 2}
    assert Delivery(9, 12, 11).reported(before) == {"started_at": 9, "delivered_at": 12, "changed_at": 11}
    assert Delivery(9).reported(None) == {"started_at": 9, "delivered_at": None, "changed_at": None}


def test_a_busy_source_is_reported_now_and_then_and_its_last_change_always() -> None:
    task, now = TaskId("busy", 0), time.time_ns() // 1_000_000
    shown, newest = Delivery(1, now, now), Delivery(1, now + 1, now + 1)
    reports: Any = SimpleNamespace(_shown={task: ({}, None, shown)})
    assert Reports._shown_delivery(reports, task, newest) is shown
    reports._shown[task] = ({}, None, Delivery(1, now - 2_000, now))
    assert Reports._shown_delivery(reports, task, newest) is newest
    reports._shown[task] = ({}, None, Delivery(1))
    assert Reports._shown_delivery(reports, task, newest) is newest


def test_heartbeats_tombstones_and_ends_of_transactions_are_no_changes() -> None:
    change = SourceRecord(topic="t", value={"op": "c", "source": {"ts_ms": 7}, "ts_ms": 9})
    assert changed_at(change) == 7
    for other in (
        heartbeat("h", "shop", 8, {}),
        SourceRecord(topic="t", value=None),
        SourceRecord(topic="t.transaction", value={"status": "END", "id": "1", "ts_ms": 9}),
    ):
        assert changed_at(other) is None


BINLOG = Binlog("one", {"b.1": 100, "b.2": 300, "b.3": 50})
SETTINGS = MysqlSettings(
    **{"database.hostname": "h", "database.user": "u", "topic.prefix": "p"}  # type: ignore[arg-type]  # aliases
)


@pytest.mark.parametrize(
    ("file", "pos", "lag"), [("b.1", 40, 60 + 300 + 50), ("b.2", 300, 50), ("b.3", 20, 30), ("b.3", 50, 0)]
)
def test_a_binlogs_lag_goes_over_its_files(file: str, pos: int, lag: int) -> None:
    found = BINLOG.lag({"file": file, "pos": pos, "server": "one"}, SETTINGS)
    assert (found.position, found.end, found.bytes) == (f"{file}:{pos}", "b.3:50", lag)


@pytest.mark.parametrize(
    ("position", "said"),
    [
        ({"file": "b.0", "pos": 4}, "has no 4 in b.0"),
        ({"file": "b.1", "pos": 101}, "has no 101 in b.1"),
        ({"file": "b.1", "pos": 4, "server": "two"}, "is one of server two"),
    ],
)
def test_a_position_of_another_binlog_has_no_lag(position: dict[str, Any], said: str) -> None:
    with pytest.raises(ConnectError, match=said):
        BINLOG.lag(position, SETTINGS)
