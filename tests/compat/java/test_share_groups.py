"""Share groups in the hands of Kafka's tools and of its admin client."""

import subprocess
from pathlib import Path

import pytest
from tests.compat.factories import NewNameFactory, NewTopicFactory
from tests.support.genuine import kafka_tool
from tests.support.java_sources import compiled, java_command

ADMIN = Path(__file__).with_name("ShareAdmin.java")
RECORDS = [f"record {number}" for number in range(5)]


def tool(bootstrap: str, name: str, *arguments: str, stdin: str | None = None) -> str:
    """Run a tool against the broker; its standard output."""
    return kafka_tool(name, "--bootstrap-server", bootstrap, *arguments, stdin=stdin).stdout


def rows(text: str) -> list[list[str]]:
    """The lines of a tool's table below its headings."""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    return lines[1:]


@pytest.fixture
def read(bootstrap: str, new_topic: NewTopicFactory, new_name: NewNameFactory) -> tuple[str, str]:
    """A topic of one partition and a group that has read all of its records, and has no members any more."""
    topic, group = new_topic(), new_name()
    tool(bootstrap, "ConsoleProducer", "--topic", topic, stdin="".join(f"{record}\n" for record in RECORDS))
    earliest = ("--add-config", "share.auto.offset.reset=earliest")
    tool(bootstrap, "ConfigCommand", "--alter", "--entity-type", "groups", "--entity-name", group, *earliest)
    limits = ("--max-messages", str(len(RECORDS)), "--timeout-ms", "30000")
    assert tool(bootstrap, "ConsoleShareConsumer", "--topic", topic, "--group", group, *limits).splitlines() == RECORDS
    return topic, group


def test_kafka_share_groups(bootstrap: str, read: tuple[str, str]) -> None:
    topic, group = read

    def share_groups(*arguments: str) -> str:
        return tool(bootstrap, "ShareGroupCommand", *arguments)

    assert [group, "Empty"] in rows(share_groups("--list", "--state"))
    assert [group, "Share", "share"] in rows(tool(bootstrap, "GroupsCommand", "--list"))
    assert rows(share_groups("--describe", "--group", group)) == [[group, topic, "0", str(len(RECORDS))]]
    (state,) = [row for row in rows(share_groups("--describe", "--group", group, "--state")) if row[0] == group]
    assert state[-2:] == ["Empty", "0"]
    assert rows(share_groups("--delete-offsets", "--group", group, "--topic", topic)) == [[topic, "Successful"]]
    assert rows(share_groups("--describe", "--group", group)) == []
    assert "was successful" in share_groups("--delete", "--group", group)
    assert group not in share_groups("--list").split()
    assert "is not a share group" in share_groups("--delete", "--group", group)


def test_the_admin_client(bootstrap: str, read: tuple[str, str]) -> None:
    topic, group = read
    command = java_command(compiled(ADMIN), "ShareAdmin", bootstrap, group, topic)
    told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.splitlines()
    assert told == [
        "listed Share share Empty",
        "described Empty 1",
        "offsets {p0=5}",
        "altered null",
        "offsets {p0=2}",
        "alteredUnknown UnknownTopicOrPartitionException",
        "alteredNoGroup GroupIdNotFoundException",
        "deletedOffsets null",
        "offsets {}",
        "deletedOffsets UnknownTopicOrPartitionException",
        "deleted null",
        "deleted GroupIdNotFoundException",
        "described GroupIdNotFoundException",
    ]
