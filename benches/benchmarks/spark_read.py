"""Topics read by Spark: the source `ottla` beside Spark's own connector, in one session and on the same topic."""

from typing import Final

from benches.contestants import BASELINE, Contestant
from benches.generators import create_topic, librdkafka, spark
from benches.model import Bench, Benchmark, Figure, Goal

_PARTITIONS: Final = 6
_BROKERS: Final = frozenset(("ottla", BASELINE))
_SIZES: Final = (("1k", "1 KB", 1000, 2_000_000, 100_000), ("100b", "100 B", 100, 10_000_000, 500_000))
_SINKS: Final = ("noop", "parquet")
_GOALS: Final = {"1k_noop": 2.5, "1k_parquet": 1.8, "100b_noop": 3.0, "100b_parquet": 2.0}
_RATE: Final = 1_000


def _on_both(limit: float) -> dict[str, Goal]:
    return {name: Goal("value", limit) for name in _BROKERS}


def _measure(contestant: Contestant, bench: Bench) -> dict[str, float]:
    figures: dict[str, float] = {}
    with bench.broker(contestant) as broker:
        for name, title, size, full, quick in _SIZES:
            records = bench.scaled(full, quick)
            bench.say(f"{contestant.title}: filling a topic with {title}")
            create_topic(broker.bootstrap, name, _PARTITIONS)
            librdkafka("produce", broker.bootstrap, name, records=records, size=size)
            bench.say(f"{contestant.title}: Spark reads {title}, both connectors in turn")
            rounds = bench.scaled(3, 1)
            found = spark("read", broker.bootstrap, name, records=records, sink=",".join(_SINKS), rounds=rounds)
            figures |= {f"{name}_{figure}": value for figure, value in found.items()}
    for memory in ("worker_rss_mb", "worker_pss_mb"):
        figures[memory] = max(value for name, value in figures.items() if name.endswith(memory))
    return figures


def _figures() -> tuple[Figure, ...]:
    found = []
    for name, title, *_ in _SIZES:
        for sink in _SINKS:
            key, what = f"{name}_{sink}", f"{title} to {sink}"
            goal = _on_both(_GOALS[key])
            found += [
                Figure(f"{key}_ottla_per_s", f"{what}, source ottla", "records/s", "higher"),
                Figure(f"{key}_kafka_per_s", f"{what}, Spark's own", "records/s", "higher"),
                Figure(f"{key}_ratio", f"{what}, ottla / Spark's own", "x", "higher", goal),
                Figure(f"{key}_cpu_ratio", f"{what}, CPU of Spark, ottla / its own", "x", "lower"),
            ]
    memory = Figure("worker_rss_mb", "most memory of a Python worker", "MB", "lower", _on_both(300))
    return (*found, memory, Figure("worker_pss_mb", "the same, shared pages in part", "MB", "lower"))


def _measure_latency(contestant: Contestant, bench: Bench) -> dict[str, float]:
    with bench.broker(contestant) as broker:
        bench.say(f"{contestant.title}: {_RATE} records a second through Spark, by both connectors in turn")
        times = {"warm_up": 5, "seconds": bench.scaled(18, 5)}
        return spark("latency", broker.bootstrap, "in", sink="out", rate=_RATE, **times)


SPARK_READ: Final = Benchmark(
    "spark-read",
    f"Spark reads {_PARTITIONS} partitions, both connectors on the same topic",
    _figures(),
    _measure,
    disk_gb=6,
    contestants=_BROKERS,
)

SPARK_LATENCY: Final = Benchmark(
    "spark-latency",
    f"{_RATE} records/s through Spark from topic to topic, at-least-once, trigger as soon as possible",
    (
        Figure("ottla_p50_ms", "source and sink ottla, p50", "ms", "lower"),
        Figure("kafka_p50_ms", "Spark's own, p50", "ms", "lower"),
        Figure("p50_ratio", "ottla / Spark's own, p50", "x", "lower", _on_both(0.8)),
        Figure("ottla_p99_ms", "source and sink ottla, p99", "ms", "lower"),
        Figure("kafka_p99_ms", "Spark's own, p99", "ms", "lower"),
        Figure("p99_ratio", "ottla / Spark's own, p99", "x", "lower", _on_both(0.6)),
    ),
    _measure_latency,
    disk_gb=1,
    contestants=_BROKERS,
)
