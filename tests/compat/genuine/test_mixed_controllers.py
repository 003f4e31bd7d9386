"""Quorums of genuine controllers and Ottla's, with a genuine broker, while the active controller is killed."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually
from tests.support.genuine import kafka_tool
from tests.support.genuine_quorum import GenuineBroker, GenuineController, addresses
from tests.support.quorum_nodes import OttlaNode
from tests.support.steady_producer import SteadyProducer
from tests.support.whole_topic import read_in_group

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1200)]

KILLS = 20
VOTERS = (1, 2, 3)
BROKER = 10


@pytest.fixture(params=[{3}, {2, 3}], ids=["one of Ottla", "two of Ottla"])
def quorum(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[tuple[Mapping[int, BrokerProcess], GenuineBroker]]:
    """The controllers by node id, and the broker."""
    voters = addresses(*VOTERS)

    def controller(number: int) -> BrokerProcess:
        directory = tmp_path / str(number)
        if number in request.param:
            return OttlaNode(voters[number], voters, broker=False, directory=directory)
        return GenuineController(voters[number], voters, directory)

    nodes = {number: controller(number) for number in VOTERS}
    broker = GenuineBroker(BROKER, voters)
    with ExitStack() as stack:
        for node in nodes.values():
            stack.callback(node.kill)
            node.start(wait=False)
        for node in nodes.values():
            node.wait_until_ready()
        stack.callback(broker.kill)
        broker.start()
        yield nodes, broker


def leader(broker: GenuineBroker) -> int | None:
    """The active controller's node id; None while there is none."""
    tool = kafka_tool(
        "MetadataQuorumCommand", "--bootstrap-server", broker.bootstrap, "describe", "--status", check=False
    )
    found = [line for line in tool.stdout.splitlines() if line.startswith("LeaderId")]
    return int(found[0].split(":")[1]) if found else None


def create(broker: GenuineBroker, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(name, 2, 1)])[name].result(60)


def test_the_active_controller_is_killed_twenty_times(
    quorum: tuple[Mapping[int, BrokerProcess], GenuineBroker],
) -> None:
    nodes, broker = quorum
    create(broker, "steady")
    led: list[int] = []
    with SteadyProducer(broker.bootstrap, "steady", **{"enable.idempotence": True}) as producer:
        for turn in range(KILLS):
            active = eventually(lambda: leader(broker))
            led.append(active)
            nodes[active].kill()
            create(broker, f"without-{turn}")
            nodes[active].start()
            create(broker, f"with-{turn}")
            producer.until_acknowledged(20)
    assert producer.failed == []
    assert len(set(led)) > 1
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    made = {f"{kind}-{turn}" for kind in ("with", "without") for turn in range(KILLS)}
    eventually(lambda: made <= admin.list_topics(timeout=20).topics.keys())
    wanted = {value for _, value in producer.acknowledged}
    assert set(read_in_group(broker.bootstrap, "steady", "g", len(wanted))) >= wanted
