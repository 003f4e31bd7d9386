"""Kafka's own command-line tools, and through them the Java admin client."""

import json
import re
from pathlib import Path

import pytest
from tests.compat.factories import NewNameFactory, NewTopicFactory
from tests.support.eventually import eventually
from tests.support.genuine import ToolFailedError
from tests.support.tool_server import kafka_tool


def tool(bootstrap: str, name: str, *arguments: str, stdin: str | None = None) -> str:
    """Run a tool against the broker; its standard output."""
    return kafka_tool(name, "--bootstrap-server", bootstrap, *arguments, stdin=stdin).stdout


def produce_lines(bootstrap: str, topic: str, *lines: str) -> None:
    tool(bootstrap, "ConsoleProducer", "--topic", topic, stdin="".join(f"{line}\n" for line in lines))


def consume_lines(bootstrap: str, topic: str, count: int, *arguments: str) -> list[str]:
    limits = ("--from-beginning", "--max-messages", str(count), "--timeout-ms", "20000")
    return tool(bootstrap, "ConsoleConsumer", "--topic", topic, *limits, *arguments).splitlines()


def table(text: str) -> list[dict[str, str]]:
    """A tool's table: a line of headings, then rows, columns separated by blanks."""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    heading = next(index for index, words in enumerate(lines) if words[0] in ("GROUP", "TOPIC"))
    return [dict(zip(lines[heading], words, strict=False)) for words in lines[heading + 1 :]]


def test_topics_are_created_listed_described_altered_and_deleted(bootstrap: str, new_name: NewNameFactory) -> None:
    topic = new_name()

    def topics(*arguments: str) -> str:
        return tool(bootstrap, "TopicCommand", *arguments)

    create = ("--create", "--topic", topic, "--partitions", "3", "--replication-factor", "1")
    topics(*create, "--config", "retention.ms=7200000")
    assert topic in topics("--list").split()
    text = topics("--describe", "--topic", topic)
    assert re.search(r"TopicId: \S{22}\s", text)
    assert "PartitionCount: 3" in text
    assert "ReplicationFactor: 1" in text
    assert "retention.ms=7200000" in text
    assert len(re.findall(r"Partition: \d\s+Leader: 1\s+Replicas: 1\s+Isr: 1", text)) == 3
    topics(*create, "--if-not-exists")
    with pytest.raises(ToolFailedError, match="already exists"):
        topics(*create)
    topics("--alter", "--topic", topic, "--partitions", "5")
    eventually(lambda: "PartitionCount: 5" in topics("--describe", "--topic", topic), interval_s=1)
    assert topics("--describe", "--under-replicated-partitions").strip() == ""
    topics("--delete", "--topic", topic)
    eventually(lambda: topic not in topics("--list").split(), interval_s=1)
    with pytest.raises(ToolFailedError, match="does not exist"):
        topics("--describe", "--topic", topic)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_console_records_with_keys_headers_and_tombstones(
    bootstrap: str, new_topic: NewTopicFactory, codec: str
) -> None:
    topic = new_topic()
    properties = ["parse.key=true", "parse.headers=true", "null.marker=NULL"]
    arguments = [word for text in properties for word in ("--reader-property", text)]
    lines = ["a:1,b:2\tkey\tvalue", "NULL\tgone\tNULL", f"h:v\tlong\t{'text ' * 500}"]
    text = "".join(f"{line}\n" for line in lines)
    tool(bootstrap, "ConsoleProducer", "--topic", topic, "--compression-codec", codec, *arguments, stdin=text)
    shown = ["print.key=true", "print.headers=true", "print.offset=true", "null.literal=NULL"]
    shown_arguments = [word for text in shown for word in ("--formatter-property", text)]
    assert consume_lines(bootstrap, topic, 3, *shown_arguments) == [
        "Offset:0\ta:1,b:2\tkey\tvalue",
        "Offset:1\tNO_HEADERS\tgone\tNULL",
        f"Offset:2\th:v\tlong\t{'text ' * 500}",
    ]


def test_a_console_consumer_reads_a_partition_from_an_offset(bootstrap: str, new_topic: NewTopicFactory) -> None:
    topic = new_topic()
    produce_lines(bootstrap, topic, *map(str, range(20)))
    where = ("--topic", topic, "--partition", "0", "--offset", "17", "--max-messages", "3", "--timeout-ms", "20000")
    assert tool(bootstrap, "ConsoleConsumer", *where).split() == ["17", "18", "19"]


def test_offsets_are_read_at_every_special_time(bootstrap: str, new_topic: NewTopicFactory) -> None:
    topic = new_topic(2)
    produce_lines(bootstrap, topic, *map(str, range(30)))

    def offsets(time: str) -> dict[int, int]:
        lines = tool(bootstrap, "GetOffsetShell", "--topic-partitions", f"{topic}:0-2", "--time", time).split()
        return {int(line.split(":")[1]): int(line.split(":")[2] or -1) for line in lines}

    assert offsets("earliest") == {0: 0, 1: 0}
    latest = offsets("latest")
    assert sum(latest.values()) == 30
    assert sum(offset + 1 for offset in offsets("max-timestamp").values()) <= 30
    assert offsets("0") == {partition: 0 for partition, end in latest.items() if end}


def test_settings_of_topics_are_changed(bootstrap: str, new_topic: NewTopicFactory) -> None:
    topic = new_topic()
    entity = ("--entity-type", "topics", "--entity-name", topic)
    tool(
        bootstrap,
        "ConfigCommand",
        "--alter",
        *entity,
        "--add-config",
        "retention.ms=600000,cleanup.policy=[compact,delete]",
    )
    text = tool(bootstrap, "ConfigCommand", "--describe", *entity)
    assert "retention.ms=600000" in text
    assert "cleanup.policy=compact,delete" in text
    assert "DYNAMIC_TOPIC_CONFIG:retention.ms=600000" in text
    everything = tool(bootstrap, "ConfigCommand", "--describe", "--all", *entity)
    assert "segment.bytes=1073741824" in everything
    tool(bootstrap, "ConfigCommand", "--alter", *entity, "--delete-config", "retention.ms")
    assert "retention.ms" not in tool(bootstrap, "ConfigCommand", "--describe", *entity)
    with pytest.raises(ToolFailedError, match="Unknown topic config name"):
        tool(bootstrap, "ConfigCommand", "--alter", *entity, "--add-config", "no.such.setting=1")


def test_settings_of_brokers_are_shown_and_changed(bootstrap: str) -> None:
    entity = ("--entity-type", "brokers", "--entity-name", "1")
    text = tool(bootstrap, "ConfigCommand", "--describe", "--all", *entity)
    for setting in ("node.id=1", "log.retention.hours=168", "num.partitions=1"):
        assert setting in text
    tool(bootstrap, "ConfigCommand", "--alter", *entity, "--add-config", "log.segment.bytes=50000000")
    assert "log.segment.bytes=50000000" in tool(bootstrap, "ConfigCommand", "--describe", *entity)
    tool(bootstrap, "ConfigCommand", "--alter", *entity, "--delete-config", "log.segment.bytes")


def test_quotas(bootstrap: str) -> None:
    users = ("--entity-type", "users", "--entity-name", "carol")
    clients = ("--entity-type", "clients", "--entity-default")
    ips = ("--entity-type", "ips", "--entity-name", "10.1.2.3")
    tool(bootstrap, "ConfigCommand", "--alter", *users, *clients, "--add-config", "producer_byte_rate=1048576")
    tool(bootstrap, "ConfigCommand", "--alter", *ips, "--add-config", "connection_creation_rate=50")
    text = tool(bootstrap, "ConfigCommand", "--describe", *users, *clients)
    assert "user-principal 'carol', the default client-id are producer_byte_rate=1048576.0" in text
    assert "connection_creation_rate=50.0" in tool(bootstrap, "ConfigCommand", "--describe", *ips)
    tool(bootstrap, "ConfigCommand", "--alter", *users, *clients, "--delete-config", "producer_byte_rate")
    assert "producer_byte_rate" not in tool(bootstrap, "ConfigCommand", "--describe", *users, *clients)
    with pytest.raises(ToolFailedError, match="Only connection quota configs"):
        tool(bootstrap, "ConfigCommand", "--alter", *ips, "--add-config", "producer_byte_rate=1")


def test_records_are_deleted(bootstrap: str, new_topic: NewTopicFactory, tmp_path: Path) -> None:
    topic = new_topic()
    produce_lines(bootstrap, topic, *map(str, range(20)))
    wanted = {"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 12}]}
    (tmp_path / "wanted.json").write_text(json.dumps(wanted))
    text = tool(bootstrap, "DeleteRecordsCommand", "--offset-json-file", str(tmp_path / "wanted.json"))
    assert re.search(rf"{topic}-0\s+low_watermark: 12", text)
    assert consume_lines(bootstrap, topic, 8) == [str(number) for number in range(12, 20)]


def test_log_directories_are_described(bootstrap: str, new_topic: NewTopicFactory) -> None:
    topic = new_topic(2)
    produce_lines(bootstrap, topic, "some", "bytes")
    text = tool(bootstrap, "LogDirsCommand", "--describe", "--topic-list", topic)
    described = json.loads(next(line for line in text.splitlines() if line.startswith("{")))
    (broker,) = described["brokers"]
    partitions = [part for log_dir in broker["logDirs"] for part in log_dir["partitions"]]
    assert {part["partition"] for part in partitions} == {f"{topic}-0", f"{topic}-1"}
    assert sum(part["size"] for part in partitions) > 0
    assert {part["offsetLag"] for part in partitions} == {0}


def test_api_versions_are_understood(bootstrap: str) -> None:
    text = tool(bootstrap, "BrokerApiVersionsCommand")
    assert f"{bootstrap} (id: 1 rack: null" in text
    usable = dict(re.findall(r"^\t(\w+)\(\d+\): (\S.*?),?$", text, re.MULTILINE))
    for api in ("Produce", "Fetch", "ListOffsets", "Metadata", "JoinGroup", "OffsetCommit", "InitProducerId"):
        assert "usable" in usable[api], f"{api}: {usable.get(api)}"


def test_producers_are_described(bootstrap: str, new_topic: NewTopicFactory) -> None:
    topic = new_topic()
    produce_lines(bootstrap, topic, "one", "two")
    text = tool(bootstrap, "TransactionsCommand", "describe-producers", "--topic", topic, "--partition", "0")
    (_, producer) = text.splitlines()
    assert producer.split()[3] == "1", f"the last sequence: {text}"


def test_a_preferred_leader_is_elected(bootstrap: str, new_topic: NewTopicFactory) -> None:
    topic = new_topic()
    arguments = ("--election-type", "preferred", "--topic", topic, "--partition", "0")
    text = tool(bootstrap, "LeaderElectionCommand", *arguments)
    assert f"Valid replica already elected for partitions {topic}-0" in text


def test_groups_are_listed_described_reset_and_deleted(
    bootstrap: str, new_topic: NewTopicFactory, new_name: NewNameFactory
) -> None:
    topic, group = new_topic(), new_name()
    produce_lines(bootstrap, topic, *map(str, range(20)))
    consume_lines(bootstrap, topic, 20, "--group", group)

    def groups(*arguments: str) -> str:
        return tool(bootstrap, "ConsumerGroupCommand", *arguments)

    assert group in groups("--list").split()
    assert group in groups("--list", "--state", "Empty")
    state = next(row for row in table(groups("--describe", "--group", group, "--state")) if row["GROUP"] == group)
    assert "Empty" in state.values()
    (offsets,) = table(groups("--describe", "--group", group))
    assert (offsets["CURRENT-OFFSET"], offsets["LOG-END-OFFSET"], offsets["LAG"]) == ("20", "20", "0")

    reset = ("--reset-offsets", "--group", group, "--topic", topic)
    (planned,) = table(groups(*reset, "--to-earliest", "--dry-run"))
    assert planned["NEW-OFFSET"] == "0"
    assert table(groups("--describe", "--group", group))[0]["CURRENT-OFFSET"] == "20"
    for how, new_offset in (
        (("--to-offset", "15"), "15"),
        (("--shift-by", "-5"), "10"),
        (("--to-datetime", "2001-01-01T00:00:00.000"), "0"),
        (("--to-latest",), "20"),
    ):
        groups(*reset, *how, "--execute")
        assert table(groups("--describe", "--group", group))[0]["CURRENT-OFFSET"] == new_offset

    assert "Successful" in groups("--delete-offsets", "--group", group, "--topic", topic)
    assert "was successful" in groups("--delete", "--group", group)
    assert group not in groups("--list").split()
    gone = kafka_tool("ConsumerGroupCommand", "--bootstrap-server", bootstrap, "--describe", "--group", group)
    assert "GroupIdNotFoundException" in gone.stderr
