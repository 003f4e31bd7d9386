"""Java transactions by Kafka's own programs: the protocol's second generation, and the tool that looks into it."""

import json
import re
import signal
import subprocess
import threading
from types import TracebackType
from typing import Any, Self

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.compat.confluent.clients import READ_COMMITTED, read_all
from tests.compat.factories import NewNameFactory, NewTopicFactory
from tests.support.eventually import eventually
from tests.support.genuine import ToolFailedError, kafka_tool_command
from tests.support.tool_server import kafka_tool

_RECORDS = 1500


def stable_end(bootstrap: str, topic: str, partition: int = 0) -> int:
    """The last stable offset."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "unused", "isolation.level": "read_committed"}
    reader = Consumer(settings)
    try:
        found = reader.get_watermark_offsets(TopicPartition(topic, partition), timeout=10)
        assert found is not None
        return found[1]
    finally:
        reader.close()


def fill(bootstrap: str, topic: str, count: int) -> None:
    writer = Producer({"bootstrap.servers": bootstrap})
    for number in range(count):
        writer.produce(topic, str(number), partition=0)
        writer.poll(0)
    assert writer.flush(30) == 0


class Copier:
    """A TransactionalMessageCopier: consume, produce and commit in transactions, some of them aborted at random."""

    def __init__(self, bootstrap: str, source: str, sink: str, name: str) -> None:
        what = ("--broker-list", bootstrap, "--input-topic", source, "--input-partition", "0", "--output-topic", sink)
        how = ("--consumer-group", f"{name}-group", "--transactional-id", name, "--transaction-size", "50")
        habits = ("--enable-random-aborts", "--use-group-metadata", "--transaction-timeout", "10000")
        self._process = subprocess.Popen(
            kafka_tool_command("org.apache.kafka.tools.TransactionalMessageCopier", *what, *how, *habits),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.reports: list[dict[str, Any]] = []
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    @property
    def consumed(self) -> int:
        return max((int(report.get("totalProcessed", 0)) for report in self.reports), default=0)

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)

    def finish(self) -> None:
        """Wait until it has copied everything."""
        code = self._process.wait(60)
        assert code == 0, "\n".join(self.lines[-20:])

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            for line in output:
                self.lines.append(line.rstrip())
                if line.startswith("{"):
                    self.reports.append(json.loads(line))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait(30)
        self._reader.join(30)


def test_a_copier_that_is_killed_and_aborts_at_random_copies_every_record_once(
    bootstrap: str, new_topic: NewTopicFactory, new_name: NewNameFactory
) -> None:
    source, sink, name = new_topic(), new_topic(), new_name()
    fill(bootstrap, source, _RECORDS)
    with Copier(bootstrap, source, sink, name) as copier:
        eventually(lambda: copier.consumed > _RECORDS // 10)
        copier.kill()
    with Copier(bootstrap, source, sink, name) as copier:
        copier.finish()
    copied = read_all(bootstrap, sink, _RECORDS, **READ_COMMITTED)
    assert [int(message.value() or b"") for message in copied] == list(range(_RECORDS))
    where = TopicPartition(sink, 0)
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})
    found = reader.get_watermark_offsets(where, timeout=10)
    reader.close()
    assert found is not None
    assert found[1] > _RECORDS * (1 + 1 / 50), "nothing was aborted, so nothing was proved"


def test_the_performance_tool_in_transactions(
    bootstrap: str, new_topic: NewTopicFactory, new_name: NewNameFactory
) -> None:
    topic = new_topic(3)
    load = ("--topic", topic, "--num-records", "5000", "--record-size", "200", "--throughput", "5000")
    transactions = ("--transactional-id", new_name(), "--transaction-duration-ms", "50")
    settings = ("--producer-props", f"bootstrap.servers={bootstrap}", "acks=all")
    text = kafka_tool("ProducerPerformance", *load, *transactions, *settings).stdout
    assert "5000 records sent" in text
    limits = ("--from-beginning", "--max-messages", "5000", "--timeout-ms", "20000")
    isolation = ("--isolation-level", "read_committed")
    where = ("--bootstrap-server", bootstrap, "--topic", topic)
    assert len(kafka_tool("ConsoleConsumer", *where, *limits, *isolation).stdout.splitlines()) == 5000
    ends = [stable_end(bootstrap, topic, partition) for partition in range(3)]
    assert sum(ends) > 5000 + 3, "it was one transaction"


def tool(bootstrap: str, *arguments: str) -> str:
    return kafka_tool("TransactionsCommand", "--bootstrap-server", bootstrap, *arguments).stdout


def rows(text: str) -> list[dict[str, str]]:
    """A table whose columns are separated by tabs or blanks."""
    heading, *lines = [line.split() for line in text.splitlines() if line.strip()]
    return [dict(zip(heading, line, strict=False)) for line in lines]


def test_the_tool_sees_a_transaction_and_ends_it(
    bootstrap: str, new_topic: NewTopicFactory, new_name: NewNameFactory
) -> None:
    topic, name = new_topic(2), new_name()
    writer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": 1})
    writer.init_transactions(20)
    writer.begin_transaction()
    for partition in range(2):
        writer.produce(topic, b"open", partition=partition)
    assert writer.flush(20) == 0

    (listed,) = [row for row in rows(tool(bootstrap, "list")) if row["TransactionalId"] == name]
    assert listed["TransactionState"] == "Ongoing"
    (described,) = rows(tool(bootstrap, "describe", "--transactional-id", name))
    assert described["ProducerId"] == listed["ProducerId"]
    assert described["TransactionState"] == "Ongoing"
    assert described["TransactionTimeoutMs"] == "60000"
    assert set(described["TopicPartitions"].split(",")) == {f"{topic}-0", f"{topic}-1"}
    (active,) = rows(tool(bootstrap, "describe-producers", "--topic", topic, "--partition", "1"))
    assert active["ProducerId"] == listed["ProducerId"]
    assert active["CurrentTransactionStartOffset"] == "0"
    hanging = tool(bootstrap, "find-hanging", "--broker-id", "1", "--max-transaction-timeout", "15")
    assert name not in hanging

    assert stable_end(bootstrap, topic) == 0
    tool(bootstrap, "forceTerminateTransaction", "--transactionalId", name)
    eventually(lambda: stable_end(bootstrap, topic) == 2)
    (active,) = rows(tool(bootstrap, "describe-producers", "--topic", topic, "--partition", "1"))
    assert active["CurrentTransactionStartOffset"] == "None"


def test_the_tool_is_told_of_an_unknown_transaction(bootstrap: str, new_name: NewNameFactory) -> None:
    with pytest.raises(ToolFailedError, match="failed because the ID could not be found"):
        tool(bootstrap, "describe", "--transactional-id", new_name())


def test_the_features_of_the_broker_are_described(bootstrap: str) -> None:
    text = kafka_tool("org.apache.kafka.tools.FeatureCommand", "--bootstrap-server", bootstrap, "describe").stdout
    found = {line.split()[1]: line for line in text.splitlines() if line.startswith("Feature:")}
    assert re.search(r"SupportedMaxVersion: 2\s+FinalizedVersionLevel: 2", found["transaction.version"])
