"""A producer that goes on whatever happens to the brokers, and remembers what was acknowledged."""

import logging
import threading
import time
from collections import deque
from itertools import count, pairwise
from typing import Final

from confluent_kafka import KafkaError, Message, Producer

from tests.support.eventually import eventually

LOG_LINES: Final = 50_000
ONE_IN_FLIGHT: Final = {"enable.idempotence": True, "max.in.flight.requests.per.connection": 1}
"""An idempotent producer where genuine brokers become leaders, by kills, restarts and moves of partitions. With several
requests in flight, librdkafka may append a record twice at a genuine leader
(`tests/compat/confluent/test_new_epochs.py`). A genuine leader that was killed itself may refuse the repetition for
good (`tests/compat/genuine/test_retries_after_a_kill.py`)."""


class _Kept(logging.Handler):
    """The client's log, which nobody prints: the newest lines of it."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: deque[str] = deque(maxlen=LOG_LINES)
        self.setFormatter(logging.Formatter("%(asctime)s %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


class SteadyProducer:
    """Produces numbered records with acks=all until it is stopped; remembers which were acknowledged, and when."""

    def __init__(self, bootstrap: str, topic: str, **settings: object) -> None:
        self._topic = topic
        kept = _Kept()
        logger = logging.Logger("steady producer")
        logger.addHandler(kept)
        self.log: deque[str] = kept.lines
        """What the client says about its sequences and epochs."""
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "linger.ms": 2,
                "message.timeout.ms": 60_000,
                "retry.backoff.ms": 50,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "log_level": 7,
                "debug": "eos",
                **settings,
            },
            logger=logger,
        )
        self.acknowledged: list[tuple[float, bytes]] = []
        self.waits_s: list[tuple[float, float]] = []
        """When each record was acknowledged, and how long that took since it was produced."""
        self.failed: list[KafkaError] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "SteadyProducer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        if not self._stopping.is_set():
            self._stopping.set()
            self._thread.join()
            assert self._producer.flush(60) == 0

    def _run(self) -> None:
        for number in count():
            if self._stopping.is_set():
                return
            self._producer.produce(self._topic, f"{number}".encode(), on_delivery=self._delivered)
            self._producer.poll(0.005)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            value = message.value()
            assert value is not None
            now = time.monotonic()
            self.acknowledged.append((now, value))
            self.waits_s.append((now, message.latency() or 0.0))
        else:
            self.failed.append(error)

    def until_acknowledged(self, more: int) -> None:
        """Wait until so many more have been."""
        wanted = len(self.acknowledged) + more
        eventually(lambda: len(self.acknowledged) >= wanted, timeout_s=40)

    def longest_pause_s(self) -> float:
        times = [at for at, _ in self.acknowledged]
        return max((after - before for before, after in pairwise(times)), default=0.0)

    def longest_wait_s(self, since: float = 0.0) -> float:
        """How long any record acknowledged since then has waited for that."""
        return max((wait for at, wait in list(self.waits_s) if at >= since), default=0.0)
