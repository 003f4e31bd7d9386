"""Clients' own metrics as series, whatever clients send."""

import math
from uuid import UUID

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ottla.metrics.exposition import expose
from ottla.metrics.otlp import Metric
from ottla.server import client_metrics as module
from ottla.server.client_metrics import BURST_S, ClientSeries, DecodingBudget

SENT = "org.apache.kafka.producer.record.send.total"
LATENCY = "org.apache.kafka.producer.node.request.latency.avg"
Samples = dict[tuple[str, ...], float]


def push(series: ClientSeries, number: int, *metrics: Metric, at_s: float = 0.0, is_last: bool = False) -> None:
    series.take(UUID(int=number), f"c{number}", "lib 1", "127.0.0.1", metrics, at_s, 10.0, is_last=is_last)


def shown(series: ClientSeries, now_s: float = 0.0, accept: str = "") -> Samples:
    text = expose(series.measured(now_s), accept).body.decode()
    return {
        (sample.name, sample.labels["client_id"], *(v for k, v in sample.labels.items() if k in ("node", "client"))): (
            sample.value
        )
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("ottla_client_")
    }


def test_sums_add_up_and_gauges_are_the_last_one() -> None:
    series = ClientSeries(0.0)
    for sent, latency in ((5, 2.5), (7, 1.5)):
        push(series, 1, Metric(SENT, "delta", sent, {}), Metric(LATENCY, "gauge", latency, {"node": "0"}))
    push(series, 2, Metric(SENT, "sum", 100, {}))
    assert shown(series) == {
        ("ottla_client_producer_record_send_total", "c1"): 12,
        ("ottla_client_producer_record_send_total", "c2"): 100,
        ("ottla_client_producer_node_request_latency_avg", "c1", "0"): 1.5,
    }
    (second, first) = series.figures(0.0)
    assert (first.client_id, first.series, first.values) == ("c1", 2, {LATENCY: 1.5})
    assert second.software == "lib 1"


def test_series_end_with_the_last_push_and_with_silence() -> None:
    series = ClientSeries(0.0)
    push(series, 1, Metric(SENT, "delta", 1, {}))
    push(series, 2, Metric(SENT, "delta", 1, {}), at_s=30.0)
    assert len(series) == 2
    push(series, 1, is_last=True, at_s=31.0)
    assert [key[1] for key in shown(series, 31.0)] == ["c2"]
    assert shown(series, 89.0) != {}
    assert shown(series, 91.0) == {}
    assert (len(series), series.figures(91.0)) == (0, [])


def test_clients_series_and_names_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, most in (("MOST_CLIENTS", 3), ("MOST_SERIES_OF_CLIENT", 4), ("MOST_SERIES", 10), ("MOST_NAMES", 5)):
        monkeypatch.setattr(module, name, most)
    series = ClientSeries(0.0)
    for number in range(6):
        push(series, number, *(Metric("a", "gauge", 1, {"node": str(each)}) for each in range(50)))
    assert len(series) == len(shown(series)) == 10
    assert series.left_out["clients"] == 3
    assert series.left_out["series"] == 3 * 50 - 10
    for number in range(3):
        push(series, number, is_last=True)
    push(series, 1, *(Metric(f"n{each}", "gauge", 1, {}) for each in range(4)))
    push(series, 2, *(Metric(f"m{each}", "gauge", 1, {}) for each in range(4)))
    assert len({key[0] for key in shown(series)}) == 5


@pytest.mark.parametrize("accept", ["", "application/openmetrics-text"])
def test_hostile_names_and_values_make_no_other_series(accept: str) -> None:
    series = ClientSeries(0.0)
    hostile = 'x"} 1\nkafka_fake 2\n'
    push(
        series,
        1,
        Metric(hostile, "gauge", 1, {hostile: hostile, "client_id": "another", "__name__": "y", "9": "z", "": ""}),
        Metric("series", "gauge", 1, {}),
        Metric("metrics.left.out.total", "delta", 1, {}),
        Metric("same", "gauge", 1, {}),
        Metric("same", "delta", 1, {}),
        Metric("other", "delta", 1, {}),
        Metric("other.total", "gauge", 1, {}),
        Metric("é" * 10_000, "gauge", 1, {"k" * 10_000: "v" * 10_000}),
        Metric("none", "gauge", math.nan, {}),
        Metric("falls", "delta", -5, {}),
    )
    found = {name for name, *_ in shown(series)}
    assert found == {
        "ottla_client_x_1_kafka_fake_2",
        "ottla_client_same",
        "ottla_client_other_total",
        "ottla_client_",
        "ottla_client_falls_total",
    }
    assert {key[1] for key in shown(series)} == {"c1"}
    assert len(expose(series.measured(0.0), accept).body) < 10_000


def test_decoding_takes_a_share_of_the_time() -> None:
    budget = DecodingBudget(0.0)
    spent_s = 0.0
    for millisecond in range(100_000):
        if budget.has_some(millisecond / 1000):
            budget.spend(0.01)
            spent_s += 0.01
    assert spent_s == pytest.approx(100 * module.BUSY_SHARE + BURST_S, abs=0.1)
