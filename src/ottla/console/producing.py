"""Records that the console writes: new ones from a form, or one that is there once more, with the same bytes."""

import threading
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from ottla.console.scanning import Scan, Trouble, consumer_of
from ottla.console.sight import as_bytes, headers_of
from ottla.console.values import read_json

FORMATS: Final = ("text", "json", "hex", "null")
"""How a form gives a key or value; `null` is none at all."""
MOST_HEADERS: Final = 100
TIMEOUT_S: Final = 15.0
ANY: Final = -1
"""The partition that the partitioner of Kafka's clients gives a key, or any one without a key."""
LARGEST_BYTES: Final = 1_000_000_000
"""What librdkafka can send at most; brokers and topics have smaller limits, which they enforce."""


class Contents(NamedTuple):
    """What is written."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    partition: int = ANY

    @property
    def size(self) -> int:
        """Bytes of key and value."""
        return len(self.key or b"") + len(self.value or b"")


class Written(NamedTuple):
    """Where it is."""

    partition: int
    offset: int


class ContentsProblem(ValueError):
    """A form describes no record; the message has the reason."""


def contents_of(form: Mapping[str, str], partitions: int) -> Contents:
    """The record that a form describes. Raises ContentsProblem. PURE."""
    chosen = form.get("partition", "")
    if chosen and (not chosen.isascii() or not chosen.isdigit() or int(chosen[:10]) >= partitions):
        raise ContentsProblem(f"there is no partition {chosen!r}: they are 0 to {partitions - 1}")
    key, value = (_part(name, form) for name in ("key", "value"))
    return Contents(key, value, _headers(form.get("headers", "")), int(chosen) if chosen else ANY)


def _part(name: str, form: Mapping[str, str]) -> bytes | None:
    kind, text = form.get(f"{name}_as", "text"), form.get(name, "")
    if kind == "null":
        if text:
            raise ContentsProblem(f"the {name} is null, and has a text: empty it, or choose another form")
        return None
    if kind == "hex":
        try:
            return bytes.fromhex(text)
        except ValueError:
            raise ContentsProblem(f"the {name} has other letters than hexadecimal digits") from None
    if kind not in FORMATS:
        raise ContentsProblem(f"the {name} is one of {', '.join(FORMATS)}, not {kind!r}")
    data = text.replace("\r\n", "\n").encode("utf-8", "surrogatepass")  # forms send lines so
    if kind == "json" and read_json(data) is None:
        raise ContentsProblem(f"the {name} is no object or list of JSON; choose text to write it as it is")
    return data


def _headers(text: str) -> tuple[tuple[str, bytes | None], ...]:
    """A header a line, `name: value`; without a colon its value is null."""
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) > MOST_HEADERS:
        raise ContentsProblem(f"there are more than {MOST_HEADERS} headers")
    found: list[tuple[str, bytes | None]] = []
    for line in lines:
        name, colon, value = line.partition(":")
        found.append((name.strip(), value.strip().encode("utf-8", "surrogatepass") if colon else None))
    return tuple(found)


def read_again(properties: Mapping[str, Any], topic: str, partition: int, offset: int) -> Contents | None:
    """The record at a place, exactly as it is; None if there is none. Blocks. Raises Trouble."""
    place = {partition: (offset, offset + 1)}
    with consumer_of(properties) as consumer:
        for messages in Scan(consumer, topic, place, threading.Event(), TIMEOUT_S).read(place):
            for message in messages:
                key, value = as_bytes(message.key()), as_bytes(message.value())
                return Contents(key, value, tuple(headers_of(message)), partition)
    return None


def write(properties: Mapping[str, Any], topic: str, contents: Contents) -> Written:
    """Write a record, and wait until all in-sync replicas have it. Blocks. Raises KafkaException, Trouble."""
    producer = Producer(
        {
            **properties,
            "client.id": "ottla-console",
            "acks": "all",
            "partitioner": "murmur2_random",  # where the Java client puts keys
            "message.timeout.ms": int(TIMEOUT_S * 1000),
            "message.max.bytes": LARGEST_BYTES,
            "log_level": 2,
        }
    )
    answers: list[tuple[KafkaError | None, Message]] = []
    producer.produce(
        topic,
        value=contents.value,
        key=contents.key,
        headers=list(contents.headers),
        on_delivery=lambda error, message: answers.append((error, message)),
        partition=contents.partition,
    )
    producer.flush(TIMEOUT_S + 5)
    if not answers:
        raise Trouble("the brokers have not answered in time; the record may have been written")
    error, message = answers[0]
    if error is not None:
        raise KafkaException(error)
    return Written(message.partition() or 0, message.offset() or 0)
