"""Workers that are killed: what is in topics and targets afterwards is what should be, once each."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.testing import Broker, ConnectProcess
from tests.support.connect import values_of
from tests.support.eventually import eventually

COUNT = 3000
NUMBERS = {"connector.class": "tests.connect.connectors.Numbers", "topic": "n", "count": str(COUNT), "pause.ms": "1"}
QUICK = {"consumer.session.timeout.ms": "6000", "consumer.heartbeat.interval.ms": "500"}


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def test_a_killed_worker_loses_and_doubles_nothing(broker: Broker, tmp_path: Path) -> None:
    database = tmp_path / "table.db"
    table = {"connector.class": "tests.connect.connectors.Table", "topics": "n", "database": str(database)}
    with ConnectProcess(broker.bootstrap, QUICK) as worker:
        worker.put("numbers", NUMBERS)
        worker.put("table", table)
        for at in (300, 1200):
            eventually(lambda at=at: values_of(broker.bootstrap, "n", at), timeout_s=40)
            worker.kill()
            worker.start()
        found = eventually(lambda: values_of(broker.bootstrap, "n", COUNT), timeout_s=60)
        assert [int(value) for value in found] == list(range(COUNT))
        taken = eventually(lambda: taken_by(database, COUNT), timeout_s=60)
        assert taken == list(range(COUNT))


def taken_by(database: Path, at_least: int) -> list[int]:
    if not database.exists():
        return []
    connection = sqlite3.connect(database)
    try:
        rows = [value for (value,) in connection.execute("select value from taken order by rowid")]
    except sqlite3.OperationalError:  # not made yet
        rows = []
    finally:
        connection.close()
    return rows if len(rows) >= at_least else []
