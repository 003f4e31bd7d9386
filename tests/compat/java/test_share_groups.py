"""Share groups in the hands of Kafka's tools and of its admin client."""

import subprocess
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.compat.factories import NewNameFactory, NewTopicFactory
from tests.support.eventually import eventually
from tests.support.java_sources import compiled, java_command
from tests.support.raw_client import ask
from tests.support.share_groups import set_group, topic_id
from tests.support.share_member import ACCEPT, ShareMember
from tests.support.tool_server import kafka_tool

from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

ADMIN = Path(__file__).with_name("ShareAdmin.java")
RECORDS = [f"record {number}" for number in range(5)]


def tool(bootstrap: str, name: str, *arguments: str) -> str:
    """Run a tool against the broker; its standard output."""
    return kafka_tool(name, "--bootstrap-server", bootstrap, *arguments).stdout


def rows(text: str) -> list[list[str]]:
    """The lines of a tool's table below its headings."""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    return lines[1:]


def read_all(bootstrap: str, group: str, topic: str) -> None:
    """A member comes, reads and acknowledges all records, and leaves."""
    ask(bootstrap, FindCoordinatorRequest(coordinator_keys=[group]), 4)
    eventually(lambda: beat(bootstrap, group, 0, topic) == 0)
    with ShareMember(bootstrap, group, topic_id(bootstrap, topic)) as member:
        assert member.acquire(max_wait_ms=10_000) == [(0, len(RECORDS) - 1, 1)]
        assert member.say((0, len(RECORDS) - 1, ACCEPT)) == 0
        member.leave()
    assert beat(bootstrap, group, -1) == 0


def beat(bootstrap: str, group: str, epoch: int, *topics: str) -> int:
    request = ShareGroupHeartbeatRequest(
        group_id=group, member_id="member", member_epoch=epoch, subscribed_topic_names=list(topics) or None
    )
    return int(ask(bootstrap, request, 1).error_code)


@pytest.fixture
def filled(bootstrap: str, new_topic: NewTopicFactory, new_name: NewNameFactory) -> tuple[str, str]:
    """A topic of one partition with records, and a group that will read all of them."""
    topic, group = new_topic(), new_name()
    producer = Producer({"bootstrap.servers": bootstrap})
    for record in RECORDS:
        producer.produce(topic, record)
    assert producer.flush(20) == 0
    set_group(bootstrap, group, share_auto_offset_reset="earliest")
    return topic, group


def test_kafka_share_groups(bootstrap: str, filled: tuple[str, str]) -> None:
    topic, group = filled
    limits = ("--max-messages", str(len(RECORDS)), "--timeout-ms", "30000")
    assert tool(bootstrap, "ConsoleShareConsumer", "--topic", topic, "--group", group, *limits).splitlines() == RECORDS

    def share_groups(*arguments: str) -> str:
        return tool(bootstrap, "ShareGroupCommand", *arguments)

    assert [group, "Empty"] in rows(share_groups("--list", "--state"))
    assert rows(share_groups("--describe", "--group", group)) == [[group, topic, "0", str(len(RECORDS)), "0"]]
    assert rows(share_groups("--delete-offsets", "--group", group, "--topic", topic)) == [[topic, "Successful"]]
    assert "was successful" in share_groups("--delete", "--group", group)
    assert "is not a share group" in share_groups("--delete", "--group", group)


def test_the_admin_client(bootstrap: str, filled: tuple[str, str]) -> None:
    topic, group = filled
    read_all(bootstrap, group, topic)
    command = java_command(compiled(ADMIN), "ShareAdmin", bootstrap, group, topic)
    told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.splitlines()
    assert told == [
        "listed Share share Empty",
        "described Empty 1",
        "offsets {p0=5 lag 0}",
        "altered null",
        "offsets {p0=2 lag 3}",
        "alteredUnknown UnknownTopicOrPartitionException",
        "alteredNoGroup GroupIdNotFoundException",
        "deletedOffsets null",
        "offsets {}",
        "deletedOffsets UnknownTopicOrPartitionException",
        "deleted null",
        "deleted GroupIdNotFoundException",
        "described GroupIdNotFoundException",
    ]
