"""Transactions that nobody will end, as brokers before KIP-890 let them come about, found and ended by both tools."""

from collections.abc import Iterator

import pytest
from tests.compat.cli.program import OttlaProgram
from tests.support import stories
from tests.support.broker_process import BrokerProcess
from tests.support.genuine import GenuineKafka
from tests.support.ottla_process import OttlaProcess
from tests.support.raw_client import ask
from tests.support.tool_server import kafka_tool
from tests.support.transaction_stories import Producer, Teller

SETTINGS = {
    "transaction.partition.verification.enable": "false",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
OLD_MS = stories.NOW_MS - 3_600_000


@pytest.fixture(scope="module", params=[GenuineKafka, OttlaProcess], ids=["genuine", "ottla"])
def process(request: pytest.FixtureRequest) -> Iterator[BrokerProcess]:
    with request.param(properties=SETTINGS) as process:
        Teller(process.bootstrap).ready()
        yield process


@pytest.fixture
def topic(process: BrokerProcess, request: pytest.FixtureRequest) -> str:
    """In partition 1, at offset 1, a transaction hangs that was never begun, for an hour."""
    name = str(request.node.originalname)
    teller = Teller(process.bootstrap)
    teller.create(name, 2)
    producer = teller.new(name)
    teller.add("is known", producer, [(name, 0)])
    teller.send("is known", producer, (name, 0), 0)
    teller.fill(name, stories.batch(b"before"), partition=1)
    batch = stories.batch(
        b"hangs",
        timestamp_ms=OLD_MS,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        base_sequence=0,
        transactional=True,
    )
    (answer,) = ask(process.bootstrap, stories.produce([(name, 1, batch)], transactional_id=name), 9).responses
    assert answer.partition_responses[0].error_code == 0
    teller.end("does not reach partition 1", producer, commit=True)
    teller.fill(name, stories.batch(b"held back"), partition=1)
    assert stable(process, name) == 1
    return name


def stable(process: BrokerProcess, topic: str) -> int:
    """Up to where readers of committed records get in partition 1."""
    (answer,) = ask(process.bootstrap, stories.list_offsets([(topic, 1, -1)], isolation_level=1), 7).topics
    return int(answer.partitions[0].offset)


def test_ottla_txn(process: BrokerProcess, topic: str) -> None:
    ottla = OttlaProgram(process.bootstrap)
    (found,) = ottla.json("txn", "find-hanging")
    assert (found["topic"], found["partition"], found["first_offset"], found["epoch"]) == (topic, 1, 1, 0)
    assert found["transactional_id"] == topic
    assert ottla.json("txn", "find-hanging", "--silent-for", "2h") == []
    assert ottla.json("txn", "find-hanging", "--topic", topic) == [found]
    ottla("txn", "abort", "--partition", f"{topic}-1", "--first-offset", "1", "--yes")
    assert stable(process, topic) == 4
    assert ottla.json("txn", "find-hanging") == []


def test_kafka_transactions(process: BrokerProcess, topic: str) -> None:
    def tool(*arguments: str) -> list[list[str]]:
        done = kafka_tool("TransactionsCommand", "--bootstrap-server", process.bootstrap, *arguments)
        return [line.split("\t") for line in done.stdout.splitlines()]

    _, found = tool("find-hanging", "--topic", topic)
    assert [cell.strip() for cell in found[:2]] == [topic, "1"]
    tool("abort", "--topic", topic, "--partition", "1", "--start-offset", "1")
    assert stable(process, topic) == 4
    assert len(tool("find-hanging", "--topic", topic)) == 1


def test_who_may_not_be_ended(process: BrokerProcess, topic: str) -> None:
    """One that a coordinator knows: it may yet be committed."""
    teller = Teller(process.bootstrap)
    known = teller.new("known")
    teller.add("known", known, [(topic, 0)])
    teller.send("known", known, (topic, 0), 0)
    ottla = OttlaProgram(process.bootstrap)
    assert "`ottla txn abort known`" in ottla("txn", "abort", "--partition", f"{topic}-0", "--yes", code=1).stderr
    teller.end("known", Producer("known", known.id, known.epoch), commit=True)
    ottla("txn", "abort", "--partition", f"{topic}-1", "--yes")
