"""The Java producer and consumer, driven by the programs of Kafka's own system tests and benchmarks."""

import json
import re

import pytest
from tests.compat.factories import NewNameFactory, NewTopicFactory
from tests.support import genuine
from tests.support.tool_server import kafka_tool
from tests.support.verifiable_member import VerifiableMember, wait


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_the_performance_tools_move_every_record(bootstrap: str, new_topic: NewTopicFactory, codec: str) -> None:
    topic = new_topic(3)
    settings = (f"bootstrap.servers={bootstrap}", f"compression.type={codec}", "acks=all", "enable.idempotence=true")
    load = ("--topic", topic, "--num-records", "20000", "--record-size", "200", "--throughput", "-1")
    text = kafka_tool("ProducerPerformance", *load, "--producer-props", *settings).stdout
    assert text.startswith("20000 records sent") or "\n20000 records sent" in text
    where = ("--bootstrap-server", bootstrap, "--topic", topic)
    text = kafka_tool("ConsumerPerformance", *where, "--messages", "20000", "--timeout", "20000").stdout
    heading, figures = [line.split(", ") for line in text.splitlines() if ", " in line][:2]
    assert int(dict(zip(heading, figures, strict=True))["data.consumed.in.nMsg"]) == 20000


@pytest.mark.parametrize("acks", [*(pytest.param(acks, marks=pytest.mark.soak) for acks in ("0", "1")), "-1"])
def test_the_verifiable_producer_has_every_record_acknowledged(
    bootstrap: str, new_topic: NewTopicFactory, acks: str
) -> None:
    topic = new_topic(2)
    where = ("--bootstrap-server", bootstrap, "--topic", topic, "--acks", acks)
    lines = genuine.kafka_tool("VerifiableProducer", *where, "--max-messages", "500").stdout.splitlines()
    events = [json.loads(line) for line in lines if line.startswith("{")]
    assert sum(event["name"] == "producer_send_success" for event in events) == 500
    assert not [event for event in events if event["name"] == "producer_send_error"]
    (summary,) = [event for event in events if event["name"] == "tool_data"]
    assert (summary["sent"], summary["acked"]) == (500, 500)


@pytest.mark.parametrize(
    "strategy",
    [
        "RangeAssignor",
        pytest.param("RoundRobinAssignor", marks=pytest.mark.soak),
        pytest.param("StickyAssignor", marks=pytest.mark.soak),
        "CooperativeStickyAssignor",
    ],
)
def test_members_come_and_go(
    bootstrap: str, new_topic: NewTopicFactory, new_name: NewNameFactory, strategy: str
) -> None:
    topic, group = new_topic(4), new_name()
    assignor = ("--assignment-strategy", f"org.apache.kafka.clients.consumer.{strategy}")
    with VerifiableMember(bootstrap, topic, group, *assignor) as first:
        wait(lambda: first.partitions == {0, 1, 2, 3}, first)
        with VerifiableMember(bootstrap, topic, group, *assignor) as second:
            wait(lambda: (len(first.partitions), len(second.partitions)) == (2, 2), first, second)
            wait(lambda: first.partitions | second.partitions == {0, 1, 2, 3}, first, second)
            if strategy == "CooperativeStickyAssignor":
                revoked = [len(event["partitions"]) for event in first.events if event["name"] == "partitions_revoked"]
                assert sum(revoked) == 2, f"only half had to move: {first.events}"
        wait(lambda: first.partitions == {0, 1, 2, 3}, first)


def test_a_static_member_returns_to_its_place(
    bootstrap: str, new_topic: NewTopicFactory, new_name: NewNameFactory
) -> None:
    topic, group = new_topic(4), new_name()
    one = ("--group-instance-id", "one", "--session-timeout", "30000")
    two = ("--group-instance-id", "two", "--session-timeout", "30000")
    with VerifiableMember(bootstrap, topic, group, *one) as first:
        wait(lambda: len(first.partitions) == 4, first)
        with VerifiableMember(bootstrap, topic, group, *two) as second:
            wait(lambda: (len(first.partitions), len(second.partitions)) == (2, 2), first, second)
            held, revocations = second.partitions, len(first.events)
        with VerifiableMember(bootstrap, topic, group, *two) as again:
            wait(lambda: len(again.partitions) == 2, first, again)
            assert again.partitions == held
            rebalances = [event for event in first.events[revocations:] if event["name"].startswith("partitions_")]
            assert not rebalances, "the other member was disturbed"


def test_a_group_consumes_while_records_come(
    bootstrap: str, new_topic: NewTopicFactory, new_name: NewNameFactory
) -> None:
    topic, group = new_topic(3), new_name()
    with VerifiableMember(bootstrap, topic, group) as member:
        wait(lambda: len(member.partitions) == 3, member)
        where = ("--bootstrap-server", bootstrap, "--topic", topic)
        genuine.kafka_tool("VerifiableProducer", *where, "--max-messages", "1000", "--throughput", "2000")
        wait(lambda: member.consumed() == 1000, member)
        commits = [event for event in member.events if event["name"] == "offsets_committed"]
        assert commits
        assert all(event["success"] for event in commits)


def test_round_trips_are_timed(bootstrap: str, new_topic: NewTopicFactory) -> None:
    topic = new_topic()
    text = kafka_tool("EndToEndLatency", bootstrap, topic, "200", "all", "100").stdout
    assert re.search(r"Percentiles: 50th = \d+, 99th = \d+", text)
