"""`ottla streams`."""

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.compat.cli.program import OttlaProgram
from tests.compat.factories import NewNameFactory, NewTopicFactory
from tests.support.eventually import eventually
from tests.support.raw_client import ask
from tests.support.share_groups import set_group
from tests.support.streams_member import Member, counting, settle

from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest


@pytest.fixture
def topic(new_topic: NewTopicFactory) -> str:
    return new_topic(2)


@pytest.fixture
def member(ottla: OttlaProgram, topic: str, new_name: NewNameFactory) -> Member:
    """A member that has all tasks of an application that counts words, and outlives the commands of a test."""
    group = new_name()
    set_group(ottla.bootstrap, group, streams_session_timeout_ms="60000")
    member = Member(ottla.bootstrap, group)
    request = FindCoordinatorRequest(coordinator_keys=[group])
    eventually(lambda: ask(ottla.bootstrap, request, 4).coordinators[0].error_code == 0)
    member.join(counting(group, topic))
    settle(member, tasks=4)
    return member


def listed(ottla: OttlaProgram, group: str, *options: str) -> str | None:
    """The group's state, if it is listed."""
    states: dict[str, str] = {row["group"]: row["state"] for row in ottla.json("streams", "list", *options)}
    return states.get(group)


def test_groups_are_listed(ottla: OttlaProgram, member: Member) -> None:
    assert listed(ottla, member.group) == "Stable"
    assert listed(ottla, member.group, "--state", "stable") == "Stable"
    assert listed(ottla, member.group, "--state", "notready") is None
    assert f"{member.group}\tStable" in ottla("streams", "list").stdout.splitlines()
    member.leave()
    assert listed(ottla, member.group) == "Empty"


def test_a_group_is_described(ottla: OttlaProgram, member: Member, topic: str) -> None:
    ottla("produce", topic, "-p", "0", stdin="a\nb\nc\n")
    (described,) = ottla.json("streams", "describe", member.group)
    assert (described["state"], described["topology_epoch"], described["lag"]) == ("Stable", 0, 3)
    assert described["epoch"] == described["assignment_epoch"] == member.epoch
    (told,) = described["members"]
    assert (told["member"], told["epoch"], told["process"]) == ("a-member", member.epoch, "process-a-member")
    assert told["active"] == told["target_active"] == ["0_0", "0_1", "1_0", "1_1"]
    assert (told["standby"], told["warmup"], told["endpoint"]) == ([], [], None)
    sink, changelog = f"{member.group}-by-word-repartition", f"{member.group}-counts-changelog"
    assert described["subtopologies"][1] == {
        "subtopology": "1",
        "sources": [],
        "repartition_sources": [{"topic": sink, "partitions": 2}],
        "repartition_sinks": [],
        "changelogs": [{"topic": changelog, "partitions": 2}],
    }
    rows = {(row["topic"], row["partition"]): row for row in described["partitions"]}
    assert rows.keys() == {(name, index) for name in (topic, sink) for index in range(2)}
    row = rows[topic, 0]
    assert (row["committed"], row["end_offset"], row["lag"], row["task"]) == (None, 3, 3, "0_0")
    assert (row["member"], row["client"], row["host"]) == ("a-member", "a-member", "127.0.0.1")
    assert f"{member.group}\t{topic}\t0\t-\t3\t3\t0_0\t" in ottla("streams", "describe", member.group).stdout


def test_members_topology_and_history_are_shown(ottla: OttlaProgram, member: Member, topic: str) -> None:
    (line,) = ottla("streams", "describe", member.group, "--members").stdout.splitlines()
    assert line.startswith(f"{member.group}\ta-member\t{member.epoch}\tprocess-a-member\t127.0.0.1\t0_0")
    lines = ottla("streams", "describe", member.group, "--topology").stdout.splitlines()
    assert f"{member.group}\t0\tsource\t{topic}\t-" in lines
    assert f"{member.group}\t1\tchangelog\t{member.group}-counts-changelog\t2" in lines
    (told,) = ottla.json("streams", "describe", member.group, "--history")
    assert {each["type"] for each in told["rebalances"]} == {"streams"}
    assert told["rebalances"][-1]["moved"] == 4


def test_a_group_that_does_not_exist_is_named(ottla: OttlaProgram, member: Member) -> None:
    failed = ottla("streams", "describe", f"{member.group}x", code=1)
    assert f"streams group '{member.group}x' does not exist" in failed.stderr
    assert member.group in failed.stderr, "the nearest name is proposed"


def test_a_group_is_deleted_once_its_members_have_left(ottla: OttlaProgram, member: Member, topic: str) -> None:
    refused = ottla("streams", "delete", member.group, "--yes", code=1)
    assert "has 1 running member" in refused.stderr
    member.leave()
    committer = Consumer({"bootstrap.servers": ottla.bootstrap, "group.id": member.group, "enable.auto.commit": False})
    committer.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
    committer.close()
    (described,) = ottla.json("streams", "describe", member.group)
    assert [(row["partition"], row["committed"]) for row in described["partitions"]] == [(0, 0)]
    deleted = ottla("streams", "delete", member.group, "--yes")
    assert f"streams group '{member.group}' deleted" in deleted.stderr
    assert f"{member.group}-counts-changelog" in deleted.stderr, "what is left behind is named"
    assert listed(ottla, member.group) is None
