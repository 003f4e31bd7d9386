"""Streams groups in the hands of Kafka's tool for them, `kafka-streams-groups.sh`."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from confluent_kafka import Producer
from tests.compat.factories import NewNameFactory, NewTopicFactory
from tests.support.eventually import eventually
from tests.support.group_stories import commit, fetch
from tests.support.raw_client import ask
from tests.support.streams_member import Member, counting, settle
from tests.support.tool_server import kafka_tool

from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest


def tool(bootstrap: str, *arguments: str) -> list[list[str]]:
    """Run the tool against the broker; the words of each line."""
    printed = kafka_tool("StreamsGroupCommand", "--bootstrap-server", bootstrap, *arguments).stdout
    return [line.split() for line in printed.splitlines() if line.strip()]


@pytest.fixture
def source(new_topic: NewTopicFactory) -> str:
    return new_topic(2)


@pytest.fixture
def member(bootstrap: str, source: str, new_name: NewNameFactory) -> Member:
    """It has all tasks of an application, and has committed in the first partition of its source."""
    group = new_name()
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(5):
        producer.produce(source, str(number), partition=0)
    assert producer.flush(20) == 0
    request = FindCoordinatorRequest(coordinator_keys=[group])
    eventually(lambda: ask(bootstrap, request, 4).coordinators[0].error_code == 0)
    member = Member(bootstrap, group)
    member.join(counting(group, source))
    settle(member, tasks=4)
    offset = commit(group, (source, 0, 3), member_id=member.who, generation=member.epoch)
    assert ask(bootstrap, offset, 9).topics[0].partitions[0].error_code == 0
    return member


@contextmanager
def kept_alive(member: Member) -> Iterator[None]:
    """Send the member's heartbeats meanwhile: a tool takes seconds."""
    enough = threading.Event()

    def beat() -> None:
        while not enough.wait(0.5):
            member.beat()

    with ThreadPoolExecutor(1) as thread:
        beating = thread.submit(beat)
        try:
            yield
        finally:
            enough.set()
            beating.result()


def test_kafka_streams_groups(bootstrap: str, member: Member, source: str) -> None:
    with kept_alive(member):
        look(bootstrap, member, source)


def look(bootstrap: str, member: Member, source: str) -> None:
    group = member.group
    assert [group, "Stable"] in tool(bootstrap, "--list", "--state")
    assert [group, "Stable"] not in tool(bootstrap, "--list", "--state", "empty")
    rows = tool(bootstrap, "--describe", "--group", group)
    assert [group, source, "0", "2"] in rows
    (state,) = [
        row for row in tool(bootstrap, "--describe", "--group", group, "--state", "--verbose") if row[0] == group
    ]
    assert state[3:] == ["Stable", str(member.epoch), str(member.epoch), "1"]
    members = tool(bootstrap, "--describe", "--group", group, "--members", "--verbose")
    (described,) = [row for row in members if row[0] == group]
    assert described[1:7] == [str(member.epoch), "0", member.who, "streams", str(member.epoch), f"process-{member.who}"]
    assert described[8:12] == ["ACTIVE:", "0:[0,1];", "1:[0,1];", "TARGET-ACTIVE:"]


def test_offsets_are_reset_and_groups_deleted(bootstrap: str, member: Member, source: str) -> None:
    group = member.group
    member.leave()
    reset = tool(
        bootstrap,
        *("--reset-offsets", "--group", group, "--input-topic", f"{source}:0", "--to-earliest", "--execute"),
    )
    assert [group, source, "0", "0"] in reset
    (fetched,) = ask(bootstrap, fetch(group, topics=(source,)), 8).groups
    assert fetched.topics[0].partitions[0].committed_offset == 0
    assert any("was successful" in " ".join(row) for row in tool(bootstrap, "--delete", "--group", group))
    assert group not in {row[0] for row in tool(bootstrap, "--list")}
