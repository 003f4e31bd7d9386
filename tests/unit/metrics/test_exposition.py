"""The lines of a scrape are those of Prometheus' own library, in both formats."""

import math
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from ottla.metrics.exposition import COUNTER_SUFFIX, expose
from ottla.metrics.families import Family, Kind, Measured, Measurements, Sample, counter, gauge, summary

OPEN = "application/openmetrics-text; version=1.0.0"
HOSTILE = 'a "b"\\c\nd\u00e9\U0001f600 }'


class Gathered(Collector):
    """The same for the library."""

    def __init__(self, measured: list[Measured]) -> None:
        self._measured = measured

    def collect(self) -> Iterator[Metric]:
        for family, samples in self._measured:
            name = family.name.removesuffix(COUNTER_SUFFIX) if family.kind is Kind.COUNTER else family.name
            metric = Metric(name, family.doc, family.kind.value)
            for sample in samples:
                metric.add_sample(family.name + sample.suffix, sample.labels, sample.value)
            yield metric


def held_equal(measured: list[Measured], accept: str) -> None:
    encode, content_type = choose_encoder(accept)
    library = encode(Gathered(measured)).decode().removesuffix("# EOF\n")
    found = expose(measured, accept)
    assert found.content_type == content_type
    ours = found.body.decode()
    assert ours.startswith(library)
    assert ours[len(library) :].startswith("# HELP process_")


def everything() -> list[Measured]:
    to = Measurements()
    bytes_in = counter("x_bytes_total", "bytes", HOSTILE, "topic", "partition")
    to.add(bytes_in, 5)
    to.add(bytes_in, 1.5, HOSTILE, "0")
    to.add(bytes_in, 12345678, "t", "1")
    to.add(gauge("x_is", "", "A truth value."), True)
    to.add_quantiles(summary("x_time", "s", "Times.", "zone", "api"), [("0.5", 1e-7), ("0.99", 3)], 7, 2.25, "z", "a")
    to.add(gauge("x_none", "", ""), 0)
    return list(to)


@pytest.mark.parametrize("accept", ["", OPEN, "text/plain; version=0.0.4", f"{OPEN},text/plain;q=0.5"])
def test_every_kind_of_metric(accept: str) -> None:
    held_equal(everything(), accept)


@pytest.mark.parametrize("accept", ["", OPEN])
@pytest.mark.parametrize(
    "value", [0, -0.0, -1, 999_999, 1_000_000, 1e6 + 0.5, 2**63, 1e300, math.inf, -math.inf, math.nan]
)
def test_every_number(accept: str, value: float) -> None:
    held_equal([Measured(gauge("x", "", "d"), [Sample({}, value)])], accept)


@given(
    labels=st.dictionaries(st.from_regex(r"[a-z_]{1,4}", fullmatch=True), st.text(max_size=8), max_size=4),
    value=st.floats(),
    doc=st.text(max_size=12),
    is_open=st.booleans(),
)
def test_any_label_number_and_meaning(labels: dict[str, str], value: float, doc: str, is_open: bool) -> None:
    family = Family("x_any", Kind.GAUGE, "", doc)
    held_equal([Measured(family, [Sample(labels, value), Sample({}, value)])], OPEN if is_open else "")
