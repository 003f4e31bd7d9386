"""The load behind `ottla perf`: one producer, one consumer, or both at a fixed rate, and what was measured."""

import os
import struct
import threading
import time
from array import array
from dataclasses import dataclass, field
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

from ottla.cli.brokers.failures import error_name, explain
from ottla.cli.terminal.exits import CommandFailed
from ottla.cli.terminal.progress import Progress

PAYLOADS: Final = 512
"""Distinct payloads, so that compression and caches see something like real data without making it on the way."""
STALL_S: Final = 30.0
"""Silence after which a measurement is given up."""
_STAMP: Final = struct.Struct("<qq")
"""The head of a latency probe: the time (perf_counter, ns) at which it was due, and its number."""


@dataclass(slots=True)
class Measured:
    """What one run did: counts, wall-clock seconds, and times of single records in seconds."""

    records: int = 0
    bytes: int = 0
    seconds: float = 0.0
    times_s: "array[float]" = field(default_factory=lambda: array("d"))
    failed: int = 0
    first_failure: str | None = None
    late: int = 0
    """Probes sent more than a millisecond after they were due; their delay counts as latency."""

    @property
    def records_per_s(self) -> float:
        """Records per second of wall-clock time."""
        return self.records / self.seconds if self.seconds else 0.0

    @property
    def mb_per_s(self) -> float:
        """Megabytes (10^6) of keys and values per second."""
        return self.bytes / 1e6 / self.seconds if self.seconds else 0.0


def random_payloads(record_bytes: int) -> list[bytes]:
    """Letters and digits at random: about 6 bits of news in each byte, as in ordinary text-like data."""
    return [os.urandom(record_bytes).hex()[:record_bytes].encode() for _ in range(PAYLOADS)]


def produce_load(
    producer: Producer,
    topic: str,
    *,
    records: int,
    record_bytes: int,
    rate_per_s: float | None,
    keys: int,
    progress: Progress,
) -> Measured:
    """Produce as fast as possible, or at `rate_per_s`; times run from handing over to acknowledgement."""
    measured = Measured()
    payloads = random_payloads(record_bytes)

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        if error is None:
            measured.records += 1
            measured.bytes += len(message)
            measured.times_s.append(message.latency() or 0.0)
        else:
            measured.failed += 1
            measured.first_failure = measured.first_failure or explain(error)

    begin_s = time.perf_counter()
    for number in range(records):
        if rate_per_s is not None:
            ahead_s = begin_s + number / rate_per_s - time.perf_counter()
            if ahead_s > 0:
                producer.poll(0)
                time.sleep(ahead_s)
        key = b"%d" % (number % keys) if keys else None
        while True:
            try:
                producer.produce(topic, payloads[number % PAYLOADS], key, on_delivery=on_delivery)
                break
            except BufferError:
                producer.poll(0.01)
        if not number & 255:
            producer.poll(0)
            progress.show(measured.records, measured.records)
    while producer.flush(0.2):
        progress.show(measured.records, measured.records)
    measured.seconds = time.perf_counter() - begin_s
    return measured


def consume_load(consumer: Consumer, *, records: int, progress: Progress) -> Measured:
    """Read `records` records from an assigned consumer. Raises CommandFailed when nothing comes any more."""
    measured = Measured()
    begin_s = heard_s = time.perf_counter()
    while measured.records < records:
        messages = consumer.consume(min(10_000, records - measured.records), 0.1)
        now_s = time.perf_counter()
        for message in messages:
            error = message.error()
            if error is not None:
                raise CommandFailed(f"reading stopped: {explain(error)}")
            measured.bytes += len(message)
        measured.records += len(messages)
        if messages:
            heard_s = now_s
        elif now_s - heard_s > STALL_S:
            raise CommandFailed(f"nothing came for {STALL_S:.0f} s, after {measured.records:,} of {records:,} records")
        progress.show(measured.records, measured.records)
    measured.seconds = heard_s - begin_s
    return measured


def latency_load(
    producer: Producer,
    consumer: Consumer,
    topic: str,
    *,
    rate_per_s: float,
    seconds: float,
    warm_up_s: float,
    record_bytes: int,
    progress: Progress,
) -> Measured:
    """Produce at a fixed rate and time each record until it is consumed.

    The clock of a record starts when it was due, not when it was sent: a stall of the broker delays every record due
    meanwhile, and all of them show it (no coordinated omission). The first `warm_up_s` are not counted. Raises
    CommandFailed when records do not come back.
    """
    probes = max(1, round(rate_per_s * (warm_up_s + seconds)))
    uncounted = round(rate_per_s * warm_up_s)
    padding = random_payloads(max(0, record_bytes - _STAMP.size))
    measured = Measured()
    stop = threading.Event()
    begin_ns = time.perf_counter_ns() + 50_000_000

    def on_delivery(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            measured.failed += 1
            measured.first_failure = measured.first_failure or explain(error)

    def send() -> None:
        for number in range(probes):
            due_ns = begin_ns + round(number * 1e9 / rate_per_s)
            ahead_s = (due_ns - time.perf_counter_ns()) / 1e9
            if ahead_s > 0:
                time.sleep(ahead_s)
            elif ahead_s < -0.001 and number >= uncounted:
                measured.late += 1
            if stop.is_set():
                return
            try:
                producer.produce(
                    topic, _STAMP.pack(due_ns, number) + padding[number % PAYLOADS], on_delivery=on_delivery
                )
            except (BufferError, KafkaException) as refused:
                measured.failed += 1
                measured.first_failure = measured.first_failure or explain(refused.args[0])
            producer.poll(0)

    sender = threading.Thread(target=send, name="perf-latency-sender")
    sender.start()
    try:
        _receive(consumer, measured, probes, uncounted, progress)
    finally:
        stop.set()
        sender.join()
        producer.flush(5)
    measured.seconds = (probes - uncounted) / rate_per_s
    return measured


def _receive(consumer: Consumer, measured: Measured, probes: int, uncounted: int, progress: Progress) -> None:
    came = 0
    heard_s = time.perf_counter()
    while came + measured.failed < probes:
        message = consumer.poll(0.1)
        now_ns = time.perf_counter_ns()
        if message is None:
            if now_ns / 1e9 - heard_s > STALL_S:
                raise CommandFailed(f"{probes - came:,} of {probes:,} records did not come back within {STALL_S:.0f} s")
            continue
        error = message.error()
        if error is not None:
            if error_name(error) == "_ALL_BROKERS_DOWN":
                continue
            raise CommandFailed(f"reading stopped: {explain(error)}")
        heard_s = now_ns / 1e9
        due_ns, number = _STAMP.unpack_from(message.value() or b"")
        came += 1
        if number >= uncounted:
            measured.records += 1
            measured.bytes += len(message)
            measured.times_s.append((now_ns - due_ns) / 1e9)
        progress.show(came, came)
