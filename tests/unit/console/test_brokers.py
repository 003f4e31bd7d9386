"""What the page of the cluster says of brokers, replicas and moves."""

from ottla.admin import (
    Address,
    Broker,
    Cluster,
    Partition,
    PartitionState,
    Quorum,
    QuorumListener,
    QuorumReplica,
    Reassignment,
    Replica,
)
from ottla.console.brokers import broker_rows, machines_in, move, under_replicated

ZERO, ONE, TWO = (Partition("t", number) for number in range(3))
CLUSTER = Cluster(
    1,
    {number: Broker(number, Address("h", 9092), "r") for number in (1, 2)},
    {
        ZERO: PartitionState(1, (1, 2), (1, 2)),
        ONE: PartitionState(1, (2, 1), (1,)),
        TWO: PartitionState(None, (3,), ()),
    },
)


def test_a_row_for_each_broker_also_for_one_that_is_gone() -> None:
    rows = {each.number: each for each in broker_rows(CLUSTER, {1: []})}
    assert (rows[1].leads, rows[1].preferred, rows[1].replicas, rows[1].behind) == (2, 1, 2, 0)
    assert (rows[2].leads, rows[2].preferred, rows[2].replicas, rows[2].behind) == (0, 1, 2, 1)
    assert rows[3].broker is None
    assert (rows[1].directories, rows[2].directories) == ([], None)


def test_machines_have_their_controllers() -> None:
    listener = QuorumListener("CONTROLLER", Address("h", 9093))
    voter = QuorumReplica(10, None, 5, 0, None, None, (listener,))
    (machine,) = machines_in(CLUSTER, Quorum(10, 1, 5, (voter,), ()))
    assert (machine.name, machine.brokers, machine.controllers, machine.leads) == ("h", (1, 2), (10,), 2)
    assert machines_in(CLUSTER, None)[0].controllers == (1,), "the broker that is the controller"


def test_partitions_without_a_leader_come_first() -> None:
    assert [partition for partition, _ in under_replicated(CLUSTER)] == [TWO, ONE]


def test_a_move_is_as_far_as_the_new_replicas_have_copied() -> None:
    moving = Reassignment((1, 2, 3), (3,), (1,))
    held = {(1, ZERO): Replica(1000, "d"), (3, ZERO): Replica(250, "d")}
    found = move(ZERO, moving, PartitionState(1, (1, 2, 3), (1, 2)), held)
    assert (found.before, found.after) == ((1, 2), (2, 3))
    assert (found.copied_bytes, found.size_bytes, found.percent) == (250, 1000, 25)
    done = move(ZERO, moving, PartitionState(1, (1, 2, 3), (1, 2, 3)), held)
    assert done.percent == 100


def test_nobody_tells_how_far_a_move_without_a_leader_is() -> None:
    moving = Reassignment((1, 3), (3,), (1,))
    assert move(ZERO, moving, PartitionState(None, (1, 3), ()), {}).percent is None
    assert move(ZERO, moving, None, {}).percent is None
    empty = {(1, ZERO): Replica(0, "d"), (3, ZERO): Replica(0, "d")}
    assert move(ZERO, moving, PartitionState(1, (1, 3), (1,)), empty).percent == 100
