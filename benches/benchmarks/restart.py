"""Restarts: with many partitions after a clean stop, and with a large log after SIGKILL."""

import time
from typing import Final

from benches.contestants import Contestant
from benches.generators import (
    LoadFailedError,
    create_topic,
    end_offsets,
    librdkafka,
    seconds_to_first_ack,
    wait_for_leaders,
)
from benches.model import Bench, Benchmark, Figure, Goal

_TWO_SECONDS: Final = {"ottla": Goal("value", 2.0)}
_PARTITIONS_PER_TOPIC: Final = 100


def _measure_partitions(contestant: Contestant, bench: Bench) -> dict[str, float]:
    topics = [f"topic-{number}" for number in range(bench.scaled(20, 4))]
    with bench.broker(contestant) as broker:
        bench.say(f"{contestant.title}: making {len(topics) * _PARTITIONS_PER_TOPIC} partitions")
        for topic in topics:
            create_topic(broker.bootstrap, topic, _PARTITIONS_PER_TOPIC)
            librdkafka("produce", broker.bootstrap, topic, records=20_000, size=100)
        bench.say(f"{contestant.title}: stopping and starting")
        stop_began = time.perf_counter()
        broker.stop(timeout_s=180)
        stopped_s = time.perf_counter() - stop_began
        first_ack_s = seconds_to_first_ack(broker, topics[-1])
        for topic in topics:
            wait_for_leaders(broker.bootstrap, topic, _PARTITIONS_PER_TOPIC)
        ready_s = time.perf_counter() - broker.spawned_at
        return {"stop_s": stopped_s, "first_ack_s": first_ack_s, "ready_s": ready_s}


def _measure_crash(contestant: Contestant, bench: Bench) -> dict[str, float]:
    records = bench.scaled(5_000_000, 500_000)
    with bench.broker(contestant) as broker:
        create_topic(broker.bootstrap, "large", 6)
        bench.say(f"{contestant.title}: writing {records / 1e6:g} GB")
        librdkafka("produce", broker.bootstrap, "large", records=records, size=1000)
        bench.say(f"{contestant.title}: SIGKILL, and starting")
        broker.kill()
        first_ack_s = seconds_to_first_ack(broker, "large")
        kept = end_offsets(broker.bootstrap, "large")
        if kept < records + 1:
            raise LoadFailedError(f"{contestant.title} acknowledged {records + 1} records and kept {kept}")
        return {"first_ack_s": first_ack_s}


RESTART_PARTITIONS: Final = Benchmark(
    "restart-partitions",
    "Restart with 2,000 partitions",
    (
        Figure("stop_s", "clean stop", "s", "lower"),
        Figure("first_ack_s", "process start to first acknowledged record", "s", "lower", _TWO_SECONDS),
        Figure("ready_s", "process start to a leader for every partition", "s", "lower", _TWO_SECONDS),
    ),
    _measure_partitions,
    disk_gb=0.5,
    max_rounds=2,
    contestants=frozenset({"ottla", "kafka"}),
)

RESTART_CRASH: Final = Benchmark(
    "restart-crash",
    "Restart after SIGKILL with a log of 5 GB",
    (Figure("first_ack_s", "process start to first acknowledged record", "s", "lower", _TWO_SECONDS),),
    _measure_crash,
    disk_gb=6,
    max_rounds=2,
    contestants=frozenset({"ottla", "kafka"}),
)
