"""`__transaction_state` on disk: Kafka's tools read what Ottla wrote, and Ottla goes on with what Kafka wrote."""

import re
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer
from tests.support.eventually import eventually
from tests.support.genuine import GenuineKafka
from tests.support.ottla_process import OttlaProcess
from tests.support.raw_client import ask
from tests.support.tool_server import kafka_tool

from ottla.protocol.messages.list_transactions import ListTransactionsRequest

ONE_PARTITION = {"transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "1"}
READ_TO_THE_END = 3.0


def begin(bootstrap: str, name: str, value: str) -> Producer:
    """A producer whose record is in the log, and whose transaction goes on."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "transaction.timeout.ms": 60_000})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce("orders", value, partition=0)
    assert producer.flush(20) == 0
    return producer


def transact(bootstrap: str) -> Producer:
    """A committed and an aborted transaction, and one that goes on."""
    begin(bootstrap, "committed", "kept").commit_transaction(20)
    begin(bootstrap, "aborted", "dropped").abort_transaction(20)
    return begin(bootstrap, "ongoing", "open")


def listed(bootstrap: str) -> dict[str, tuple[int, str]]:
    """Producer id and state of every transactional id."""
    answer = ask(bootstrap, ListTransactionsRequest(state_filters=[], producer_id_filters=[]), 1)
    return {state.transactional_id: (state.producer_id, state.transaction_state) for state in answer.transaction_states}


def at_rest(bootstrap: str) -> dict[str, tuple[int, str]]:
    """The same, when all that was ended is complete."""

    def look() -> dict[str, tuple[int, str]]:
        found = listed(bootstrap)
        assert {state for _, state in found.values()} == {"CompleteCommit", "CompleteAbort", "Ongoing"}
        return found

    return eventually(look)


def committed_records(bootstrap: str) -> list[bytes | None]:
    settings: dict[str, Any] = {"enable.auto.commit": False, "auto.offset.reset": "earliest"}
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "r", "isolation.level": "read_committed", **settings}
    )
    found: list[bytes | None] = []
    try:
        consumer.subscribe(["orders"])
        while (message := consumer.poll(20 if not found else READ_TO_THE_END)) is not None:
            assert message.error() is None
            found.append(message.value())
    finally:
        consumer.close()
    return found


def test_kafkas_tool_prints_what_ottla_wrote(tmp_path: Path) -> None:
    with OttlaProcess(tmp_path, properties=ONE_PARTITION) as ottla:
        producer = transact(ottla.bootstrap)
        ids = at_rest(ottla.bootstrap)
        ottla.stop()
        (segment,) = (ottla.log_dir / "__transaction_state-0").glob("*.log")
        printed = kafka_tool("DumpLogSegments", "--transaction-log-decoder", "--files", str(segment)).stdout
        del producer
    last = dict(re.findall(r"transactionalId\W+(\w+).*?transactionStatus\"?:(\d)", printed))
    assert last == {"committed": "4", "aborted": "5", "ongoing": "1"}, printed
    for producer_id, _ in ids.values():
        assert f'"producerId":{producer_id}' in printed
    assert '"previousProducerId":' in printed, "Kafka knows the tagged fields that it leaves out itself"


def test_ottla_goes_on_with_the_transactions_of_a_kafka_directory(tmp_path: Path) -> None:
    with GenuineKafka(tmp_path, properties=ONE_PARTITION) as kafka:
        abandoned = transact(kafka.bootstrap)
        before = at_rest(kafka.bootstrap)
        kafka.stop()
        log_dir = kafka.log_dir
        del abandoned
    with OttlaProcess(properties={"log.dirs": str(log_dir), **ONE_PARTITION}) as ottla:
        assert eventually(lambda: listed(ottla.bootstrap)) == before
        begin(ottla.bootstrap, "committed", "more").commit_transaction(20)
        successor = begin(ottla.bootstrap, "ongoing", "anew")  # aborts what its predecessor left open
        successor.commit_transaction(20)
        assert committed_records(ottla.bootstrap) == [b"kept", b"more", b"anew"]
        assert {name: producer_id for name, (producer_id, _) in listed(ottla.bootstrap).items()} == {
            name: producer_id for name, (producer_id, _) in before.items()
        }
