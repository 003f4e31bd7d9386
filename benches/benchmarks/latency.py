"""From the moment a record is due to the moment a consumer has it, at a fixed rate."""

from typing import Final

from benches.contestants import Contestant
from benches.generators import create_topic, librdkafka
from benches.model import Bench, Benchmark, Figure, Goal

RATE: Final = 500
_P50_GOALS: Final = {name: Goal("ratio", 0.5) for name in ("ottla", "ottla-nosync")}
_P99_GOALS: Final = {name: Goal("ratio", 0.4) for name in ("ottla", "ottla-nosync")}


def _measure(contestant: Contestant, bench: Bench) -> dict[str, float]:
    with bench.broker(contestant) as broker:
        create_topic(broker.bootstrap, "latency", 6)
        bench.say(f"{contestant.title}: {RATE} records a second")
        warm_up, seconds = (3, 8) if bench.quick else (15, 30)
        cpu_before = broker.cpu_seconds()
        times = librdkafka(
            "latency", broker.bootstrap, "latency", rate=RATE, warm_up=warm_up, seconds=seconds, size=1000
        )
        cpu_s = broker.cpu_seconds() - cpu_before
        return {
            "p50_ms": times["p50"],
            "p99_ms": times["p99"],
            "p999_ms": times["p999"],
            "cpu_share": 100 * cpu_s / (warm_up + seconds),
        }


LATENCY: Final = Benchmark(
    "latency",
    f"Produce to consume at {RATE}/s, 1 KB, acks=all, no linger",
    (
        Figure("p50_ms", "p50", "ms", "lower", _P50_GOALS),
        Figure("p99_ms", "p99", "ms", "lower", _P99_GOALS),
        Figure("p999_ms", "p99.9", "ms", "lower"),
        Figure("cpu_share", "broker CPU", "% of a core", "lower"),
    ),
    _measure,
    disk_gb=0.2,
)
