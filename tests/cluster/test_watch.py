"""`ottla cluster watch`, while brokers come and go."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.compat.cli.program import OttlaProgram
from tests.support.cluster_in_process import ClusterInProcess
from tests.support.eventually import eventually


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterInProcess]:
    with ClusterInProcess(racks={1: "a", 2: "b", 3: "c"}) as started:
        yield started


@contextmanager
def watching(cluster: ClusterInProcess, output: Path, *arguments: str) -> Iterator["subprocess.Popen[bytes]"]:
    """The command in the background, with what it prints in a file."""
    command = [sys.executable, "-m", "ottla.cli.main", "cluster", "watch", *arguments, "--every", "0.1"]
    with output.open("wb") as target:
        process = subprocess.Popen([*command, "--bootstrap", cluster.bootstrap], stdout=target)
    try:
        yield process
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
    finally:
        process.kill()
        process.wait()


def test_one_look_shows_who_leads_and_who_is_behind(cluster: ClusterInProcess) -> None:
    cluster.create("look", [[1, 2, 3], [3, 1, 2]], min_insync_replicas="1")
    ottla = OttlaProgram(cluster.bootstrap)
    cluster.produce("look", [b"v"] * 5)
    cluster.stop_copying(3, "look")
    cluster.produce_without_waiting("look", [b"v"] * 7)

    def looked() -> Any:
        found = ottla.json("cluster", "watch", "look", "--once")
        return found["by_partition"][0]["behind"] == {"2": 0, "3": 7} and found

    found = eventually(looked)
    assert (found["controller"], found["brokers_up"], found["partitions"]) == (cluster.controller, 3, 2)
    assert found["lag"] == 7
    assert [(row["broker"], row["rack"], row["leads"]) for row in found["brokers"]] == [
        (1, "a", 1),
        (2, "b", 0),
        (3, "c", 1),
    ]
    lines = ottla("cluster", "watch", "look", "--once").stdout.splitlines()
    assert re.fullmatch(r"look\t0\t1\t1,2,3\t1,2(,3)?\t2:0,3:7\t-", lines[0])
    code, shown = ottla.on_terminal("cluster", "watch", "--once")
    assert code == 0
    assert "3 brokers up (1, 2, 3); controller" in shown
    assert "3: 7" in shown
    cluster.resume_copying(3, "look")
    eventually(lambda: ottla.json("cluster", "watch", "look", "--once")["lag"] == 0)
    assert "topic 'lok' does not exist; did you mean 'look'?" in ottla("cluster", "watch", "lok", code=1).stderr


def test_what_happens_is_told_line_by_line(cluster: ClusterInProcess, tmp_path: Path) -> None:
    cluster.create("told", [[2, 1, 3]])
    lines, states = tmp_path / "lines", tmp_path / "states"
    with watching(cluster, lines), watching(cluster, states, "told", "--json"):
        eventually(lambda: "3 brokers up (1, 2, 3); controller" in lines.read_text())
        eventually(lambda: '"brokers_up": 3' in states.read_text())
        cluster.stop(2)
        eventually(lambda: "\tbroker 2 is down\n" in lines.read_text())
        eventually(lambda: "\tbroker 1 leads told-0 instead of broker 2\n" in lines.read_text())
        eventually(lambda: '"brokers_up": 2' in states.read_text())
        cluster.start(2)
        eventually(lambda: "\tbroker 2 is up\n" in lines.read_text())
        eventually(lambda: re.search(r"\tbroker 2 is in sync in .*told-0", lines.read_text()))
        eventually(lambda: states.read_text().count("\n") > 5)
    told = [json.loads(line) for line in states.read_text().splitlines()]
    assert {state["brokers_up"] for state in told} == {2, 3}
    assert {state["by_partition"][0]["leader"] for state in told} == {1, 2}
    assert {row["state"] for state in told for row in state["brokers"] if row["broker"] == 2} == {"up", "down"}
