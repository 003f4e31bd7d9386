"""What goes in, and what must come out: for each key the numbers from 0 on, each once and in order."""

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

KEYS: Final = 48
_CLIENT: Final = {"topic.metadata.refresh.interval.ms": 5_000}


class Feeder(threading.Thread):
    """Writes records until it is stopped, and keeps `backlog` of them ahead of what was `received`.

    All of a key go into one partition, in order.
    """

    def __init__(self, bootstrap: str, topic: str, partitions: int, backlog: int, received: Callable[[], int]) -> None:
        super().__init__(name="feeder", daemon=True)
        self._producer = Producer(
            {**_CLIENT, "bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True, "linger.ms": 5}
        )
        self._topic = topic
        self._partitions = partitions
        self._backlog = backlog
        self._received = received
        self._stopped = threading.Event()
        self.sent = 0

    def run(self) -> None:
        while not self._stopped.wait(0.1):
            for _ in range(self._received() + self._backlog - self.sent):
                number, key = divmod(self.sent, KEYS)
                self._producer.produce(self._topic, str(number), str(key), key % self._partitions)
                self.sent += 1
            self._producer.poll(0)
        assert self._producer.flush(120) == 0, "not all of the source's records could be written"

    def stop(self) -> None:
        self._stopped.set()
        self.join()


@dataclass
class Found:
    """What a client that reads committed records only was given."""

    records: int = 0
    last: dict[str, int] = field(default_factory=dict)
    doubled: int = 0
    missing: int = 0
    problems: list[str] = field(default_factory=list)

    def take(self, key: str, number: int, where: str) -> None:
        self.records += 1
        wanted = self.last.get(key, -1) + 1
        if number < wanted:
            self.doubled += 1
        elif number > wanted:
            self.missing += number - wanted
        if number != wanted and len(self.problems) < 20:
            self.problems.append(f"{where}: key {key} has {number} where {wanted} was to come")
        self.last[key] = max(number, wanted - 1)

    def compare(self, sent: int) -> None:
        """Count what is missing at the end of each key."""
        whole = Counter({str(key): sent // KEYS + (key < sent % KEYS) for key in range(KEYS)})
        for key, count in whole.items():
            lacking = count - self.last.get(key, -1) - 1
            if lacking:
                self.missing += lacking
                self.problems.append(f"key {key} ends at {self.last.get(key, -1)}, not at {count - 1}")


class Reader:
    """Follows the sink from its beginning."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._consumer = Consumer(
            {
                **_CLIENT, "bootstrap.servers": bootstrap, "group.id": "kills", "isolation.level": "read_committed",
                "enable.auto.commit": False, "enable.partition.eof": True, "fetch.queue.backoff.ms": 5,
            }
        )  # fmt: skip
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        self.found = Found()

    def follow(self, seconds: float) -> int:
        """Take what comes within so many seconds; how many records that were."""
        before = self.found.records
        for message in self._consumer.consume(100_000, seconds):
            error = message.error()
            if error is None:
                key, value = message.key(), message.value()
                assert key is not None
                assert value is not None
                self.found.take(key.decode(), int(value), f"{message.topic()}-{message.partition()}@{message.offset()}")
            else:
                assert error.code() == KafkaError._PARTITION_EOF or error.retriable(), error.str()
        return self.found.records - before

    def close(self) -> None:
        self._consumer.close()
