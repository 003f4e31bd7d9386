"""A controller becomes a voter by itself (KIP-1186, `controller.quorum.auto.join.enable`): Ottla's in a genuine quorum,
a genuine one in Ottla's."""

import json
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually
from tests.support.genuine import CLUSTER_ID
from tests.support.genuine_quorum import Address, GenuineController, addresses, quorum_status
from tests.support.quorum_nodes import OttlaNode

pytestmark = [pytest.mark.soak, pytest.mark.timeout(300)]

FIRST, SECOND = 1, 2
TIMEOUT_S = 90.0
AUTO_JOIN = {"controller.quorum.auto.join.enable": "true"}


class DynamicNode(OttlaNode):
    """A controller of Ottla's whose voters stand in the metadata log; it is formatted with an option."""

    def __init__(self, own: Address, quorum: Mapping[int, Address], directory: Path, option: str) -> None:
        bootstrap = ",".join(each.endpoint for each in quorum.values())
        dynamic = {"controller.quorum.voters": "", "controller.quorum.bootstrap.servers": bootstrap, **AUTO_JOIN}
        super().__init__(own, quorum, broker=False, properties=dynamic, directory=directory)
        self.properties["log.dirs"] = str(self.log_dir)
        self._option = option

    def prepare(self) -> None:
        file = self.directory / "format.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in self.properties.items()))
        command = [sys.executable, "-m", "ottla.cli.main", "storage", "format", "-t", CLUSTER_ID, "-c", str(file)]
        subprocess.run([*command, self._option], check=True, capture_output=True)


@pytest.mark.parametrize("genuine", [FIRST, SECOND])
def test_the_second_controller_becomes_a_voter(genuine: int, tmp_path: Path) -> None:
    quorum = addresses(FIRST, SECOND)
    options = {FIRST: "--standalone", SECOND: "--no-initial-controllers"}
    nodes: dict[int, BrokerProcess] = {
        number: GenuineController(
            own,
            quorum,
            tmp_path / str(number),
            dynamic=True,
            properties=AUTO_JOIN,
            format_options=(options[number],),
        )
        if number == genuine
        else DynamicNode(own, quorum, tmp_path / str(number), options[number])
        for number, own in quorum.items()
    }
    with ExitStack() as stack:
        for node in nodes.values():
            stack.callback(node.kill)
            node.start()
        eventually(lambda: voters(quorum) == {FIRST, SECOND}, timeout_s=TIMEOUT_S)


def voters(quorum: Mapping[int, Address]) -> set[int]:
    """The voters, as Kafka's tool shows them."""
    lines = quorum_status(quorum[FIRST]).splitlines()
    (named,) = (line.partition(":")[2] for line in lines if line.startswith("CurrentVoters:"))
    return {voter["id"] for voter in json.loads(named)}
