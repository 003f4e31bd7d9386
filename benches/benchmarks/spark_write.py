"""Topics written by Spark: the sink `ottla` beside Spark's own, and what exactly-once costs."""

from typing import Final

from benches.contestants import BASELINE, Contestant
from benches.generators import create_topic, librdkafka, spark_write
from benches.model import Bench, Benchmark, Figure, Goal

_PARTITIONS: Final = 6
_BROKERS: Final = frozenset(("ottla", BASELINE))
_SIZES: Final = (("1k", "1 KB", 1000, 2_000_000, 100_000), ("100b", "100 B", 100, 10_000_000, 500_000))

_GOALS: Final = {"1k": 1.5, "100b": 1.8}


def _measure(contestant: Contestant, bench: Bench) -> dict[str, float]:
    figures: dict[str, float] = {}
    rounds = bench.scaled(3, 1)
    with bench.broker(contestant) as broker:
        for name, title, size, full, quick in _SIZES:
            records = bench.scaled(full, quick)
            bench.say(f"{contestant.title}: Spark writes {title}, both sinks in turn")
            found = spark_write("sink", broker.bootstrap, records=records, size=size, rounds=rounds)
            figures |= {f"sink_{name}_{figure}": value for figure, value in found.items()}
            bench.say(f"{contestant.title}: filling a topic with {title}")
            create_topic(broker.bootstrap, name, _PARTITIONS)
            librdkafka("produce", broker.bootstrap, name, records=records, size=size)
            bench.say(f"{contestant.title}: Spark copies {title}, with both guarantees in turn")
            found = spark_write("copy", broker.bootstrap, topic=name, records=records, rounds=rounds)
            figures |= {f"copy_{name}_{figure}": value for figure, value in found.items()}
    for memory in ("worker_rss_mb", "worker_pss_mb"):
        figures[memory] = max(value for name, value in figures.items() if name.endswith(memory))
    return figures


def _figures() -> tuple[Figure, ...]:
    def on_both(limit: float) -> dict[str, Goal]:
        return {name: Goal("value", limit) for name in _BROKERS}

    found = []
    for name, title, *_ in _SIZES:
        found += [
            Figure(f"sink_{name}_ottla_per_s", f"{title}, sink ottla", "records/s", "higher"),
            Figure(f"sink_{name}_kafka_per_s", f"{title}, Spark's own", "records/s", "higher"),
            Figure(f"sink_{name}_ratio", f"{title}, ottla / Spark's own", "x", "higher", on_both(_GOALS[name])),
            Figure(f"sink_{name}_cpu_ratio", f"{title}, CPU of Spark, ottla / its own", "x", "lower"),
            Figure(f"copy_{name}_exactly-once_per_s", f"{title}, topic to topic, exactly-once", "records/s", "higher"),
            Figure(
                f"copy_{name}_at-least-once_per_s", f"{title}, topic to topic, at-least-once", "records/s", "higher"
            ),
            Figure(f"copy_{name}_ratio", f"{title}, exactly-once / at-least-once", "x", "higher", on_both(0.8)),
        ]
    memory = Figure("worker_rss_mb", "most memory of a Python worker", "MB", "lower", on_both(300))
    return (*found, memory, Figure("worker_pss_mb", "the same, shared pages in part", "MB", "lower"))


SPARK_WRITE: Final = Benchmark(
    "spark-write",
    f"Spark writes {_PARTITIONS} partitions, both sinks in one session; a stream in ten micro-batches",
    _figures(),
    _measure,
    disk_gb=8,
    contestants=_BROKERS,
)
