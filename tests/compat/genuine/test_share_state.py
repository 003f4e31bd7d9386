"""Share groups on disk: what Ottla writes Kafka's tools read, and what Kafka wrote Ottla goes on with."""

import json
import re
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually
from tests.support.genuine import GenuineKafka
from tests.support.group_stories import prepare
from tests.support.ottla_process import OttlaProcess
from tests.support.raw_client import ask
from tests.support.share_groups import topic_id
from tests.support.tool_server import kafka_tool

from ottla.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from ottla.protocol.messages.read_share_group_state import PartitionData as PartitionToRead
from ottla.protocol.messages.read_share_group_state import ReadShareGroupStateRequest, ReadStateData
from ottla.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from ottla.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.protocol.messages.write_share_group_state import (
    PartitionData,
    StateBatch,
    WriteShareGroupStateRequest,
    WriteStateData,
)

SETTINGS: Final = {
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.snapshot.update.records.per.snapshot": "1",
}
GROUP: Final = "readers"
AVAILABLE, ACKNOWLEDGED = 0, 2
STATE_EPOCH: Final = 2
"""The epoch of the group in which its partitions are initialized: a group begins with 1 since Kafka 4.2."""


def beat(broker: BrokerProcess, epoch: int, *topics: str) -> Any:
    request = ShareGroupHeartbeatRequest(
        group_id=GROUP, member_id="member", member_epoch=epoch, subscribed_topic_names=list(topics) or None
    )
    answer = ask(broker.bootstrap, request, 1, client_id="client")
    assert answer.error_code == 0, answer
    return answer


def join(broker: BrokerProcess) -> None:
    """Until the member has partitions."""
    answer = beat(broker, 0, "t")

    def has_partitions() -> bool:
        nonlocal answer
        if answer.assignment is None or not answer.assignment.topic_partitions:
            answer = beat(broker, answer.member_epoch)
        return answer.assignment is not None and bool(answer.assignment.topic_partitions)

    eventually(has_partitions)


def write(broker: BrokerProcess, topic: UUID, *batches: tuple[int, int, int, int], start: int) -> None:
    part = PartitionData(
        partition=0,
        state_epoch=STATE_EPOCH,
        leader_epoch=0,
        start_offset=start,
        state_batches=[
            StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
            for first, last, state, count in batches
        ],
    )
    topics = [WriteStateData(topic_id=topic, partitions=[part])]
    (result,) = ask(broker.bootstrap, WriteShareGroupStateRequest(group_id=GROUP, topics=topics), 0).results
    assert result.partitions[0].error_code == 0, result


def live_through(broker: BrokerProcess) -> None:
    """A member joins, a leader writes what it has delivered, three times: two updates, then a snapshot."""
    prepare(broker, "t")
    join(broker)
    topic = topic_id(broker.bootstrap, "t")
    write(broker, topic, (3, 9, AVAILABLE, 1), start=3)
    write(broker, topic, (4, 5, ACKNOWLEDGED, 2), start=-1)
    write(broker, topic, (6, 9, AVAILABLE, 2), (12, 14, ACKNOWLEDGED, 1), start=4)


def seen(broker: BrokerProcess) -> dict[str, Any]:
    """All that can be told of the group, its members and the state of what they read."""
    topic = topic_id(broker.bootstrap, "t")
    described = ask(
        broker.bootstrap, ShareGroupDescribeRequest(group_ids=[GROUP], include_authorized_operations=False), 1
    ).groups[0]
    groups = [DescribeShareGroupOffsetsRequestGroup(group_id=GROUP, topics=None)]
    offsets = ask(broker.bootstrap, DescribeShareGroupOffsetsRequest(groups=groups), 0).groups[0]
    parts = [ReadStateData(topic_id=topic, partitions=[PartitionToRead(partition=0, leader_epoch=0)])]
    state = ask(broker.bootstrap, ReadShareGroupStateRequest(group_id=GROUP, topics=parts), 0).results[0].partitions[0]
    return {
        "group": (described.error_code, described.group_state, described.group_epoch, described.assignment_epoch),
        "members": [
            (
                member.member_id,
                member.member_epoch,
                member.client_id,
                member.subscribed_topic_names,
                [(topic.topic_name, sorted(topic.partitions)) for topic in member.assignment.topic_partitions],
            )
            for member in described.members
        ],
        "offsets": sorted(
            (topic.topic_name, part.partition_index, part.start_offset)
            for topic in offsets.topics
            for part in topic.partitions
        ),
        "state": (
            state.error_code,
            state.state_epoch,
            state.start_offset,
            [
                (batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
                for batch in state.state_batches
            ],
        ),
    }


EXPECTED: Final = {
    "group": (0, "Stable", 3, 3),
    "members": [("member", 3, "client", ["t"], [("t", [0, 1])])],
    "offsets": [("t", 0, 4), ("t", 1, -1)],
    "state": (0, STATE_EPOCH, 4, [(4, 5, ACKNOWLEDGED, 2), (6, 9, AVAILABLE, 2), (12, 14, ACKNOWLEDGED, 1)]),
}


def payloads(segment: Path, decoder: str) -> list[tuple[str, dict[str, Any], dict[str, Any] | None]]:
    """Type, key and value of each record, as Kafka's tool prints them."""
    dump = kafka_tool("DumpLogSegments", "--files", str(segment), decoder).stdout
    assert set(re.findall(r"isvalid: (\w+)", dump)) == {"true"}
    found = []
    for key, value in re.findall(r"key: (\{.*?\}) payload: (.*)", dump):
        told = json.loads(key)
        found.append((told["type"], told["data"], None if value == "<DELETE>" else json.loads(value)["data"]))
    return found


def batch(first: int, last: int, state: int, count: int) -> dict[str, int]:
    return {"firstOffset": first, "lastOffset": last, "deliveryState": state, "deliveryCount": count}


def snapshot(epoch: int, start: int, *batches: dict[str, int]) -> tuple[str, dict[str, Any]]:
    value = {"stateEpoch": STATE_EPOCH, "snapshotEpoch": epoch, "leaderEpoch": 0, "startOffset": start}
    return "0", {**value, "stateBatches": [*batches]}


def update(epoch: int, start: int, *batches: dict[str, int]) -> tuple[str, dict[str, Any]]:
    return "1", {"snapshotEpoch": epoch, "leaderEpoch": 0, "startOffset": start, "stateBatches": [*batches]}


STATE_RECORDS: Final = [
    snapshot(0, -1),
    update(0, 3, batch(3, 9, AVAILABLE, 1)),
    snapshot(1, 3, batch(3, 3, AVAILABLE, 1), batch(4, 5, ACKNOWLEDGED, 2), batch(6, 9, AVAILABLE, 1)),
    update(1, 4, batch(6, 9, AVAILABLE, 2), batch(12, 14, ACKNOWLEDGED, 1)),
]


def state_records(log_dir: Path) -> list[tuple[str, dict[str, Any]]]:
    """What the share coordinator has written of partition 0, by type, without the times."""
    (segment,) = log_dir.glob("__share_group_state-0/*.log")
    found = []
    for kind, key, value in payloads(segment, "--share-group-state-decoder"):
        assert value is not None
        if key["partition"] == 0:
            found.append((kind, {name: each for name, each in value.items() if not name.endswith("Timestamp")}))
    return found


def test_kafkas_tools_print_what_ottla_wrote(tmp_path: Path) -> None:
    with OttlaProcess(tmp_path, properties=SETTINGS) as ottla:
        live_through(ottla)
        assert seen(ottla) == EXPECTED
        (groups,) = ottla.log_dir.glob("__consumer_offsets-0/*.log")
        ottla.stop()
        assert state_records(ottla.log_dir) == STATE_RECORDS
    kinds = {kind: value for kind, _, value in payloads(groups, "--offsets-decoder")}
    assert kinds.keys() >= {"10", "11", "12", "13", "14", "15"}
    assert kinds["10"] == {
        "rackId": None,
        "clientId": "client",
        "clientHost": "/127.0.0.1",
        "subscribedTopicNames": ["t"],
    }
    assert kinds["15"] is not None
    assert kinds["15"]["initializedTopics"][0]["partitions"] == [0, 1]


def test_ottla_goes_on_with_the_share_groups_of_a_kafka_directory(tmp_path: Path) -> None:
    with GenuineKafka(tmp_path, properties=SETTINGS) as kafka:
        live_through(kafka)
        assert seen(kafka) == EXPECTED
        log_dir = kafka.log_dir
        kafka.stop()
        assert state_records(log_dir) == STATE_RECORDS
        with OttlaProcess(properties={**SETTINGS, "log.dirs": str(log_dir)}) as ottla:
            eventually(lambda: seen(ottla) == EXPECTED)
            assert beat(ottla, 3).member_epoch == 3, "no rebalance"
            write(ottla, topic_id(ottla.bootstrap, "t"), (6, 9, ACKNOWLEDGED, 2), start=10)
            ottla.restart(kill=True)
            eventually(lambda: seen(ottla)["state"] == (0, STATE_EPOCH, 10, [(12, 14, ACKNOWLEDGED, 1)]))
