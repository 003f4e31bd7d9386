"""The machines of a cluster, without one: each command is answered from a script."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.admin.test_operations import run
from tests.unit.admin.test_quorum import answer_of

from ottla.admin import Address, Broker, Cluster, Controllers, Machine, Partition
from ottla.admin.operations import machines
from ottla.admin.operations.core import Ask
from ottla.admin.operations.machines import Place, is_shared, machines_of, on_one_machine, together
from ottla.client.errors import BrokerUnavailable, UnsupportedRequest
from ottla.errors import ErrorCode
from ottla.protocol.messages import describe_quorum as wire
from ottla.protocol.messages.describe_cluster import DescribeClusterBroker, DescribeClusterResponse

A, B = Place("a", "a"), Place("b", "b")
UNITS = {11: A, 12: A, 21: B, 22: B}
CLUSTER = Cluster(12, {}, {})


def test_brokers_and_the_controller_of_a_unit_are_one_machine() -> None:
    found = machines_of(UNITS, {22}, {10: "a", 20: "b", 30: "c", 40: None}, [11, 12, 12, 21, None])
    assert found == (
        Machine("a", "a", (11, 12), (), (10,), 3),
        Machine("b", "b", (21, 22), (22,), (20,), 1),
        Machine("c", None, (), (), (30,), 0),
    )
    assert [machine.is_up for machine in found] == [True, True, True]
    assert not machines_of({1: A}, {1}, {})[0].is_up
    assert is_shared(found)
    assert not is_shared(machines_of({1: A, 2: B}, (), {1: None}))


def test_racks_tell_machines_apart_that_one_name_reaches() -> None:
    gateway = {1: Place("gate", "r1"), 2: Place("gate", "r2"), 3: Place("gate", None)}
    found = machines_of(gateway, (), {2: "gate"})
    assert [(machine.name, machine.controllers) for machine in found] == [
        ("gate (no rack)", ()),
        ("gate (r1)", ()),
        ("gate (r2)", (2,)),
    ]


def test_a_controller_that_only_its_machine_reaches_is_on_it() -> None:
    assert machines_of({2: A, 3: A}, (), {1: "127.0.0.1"}) == (Machine("a", "a", (2, 3), (), (1,), 0),)
    assert [machine.name for machine in machines_of(UNITS, (), {1: "127.0.0.1"})] == ["127.0.0.1", "a", "b"]


def test_replicas_on_one_machine_are_found() -> None:
    assigned = {Partition("t", 0): (11, 21), Partition("t", 1): (12, 21, 11), Partition("t", 2): (11, 22, 12, 21)}
    found = on_one_machine(machines_of(UNITS, (), {}), assigned)
    assert found == {Partition("t", 1): [(12, 11)], Partition("t", 2): [(11, 12), (22, 21)]}
    assert together(found[Partition("t", 2)]) == "11+12 22+21"
    assert not on_one_machine(machines_of({11: A, 12: A}, (), {}), {Partition("t", 0): (11, 12)}), "there is no other"


def scripted(answer: object) -> Callable[[str, Ask], Any]:
    """Answers, or raises, that."""

    def respond(*_: object) -> object:
        if isinstance(answer, Exception):
            raise answer
        return answer

    return respond


def quorum(leader: int) -> wire.DescribeQuorumResponse:
    voters = [wire.ReplicaState(replica_id=each, log_end_offset=1) for each in (1, 2)]
    part = wire.ResponsePartitionData(
        partition_index=0, leader_id=leader, leader_epoch=1, high_watermark=1, current_voters=voters, observers=[]
    )
    node = wire.Node(node_id=1, listeners=[wire.Listener(name="CONTROLLER", host="c1", port=9093)])
    return answer_of(part, nodes=[node])


def refused(code: ErrorCode) -> wire.DescribeQuorumResponse:
    return wire.DescribeQuorumResponse(error_code=code, topics=[])


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (quorum(2), Controllers(2, {1: "c1", 2: None})),
        (quorum(-1), Controllers(None, {1: "c1", 2: None})),
        (UnsupportedRequest("no"), Controllers(12, {12: None})),
        (refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED), Controllers(12, {12: None})),
        (refused(ErrorCode.REQUEST_TIMED_OUT), Controllers(None, {})),
        (BrokerUnavailable("silent"), Controllers(None, {})),
    ],
)
def test_the_controllers_are_the_quorums_or_a_broker(answer: object, found: Controllers) -> None:
    assert run(machines.describe_controllers(CLUSTER), scripted(answer))[0] == found


def test_a_cluster_without_any_controller() -> None:
    operation = machines.describe_controllers(Cluster(None, {}, {}))
    assert run(operation, scripted(UnsupportedRequest("no")))[0] == Controllers(None, {})


def test_fenced_brokers_are_those_that_are_not_alive() -> None:
    brokers = [
        DescribeClusterBroker(broker_id=1, host="a", port=1, rack="r"),
        DescribeClusterBroker(broker_id=2, host="b", port=2, rack="r", is_fenced=True),
    ]

    described = scripted(DescribeClusterResponse(cluster_id="c", brokers=brokers))
    assert run(machines.describe_fenced_brokers(), described)[0] == {2: Broker(2, Address("b", 2), "r")}


def test_older_brokers_show_no_fenced_ones() -> None:
    assert run(machines.describe_fenced_brokers(), scripted(None), version=1) == ({}, [])
    assert run(machines.describe_fenced_brokers(), scripted(UnsupportedRequest("no")))[0] == {}
