"""Rates between two looks at a broker."""

from typing import Any

from ottla.cli.top.rates import own_figures, rates


def look(at: float, produced: int, requests: int, *, clients: int = 1, topic: str = "t") -> dict[str, Any]:
    counts = {"produced_records": produced, "produced_bytes": produced * 100, "fetched_bytes": produced * 10}
    return {
        "time": at,
        "requests": requests,
        "throughput": counts,
        "topics": {topic: counts},
        "busiest_clients": [
            {
                "client_id": f"c{number}",
                "address": "h",
                "requests": requests,
                "busy_seconds": requests / 1000 * (number + 1),
                "request_bytes": 0,
                "reply_bytes": 0,
            }
            for number in range(clients)
        ],
    }


def test_rates_are_a_second_and_the_busiest_come_first() -> None:
    found = rates(look(10, 100, 10, clients=2), look(12, 300, 30, clients=2))
    assert (found.seconds, found.requests, found.total.records_in, found.total.bytes_in) == (2, 10, 100, 10_000)
    assert found.topics[0].topic == "t"
    assert [(each.client_id, round(each.busy, 6)) for each in found.clients] == [("c1", 0.02), ("c0", 0.01)]


def test_a_broker_that_was_restarted_and_what_is_new() -> None:
    assert rates(look(1000, 500, 50), look(3, 5, 5)).total.records_in == 0
    assert rates(look(10, 500, 50), look(12, 5, 5)).requests == 0
    assert rates(look(10, 0, 0, clients=0), look(12, 40, 4, topic="new")).topics[0].records_in == 20


def test_what_a_client_says_of_itself_is_the_worst_of_its_nodes() -> None:
    gauges = {
        "org.apache.kafka.producer.node.request.latency.avg": 2.5,
        "org.apache.kafka.producer.node.request.latency.max": 9.0,
        "org.apache.kafka.consumer.fetch.manager.fetch.latency.avg": 4.0,
    }
    assert own_figures(gauges) == (4.0, 9.0, None)
    assert own_figures({}) == (None, None, None)
