"""Transactional producers at work while brokers come and go: what they commit, and how long they stand still."""

import threading
import time
from types import TracebackType
from typing import Final, Self

from confluent_kafka import KafkaException, Producer

from ottla.producers import abandon

BETWEEN_S: Final = 0.02
ANSWER_WITHIN_S: Final = 60.0


class TransactionalProducer(threading.Thread):
    """Writes one transaction of three records after the other; after a fatal error it begins anew, under its id."""

    def __init__(self, bootstrap: str, topic: str, transactional_id: str) -> None:
        super().__init__(name=transactional_id)
        self.committed: list[bytes] = []
        self.problems: list[str] = []
        self.began_at = time.monotonic()
        """When the transaction that is under way began."""
        self.longest_s = 0.0
        """How long a transaction has taken."""
        self._servers = bootstrap
        self._topic = topic
        self._id = transactional_id
        self._stopping = threading.Event()

    def stop(self) -> None:
        """After the transaction under way."""
        self._stopping.set()

    def run(self) -> None:
        producer = self._new()
        number = 0
        self.began_at = time.monotonic()
        while not self._stopping.is_set():
            values = [b"%s:%d:%d" % (self._id.encode(), number, place) for place in range(3)]
            number += 1
            try:
                producer = self._write(producer, values)
            except KafkaException as problem:
                self.problems.append(str(problem))
                continue
            now = time.monotonic()
            self.longest_s = max(self.longest_s, now - self.began_at)
            time.sleep(BETWEEN_S)
            self.began_at = time.monotonic()

    def _write(self, producer: Producer, values: list[bytes]) -> Producer:
        """Raises KafkaException if the transaction was aborted."""
        try:
            producer.begin_transaction()
            for value in values:
                producer.produce(self._topic, value, key=value)
            self._until_done(lambda: producer.commit_transaction(ANSWER_WITHIN_S))
        except KafkaException as problem:
            error = problem.args[0]
            self.problems.append(str(problem))
            if error.txn_requires_abort():
                self._until_done(lambda: producer.abort_transaction(ANSWER_WITHIN_S))
                return producer
            abandon(producer)
            return self._new()
        self.committed += values
        return producer

    def _until_done(self, work: "object") -> None:
        while True:
            try:
                work()  # type: ignore[operator]
            except KafkaException as problem:
                if problem.args[0].retriable() and not self._stopping.is_set():
                    continue
                raise
            return

    def _new(self) -> Producer:
        producer = Producer(
            {
                "bootstrap.servers": self._servers,
                "transactional.id": self._id,
                "transaction.timeout.ms": 30_000,
                "log_level": 0,
            }
        )
        self._until_done(lambda: producer.init_transactions(ANSWER_WITHIN_S))
        return producer


class TransactionalLoad:
    """Several of them, inside `with`."""

    def __init__(self, bootstrap: str, topic: str, producers: int) -> None:
        self.producers = [TransactionalProducer(bootstrap, topic, f"load-{number}") for number in range(producers)]

    def __enter__(self) -> Self:
        for producer in self.producers:
            producer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """All of them, each after the transaction under way."""
        for producer in self.producers:
            producer.stop()
        for producer in self.producers:
            producer.join()

    def committed(self) -> list[bytes]:
        """What all of them have committed so far."""
        return [value for producer in self.producers for value in producer.committed]

    def longest_s(self) -> float:
        """How long any transaction has taken so far, the ones under way included."""
        now = time.monotonic()
        return max(max(producer.longest_s, now - producer.began_at) for producer in self.producers)
