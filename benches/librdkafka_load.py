"""Load by librdkafka, in a process of its own: `python -m benches.librdkafka_load produce|consume|latency ...`.

Prints one line of JSON. Every record is acknowledged (acks=all) or the program fails.
"""

import argparse
import json
import sys
import threading
import time
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

_BATCH: Final = 2_000


def _fail_on(error: KafkaError | None, _: Message) -> None:
    if error is not None:
        raise KafkaException(error)


def produce(bootstrap: str, topic: str, records: int, size: int, client: dict[str, str]) -> dict[str, float]:
    """Produce `records` of `size` bytes over all partitions as fast as they are taken; seconds until the last ack."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "delivery.report.only.error": True,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 262_144,
            **client,
        }
    )
    producer.list_topics(topic, timeout=30)
    payload = bytes(index % 256 for index in range(size))
    batch: list[dict[str, Any]] = [{"value": payload}] * _BATCH
    started = time.perf_counter()
    left = records
    while left:
        queued = producer.produce_batch(topic, batch if left >= _BATCH else batch[:left], on_delivery=_fail_on)
        left -= queued
        producer.poll(0 if queued else 0.01)
    if waiting := producer.flush(120):
        raise TimeoutError(f"{waiting} records were not acknowledged")
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "records_per_s": records / seconds, "mb_per_s": records * size / seconds / 1e6}


def consume(bootstrap: str, topic: str, records: int, client: dict[str, str]) -> dict[str, float]:
    """Read `records` from the beginning of all partitions; seconds from the first record to the last."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "check.crcs": True,
            "fetch.queue.backoff.ms": 5,
            "queued.min.messages": 1_000_000,
            "queued.max.messages.kbytes": 262_144,
            **client,
        }
    )
    partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    size = seen = 0
    started = 0.0
    while seen < records:
        messages = consumer.consume(10_000, 30)
        if not messages:
            raise TimeoutError(f"nothing came for long after {seen} of {records} records")
        if not started:
            started = time.perf_counter()
            first = len(messages)
        for message in messages:
            if (error := message.error()) is not None:
                raise KafkaException(error)
            size += len(message)
        seen += len(messages)
    seconds = time.perf_counter() - started
    consumer.close()
    return {"seconds": seconds, "records_per_s": (seen - first) / seconds, "mb_per_s": size / seconds / 1e6}


def latency(
    bootstrap: str, topic: str, rate: int, warm_up_s: float, seconds: float, size: int, sink: str | None = None
) -> dict[str, float]:
    """Milliseconds from the moment a record was due to the moment its consumer has it, who reads from the topic `sink`
    if someone else brings the records there.

    Record n is due at start + n / rate, whatever became of those before it, and carries that time: a broker that
    stalls is charged for all that should have been sent meanwhile.
    """
    settings = {"bootstrap.servers": bootstrap, "socket.nagle.disable": True}
    producer = Producer({**settings, "acks": "all", "linger.ms": 0})
    consumer = Consumer({**settings, "group.id": "unused", "enable.auto.commit": False, "fetch.min.bytes": 1})
    read_from = sink or topic
    partitions = producer.list_topics(read_from, timeout=30).topics[read_from].partitions
    consumer.assign([TopicPartition(read_from, partition, 0) for partition in partitions])
    consumer.consume(1, 1.0)  # every partition is being fetched before the first record is due
    filler = b"x" * (size - 8)
    count = int((warm_up_s + seconds) * rate)
    begin_ns = time.monotonic_ns() + 200_000_000
    failures: list[BaseException] = []

    def send() -> None:
        try:
            for number in range(count):
                due_ns = begin_ns + number * 1_000_000_000 // rate
                wait_s = (due_ns - time.monotonic_ns()) / 1e9
                if wait_s > 0:
                    time.sleep(wait_s)
                producer.produce(topic, due_ns.to_bytes(8, "big") + filler, on_delivery=_fail_on)
                producer.poll(0)
            producer.flush(60)
        except BaseException as error:
            failures.append(error)
            raise

    sender = threading.Thread(target=send)
    sender.start()
    measured_from_ns = begin_ns + int(warm_up_s * 1e9)
    delays: list[float] = []
    seen = 0
    while seen < count:
        message = consumer.poll(90 if sink else 30)
        now_ns = time.monotonic_ns()
        if message is None or failures:
            raise TimeoutError(f"nothing came for long after {seen} of {count} records: {failures}")
        if (error := message.error()) is not None:
            raise KafkaException(error)
        seen += 1
        due_ns = int.from_bytes((message.value() or b"")[:8], "big")
        if due_ns >= measured_from_ns:
            delays.append((now_ns - due_ns) / 1e6)
    sender.join()
    consumer.close()
    delays.sort()
    at = {name: delays[int(len(delays) * share)] for name, share in (("p50", 0.5), ("p99", 0.99), ("p999", 0.999))}
    return {**at, "max": delays[-1], "records": len(delays)}


def main(arguments: list[str]) -> None:
    """Parse the command line, run, print the result."""
    parser = argparse.ArgumentParser(prog="benches.librdkafka_load")
    parser.add_argument("what", choices=["produce", "consume", "latency"])
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--records", type=int, default=0)
    parser.add_argument("--size", type=int, default=1000)
    parser.add_argument("--rate", type=int, default=500)
    parser.add_argument("--warm-up", type=float, default=5.0)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--client", action="append", default=[], metavar="KEY=VALUE")
    given = parser.parse_args(arguments)
    client = dict(setting.split("=", 1) for setting in given.client)
    if given.what == "produce":
        result = produce(given.bootstrap, given.topic, given.records, given.size, client)
    elif given.what == "consume":
        result = consume(given.bootstrap, given.topic, given.records, client)
    else:
        result = latency(given.bootstrap, given.topic, given.rate, given.warm_up, given.seconds, given.size)
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1:])
