"""Offsets changed over REST, and those of several sources side by side, on a worker against a broker."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.connect.log_identity import LogIdentity
from ottla.connect.rest.client import RestError
from ottla.testing import Broker, ConnectWorker
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
    assert "before offset 10 of n-0, whose end offset is " in trace
    assert "was the topic deleted and created anew?" in trace
    stop(worker, "table")
    change(worker, "table", "PATCH", of_topic(None))
    worker.request("PUT", "/connectors/table/resume")
    assert eventually(lambda: taken_by(database, 13), timeout_s=60) == [*range(10), 0, 1, 2]


RELATIONAL = {"connector.class": "relational-sink", "topics": "n", "auto.create": "true", "table.name.format": "taken"}


def made_again(broker: Broker, worker: ConnectWorker, count: int) -> None:
    """Delete the topic, and make it again with so many numbers."""
    worker.request("DELETE", "/connectors/numbers")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics(["n"])["n"].result(60)
    worker.put("again", {**NUMBERS, "count": str(count)})
    numbers(broker, "n", count)


def test_a_topic_that_was_made_again_and_is_longer_than_before_is_not_taken_for_the_old_one(
    broker: Broker, worker: ConnectWorker, tmp_path: Path
) -> None:
    """50 of 150 rows were written, with a status of RUNNING."""
    database = tmp_path / "table.db"
    value = {"transforms": "wrap", "transforms.wrap.type": "HoistField$Value", "transforms.wrap.field": "value"}
    worker.put("numbers", {**NUMBERS, "count": "100"})
    worker.put("rows", {**RELATIONAL, **value, "connection.url": f"sqlite:///{database}"})
    assert eventually(lambda: taken_by(database, 100), timeout_s=60) == list(range(100))
    stop(worker, "rows")
    made_again(broker, worker, 150)
    worker.request("PUT", "/connectors/rows/resume")
    trace = worker.wait("rows", "FAILED")["tasks"][0]["trace"]
    assert "topic n was deleted and made again since the target got offset 100 of n-0 (its id was " in trace
    for choice in ("delete its offset of this partition", "set the offset to it", "restore the topic"):
        assert choice in trace
    assert taken_by(database, 100) == list(range(100))
    stop(worker, "rows")
    change(worker, "rows", "PATCH", of_topic(149))
    worker.request("PUT", "/connectors/rows/resume")
    assert eventually(lambda: taken_by(database, 101), timeout_s=60)[-1] == 149
    stop(worker, "rows")
    change(worker, "rows", "PATCH", of_topic(None))
    worker.request("PUT", "/connectors/rows/resume")
    assert eventually(lambda: taken_by(database, 251), timeout_s=60)[-150:] == list(range(150))


def test_a_group_keeps_the_ids_of_what_its_offsets_are_places_in(broker: Broker, worker: ConnectWorker) -> None:
    admin, group = AdminClient({"bootstrap.servers": broker.bootstrap}), "connect-collect"

    def committed() -> Any:
        (answer,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
        return [(each.offset, each.metadata) for each in answer.result(60).topic_partitions or []]

    worker.put("numbers", NUMBERS)
    worker.put("collect", {"connector.class": "tests.connect.connectors.Collect", "topics": "n"})
    eventually(lambda: [offset for offset, _ in committed()] == [10], timeout_s=60)
    cluster = admin.describe_cluster().result(60).cluster_id
    topic = admin.describe_topics(TopicCollection(["n"]))["n"].result(60).topic_id
    assert json.loads(committed()[0][1]) == {"cluster_id": cluster, "topic_id": str(topic)}
    stop(worker, "collect")
    of_another = LogIdentity("another", str(topic)).metadata
    moved = [ConsumerGroupTopicPartitions(group, [TopicPartition("n", 0, 5, metadata=of_another)])]
    (answer,) = admin.alter_consumer_group_offsets(moved).values()
    answer.result(60)
    worker.request("PUT", "/connectors/collect/resume")
    trace = worker.wait("collect", "FAILED")["tasks"][0]["trace"]
    assert f"the sink's group has offset 5 of n-0 in cluster another, and this is cluster {cluster}" in trace
    stop(worker, "collect")
    change(worker, "collect", "PATCH", of_topic(7))
    assert committed() == [(7, None)]
    worker.request("PUT", "/connectors/collect/resume")
    eventually(lambda: committed() == [(10, LogIdentity(cluster, str(topic)).metadata)], timeout_s=60)


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


def test_to_forget_one_offset_of_a_sink_touches_no_other(
    broker: Broker, worker: ConnectWorker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All offsets were deleted, and those that stay set anew: a worker that died in between left none."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("pair", num_partitions=2)])["pair"].result(60)
    database = str(tmp_path / "table.db")
    worker.put("table", {"connector.class": "tests.connect.connectors.Table", "topics": "pair", "database": database})
    worker.wait("table", "RUNNING")
    stop(worker, "table")

    def offsets(*given: tuple[int, int | None]) -> list[dict[str, Any]]:
        return [
            {
                "partition": {"kafka_topic": "pair", "kafka_partition": number},
                "offset": None if offset is None else {"kafka_offset": offset},
            }
            for number, offset in given
        ]

    change(worker, "table", "PATCH", offsets((0, 5), (1, 7)))
    with monkeypatch.context() as dying:
        dying.setattr(AdminClient, "alter_consumer_group_offsets", lambda *_, **__: pytest.fail("nothing is set"))
        change(worker, "table", "PATCH", offsets((0, None)))
    assert worker.request("GET", "/connectors/table/offsets")["offsets"] == offsets((1, 7))
    change(worker, "table", "PATCH", offsets((0, 3), (1, None)))
    assert worker.request("GET", "/connectors/table/offsets")["offsets"] == offsets((0, 3))
    change(worker, "table", "PATCH", offsets((0, None), (1, None)))
    change(worker, "table", "PATCH", offsets((0, None)))  # of a group that is gone by now
    assert worker.request("GET", "/connectors/table/offsets")["offsets"] == []
