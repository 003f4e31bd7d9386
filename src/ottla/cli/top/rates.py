"""From two looks at a broker's `/debug` page to what happened in between. PURE."""

from collections.abc import Mapping
from typing import Any, NamedTuple

Look = Mapping[str, Any]
"""The page, as JSON."""


class TopicRate(NamedTuple):
    """A topic's rates, each a second."""

    topic: str
    records_in: float
    bytes_in: float
    bytes_out: float


class ClientRate(NamedTuple):
    """A client's rates. `busy` is the share of the broker's one core that its requests take until they are handled."""

    client_id: str
    address: str
    requests: float
    busy: float
    bytes_in: float
    bytes_out: float


class Rates(NamedTuple):
    """What a broker did between two looks."""

    seconds: float
    requests: float
    total: TopicRate
    topics: list[TopicRate]
    clients: list[ClientRate]


def rates(before: Look, now: Look) -> Rates:
    """The rates between two looks; zero where a broker was restarted meanwhile. The busiest come first."""
    seconds: float = now["time"] - before["time"]
    if seconds <= 0:
        before, seconds = now, 1.0

    def per_second(count: float, count_before: float) -> float:
        return max(count - count_before, 0) / seconds

    def topic(name: str, counts: Mapping[str, int], earlier: Mapping[str, int]) -> TopicRate:
        return TopicRate(
            name,
            *(
                per_second(counts[each], earlier.get(each, 0))
                for each in ("produced_records", "produced_bytes", "fetched_bytes")
            ),
        )

    clients_before = {(each["client_id"], each["address"]): each for each in before["busiest_clients"]}
    clients = []
    for each in now["busiest_clients"]:
        earlier = clients_before.get((each["client_id"], each["address"]), {})
        clients.append(
            ClientRate(
                each["client_id"],
                each["address"],
                *(
                    per_second(each[counted], earlier.get(counted, 0))
                    for counted in ("requests", "busy_seconds", "request_bytes", "reply_bytes")
                ),
            )
        )
    topics = [topic(name, counts, before["topics"].get(name, {})) for name, counts in now["topics"].items()]
    return Rates(
        seconds,
        per_second(now["requests"], before["requests"]),
        topic("all", now["throughput"], before["throughput"]),
        sorted(topics, key=lambda each: each.bytes_in + each.bytes_out, reverse=True),
        sorted(clients, key=lambda each: each.busy, reverse=True),
    )


class OwnFigures(NamedTuple):
    """What a client measures itself, in milliseconds; None if it does not say."""

    latency: float | None
    longest: float | None
    throttled: float | None


def own_figures(gauges: Mapping[str, float]) -> OwnFigures:
    """The worst of a client's nodes, from gauges by their names as clients send them (KIP-714)."""

    def worst(*ends: str) -> float | None:
        return max((value for name, value in gauges.items() if name.endswith(ends)), default=None)

    return OwnFigures(
        worst("request.latency.avg", "fetch.latency.avg"),
        worst("request.latency.max", "fetch.latency.max"),
        worst("throttle.time.avg"),
    )
