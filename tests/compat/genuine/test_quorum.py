"""`ottla quorum` with two controllers of genuine Kafka whose quorum may change (KIP-853)."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.compat.cli.program import OttlaProgram
from tests.support.eventually import eventually
from tests.support.genuine import KafkaFormattedByOttla
from tests.support.probe import free_port

pytestmark = pytest.mark.soak


class Controller(KafkaFormattedByOttla):
    """A node that is a controller only, without brokers to name."""

    def answers(self) -> bool:
        try:
            socket.create_connection((self.host, self.port), timeout=1).close()
        except OSError:
            return False
        return True


class Pair(NamedTuple):
    """Node 1, a broker and the controller that votes, and `second`, a controller that follows."""

    ottla: OttlaProgram
    log_dir: Path
    first: str
    second: str


@pytest.fixture
def pair() -> Iterator[Pair]:
    first = f"CONTROLLER://127.0.0.1:{free_port()}"
    dynamic = {"controller.quorum.voters": "", "controller.quorum.bootstrap.servers": first.rpartition("/")[2]}
    broker = KafkaFormattedByOttla(format_options=["--standalone"])
    addresses = f"PLAINTEXT://{broker.bootstrap},{first}"
    broker.properties = {**dynamic, "listeners": addresses, "advertised.listeners": addresses}
    controller = Controller(format_options=["--no-initial-controllers"])
    second = f"CONTROLLER://{controller.bootstrap}"
    controller.properties = {
        **dynamic,
        "process.roles": "controller",
        "node.id": "2",
        "listeners": second,
        "advertised.listeners": second,
    }
    with broker, controller:
        yield Pair(OttlaProgram(broker.bootstrap), broker.log_dir, first.rpartition("/")[2], second)


def test_a_controller_gets_a_vote_and_loses_it(pair: Pair) -> None:
    ottla = pair.ottla

    def roles() -> dict[int, str]:
        return {row["node"]: row["role"] for row in ottla.json("quorum", "status")["replicas"]}

    eventually(lambda: roles() == {1: "leader", 2: "observer"}, timeout_s=60)
    listener = ["--listener", pair.second]
    assert "node 7 is no observer of the quorum; there are: 2" in ottla("quorum", "add", "7", *listener, code=1).stderr
    assert "controller 1 is a voter already" in ottla("quorum", "add", "1", *listener, code=1).stderr
    assert "controller 2 is a voter now" in ottla("quorum", "add", "2", *listener).stderr
    assert roles() == {1: "leader", 2: "voter"}
    added = {row["node"]: row for row in ottla.json("quorum", "status")["replicas"]}[2]
    assert (added["lag"], added["listeners"]) == (0, [pair.second])
    assert added["directory_id"]
    assert "add --yes" in ottla("quorum", "remove", "2", code=2).stderr
    assert "controller 2 no longer votes" in ottla("quorum", "remove", "2", "--yes").stderr
    eventually(lambda: roles() == {1: "leader", 2: "observer"})
    assert "controller 1 keeps its vote" in ottla("quorum", "remove", "1", "--yes", code=1).stderr

    second = pair.second.rpartition("/")[2]
    follower = OttlaProgram(second)
    assert "the controller that was asked does not lead the quorum" in follower("quorum", "status", code=1).stderr
    both = OttlaProgram(f"{second},{pair.first}").json("quorum", "status")
    assert [row["role"] for row in both["replicas"]] == ["leader", "observer"]

    directory = pair.log_dir / "__cluster_metadata-0"
    files = [*sorted(directory.glob("*.checkpoint")), *sorted(directory.glob("*.log"))]
    dumped = map(json.loads, ottla("log", "dump", "--decode", "--json", *map(str, files)).stdout.splitlines())
    of_voters = [row for row in dumped if row["kind"] in ("KRaftVersionRecord", "VotersRecord")]
    assert {row["fields"].get("k_raft_version", 1) for row in of_voters} == {1}
    sets = [row["fields"]["voters"] for row in of_voters if row["kind"] == "VotersRecord"]
    assert [[voter["voter_id"] for voter in voters] for voters in sets[-3:]] == [[1], [1, 2], [1]]
    assert sets[-2][1]["voter_directory_id"] == added["directory_id"]
