"""Kafka's own kafka-reassign-partitions, from the plan to its verification."""

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import ConfigResource

from tests.support.cluster_in_process import ClusterInProcess
from tests.support.eventually import eventually
from tests.support.tool_server import kafka_tool


def tool(cluster: ClusterInProcess, *arguments: str) -> str:
    done = kafka_tool(
        "ReassignPartitionsCommand", "--bootstrap-server", cluster.bootstrap, *arguments, check=False, timeout_s=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def throttled_replicas(cluster: ClusterInProcess, topic: str) -> list[str]:
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    admin = cluster.admin()  # its requests end with it
    entries = admin.describe_configs([resource])[resource].result(20)
    return [str(entries[f"{side}.replication.throttled.replicas"].value) for side in ("leader", "follower")]


@pytest.mark.timeout(300)
def test_a_plan_is_made_carried_out_called_off_and_verified(tmp_path: Path) -> None:
    limits: dict[str, Any] = {"replica_fetch_max_bytes": "2000", "replica_fetch_response_max_bytes": "2000"}
    with ClusterInProcess(3, log_directories=("a", "b"), **limits) as cluster:
        cluster.create("t", [[1, 2]])
        cluster.produce("t", [b"%0100d" % number for number in range(300)], **{"batch.size": 1500})
        topics, plan = tmp_path / "topics.json", tmp_path / "plan.json"
        topics.write_text(json.dumps({"version": 1, "topics": [{"topic": "t"}]}))
        made = tool(cluster, "--generate", "--topics-to-move-json-file", str(topics), "--broker-list", "2,3")
        current, proposed = [json.loads(line) for line in made.splitlines() if line.startswith("{")]
        assert current["partitions"][0]["replicas"] == [1, 2]
        assert proposed["partitions"][0]["partition"] == 0
        proposed["partitions"][0].update(replicas=[3, 2], log_dirs=["any", "any"])
        plan.write_text(json.dumps(proposed))
        told = ("--reassignment-json-file", str(plan))
        assert "Successfully started" in tool(cluster, "--execute", *told, "--throttle", "10")
        assert throttled_replicas(cluster, "t") == ["0:1,0:2", "0:3"]
        assert "t-0: replicas: 3,2,1. adding: 3. removing: 1." in tool(cluster, "--list")
        assert "Successfully cancelled" in tool(cluster, "--cancel", *told)
        eventually(lambda: cluster.partition("t").replicas == (2, 1))  # their order is lost, as with Kafka
        assert throttled_replicas(cluster, "t") == ["", ""]
        chosen = cluster.directory / "3" / "b"
        proposed["partitions"][0]["log_dirs"] = [str(chosen), "any"]
        plan.write_text(json.dumps(proposed))
        tool(cluster, "--execute", *told, "--throttle", "100000000")
        eventually(lambda: cluster.partition("t").replicas == (3, 2))
        verified = ""

        def is_moved() -> bool:  # the replica may still move between directories, after the partition has moved
            nonlocal verified
            verified = tool(cluster, "--verify", *told)
            assert "Reassignment of partition t-0 is completed." in verified
            return "Reassignment of replica t-0-3 completed successfully." in verified

        eventually(is_moved)
        assert (chosen / "t-0").exists()
        assert "Clearing broker-level throttles" in verified
        assert throttled_replicas(cluster, "t") == ["", ""]
        assert all(
            broker.metadata.config.leader_replication_throttled_rate == 2**63 - 1 for broker in cluster.brokers.values()
        )
