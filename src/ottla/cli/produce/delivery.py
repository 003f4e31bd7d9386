"""Handing records to a producer and keeping account of what the broker acknowledged and what failed, and why."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from ottla.cli.brokers.failures import explain
from ottla.cli.terminal.interruption import held_back
from ottla.cli.terminal.output import note, plural
from ottla.cli.terminal.record_lines import OutgoingRecord

SHOWN_FAILURES: Final = 5
_STEP_S: Final = 0.2
_SILENCE_S: Final = 5.0
"""Silence after which the user is warned that nothing is being acknowledged."""


@dataclass(slots=True)
class Deliveries:
    """The account of one run: numbers of records and bytes, and the first failures with their line numbers."""

    producer: Producer
    topic: str
    handed_over: int = 0
    acknowledged: int = 0
    acknowledged_bytes: int = 0
    failed: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    first_failures: list[tuple[int, str]] = field(default_factory=list)

    def send(self, record: OutgoingRecord, line_number: int) -> None:
        """Queue a record, waiting for room if the queue is full; what happens to it is counted later, in `poll`."""
        produce = partial(
            self.producer.produce,
            self.topic,
            record.value,
            record.key,
            record.partition,
            headers=list(record.headers) or None,
            timestamp=record.timestamp_ms,
            on_delivery=partial(self._on_delivery, line_number),
        )
        while True:
            try:
                produce()
            except BufferError:  # the client's queue is full: the network is slower than the input
                self._take(lambda: self.producer.poll(0.05))
            except KafkaException as refused:
                self._count_failure(line_number, refused.args[0])
                return
            else:
                self.handed_over += 1
                return

    def poll(self) -> None:
        """Take the acknowledgements that have arrived."""
        self._take(lambda: self.producer.poll(0))

    @staticmethod
    def _take(ask: Callable[[], int]) -> int:
        """Let the client deliver acknowledgements uninterrupted: an interruption would leave one uncounted."""
        with held_back():
            return ask()

    def flush(self, *, timeout_s: float | None = None) -> int:
        """Wait until everything queued is acknowledged or has failed; returns how many are still open at the end."""
        began = last_answer = time.monotonic()
        answered = self.acknowledged + self.failed
        told = False
        # In short steps, because the client does not see Ctrl-C while it waits.
        while open_records := self._take(lambda: self.producer.flush(_STEP_S)):
            now = time.monotonic()
            if timeout_s is not None and now - began >= timeout_s:
                break
            if answered != self.acknowledged + self.failed:
                answered, last_answer = self.acknowledged + self.failed, now
            elif not told and now - last_answer >= _SILENCE_S:
                told = True
                note(
                    f"ottla: no answer about {plural(open_records, 'record')} for {_SILENCE_S:.0f} s; still trying. "
                    "The broker's log may show the cause"
                )
        return open_records

    def give_up(self) -> None:
        """Drop what is still queued or unacknowledged, counting it as failed."""
        self.producer.purge()
        self._take(lambda: self.producer.flush(1))

    def _on_delivery(self, line_number: int, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged += 1
            self.acknowledged_bytes += len(message)
        else:
            self._count_failure(line_number, error)

    def _count_failure(self, line_number: int, error: KafkaError) -> None:
        self.failed += 1
        reason = explain(error)
        self.reasons[reason] += 1
        if len(self.first_failures) < SHOWN_FAILURES:
            self.first_failures.append((line_number, reason))
