"""What clients send as their metrics is read; anything else is refused, whatever it is."""

import random
from contextlib import suppress
from struct import pack

import pytest

from ottla.metrics.otlp import MalformedTelemetry, Metric, decode_metrics


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def message(number: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return varint(number << 3 | 2) + varint(len(body)) + body


def text(number: int, value: str) -> bytes:
    return message(number, value.encode())


def fixed(number: int, form: str, value: float) -> bytes:
    return varint(number << 3 | 1) + pack(form, value)


def label(number: int, key: str, value: bytes) -> bytes:
    return message(number, text(1, key), message(2, value))


def push(*metrics: bytes) -> bytes:
    scope = message(2, message(1, text(1, "scope")), *(message(2, metric) for metric in metrics))
    return message(1, message(1, label(1, "ignored", text(1, "x"))), scope)


GAUGE = text(1, "a.gauge") + text(3, "ms") + message(5, message(1, fixed(4, "<d", 1.5), label(7, "node", text(1, "é"))))
SUM = text(1, "a.sum") + message(
    7, message(1, fixed(6, "<q", -3), label(7, "id", varint(3 << 3) + varint(-1))), varint(2 << 3) + b"\x02"
)
DELTA = text(1, "a.delta") + message(7, varint(2 << 3) + b"\x01", message(1, fixed(6, "<q", 7)), message(1, b""))
HISTOGRAM = text(1, "a.histogram") + message(9, message(1, fixed(4, "<Q", 2), fixed(5, "<d", 2.5)))


def test_metrics_of_every_kind() -> None:
    assert decode_metrics(push(GAUGE, SUM) + push(DELTA, HISTOGRAM)) == [
        Metric("a.gauge", "gauge", 1.5, {"node": "é"}),
        Metric("a.sum", "sum", -3, {"id": "-1"}),
        Metric("a.delta", "delta", 7, {}),
        Metric("a.delta", "delta", 0.0, {}),
        Metric("a.histogram", "histogram", 2.5, {}),
    ]
    assert decode_metrics(b"") == []


@pytest.mark.parametrize(
    "data",
    [
        message(1, b"\x0a\xff\xff\xff\xff\x0f"),  # a length of 4 GB
        b"\x0a" + b"\xff" * 12,  # a length without an end
        b"\x0b",  # a group, a wire type out of use for years
        push(GAUGE)[:-1],
        push(text(1, "") + message(5, message(1, label(7, "k", message(1, b"\xff"))))),
    ],
)
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(MalformedTelemetry):
        decode_metrics(data)


def test_damaged_metrics_are_read_or_refused() -> None:
    chance, whole = random.Random(714), push(GAUGE, SUM, DELTA, HISTOGRAM)
    for _ in range(2_000):
        damaged = bytearray(whole[: chance.randrange(len(whole))] if chance.random() < 0.5 else whole)
        for _ in range(chance.randrange(4)):
            if damaged:
                damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        with suppress(MalformedTelemetry):
            decode_metrics(bytes(damaged))
