"""`ottla cluster elect`."""

import json
import subprocess
import sys

from tests.support.cluster_in_process import ClusterInProcess
from tests.support.eventually import eventually


def elect(cluster: ClusterInProcess, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "ottla.cli.main", "cluster", "elect", *arguments, "--json"]
    return subprocess.run([*command, "--bootstrap", cluster.bootstrap], capture_output=True, text=True, timeout=60)


def test_leadership_goes_back_to_the_preferred_replica_and_to_nobody_out_of_sync() -> None:
    with ClusterInProcess() as cluster:
        cluster.create("t", [[1, 2, 3], [2, 3, 1]])
        cluster.stop(1)
        absent = elect(cluster, "t")
        assert absent.returncode == 1
        assert "1 of 1 partitions" in absent.stderr
        assert [(row["partition"], row["elected"]) for row in json.loads(absent.stdout)] == [(0, False)]
        cluster.start(1)
        eventually(lambda: all(set(cluster.partition("t", number).isr) == {1, 2, 3} for number in range(2)))
        elected = elect(cluster, "t")
        assert json.loads(elected.stdout) == [{"topic": "t", "partition": 0, "elected": True, "reason": None}]
        eventually(lambda: cluster.partition("t").leader == 1)
        assert json.loads(elect(cluster, "t").stdout) == []
        refused = elect(cluster, "--unclean")
        assert refused.returncode == 2
        assert "name the topics" in refused.stderr
