"""A steady producer and a group of consumers that go on whatever happens to the brokers, and remember what they saw."""

import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field
from itertools import cycle, pairwise
from typing import Any, Final, Self

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from ottla.client.partition import Partition
from ottla.waiting import wait_until

GROUP: Final = "readers"
MEMBERS: Final = 2
FLUSH_S: Final = 30.0
READ_S: Final = 30.0

Record = tuple[Partition, int]
"""Where a record was written to, and its number there: 0, 1, 2, ..."""


@dataclass(slots=True)
class Seen:
    """Records in the order of their acknowledgement or reading, each with its time. One thread adds at a time."""

    records: list[Record] = field(default_factory=list)
    times: list[float] = field(default_factory=list)

    def add(self, record: Record) -> None:
        """Now, by the monotonic clock."""
        self.records.append(record)
        self.times.append(time.monotonic())

    def longest_pause_s(self, since: float) -> float:
        """The longest time from then to now in which one of the partitions had none."""
        now = time.monotonic()
        last: dict[Partition, float] = {partition: since for partition, _ in self.records}
        longest = 0.0
        for (partition, _), at in zip(self.records, self.times, strict=False):  # another thread adds to both
            if at > since:
                longest = max(longest, at - last[partition])
                last[partition] = at
        return max(longest, now - min(last.values(), default=since))

    def first_after(self, since: float, partitions: Iterable[Partition]) -> float | None:
        """When the first record of one of these partitions came after that; None if none has."""
        wanted = set(partitions)
        since_then = zip(self.records, self.times, strict=False)
        return next((at for (partition, _), at in since_then if at > since and partition in wanted), None)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of the records: how many were acknowledged, and which are nowhere, twice or disordered."""

    acknowledged: int
    refused: int
    missing_in_log: int
    missing_at_group: int
    doubled_in_log: int
    disordered: int

    @property
    def is_good(self) -> bool:
        """Everything acknowledged is in the log once and in order, and was read by the group."""
        return not (
            self.refused or self.missing_in_log or self.missing_at_group or self.doubled_in_log or self.disordered
        )


def judge(acknowledged: Set[Record], refused: int, read: Sequence[Record], log: Sequence[Record]) -> Verdict:
    """Hold what was acknowledged against what the group has read, and against the whole log in its order."""
    kept = Counter(log)
    numbers: dict[Partition, list[int]] = {}
    for partition, number in log:
        numbers.setdefault(partition, []).append(number)
    return Verdict(
        acknowledged=len(acknowledged),
        refused=refused,
        missing_in_log=len(acknowledged - kept.keys()),
        missing_at_group=len(acknowledged - set(read)),
        doubled_in_log=sum(count - 1 for count in kept.values()),
        disordered=sum(after < before for found in numbers.values() for before, after in pairwise(found)),
    )


class Traffic:
    """Inside `with`, records come and go; `finish` ends it with a verdict."""

    def __init__(self, bootstrap: str, partitions: Iterable[Partition], records_per_s: float) -> None:
        self._partitions = sorted(partitions)
        self._pause_s = 1 / records_per_s
        self._bootstrap = bootstrap
        self.acknowledged = Seen()
        self.read = Seen()
        self.refused: list[KafkaError] = []
        self._reading = threading.Lock()
        self._producing, self._consuming = threading.Event(), threading.Event()
        self._producing.set()
        self._consuming.set()
        self._producer_thread = threading.Thread(target=self._produce, name="producer")
        self._threads = [threading.Thread(target=self._consume, name=f"consumer {n}") for n in range(MEMBERS)]

    def __enter__(self) -> Self:
        self._producer_thread.start()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._producing.clear()
        self._consuming.clear()
        for thread in (self._producer_thread, *self._threads):
            thread.join()

    def finish(self) -> Verdict:
        """Stop writing, let the group read the remaining records, then read the whole log and compare."""
        self._producing.clear()
        self._producer_thread.join()
        acknowledged = set(self.acknowledged.records)
        wait_until(lambda: acknowledged <= set(self.read.records), READ_S, every_s=0.1)
        self._consuming.clear()
        for thread in self._threads:
            thread.join()
        log = self._read_log(len(acknowledged))
        return judge(acknowledged, len(self.refused), self.read.records, log)

    def _client(self, **settings: object) -> dict[str, Any]:
        return {
            "bootstrap.servers": self._bootstrap,
            "client.id": "ottla-cluster-demo",
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "retry.backoff.ms": 50,
            "log_level": 0,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }

    def _produce(self) -> None:
        producer = Producer(self._client(acks="all", enable_idempotence=True, linger_ms=2))
        numbers: Counter[Partition] = Counter()
        due = time.monotonic()
        for partition in cycle(self._partitions):
            if not self._producing.is_set():
                break
            number = numbers[partition]
            numbers[partition] += 1
            producer.produce(
                partition.topic, b"%d" % number, partition=partition.partition, on_delivery=self._delivered
            )
            due += self._pause_s
            while (rest_s := due - time.monotonic()) > 0:
                producer.poll(rest_s)
        producer.flush(FLUSH_S)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged.add(_record(message))
        else:
            self.refused.append(error)

    def _consume(self) -> None:
        consumer = Consumer(self._client(group_id=GROUP, auto_offset_reset="earliest", session_timeout_ms=6000))
        consumer.subscribe(sorted({partition.topic for partition in self._partitions}))
        try:
            while self._consuming.is_set():
                self._take(consumer.consume(500, timeout=0.1))
        finally:
            consumer.close()

    def _take(self, messages: list[Message]) -> None:
        with self._reading:
            for message in messages:
                if message.error() is None:
                    self.read.add(_record(message))

    def _read_log(self, expected: int) -> list[Record]:
        """All there is, without a group."""
        consumer = Consumer(self._client(group_id=f"{GROUP}-all", enable_auto_commit=False, enable_partition_eof=True))
        consumer.assign([TopicPartition(topic, number, 0) for topic, number in self._partitions])
        found: list[Record] = []
        ended: set[Partition] = set()
        deadline = time.monotonic() + READ_S
        while time.monotonic() < deadline and (len(ended) < len(self._partitions) or len(found) < expected):
            for message in consumer.consume(1000, timeout=0.2):
                error = message.error()
                if error is None:
                    found.append(_record(message))
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended.add(Partition(str(message.topic()), int(message.partition() or 0)))
        consumer.close()
        return found


def _record(message: Message) -> Record:
    topic, partition, value = message.topic(), message.partition(), message.value()
    assert topic is not None
    assert partition is not None
    assert value is not None
    return Partition(topic, partition), int(value)
