"""The Java consumer and Kafka's tools with consumer groups of KIP-848, and live groups on the way to and from them."""

import re
import signal

import pytest
from confluent_kafka import ConsumerGroupState
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic
from tests.compat.confluent.clients import numbered, produce
from tests.compat.factories import NewNameFactory, NewTopicFactory
from tests.support.eventually import eventually
from tests.support.group_members import GroupMembers
from tests.support.raw_client import ask
from tests.support.tool_server import kafka_tool
from tests.support.verifiable_member import VerifiableMember, wait

from ottla.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest

NEW = {"group_protocol": "consumer"}


def tool(bootstrap: str, name: str, *arguments: str) -> str:
    return kafka_tool(name, "--bootstrap-server", bootstrap, *arguments).stdout


@pytest.mark.parametrize("assignor", ["uniform", pytest.param("range", marks=pytest.mark.soak)])
def test_members_come_and_go_and_nobody_stops(
    bootstrap: str, new_topic: NewTopicFactory, new_name: NewNameFactory, assignor: str
) -> None:
    topic = new_topic(6)
    settings = {**NEW, "topics": topic, "group_id": new_name(), "group_remote_assignor": assignor}
    with GroupMembers(bootstrap) as members:
        members.join("a", **settings)
        members.until_spread("a", [6])
        members.join("b", **settings)
        members.until_spread("ab", [3, 3])
        assert [len(partitions) for partitions in members.of("a", "revoked")] == [3]
        assert members.partitions("b") == set(members.of("a", "revoked")[0])
        members.leave("b")
        members.until_spread("a", [6])
        assert not members.of("a", "lost")


def test_an_expression_finds_topics_made_later(
    bootstrap: str, new_topic: NewTopicFactory, new_name: NewNameFactory
) -> None:
    topic = new_topic(2)
    with GroupMembers(bootstrap) as members:
        members.join("a", pattern=f"{topic}(-later)?", group_id=new_name(), **NEW)
        members.until(lambda: members.partitions("a") == {f"{topic}-0", f"{topic}-1"})
        client = AdminClient({"bootstrap.servers": bootstrap})
        client.create_topics([NewTopic(f"{topic}-later", 1, 1)])[f"{topic}-later"].result(10)
        members.until(lambda: members.partitions("a") == {f"{topic}-0", f"{topic}-1", f"{topic}-later-0"})
        members.join("b", pattern="[", group_id=new_name(), **NEW)
        members.until(lambda: members.of("b", "failed"))
        assert members.of("b", "failed")[0][0] == "InvalidRegularExpression"


def test_static_members(bootstrap: str, new_topic: NewTopicFactory, new_name: NewNameFactory) -> None:
    topic = new_topic(4)
    settings = {**NEW, "topics": topic, "group_id": new_name()}
    with GroupMembers(bootstrap) as members:
        members.join("a", group_instance_id="one", **settings)
        members.join("b", group_instance_id="two", **settings)
        members.until_spread("ab", [2, 2])
        held, before = members.partitions("b"), len(members.of("a", "revoked") + members.of("a", "assigned"))
        members.join("thief", group_instance_id="two", **settings)
        members.until(lambda: members.of("thief", "failed"))
        assert members.of("thief", "failed")[0][0] == "UnreleasedInstanceIdException"
        members.leave("b")
        members.join("again", group_instance_id="two", **settings)
        members.until(lambda: members.partitions("again") == held)
        assert len(members.of("a", "revoked") + members.of("a", "assigned")) == before, "the other was disturbed"


def test_a_member_that_is_killed_is_put_out_when_its_session_ends(
    bootstrap: str, new_topic: NewTopicFactory, new_name: NewNameFactory
) -> None:
    topic, group = new_topic(4), new_name()
    session = ConfigEntry("consumer.session.timeout.ms", "2500", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.GROUP, group, incremental_configs=[session])
    client = AdminClient({"bootstrap.servers": bootstrap})
    client.incremental_alter_configs([resource])[resource].result(10)
    with GroupMembers(bootstrap) as members:
        members.join("a", topics=topic, group_id=group, **NEW)
        members.until_spread("a", [4])
        with VerifiableMember(bootstrap, topic, group, "--group-protocol", "consumer") as doomed:
            wait(lambda: len(doomed.partitions) == 2, doomed)
            members.until_spread("a", [2])
            doomed.signal(signal.SIGKILL)
            members.until_spread("a", [4])


def test_the_tools_show_consumer_groups(bootstrap: str, new_topic: NewTopicFactory, new_name: NewNameFactory) -> None:
    topic, group = new_topic(2), new_name()
    produce(bootstrap, topic, numbered(10))

    def groups(*arguments: str) -> str:
        return tool(bootstrap, "ConsumerGroupCommand", "--group", group, *arguments)

    def line(pattern: str, text: str) -> None:
        assert re.search(rf"^{group}\s+{pattern}\s*$", text, re.MULTILINE), text

    with GroupMembers(bootstrap) as members:
        members.join("a", topics=topic, group_id=group, client_id="shown", client_rack="r1", **NEW)
        members.until_spread("a", [2])
        members.until(lambda: len(members.read()) == 10)
        line(r"Consumer\s+consumer", tool(bootstrap, "GroupsCommand", "--list", "--group-type", "consumer"))
        line(r"\S+\s+\(1\)\s+uniform\s+Stable\s+2\s+2\s+1", groups("--describe", "--state", "--verbose"))
        one = rf"\S+\s+/127.0.0.1\s+shown\s+2\s+2\s+{topic}:0,1\s+2\s+{topic}:0,1"
        line(rf"{one}.*", groups("--describe", "--members", "--verbose"))
        line(rf"{topic}\s+0\s+\S+\s+10\s+10\s+0\s.*", groups("--describe", "--offsets", "--verbose"))
        request = ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)
        (described,) = ask(bootstrap, request, 1).groups
        assert [member.rack_id for member in described.members] == ["r1"]
    assert "was successful" in groups("--delete")


def test_the_tools_set_what_a_group_sets_for_itself(bootstrap: str, new_name: NewNameFactory) -> None:
    group = new_name()

    def configs(*arguments: str) -> str:
        return tool(bootstrap, "ConfigCommand", "--entity-type", "groups", *arguments, "--entity-name", group)

    assert "Completed updating config" in configs("--alter", "--add-config", "share.isolation.level=read_committed")
    eventually(lambda: "share.isolation.level=read_committed" in configs("--describe"))
    assert "consumer.session.timeout.ms=45000" in configs("--describe", "--all")
    assert "Completed updating config" in configs("--alter", "--delete-config", "share.isolation.level")
    eventually(lambda: "share.isolation.level" not in configs("--describe"))


@pytest.mark.parametrize(
    "strategy", [pytest.param("RangeAssignor", marks=pytest.mark.soak), "CooperativeStickyAssignor"]
)
def test_a_live_group_moves_to_the_new_protocol_and_back(
    bootstrap: str, new_topic: NewTopicFactory, new_name: NewNameFactory, strategy: str
) -> None:
    topic, group = new_topic(4), new_name()
    common = {"topics": topic, "group_id": group}
    assignor = f"org.apache.kafka.clients.consumer.{strategy}"
    old = {
        **common,
        "partition_assignment_strategy": assignor,
        "heartbeat_interval_ms": 300,
        "session_timeout_ms": 6000,
    }
    new = {**common, **NEW}
    sent = 0
    client = AdminClient({"bootstrap.servers": bootstrap})

    def is_stable() -> bool:
        found = client.describe_consumer_groups([group])[group].result(10)
        return bool(found.state == ConsumerGroupState.STABLE)

    with GroupMembers(bootstrap) as members:

        def work(names: str, sizes: list[int]) -> None:
            """Settle, and read what is produced then, each record once: commits are refused while the group moves."""
            nonlocal sent
            members.until_spread(names, sizes)
            eventually(is_stable)
            members.until_spread(names, sizes)
            for partition in range(4):
                produce(bootstrap, topic, numbered(sent // 4 + 10)[-10:], partition)
            sent += 40
            members.until(lambda: len(members.read()) >= sent)
            assert len(members.read()) == sent, "what was committed was read again"

        members.join("a", **old)
        members.join("b", **old)
        work("ab", [2, 2])
        members.join("c", **new)
        work("abc", [1, 1, 2])
        members.leave("a")
        members.join("d", **new)
        work("bcd", [1, 2, 1])
        members.leave("b")
        work("cd", [2, 2])
        members.join("e", **old)
        work("cde", [1, 2, 1])
        members.leave("c")
        members.leave("d")
        work("e", [4])
    assert sorted(members.read()) == sorted((f"{topic}-{n}", str(v)) for n in range(4) for v in range(sent // 4))
