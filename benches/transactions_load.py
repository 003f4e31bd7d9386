"""Transactions by librdkafka, in a process of its own: `python -m benches.transactions_load produce|process ...`.

Prints one line of JSON. Every record is committed or the program fails.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

_BATCH: Final = 1_000
_LIMIT_S: Final = 60.0


def _fail_on(error: KafkaError | None, _: Message) -> None:
    if error is not None:
        raise KafkaException(error)


class Measured:
    """Records and commits after those that warm up."""

    def __init__(self, warm_up: int) -> None:
        self._warm_up = warm_up
        self._began: float | None = None
        self._before = self._records = 0
        self._commits_ms: list[float] = []

    def commit(self, records: int, commit: Callable[[], None]) -> None:
        """Time `commit`, which ends a transaction of `records`."""
        began = time.perf_counter()
        commit()
        now = time.perf_counter()
        self._records += records
        if self._began is not None:
            self._commits_ms.append((now - began) * 1000)
        elif self._records >= self._warm_up:
            self._began, self._before = now, self._records

    def figures(self) -> dict[str, float]:
        """Records per second, and the median and 99th percentile of the commits.

        Raises:
            TimeoutError: no transaction came after those that warmed up.
        """
        if self._began is None or not self._commits_ms:
            raise TimeoutError(f"no transaction was measured among {self._records} records")
        seconds = time.perf_counter() - self._began
        commits = sorted(self._commits_ms)
        return {
            "records_per_s": (self._records - self._before) / seconds,
            "commit_p50_ms": commits[len(commits) // 2],
            "commit_p99_ms": commits[len(commits) * 99 // 100],
        }


def _producer(bootstrap: str) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": "benchmark",
            "delivery.report.only.error": True,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 262_144,
        }
    )
    producer.init_transactions(_LIMIT_S)
    return producer


def produce(bootstrap: str, topic: str, warm_up: int, records: int, size: int, every_s: float) -> dict[str, float]:
    """Produce in transactions of `every_s`, as fast as the broker takes them."""
    producer = _producer(bootstrap)
    payload = bytes(index % 256 for index in range(size))
    batch: list[dict[str, Any]] = [{"value": payload}] * _BATCH
    measured = Measured(warm_up)
    left = warm_up + records
    while left > 0:
        producer.begin_transaction()
        ends_at = time.perf_counter() + every_s
        sent = 0
        while time.perf_counter() < ends_at and sent < left:
            queued = producer.produce_batch(topic, batch, on_delivery=_fail_on)
            sent += queued
            producer.poll(0 if queued == _BATCH else 0.005)
        measured.commit(sent, lambda: producer.commit_transaction(_LIMIT_S))
        left -= sent
    return measured.figures()


def process(bootstrap: str, source: str, sink: str, warm_up: int, records: int, every_s: float) -> dict[str, float]:
    """Consume, transform, produce, the offsets in the transaction; one transaction every `every_s`."""
    producer = _producer(bootstrap)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "benchmark",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "queued.max.messages.kbytes": 65_536,
        }
    )
    consumer.subscribe([source])
    measured = Measured(warm_up)
    wanted, seen = warm_up + records, 0
    try:
        while seen < wanted:
            positions: dict[int, int] = {}
            messages = consumer.consume(_BATCH, _LIMIT_S)
            producer.begin_transaction()
            ends_at = time.perf_counter() + every_s
            taken = 0
            while True:
                taken += len(messages)
                producer.produce_batch(
                    sink, [_transformed(message, positions) for message in messages], on_delivery=_fail_on
                )
                producer.poll(0)
                left_s = ends_at - time.perf_counter()
                if left_s <= 0 or seen + taken >= wanted:
                    break
                messages = consumer.consume(_BATCH, left_s)
            if not taken:
                raise TimeoutError(f"nothing came for {_LIMIT_S} s after {seen} of {wanted} records")
            offsets = [TopicPartition(source, partition, offset) for partition, offset in positions.items()]

            def commit(offsets: list[TopicPartition] = offsets) -> None:
                producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), _LIMIT_S)
                producer.commit_transaction(_LIMIT_S)

            measured.commit(taken, commit)
            seen += taken
        return measured.figures()
    finally:
        consumer.close()


def _transformed(message: Message, positions: dict[int, int]) -> dict[str, Any]:
    """The next record, from one that was read; its place is noted in `positions`."""
    if (error := message.error()) is not None:
        raise KafkaException(error)
    partition, offset = message.partition(), message.offset()
    if partition is None or offset is None:
        raise TypeError("a message that was read has a place")
    positions[partition] = offset + 1
    return {"value": b"!" + (message.value() or b"")[1:]}


def main(arguments: list[str]) -> None:
    """Parse the command line, run, print the result."""
    parser = argparse.ArgumentParser(prog="benches.transactions_load")
    parser.add_argument("what", choices=["produce", "process"])
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--sink", default="")
    parser.add_argument("--warm-up", type=int, default=0)
    parser.add_argument("--records", type=int, default=0)
    parser.add_argument("--size", type=int, default=1000)
    parser.add_argument("--every-ms", type=int, default=100)
    given = parser.parse_args(arguments)
    where, amounts = (given.bootstrap, given.topic), (given.warm_up, given.records)
    if given.what == "produce":
        result = produce(*where, *amounts, given.size, given.every_ms / 1000)
    else:
        result = process(*where, given.sink, *amounts, given.every_ms / 1000)
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1:])
