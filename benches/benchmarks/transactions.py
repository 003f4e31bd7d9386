"""Transactions: produce with a commit every 100 ms, and consume-transform-produce with the offsets in it."""

from collections.abc import Callable
from typing import Final

from benches.contestants import Contestant
from benches.generators import create_topic, java_process, java_produce, librdkafka, librdkafka_transactions
from benches.model import Bench, Benchmark, Figure, Goal

_PARTITIONS: Final = 6
_SIZE: Final = 1000
_EVERY_MS: Final = 100
_RATE_GOALS: Final = {"ottla": Goal("ratio", 1.3), "ottla-nosync": Goal("ratio", 1.3)}


def _measure_produce(contestant: Contestant, bench: Bench) -> dict[str, float]:
    records = bench.scaled(1_000_000, 150_000)
    with bench.broker(contestant) as broker:
        where = broker.bootstrap
        bench.say(f"{contestant.title}: warming up")
        create_topic(where, "warm-up", _PARTITIONS)
        librdkafka_transactions("produce", where, "warm-up", records=records // 5, size=_SIZE, every_ms=_EVERY_MS)
        create_topic(where, "transactional", _PARTITIONS)
        cpu_before = broker.cpu_seconds()
        bench.say(f"{contestant.title}: producing by Java in transactions")
        java_per_s = java_produce(where, "transactional", records, _SIZE, transaction_ms=_EVERY_MS)
        bench.say(f"{contestant.title}: producing by librdkafka in transactions")
        rdkafka = librdkafka_transactions(
            "produce", where, "transactional", warm_up=records // 10, records=records, size=_SIZE, every_ms=_EVERY_MS
        )
        return {
            "java_per_s": java_per_s,
            "rdkafka_per_s": rdkafka["records_per_s"],
            "commit_p50_ms": rdkafka["commit_p50_ms"],
            "commit_p99_ms": rdkafka["commit_p99_ms"],
            "cpu_s": broker.cpu_seconds() - cpu_before,
        }


def _measure_process(contestant: Contestant, bench: Bench) -> dict[str, float]:
    java_records = bench.scaled(1_200_000, 150_000)
    rdkafka_records = bench.scaled(600_000, 100_000)
    filled = max(java_records, rdkafka_records) * 5 // 4
    with bench.broker(contestant) as broker:
        where = broker.bootstrap
        bench.say(f"{contestant.title}: filling the source")
        create_topic(where, "source", _PARTITIONS)
        create_topic(where, "sink", _PARTITIONS)
        librdkafka("produce", where, "source", records=filled, size=_SIZE)
        cpu_before = broker.cpu_seconds()

        def step(title: str, run: Callable[[], dict[str, float]]) -> dict[str, float]:
            bench.say(f"{contestant.title}: consume, transform, produce by {title}")
            return run()

        java = step("Java", lambda: java_process(where, "source", "sink", java_records // 5, java_records, _EVERY_MS))
        rdkafka = step(
            "librdkafka",
            lambda: librdkafka_transactions(
                "process",
                where,
                "source",
                sink="sink",
                warm_up=rdkafka_records // 5,
                records=rdkafka_records,
                every_ms=_EVERY_MS,
            ),
        )
        return {
            "java_per_s": java["records_per_s"],
            "rdkafka_per_s": rdkafka["records_per_s"],
            "java_commit_p50_ms": java["commit_p50_ms"],
            "rdkafka_commit_p50_ms": rdkafka["commit_p50_ms"],
            "cpu_s": broker.cpu_seconds() - cpu_before,
        }


TRANSACTIONS: Final = Benchmark(
    "transactions",
    f"Transactions of 1 KB records, committed every {_EVERY_MS} ms",
    (
        Figure("java_per_s", "Java produce", "records/s", "higher", _RATE_GOALS),
        Figure("rdkafka_per_s", "librdkafka produce", "records/s", "higher", _RATE_GOALS),
        Figure("commit_p50_ms", "librdkafka commit, p50", "ms", "lower"),
        Figure("commit_p99_ms", "librdkafka commit, p99", "ms", "lower"),
        Figure("cpu_s", "both, broker CPU", "s", "lower"),
    ),
    _measure_produce,
    disk_gb=3,
)

READ_PROCESS_WRITE: Final = Benchmark(
    "read-process-write",
    f"Read, process, write 1 KB records, committed every {_EVERY_MS} ms",
    (
        Figure("java_per_s", "Java", "records/s", "higher", _RATE_GOALS),
        Figure("rdkafka_per_s", "librdkafka", "records/s", "higher", _RATE_GOALS),
        Figure("java_commit_p50_ms", "Java commit, p50", "ms", "lower"),
        Figure("rdkafka_commit_p50_ms", "librdkafka commit, p50", "ms", "lower"),
        Figure("cpu_s", "both, broker CPU", "s", "lower"),
    ),
    _measure_process,
    disk_gb=5,
)
