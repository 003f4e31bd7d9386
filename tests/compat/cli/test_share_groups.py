"""`ottla share`."""

import pytest
from tests.compat.cli.program import OttlaProgram
from tests.compat.factories import NewNameFactory, NewTopicFactory
from tests.support.eventually import eventually
from tests.support.raw_client import ask

from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest


class Member:
    """A member of a share group of its own, reading one topic."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self.bootstrap, self.group, self.topic = bootstrap, group, topic
        ask(bootstrap, FindCoordinatorRequest(coordinator_keys=[group]), 4)
        eventually(lambda: self.beat(0) == 0)

    def beat(self, epoch: int) -> int:
        request = ShareGroupHeartbeatRequest(
            group_id=self.group, member_id="a-member", member_epoch=epoch, subscribed_topic_names=[self.topic]
        )
        return int(ask(self.bootstrap, request, 1, client_id="a-client").error_code)

    def leave(self) -> None:
        assert self.beat(-1) == 0


@pytest.fixture
def topic(new_topic: NewTopicFactory) -> str:
    return new_topic(2)


@pytest.fixture
def member(ottla: OttlaProgram, topic: str, new_name: NewNameFactory) -> Member:
    return Member(ottla.bootstrap, new_name(), topic)


def listed(ottla: OttlaProgram, group: str, *options: str) -> str | None:
    """The group's state, if it is listed."""
    states: dict[str, str] = {row["group"]: row["state"] for row in ottla.json("share", "list", *options)}
    return states.get(group)


def test_groups_are_listed(ottla: OttlaProgram, member: Member) -> None:
    assert listed(ottla, member.group) == "Stable"
    assert listed(ottla, member.group, "--state", "stable") == "Stable"
    assert listed(ottla, member.group, "--state", "empty") is None
    assert f"{member.group}\tStable" in ottla("share", "list").stdout.splitlines()
    member.leave()
    assert listed(ottla, member.group) == "Empty"


def test_members_are_described(ottla: OttlaProgram, member: Member) -> None:
    (described,) = ottla.json("share", "describe", member.group)
    assert (described["state"], described["assignor"]) == ("Stable", "simple")
    assert described["epoch"] == described["assignment_epoch"] == 3
    assert described["members"] == [
        {
            "member": "a-member",
            "epoch": 3,
            "client": "a-client",
            "host": "127.0.0.1",
            "topics": [member.topic],
            "assigned": [f"{member.topic}-0", f"{member.topic}-1"],
        }
    ]
    (line,) = ottla("share", "describe", member.group).stdout.splitlines()
    assert line.startswith(f"{member.group}\ta-member\t3\ta-client\t127.0.0.1\t")
    member.leave()
    assert ottla("share", "describe", member.group).stdout == ""


def test_rebalances_are_told(ottla: OttlaProgram, member: Member) -> None:
    (told,) = ottla.json("group", "describe", member.group, "--history")
    assert [(each["type"], each["epoch"], each["members"], each["moved"]) for each in told["rebalances"]] == [
        ("share", 2, 1, 0),
        ("share", 3, 1, 2),
    ]


def test_a_group_that_does_not_exist_is_named(ottla: OttlaProgram, member: Member) -> None:
    for verb in ("describe", "offsets"):
        failed = ottla("share", verb, f"{member.group}x", code=1)
        assert f"share group '{member.group}x' does not exist" in failed.stderr
        assert member.group in failed.stderr, "the nearest name is proposed"


def test_a_group_is_moved(ottla: OttlaProgram, member: Member) -> None:
    group, topic = member.group, member.topic
    ottla("produce", topic, "-p", "0", stdin="a\nb\nc\n")
    empty = {"group": group, "topic": topic, "start_offset": None, "ahead": None, "lag": None, "readers": 1}
    assert ottla.json("share", "offsets", group) == [
        {**empty, "partition": 0, "end_offset": 3},
        {**empty, "partition": 1, "end_offset": 0},
    ]
    refused = ottla("share", "seek", group, "--topic", topic, "--to-offset", "1", "--execute", code=1)
    assert "has 1 running member" in refused.stderr
    member.leave()
    looked = ottla("share", "seek", group, "--topic", f"{topic}:0", "--to-offset", "1")
    assert looked.stdout == f"{topic}\t0\t-\t1\t0\t0\n"
    assert "nothing was changed" in looked.stderr
    moved = ottla.json("share", "seek", group, "--topic", f"{topic}:0", "--to-offset", "1", "--execute")
    assert moved["executed"] is True
    rows = ottla.json("share", "offsets", group)
    seen = [(row["start_offset"], row["ahead"], row["lag"], row["readers"]) for row in rows]
    assert seen == [(1, 2, 2, 0), (None, None, None, 0)]
    back = ottla.json("share", "seek", group, "--all-topics", "--to-earliest", "--execute")
    assert [(row["from"], row["to"], row["replayed"]) for row in back["partitions"]] == [(1, 0, 1), (None, 0, 0)]
    latest = ottla.json("share", "seek", group, "--all-topics", "--to-latest", "--execute")
    assert [(row["from"], row["to"], row["skipped"]) for row in latest["partitions"]] == [(0, 3, 3), (0, 0, 0)]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--to-earliest",), "name what to move"),
        (("--all-topics",), "name the target"),
        (("--all-topics", "--to-earliest", "--to-latest"), "name the target"),
        (("--topic", "t:x", "--to-earliest"), "is not TOPIC or TOPIC:0,2"),
        (("--all-topics", "--to-time", "yesterdayish"), "--to-time"),
    ],
)
def test_moves_that_are_not_clear(ottla: OttlaProgram, options: tuple[str, ...], said: str) -> None:
    assert said in ottla("share", "seek", "g", *options, code=2).stderr


def test_groups_are_deleted(ottla: OttlaProgram, member: Member) -> None:
    assert "has 1 running member" in ottla("share", "delete", member.group, "--yes", code=1).stderr
    member.leave()
    assert "deleted" in ottla("share", "delete", member.group, "--yes").stderr
    assert listed(ottla, member.group) is None
