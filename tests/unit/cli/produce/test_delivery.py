"""The account of a producer's records holds whatever interrupts it."""

import os
import signal
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
from confluent_kafka import Producer

from ottla.cli.produce.delivery import Deliveries
from ottla.cli.terminal import interruption
from ottla.cli.terminal.record_lines import OutgoingRecord


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    interruption.install()
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


class InterruptedProducer:
    """Acknowledges every record when asked; the signal comes while it does."""

    def __init__(self) -> None:
        self._waiting: list[Callable[[None, bytes], None]] = []

    def produce(self, *_: object, on_delivery: Callable[[None, bytes], None], **__: object) -> None:
        self._waiting.append(on_delivery)

    def poll(self, _timeout_s: float) -> int:
        for deliver in self._waiting:
            os.kill(os.getpid(), signal.SIGTERM)
            deliver(None, b"abc")
        self._waiting = []
        return 0

    flush = poll


@pytest.mark.parametrize("take", [Deliveries.poll, Deliveries.flush], ids=["poll", "flush"])
def test_a_record_that_is_acknowledged_while_a_signal_comes_is_counted(take: Callable[[Deliveries], Any]) -> None:
    deliveries = Deliveries(cast(Producer, InterruptedProducer()), "orders")
    deliveries.send(OutgoingRecord(None, b"abc"), 1)
    with pytest.raises(interruption.Terminated):
        take(deliveries)
    assert (deliveries.acknowledged, deliveries.acknowledged_bytes, deliveries.failed) == (1, 3, 0)
