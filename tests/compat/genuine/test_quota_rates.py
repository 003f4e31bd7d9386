"""The same producer with the same quota on genuine Kafka and on Ottla: the rate that each lets through."""

import threading
import time
from contextlib import ExitStack

import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually
from tests.support.genuine import GenuineKafka
from tests.support.ottla_process import OttlaProcess
from tests.support.quota_stories import CLIENT, alteration
from tests.support.raw_client import ask

QUOTA = 10_000_000
WARM_UP_S, MEASURED_S = 12.0, 30.0
VALUE = bytes(range(250)) * 40


class Flood:
    """A producer that sends as fast as it may, in a thread of its own, and counts what is acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged = 0
        self.failed: list[KafkaError] = []
        self._stop = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": "flood",
                "linger.ms": 5,
                "batch.size": 100_000,
                "queue.buffering.max.kbytes": 4_000,
                "message.timeout.ms": 60_000,
            }
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged += len(VALUE)
        else:
            self.failed.append(error)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._producer.produce("held", VALUE, on_delivery=self._delivered)
                self._producer.poll(0)
            except BufferError:
                self._producer.poll(0.05)
        self._producer.purge()
        self._producer.poll(0)

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()
        self._thread.join()


def rate(process: BrokerProcess) -> float:
    """Bytes a second that are acknowledged, over `MEASURED_S`."""
    admin = AdminClient({"bootstrap.servers": process.bootstrap})
    admin.create_topics([NewTopic("held", 1, 1)])["held"].result(30)
    quota = alteration((((CLIENT, "flood"),), (("producer_byte_rate", float(QUOTA)),)))
    assert ask(process.bootstrap, quota, 1).entries[0].error_code == 0
    with ExitStack() as stack:
        flood = Flood(process.bootstrap)
        stack.callback(flood.stop)
        eventually(lambda: flood.acknowledged > QUOTA, timeout_s=30)
        time.sleep(WARM_UP_S)  # the first window lets a burst through, on both
        began, before = time.monotonic(), flood.acknowledged
        time.sleep(MEASURED_S)
        measured = (flood.acknowledged - before) / (time.monotonic() - began)
        assert flood.failed == []
    return measured


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_a_quota_of_10_mb_a_second_is_held() -> None:
    """Prints both rates. They are compared with the quota: Ottla's within 3 %."""
    rates = {}
    for kind in (OttlaProcess, GenuineKafka):
        with kind() as process:
            rates[kind.__name__] = rate(process)
    print({name: f"{value / 1e6:.2f} MB/s" for name, value in rates.items()})
    assert rates["OttlaProcess"] == pytest.approx(QUOTA, rel=0.03)
    assert rates["GenuineKafka"] == pytest.approx(QUOTA, rel=0.10)
