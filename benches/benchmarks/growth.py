"""How the cost of a cluster grows with its brokers and partitions: 1, 2, 4 of the one, 100 to 4,000 of the other."""

import time
from functools import partial
from typing import Final

from benches.contestants import Contestant
from benches.generators import create_topic, librdkafka
from benches.model import Bench, Benchmark, Figure

BROKERS: Final = (1, 2, 4)
PARTITIONS: Final = (100, 1000, 4000)
SIZE: Final = 1000
LOADED_PARTITIONS: Final = 12
"""As many are written to, in a topic of their own: the others only have to be kept."""


def _measure(brokers: int, partitions: int, contestant: Contestant, bench: Bench) -> dict[str, float]:
    replicas = min(brokers, 2)
    with bench.cluster(contestant, brokers) as cluster:
        empty_mb = cluster.rss_bytes() / 1e6
        bench.say(f"{contestant.title}: {brokers} brokers, {partitions} partitions")
        began = time.perf_counter()
        create_topic(cluster.bootstrap, "kept", partitions, replicas)
        created_s = time.perf_counter() - began
        time.sleep(bench.scaled(5, 2))
        kept_mb = cluster.rss_bytes() / 1e6
        before, pause_s = cluster.cpu_seconds(), bench.scaled(5, 2)
        time.sleep(pause_s)
        idle_share = 100 * (cluster.cpu_seconds() - before) / pause_s
        create_topic(cluster.bootstrap, "load", LOADED_PARTITIONS, replicas)
        records = bench.scaled(100_000, 20_000)
        librdkafka("produce", cluster.bootstrap, "load", records=records // 5, size=SIZE)
        before = cluster.cpu_seconds()
        rate = librdkafka("produce", cluster.bootstrap, "load", records=records, size=SIZE)["records_per_s"]
        return {
            "created_s": created_s,
            "empty_rss_mb": empty_mb / brokers,
            "kept_kb": 1000 * (kept_mb - empty_mb) / (partitions * replicas),
            "idle_cpu_share": idle_share,
            "rdkafka_per_s": rate,
            "cpu_s_per_gb": (cluster.cpu_seconds() - before) / (records * SIZE / 1e9),
        }


FIGURES: Final = (
    Figure("created_s", "creating the partitions", "s", "lower"),
    Figure("empty_rss_mb", "memory of each broker before", "MB", "lower"),
    Figure("kept_kb", "memory for each replica", "KB", "lower"),
    Figure("idle_cpu_share", "CPU at idle", "% of a core", "lower"),
    Figure("rdkafka_per_s", "librdkafka produce, 12 other partitions", "records/s", "higher"),
    Figure("cpu_s_per_gb", "CPU of the cluster per GB", "s", "lower"),
)

GROWTH: Final = tuple(
    Benchmark(
        f"growth-{brokers}x{partitions}",
        f"{brokers} broker{'s' if brokers > 1 else ''}, {partitions:,} partitions",
        FIGURES,
        partial(_measure, brokers, partitions),
        disk_gb=2,
        max_rounds=1,
        contestants=frozenset(("ottla",)),
    )
    for brokers in BROKERS
    for partitions in PARTITIONS
)
