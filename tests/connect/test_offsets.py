"""Offsets changed over REST, and those of several sources side by side, on a worker against a broker."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from ottla.testing import Broker, ConnectWorker
from ottla.testing.connect import RestError
from tests.connect.test_crashes import taken_by
from tests.support.connect import values_of
from tests.support.eventually import eventually

NUMBERS = {"connector.class": "tests.connect.connectors.Numbers", "topic": "n", "count": "10"}


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def worker(broker: Broker) -> Iterator[ConnectWorker]:
    with ConnectWorker(broker.bootstrap) as worker:
        yield worker


def numbers(broker: Broker, topic: str, count: int) -> list[int]:
    return [int(value) for value in eventually(lambda: values_of(broker.bootstrap, topic, count), timeout_s=60)]


def stop(worker: ConnectWorker, name: str) -> None:
    worker.request("PUT", f"/connectors/{name}/stop")
    eventually(
        lambda: worker.request("GET", f"/connectors/{name}/status")["connector"]["state"] == "STOPPED", timeout_s=60
    )


def change(worker: ConnectWorker, name: str, method: str, offsets: Any = None) -> str:
    body = None if offsets is None else {"offsets": offsets}
    return str(worker.request(method, f"/connectors/{name}/offsets", body)["message"])


def of_topic(offset: int | None) -> list[dict[str, Any]]:
    place = {"kafka_topic": "n", "kafka_partition": 0}
    return [{"partition": place, "offset": None if offset is None else {"kafka_offset": offset}}]


def test_a_source_goes_on_from_where_it_is_put(broker: Broker, worker: ConnectWorker) -> None:
    worker.put("numbers", NUMBERS)
    assert numbers(broker, "n", 10) == list(range(10))
    worker.put("numbers", {**NUMBERS, "count": "12"})
    assert numbers(broker, "n", 12) == list(range(12))
    with pytest.raises(RestError, match="must be in the STOPPED state"):
        change(worker, "numbers", "PATCH", [{"partition": {}, "offset": {"number": 5}}])
    stop(worker, "numbers")
    assert change(worker, "numbers", "PATCH", [{"partition": {}, "offset": {"number": 9}}]) == (
        "The offsets for this connector have been altered successfully"
    )
    assert worker.request("GET", "/connectors/numbers/offsets")["offsets"] == [
        {"partition": {}, "offset": {"number": 9}}
    ]
    worker.request("PUT", "/connectors/numbers/resume")
    assert numbers(broker, "n", 15) == [*range(12), 9, 10, 11]
    stop(worker, "numbers")
    change(worker, "numbers", "DELETE")
    assert worker.request("GET", "/connectors/numbers/offsets") == {"offsets": []}
    worker.put("numbers", {**NUMBERS, "count": "2"})  # stays stopped
    worker.request("PUT", "/connectors/numbers/resume")
    assert numbers(broker, "n", 17) == [*range(12), 9, 10, 11, 0, 1]


def test_a_sink_whose_target_keeps_its_offsets_goes_on_from_where_it_is_put(
    broker: Broker, worker: ConnectWorker, tmp_path: Path
) -> None:
    database = tmp_path / "table.db"
    worker.put("numbers", NUMBERS)
    worker.put("table", {"connector.class": "tests.connect.connectors.Table", "topics": "n", "database": str(database)})
    assert eventually(lambda: taken_by(database, 10), timeout_s=60) == list(range(10))
    stop(worker, "table")
    change(worker, "table", "PATCH", of_topic(7))
    worker.request("PUT", "/connectors/table/resume")
    assert eventually(lambda: taken_by(database, 13), timeout_s=60) == [*range(10), 7, 8, 9]
    stop(worker, "table")
    change(worker, "table", "DELETE")
    worker.request("PUT", "/connectors/table/resume")
    assert eventually(lambda: taken_by(database, 23), timeout_s=60) == [*range(10), 7, 8, 9, *range(10)]


def test_a_sink_goes_on_in_a_topic_that_was_made_again_when_its_offset_is_forgotten(
    broker: Broker, worker: ConnectWorker, tmp_path: Path
) -> None:
    database = tmp_path / "table.db"
    worker.put("numbers", NUMBERS)
    worker.put("table", {"connector.class": "tests.connect.connectors.Table", "topics": "n", "database": str(database)})
    assert eventually(lambda: taken_by(database, 10), timeout_s=60) == list(range(10))
    stop(worker, "table")
    worker.request("DELETE", "/connectors/numbers")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics(["n"])["n"].result(60)
    worker.put("again", {**NUMBERS, "count": "3"})
    assert numbers(broker, "n", 3) == list(range(3))
    worker.request("PUT", "/connectors/table/resume")
    trace = worker.wait("table", "FAILED")["tasks"][0]["trace"]
    assert "before offset 10 of n-0, where the log is at " in trace
    assert "was the topic deleted and made again?" in trace
    stop(worker, "table")
    change(worker, "table", "PATCH", of_topic(None))
    worker.request("PUT", "/connectors/table/resume")
    assert eventually(lambda: taken_by(database, 13), timeout_s=60) == [*range(10), 0, 1, 2]


def test_a_sink_that_cannot_move_the_offsets_in_its_target_says_so(
    broker: Broker, worker: ConnectWorker, tmp_path: Path
) -> None:
    kept = {"connector.class": "tests.connect.connectors.Kept", "topics": "n", "database": str(tmp_path / "t.db")}
    worker.put("numbers", NUMBERS)
    worker.put("kept", kept)
    eventually(lambda: taken_by(tmp_path / "t.db", 10), timeout_s=60)
    stop(worker, "kept")
    before = worker.request("GET", "/connectors/kept/offsets")
    with pytest.raises(RestError, match=r"500: .*Kept keeps offsets in the target, and has no alter_offsets"):
        change(worker, "kept", "DELETE")
    assert worker.request("GET", "/connectors/kept/offsets") == before


def test_sources_whose_positions_share_a_partition_do_not_disturb_each_other(
    broker: Broker, worker: ConnectWorker
) -> None:
    """`offset.storage.partitions` is 1 here: positions of one stand behind open transactions of the other."""
    slow = {"transaction.boundary": "interval", "transaction.boundary.interval.ms": "700"}
    worker.put("slow", {**NUMBERS, "topic": "slow", "count": "600", "pause.ms": "4", **slow})
    worker.put("quick", {**NUMBERS, "topic": "quick", "count": "600", "pause.ms": "4"})
    for at in (50, 300):
        numbers(broker, "quick", at)
        worker.request("POST", "/connectors/quick/restart?includeTasks=true")
        worker.request("POST", "/connectors/slow/restart?includeTasks=true")
    assert numbers(broker, "quick", 600) == list(range(600))
    assert numbers(broker, "slow", 600) == list(range(600))
