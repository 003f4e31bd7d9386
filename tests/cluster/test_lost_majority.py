"""Two of three controllers of Ottla are lost with their disks, and the third goes on alone."""

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.cli.app import run
from ottla.cli.terminal import exits
from ottla.log.meta_properties import random_id
from tests.support.eventually import eventually
from tests.support.genuine import CLUSTER_ID
from tests.support.genuine_quorum import addresses
from tests.support.quorum_nodes import OttlaNode

pytestmark = [pytest.mark.soak, pytest.mark.timeout(200)]

SURVIVOR = 3
SETTINGS = {"offsets.topic.num.partitions": "1", "offsets.topic.replication.factor": "1"}


def create(node: OttlaNode, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": node.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(name, 1, replica_assignment=[[SURVIVOR]])])[name].result(30)


def topics(node: OttlaNode) -> set[str]:
    return set(AdminClient({"bootstrap.servers": node.bootstrap, "log_level": 0}).list_topics(timeout=10).topics)


def options(node: OttlaNode) -> list[str]:
    """The settings of a node for commands that work on its files."""
    node.log_dir.parent.mkdir(parents=True, exist_ok=True)
    file = node.log_dir.parent / "server.properties"
    file.write_text("".join(f"{k}={v}\n" for k, v in {**node.properties, "log.dirs": str(node.log_dir)}.items()))
    return ["-c", str(file)]


@pytest.mark.parametrize("is_dynamic", [True, False])
def test_the_survivor_goes_on_and_others_join_it(
    tmp_path: Path, is_dynamic: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    quorum = addresses(1, 2, SURVIVOR)
    endpoints = ",".join(each.endpoint for each in quorum.values())
    voters = {"controller.quorum.voters": "", "controller.quorum.bootstrap.servers": endpoints} if is_dynamic else {}
    nodes = {
        node_id: OttlaNode(
            own, quorum, broker=True, properties={**SETTINGS, **voters}, directory=tmp_path / str(node_id)
        )
        for node_id, own in quorum.items()
    }
    first = ",".join(f"{each.node_id}@{each.endpoint}:{random_id()}" for each in quorum.values())
    begun = ["--initial-controllers", first] if is_dynamic else []
    survivor = nodes[SURVIVOR]
    try:
        for node in nodes.values():
            assert run(["storage", "format", *options(node), "-t", CLUSTER_ID, *begun]) == exits.OK
            node.start(wait=False)
        for node in nodes.values():
            node.wait_until_ready()
        create(survivor, "before")
        eventually(lambda: "before" in topics(survivor), timeout_s=30)  # else only the others may have it
        for node in nodes.values():
            node.kill()
        recover = ["quorum", "recover", *options(survivor), "--give-up", "1,2", "--yes"]
        assert run(recover) == (exits.OK if is_dynamic else exits.FAILED)
        printed = capsys.readouterr().err
        if not is_dynamic:
            assert "set controller.quorum.voters to the survivors alone" in printed
            survivor = OttlaNode(
                quorum[SURVIVOR],
                {SURVIVOR: quorum[SURVIVOR]},
                broker=True,
                properties={**SETTINGS, "controller.quorum.bootstrap.servers": endpoints},  # else it is no quorum
                directory=tmp_path / str(SURVIVOR),
            )
        survivor.start()
        create(survivor, "after")
        eventually(lambda: {"before", "after"} <= topics(survivor), timeout_s=30)
        if is_dynamic:
            again = OttlaNode(
                quorum[1], quorum, broker=True, properties={**SETTINGS, **voters}, directory=tmp_path / "anew"
            )
            nodes[1] = again
            joins = ["storage", "format", *options(again), "-t", CLUSTER_ID, "--no-initial-controllers"]
            assert run(joins) == exits.OK
            again.start()
            where = ["--bootstrap", survivor.bootstrap]
            listener = f"CONTROLLER://{quorum[1].endpoint}"
            assert run(["quorum", "add", "1", "--listener", listener, *where]) == exits.OK
            eventually(lambda: {"before", "after"} <= topics(again), timeout_s=30)
    finally:
        survivor.kill()
        for node in nodes.values():
            node.kill()
