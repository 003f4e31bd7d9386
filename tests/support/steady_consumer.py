"""A member of a group that reads whatever happens to the brokers, and remembers when it got what."""

import threading
import time
from itertools import pairwise

from confluent_kafka import Consumer


class SteadyConsumer:
    """Reads a topic from its beginning until it is stopped. Inside `with`, it runs."""

    def __init__(self, bootstrap: str, topic: str, group: str = "steady", **settings: object) -> None:
        self._topic = topic
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
                **settings,
            }
        )
        self.read: list[tuple[float, bytes]] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "SteadyConsumer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        self._consumer.subscribe([self._topic])
        try:
            while not self._stopping.is_set():
                messages = self._consumer.consume(500, timeout=0.05)
                now = time.monotonic()
                self.read += [(now, message.value() or b"") for message in messages if message.error() is None]
        finally:
            self._consumer.close()

    def longest_pause_s(self) -> float:
        """Between one record and the next."""
        times = [at for at, _ in self.read]
        return max((after - before for before, after in pairwise(times)), default=0.0)
