"""Workers that are killed: what is in topics and targets afterwards is what should be, once each."""

import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.testing import Broker, ConnectProcess
from tests.support.connect import values_of
from tests.support.eventually import eventually
from tests.support.ottla_process import OttlaProcess

COUNT = 3000
NUMBERS = {"connector.class": "tests.connect.connectors.Numbers", "topic": "n", "count": str(COUNT), "pause.ms": "1"}
HASTY = {"task.shutdown.graceful.timeout.ms": "1000"}
STOPS_WITHIN_S = 30
"""The grace of its tasks, 20 s more, and the machine's own time."""
_WITHIN_S = 150
QUICK = {"session.timeout.ms": "6000", "heartbeat.interval.ms": "500"}


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.mark.timeout(700)  # three starts of a worker, on a machine that may be busy
def test_a_killed_worker_loses_and_doubles_nothing(broker: Broker, tmp_path: Path) -> None:
    database = tmp_path / "table.db"
    table = {"connector.class": "tests.connect.connectors.Table", "topics": "n", "database": str(database)}
    with ConnectProcess(broker.bootstrap, QUICK) as worker:
        worker.put("numbers", NUMBERS)
        worker.put("table", table)
        for at in (300, 1200):
            eventually(lambda at=at: values_of(broker.bootstrap, "n", at), timeout_s=_WITHIN_S)
            worker.kill()
            worker.start()
        found = eventually(lambda: values_of(broker.bootstrap, "n", COUNT), timeout_s=_WITHIN_S)
        assert [int(value) for value in found] == list(range(COUNT))
        taken = eventually(lambda: taken_by(database, COUNT), timeout_s=_WITHIN_S)
        assert taken == list(range(COUNT))


def test_a_sink_goes_on_when_its_killed_workers_session_is_over(broker: Broker, tmp_path: Path) -> None:
    database = tmp_path / "table.db"
    endless = {**NUMBERS, "count": "1000000", "pause.ms": "5"}
    with ConnectProcess(broker.bootstrap) as worker:
        worker.put("numbers", endless)
        worker.put(
            "table", {"connector.class": "tests.connect.connectors.Table", "topics": "n", "database": str(database)}
        )
        eventually(lambda: taken_by(database, 100), timeout_s=40)
        worker.kill()
        seen = len(taken_by(database, 1))
        worker.start()
        eventually(lambda: taken_by(database, seen + 1), timeout_s=30)  # 10 s and what a start takes; 45 by default


@pytest.mark.timeout(400)  # what it waits for at most
def test_workers_share_connectors_and_take_over(broker: Broker) -> None:
    topics = {"numbers-0": "n-0", "numbers-1": "n-1"}
    with ConnectProcess(broker.bootstrap) as first, ConnectProcess(broker.bootstrap) as second:
        for worker, (name, topic) in zip((first, second), topics.items(), strict=True):  # passed on to the leader
            worker.put(name, {**NUMBERS, "topic": topic, "count": "1000000", "pause.ms": "6"})
        eventually(lambda: len(set(running_on(second))) == 2, timeout_s=40)
        first.kill()
        before = {topic: len(values_of(broker.bootstrap, topic, 0)) for topic in topics.values()}
        eventually(lambda: running_on(second) == [second.url.removeprefix("http://")] * 2, timeout_s=60)
        for topic, count in before.items():
            found = eventually(
                lambda topic=topic, count=count: values_of(broker.bootstrap, topic, count + 100), timeout_s=60
            )
            assert [int(value) for value in found] == list(range(len(found)))
        second.put("numbers-0", {**NUMBERS, "topic": "n-0", "count": "0"})  # it leads now


def test_a_worker_stops_in_bounded_time_though_its_brokers_do_not_answer() -> None:
    with OttlaProcess() as broker, ConnectProcess(broker.bootstrap, HASTY) as worker:
        worker.put("numbers", {**NUMBERS, "count": "1000000", "pause.ms": "6"})
        eventually(lambda: values_of(broker.bootstrap, "n", 20), timeout_s=40)
        broker.pause()
        try:
            begun = time.monotonic()
            worker.stop()
            assert time.monotonic() - begun < STOPS_WITHIN_S
        finally:
            broker.resume()
        worker.start()
        seen = len(values_of(broker.bootstrap, "n", 20))
        eventually(lambda: values_of(broker.bootstrap, "n", seen + 20), timeout_s=60)


def running_on(worker: ConnectProcess) -> list[str]:
    """The workers on which tasks run, by what one of them says."""
    listed = worker.request("GET", "/connectors?expand=status")
    tasks = [task for each in listed.values() for task in each["status"]["tasks"]]
    return [task["worker_id"] for task in tasks if task["state"] == "RUNNING"]


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
