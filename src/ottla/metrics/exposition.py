"""Measurements in the text formats that Prometheus reads, by its own client library."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from prometheus_client import Metric, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from ottla.metrics.families import Kind, Measured

COUNTER_SUFFIX = "_total"


class _Gathered(Collector):
    """What the library's encoders ask for metrics."""

    def __init__(self, measurements: Iterable[Measured]) -> None:
        self._measurements = measurements

    def collect(self) -> Iterator[Metric]:
        for family, samples in self._measurements:
            name = family.name.removesuffix(COUNTER_SUFFIX) if family.kind is Kind.COUNTER else family.name
            metric = Metric(name, family.doc, family.kind.value)
            for sample in samples:
                metric.add_sample(family.name + sample.suffix, sample.labels, sample.value)
            yield metric
        yield from ProcessCollector(registry=None).collect()  # process_cpu_seconds_total and the like


class Exposition(NamedTuple):
    """An answer to a scrape."""

    content_type: str
    body: bytes


def expose(measurements: Iterable[Measured], accept: str) -> Exposition:
    """The measurements in the format that the header `Accept` prefers: OpenMetrics, or Prometheus' own."""
    encode, content_type = choose_encoder(accept)
    return Exposition(content_type, encode(_Gathered(measurements)))
