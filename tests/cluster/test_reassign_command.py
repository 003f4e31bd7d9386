"""`ottla cluster reassign`."""

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import ConfigResource

from ottla.testing import Broker
from tests.support.cluster_in_process import ClusterInProcess
from tests.support.eventually import eventually


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterInProcess]:
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    limits: dict[str, Any] = {"replica_fetch_max_bytes": "2000", "replica_fetch_response_max_bytes": "2000"}
    with ClusterInProcess(4, racks=racks, log_directories=("a", "b"), **limits) as started:
        yield started


def reassign(cluster: ClusterInProcess, *arguments: str, text: str | None = None) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "ottla.cli.main", "cluster", "reassign", *arguments]
    return subprocess.run(
        [*command, "--bootstrap", cluster.bootstrap], input=text, capture_output=True, text=True, timeout=120
    )


def said(cluster: ClusterInProcess, *arguments: str, text: str | None = None) -> Any:
    done = reassign(cluster, *arguments, text=text)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def replicas(cluster: ClusterInProcess, topic: str, partitions: int) -> list[set[int]]:
    return [set(map(int, cluster.partition(topic, number).replicas)) for number in range(partitions)]


def throttles(cluster: ClusterInProcess, topic: str) -> dict[str, str]:
    """What is set on the topic and on brokers."""
    found: dict[str, str] = {}
    admin = cluster.admin()
    resources = [ConfigResource(ConfigResource.Type.TOPIC, topic)]
    resources += [ConfigResource(ConfigResource.Type.BROKER, str(number)) for number in cluster.brokers]
    for resource in resources:
        entries = admin.describe_configs([resource])[resource].result(20)
        found |= {
            f"{resource.name} {name}": entry.value
            for name, entry in entries.items()
            if ".replication.throttled." in name and not entry.is_default
        }
    return found


def test_a_broker_is_drained_by_the_plan_that_was_shown_and_given_its_share_again(cluster: ClusterInProcess) -> None:
    cluster.create("t", [[1, 4], [4, 2], [2, 3], [3, 1]])
    cluster.produce("t", [b"%0100d" % number for number in range(50)])
    plan = said(cluster, "--drain", "4", "--topic", "t", "--dry-run")
    assert [(entry["partition"], entry["before"]) for entry in plan["partitions"]] == [(0, [1, 4]), (1, [4, 2])]
    assert all(3 in entry["replicas"] for entry in plan["partitions"])  # the other broker of that rack
    assert replicas(cluster, "t", 4) == [{1, 4}, {4, 2}, {2, 3}, {3, 1}]
    moved = said(cluster, "-", text=json.dumps(plan))
    assert [(row["partition"], row["state"]) for row in moved] == [(0, "moved"), (1, "moved")]
    assert replicas(cluster, "t", 4) == [{1, 3}, {3, 2}, {2, 3}, {3, 1}]
    eventually(lambda: not list(cluster.directory.glob("4/*/t-*")))
    assert said(cluster, "--drain", "4", "--topic", "t") == []
    said(cluster, "--add-broker", "4", "--topic", "t", "--throttle", "100000000")
    now = replicas(cluster, "t", 4)
    assert sum(4 in held for held in now) == 2
    assert throttles(cluster, "t") == {}


def test_a_throttled_move_can_be_looked_at_and_called_off(cluster: ClusterInProcess) -> None:
    cluster.create("slow", [[1, 2]])
    cluster.produce("slow", [b"%0100d" % number for number in range(300)], **{"batch.size": 1500})
    plan = json.dumps({"version": 1, "partitions": [{"topic": "slow", "partition": 0, "replicas": [1, 3]}]})
    begun = said(cluster, "-", "--throttle", "10", "--no-wait", text=plan)
    assert [row["state"] for row in begun] == ["begun"]
    assert throttles(cluster, "slow") == {
        "slow leader.replication.throttled.replicas": "0:1,0:2",
        "slow follower.replication.throttled.replicas": "0:3",
        **{
            f"{broker} {side}.replication.throttled.rate": "10"
            for broker in (1, 2, 3)
            for side in ("leader", "follower")
        },
    }
    (row,) = said(cluster, "--status")
    assert (row["topic"], row["adding"], row["removing"]) == ("slow", [3], [2])
    assert row["copied"] < row["bytes"]
    hasty = reassign(cluster, "--drain", "2", "--topic", "slow")
    assert (hasty.returncode, "slow-0 is being moved already" in hasty.stderr) == (1, True)
    assert [row["cancelled"] for row in said(cluster, "--cancel")] == [True]
    assert throttles(cluster, "slow") == {}
    assert said(cluster, "--status") == []
    assert replicas(cluster, "slow", 1) == [{1, 2}]


def test_a_plan_says_in_which_directories_replicas_lie(cluster: ClusterInProcess) -> None:
    cluster.create("placed", [[1, 2]])
    cluster.produce("placed", [b"%0100d" % number for number in range(50)])
    (there,) = cluster.directory.glob("1/*/placed-0")
    other = there.parent.with_name({"a": "b", "b": "a"}[there.parent.name])

    def plan(*directories: object) -> str:
        entry = {"topic": "placed", "partition": 0, "replicas": [1, 3], "log_dirs": [str(each) for each in directories]}
        return json.dumps({"version": 1, "partitions": [entry]})

    done = reassign(cluster, "-", text=plan("any", "/nowhere"))
    assert done.returncode == 1
    (row,) = json.loads(done.stdout)
    assert (row["state"], "broker 3" in row["reason"]) == ("refused", True)
    assert replicas(cluster, "placed", 1) == [{1, 2}]
    moved = said(cluster, "-", text=plan(other, cluster.directory / "3" / "b"))
    assert [row["state"] for row in moved] == ["moved"]
    assert replicas(cluster, "placed", 1) == [{1, 3}]
    assert (other / "placed-0").exists()
    assert (cluster.directory / "3" / "b" / "placed-0").exists()


def test_a_broker_that_is_alone_moves_nothing() -> None:
    with Broker() as alone:
        command = [sys.executable, "-m", "ottla.cli.main", "cluster", "reassign", "--status", "-b", alone.bootstrap]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "[]\n")


@pytest.mark.parametrize(
    ("arguments", "text", "code", "problem"),
    [
        ((), None, 2, "give one of PLAN"),
        (("--status", "--dry-run"), None, 2, "go with a plan"),
        (("--drain", "2", "--add-broker", "2"), None, 2, "both added and drained"),
        (("--drain", "9"), None, 1, "there is no broker 9; there are 1, 2, 3, 4"),
        (("--add-broker", "9"), None, 1, "broker 9 is not running"),
        (("--status", "--topic", "refusal"), None, 1, "did you mean 'refusals'?"),
        (("no-such-plan.json",), None, 1, "no-such-plan.json cannot be read: no such file"),
        (("-",), "{", 1, "standard input cannot be used as a plan"),
        (
            ("-",),
            '{"partitions": [{"topic": "refusals", "partition": 0, "replicas": [1, 7]}]}',
            1,
            r"standard input (refusals-0): broker 7 is not running",
        ),
        (
            ("-",),
            '{"partitions": [{"topic": "refusals", "partition": 5, "replicas": [1]}]}',
            1,
            "moves refusals-5, which does not exist",
        ),
    ],
)
def test_refusals_say_what_to_do(
    cluster: ClusterInProcess, arguments: tuple[str, ...], text: str | None, code: int, problem: str
) -> None:
    if "refusals" not in cluster.image(1).topics:
        cluster.create("refusals", [[1, 2]])
    done = reassign(cluster, *arguments, text=text)
    assert done.returncode == code
    assert problem in done.stderr
