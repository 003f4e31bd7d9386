"""Throughput: produce and consume by Java and by librdkafka, CPU seconds of the broker for it, memory afterwards."""

import time
from collections.abc import Callable
from typing import Final

from benches.contestants import Contestant
from benches.generators import create_topic, java_consume, java_produce, librdkafka
from benches.model import Bench, Benchmark, Figure, Goal

_PARTITIONS: Final = 6
_PRODUCE_GOALS: Final = {"ottla": Goal("ratio", 1.3), "ottla-nosync": Goal("ratio", 1.6)}
_CONSUME_GOALS: Final = {name: Goal("ratio", 1.5) for name in ("ottla", "ottla-nosync")}
_CPU_GOALS: Final = {name: Goal("ratio", 0.3) for name in ("ottla", "ottla-nosync")}
_RSS_GOALS: Final = {name: Goal("value", 120) for name in ("ottla", "ottla-nosync")}


def _measure(size: int, records: int, contestant: Contestant, bench: Bench) -> dict[str, float]:
    with bench.broker(contestant) as broker:
        where = broker.bootstrap
        figures: dict[str, float] = {}

        def step(name: str, run: Callable[[], float]) -> None:
            bench.say(f"{contestant.title}: {name.replace('_', ' ')} {size} B")
            cpu_before = broker.cpu_seconds()
            figures[f"{name}_per_s"] = run()
            figures[f"{name}_cpu_s"] = broker.cpu_seconds() - cpu_before

        bench.say(f"{contestant.title}: warming up")
        create_topic(where, "warm-up", _PARTITIONS)
        warm_up = records // 5
        librdkafka("produce", where, "warm-up", records=warm_up, size=size)
        librdkafka("consume", where, "warm-up", records=warm_up)

        create_topic(where, "load", _PARTITIONS)
        step("java_produce", lambda: java_produce(where, "load", records, size))
        step(
            "rdkafka_produce",
            lambda: librdkafka("produce", where, "load", records=records, size=size)["records_per_s"],
        )
        step("java_consume", lambda: java_consume(where, "load", 2 * records))
        step("rdkafka_consume", lambda: librdkafka("consume", where, "load", records=2 * records)["records_per_s"])
        figures["cpu_s"] = sum(value for name, value in figures.items() if name.endswith("_cpu_s"))
        time.sleep(2)
        figures["rss_mb"] = broker.rss_bytes() / 1e6
        return figures


def _figures() -> tuple[Figure, ...]:
    steps = [
        ("java_produce", "Java produce", _PRODUCE_GOALS),
        ("rdkafka_produce", "librdkafka produce", _PRODUCE_GOALS),
        ("java_consume", "Java consume", _CONSUME_GOALS),
        ("rdkafka_consume", "librdkafka consume", _CONSUME_GOALS),
    ]
    rates = [Figure(f"{name}_per_s", title, "records/s", "higher", goals) for name, title, goals in steps]
    cpu = [Figure(f"{name}_cpu_s", f"{title}, broker CPU", "s", "lower") for name, title, _ in steps]
    return (
        *rates,
        *cpu,
        Figure("cpu_s", "all four, broker CPU", "s", "lower", _CPU_GOALS),
        Figure("rss_mb", "memory after the load", "MB", "lower", _RSS_GOALS),
    )


LOAD_1K: Final = Benchmark(
    "load-1k",
    "1 KB records, 6 partitions, acks=all",
    _figures(),
    lambda contestant, bench: _measure(1000, bench.scaled(1_500_000, 200_000), contestant, bench),
    disk_gb=4,
)

LOAD_100B: Final = Benchmark(
    "load-100b",
    "100 B records, 6 partitions, acks=all",
    _figures(),
    lambda contestant, bench: _measure(100, bench.scaled(6_000_000, 800_000), contestant, bench),
    disk_gb=2,
)
