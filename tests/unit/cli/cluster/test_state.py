"""What a cluster looks like, and what is said when it has changed."""

from collections.abc import Mapping
from dataclasses import replace

from ottla.cli.cluster.state import BrokerState, ClusterState, PartitionState, changes
from ottla.client.partition import Partition


def broker(number: int, *, is_up: bool = True) -> BrokerState:
    return BrokerState(number, "h", 9092 + number, f"r{number}", is_up)


def part(
    name: str, leader: int | None, in_sync: tuple[int, ...] = (1, 2, 3), behind: Mapping[int, int] | None = None
) -> PartitionState:
    topic, _, number = name.rpartition("-")
    return PartitionState(Partition(topic, int(number)), leader, (1, 2, 3), in_sync, behind or {})


def state(*parts: PartitionState, controller: int | None = 1, down: tuple[int, ...] = ()) -> ClusterState:
    return ClusterState(
        controller,
        {number: broker(number, is_up=number not in down) for number in (1, 2, 3)},
        {one.partition: one for one in parts},
    )


def test_nothing_is_said_when_nothing_has_changed() -> None:
    assert list(changes(state(part("t-0", 1)), state(part("t-0", 1, behind={2: 7})))) == []


def test_a_broker_that_dies_is_the_first_thing_said() -> None:
    before = state(part("t-0", 1), part("t-1", 2))
    after = state(part("t-0", 2, (2, 3)), part("t-1", 2, (2, 3)), controller=3, down=(1,))
    assert list(changes(before, after)) == [
        "broker 1 is down",
        "broker 3 is the controller",
        "broker 2 leads t-0 instead of broker 1",
        "broker 1 is out of sync in t-0, t-1",
    ]
    assert list(changes(after, before)) == [
        "broker 1 is up",
        "broker 1 is the controller",
        "broker 1 leads t-0 instead of broker 2",
        "broker 1 is in sync in t-0, t-1",
    ]


def test_partitions_that_nobody_leads_are_named() -> None:
    led, lost = state(part("t-0", 1)), state(part("t-0", None, (1,)), controller=None)
    assert list(changes(led, lost)) == [
        "broker 1 is no longer the controller, and no other is",
        "t-0: no leader; it was broker 1",
        "broker 2 is out of sync in t-0",
        "broker 3 is out of sync in t-0",
    ]
    assert "broker 3 leads t-0, which had no leader" in list(changes(lost, state(part("t-0", 3, (3,)))))


def test_what_happens_to_many_partitions_is_one_sentence() -> None:
    before = state(*(part(f"t-{number}", 1) for number in range(100)))
    after = state(*(part(f"t-{number}", 2 if number % 2 else 3) for number in range(100)))
    assert list(changes(before, after)) == [
        "broker 3 leads 50 partitions instead of broker 1",
        "broker 2 leads 50 partitions instead of broker 1",
    ]


def test_topics_come_grow_move_and_go() -> None:
    one, two = state(part("t-0", 1)), state(part("t-0", 1), part("t-1", 1), part("u-0", 1))
    assert list(changes(one, two)) == ["topic t has 2 partitions now", "topic u has been created with 1 partition"]
    assert list(changes(two, one)) == ["topic t has 1 partition now", "topic u has been deleted"]
    moved = state(replace(part("t-0", 1), replicas=(1, 2), in_sync=(1, 2)))
    assert list(changes(one, moved)) == ["t-0 is on 1, 2, and was on 1, 2, 3"]


def test_the_summary_names_what_is_wrong() -> None:
    well = state(part("t-0", 1))
    assert well.summary() == "3 brokers up (1, 2, 3); controller 1; 1 partition, 0 under-replicated"
    ill = state(part("t-0", None, (2,)), part("t-1", 1, (1,), {2: 5, 3: 40}), controller=None, down=(2,))
    assert ill.summary() == (
        "2 brokers up (1, 3); 1 down (2); no controller; 2 partitions, 2 under-replicated; 1 without leader"
    )
    assert ill.facts() == {
        "controller": None,
        "brokers_up": 2,
        "brokers_down": 1,
        "partitions": 2,
        "without_leader": 1,
        "under_replicated": 2,
        "machines": 3,
        "on_one_machine": 0,
        "lag": 40,
    }


def test_rows_say_what_each_broker_does() -> None:
    found = state(part("t-0", 1, (1, 2)), part("t-1", 2, (2,)), down=(3,)).broker_rows()
    assert [(row["broker"], row["state"], row["leads"], row["replicas"], row["out_of_sync"]) for row in found] == [
        (1, "up", 1, 2, 1),
        (2, "up", 1, 2, 0),
        (3, "down", 0, 2, 2),
    ]
    assert [row["controller"] for row in found] == [True, False, False]


def unit_state() -> ClusterState:
    """Two machines with two brokers each, and a controller of the first that is no broker."""
    brokers = {
        number: BrokerState(number, host, 9092 + number, host, is_up=number != 22)
        for number, host in ((11, "a"), (12, "a"), (21, "b"), (22, "b"))
    }
    parts = [
        PartitionState(Partition("t", 0), 11, (11, 21), (11, 21), {}),
        PartitionState(Partition("t", 1), 12, (12, 11, 21), (12, 11, 21), {}),
    ]
    return ClusterState(10, brokers, {each.partition: each for each in parts}, {10: "a"})


def test_machines_show_what_runs_on_them_and_replicas_that_share_one() -> None:
    found = unit_state()
    assert found.machine_rows() == [
        {
            "machine": "a",
            "state": "up",
            "rack": "a",
            "brokers": [11, 12],
            "down": [],
            "controllers": [10],
            "active_controller": True,
            "leads": 2,
        },
        {
            "machine": "b",
            "state": "in part",
            "rack": "b",
            "brokers": [21, 22],
            "down": [22],
            "controllers": [],
            "active_controller": False,
            "leads": 0,
        },
    ]
    assert [row["on_one_machine"] for row in found.partition_rows()] == [[], [[12, 11]]]
    assert found.facts()["on_one_machine"] == 1
    assert list(changes(found, replace(found, controller=20))) == ["node 20 is the controller"]
    assert found.summary().endswith("0 under-replicated; 1 with several replicas on one machine")
