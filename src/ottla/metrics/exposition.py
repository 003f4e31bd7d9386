"""Measurements in the text formats that Prometheus reads: OpenMetrics, and its own.

The lines are written here, since Prometheus' client library takes five to ten times as long for a broker with 10,000
partitions; a test holds them equal to the library's. The library chooses the format, writes numbers, and measures the
process.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from prometheus_client import ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.utils import floatToGoString

from ottla.metrics.families import Kind, Measured

COUNTER_SUFFIX: Final = "_total"
OPEN_METRICS: Final = "application/openmetrics-text"
LINES_AT_A_TIME: Final = 200
"""Lines between two chances for other threads: the event loop would wait for five milliseconds again and again."""
_with_exponent: Final[Callable[[float], str]] = floatToGoString
SMALL: Final = 1_000_000
"""Whole numbers below are written without an exponent."""


class Exposition(NamedTuple):
    """An answer to a scrape."""

    content_type: str
    body: bytes


def expose(measurements: Iterable[Measured], accept: str) -> Exposition:
    """The measurements in the format that the header `Accept` prefers: OpenMetrics, or Prometheus' own."""
    encode, content_type = choose_encoder(accept)
    lines = list(_lines(measurements, is_open=content_type.startswith(OPEN_METRICS)))
    of_the_process = encode(ProcessCollector(registry=None))  # process_cpu_seconds_total and the like; the end
    return Exposition(content_type, "".join(lines).encode() + of_the_process)


def _lines(measurements: Iterable[Measured], *, is_open: bool) -> Iterator[str]:
    count = 0
    for family, samples in measurements:
        name = family.name
        shown = name.removesuffix(COUNTER_SUFFIX) if is_open and family.kind is Kind.COUNTER else name
        doc = family.doc.replace("\\", r"\\").replace("\n", r"\n")
        yield f"# HELP {shown} {_in_quotes(family.doc) if is_open else doc}\n# TYPE {shown} {family.kind.value}\n"
        keys: tuple[str, ...] = ()
        order: list[str] = []
        for labels, value, suffix in samples:
            count += 1
            if count % LINES_AT_A_TIME == 0:
                time.sleep(0)
            if not labels:
                yield f"{name}{suffix} {_number(value)}\n"
                continue
            if tuple(labels) != keys:
                keys = tuple(labels)
                order = sorted(keys)
            text = ",".join([f'{key}="{_in_quotes(labels[key])}"' for key in order])
            yield f"{name}{suffix}{{{text}}} {_number(value)}\n"


def _in_quotes(text: str) -> str:
    if "\\" in text or '"' in text or "\n" in text:
        return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
    return text


def _number(value: float) -> str:
    if -SMALL < value < SMALL and value == int(value):
        return f"{int(value)}.0" if value else str(float(value))  # minus zero is a number of its own
    return _with_exponent(value)
