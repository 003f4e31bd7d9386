"""`ottla quorum recover` on the directory of a genuine controller whose two companions are lost."""

import json
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.eventually import eventually
from tests.support.genuine import CLUSTER_ID
from tests.support.genuine_quorum import GenuineController, addresses, quorum_status, stop_all

from ottla.cli.app import run
from ottla.cli.terminal import exits
from ottla.log.meta_properties import random_id

pytestmark = [pytest.mark.soak, pytest.mark.timeout(300)]

SURVIVOR = 3


def create_topic(node: GenuineController, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(60)


def topics(node: GenuineController) -> set[str]:
    return set(AdminClient({"bootstrap.servers": node.bootstrap}).list_topics(timeout=30).topics)


def test_a_genuine_survivor_goes_on_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    quorum = addresses(1, 2, SURVIVOR)
    first = ",".join(f"{node_id}@{each.endpoint}:{random_id()}" for node_id, each in quorum.items())
    nodes = {
        node_id: GenuineController(
            each,
            quorum,
            tmp_path / str(node_id),
            broker=node_id == SURVIVOR,
            dynamic=True,
            properties={"offsets.topic.replication.factor": "1"},
            format_options=("--initial-controllers", first),
        )
        for node_id, each in quorum.items()
    }
    survivor = nodes[SURVIVOR]
    file = tmp_path / "server.properties"
    file.write_text(
        f"process.roles=broker,controller\nnode.id={SURVIVOR}\ncontroller.listener.names=CONTROLLER\n"
        f"listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://{quorum[SURVIVOR].endpoint}\n"
        f"controller.quorum.bootstrap.servers={quorum[1].endpoint}\nlog.dirs={survivor.log_dir}\n"
    )
    recover = ["quorum", "recover", "-c", str(file)]
    try:
        for node in nodes.values():
            node.start(wait=False)
        for node in nodes.values():
            node.wait_until_ready()
        create_topic(survivor, "before")
        eventually(lambda: "before" in topics(survivor), timeout_s=30)  # else only the others may have it
        for lost in (1, 2):
            nodes[lost].kill()
        assert run([*recover, "--give-up", "1,2", "--yes"]) == exits.FAILED
        assert "is in use by another process" in capsys.readouterr().err
        survivor.kill()
        assert run([*recover, "--json"]) == exits.OK
        facts = json.loads(capsys.readouterr().out)
        assert (facts["cluster_id"], facts["voters"], facts["given_up"]) == (CLUSTER_ID, [1, 2, 3], [1, 2])
        assert facts["is_voter"]
        assert run([*recover, "--give-up", "1,2", "--yes"]) == exits.OK
        survivor.start()
        create_topic(survivor, "after")
        eventually(lambda: {"before", "after"} <= topics(survivor), timeout_s=30)
        status = quorum_status(quorum[SURVIVOR])
        assert f'CurrentVoters:          [{{"id": {SURVIVOR}, ' in status
    finally:
        stop_all(list(nodes.values()))
