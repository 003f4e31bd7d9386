"""What one request costs the broker: processor time of the small ones, which no batching hides."""

from typing import Final

from benches.contestants import Contestant
from benches.generators import create_topic, requests
from benches.model import Bench, Benchmark, Figure, Goal

_OTTLA: Final = frozenset({"ottla", "kafka"})
_TOPICS: Final = 10
_DELAY: Final = "group.initial.rebalance.delay.ms"


def _measure(contestant: Contestant, bench: Bench) -> dict[str, float]:
    figures: dict[str, float] = {}
    with bench.broker(contestant, started=True, **{_DELAY: "0"}) as broker:
        create_topic(broker.bootstrap, "small", 1)
        for what, count in (("produce", bench.scaled(100_000, 10_000)), ("heartbeats", bench.scaled(100_000, 10_000))):
            bench.say(f"{contestant.title}: {count:,} {what}")
            figures[f"{what}_us"] = requests(what, broker, "small", count=count)["cpu_us"]
        consumers = bench.scaled(600, 100)
        bench.say(f"{contestant.title}: {consumers} consumers of one partition")
        figures["fan_out_us"] = requests("fan-out", broker, "small", consumers=consumers, count=100)["cpu_us"]
    return figures


def _measure_metadata(contestant: Contestant, bench: Bench) -> dict[str, float]:
    partitions = bench.scaled(1_000, 100)
    with bench.broker(contestant) as broker:
        for number in range(_TOPICS):
            create_topic(broker.bootstrap, f"many-{number}", partitions)
        bench.say(f"{contestant.title}: Metadata of {_TOPICS * partitions:,} partitions")
        return {"metadata_ms": requests("metadata", broker, "many-0", count=bench.scaled(400, 100))["cpu_us"] / 1000}


def _measure_crowd(contestant: Contestant, bench: Bench) -> dict[str, float]:
    members = bench.scaled(1_000, 200)
    with bench.broker(contestant, started=True, **{_DELAY: "3000"}) as broker:
        create_topic(broker.bootstrap, "crowded", 6)
        bench.say(f"{contestant.title}: {members} members of one classic group")
        found = requests("classic-group", broker, "crowded", consumers=members)
        return {"seconds": found["seconds"], "cpu_s": found["cpu_s"]}


REQUESTS: Final = Benchmark(
    "requests",
    "Processor time of the broker for one small request",
    (
        Figure("produce_us", "Produce, one record of 1 KB, acks=all", "us", "lower", {"ottla": Goal("ratio", 0.6)}),
        Figure("heartbeats_us", "Heartbeat, classic", "us", "lower"),
        Figure("fan_out_us", "Fetch of one record, 600 consumers", "us", "lower", {"ottla": Goal("value", 25)}),
    ),
    _measure,
    disk_gb=0.5,
    contestants=_OTTLA,
)

METADATA: Final = Benchmark(
    "requests-metadata",
    "Processor time of the broker for Metadata of 10,000 partitions",
    (Figure("metadata_ms", "Metadata, all topics", "ms", "lower", {"ottla": Goal("value", 3)}),),
    _measure_metadata,
    disk_gb=1.0,
    contestants=_OTTLA,
)

CLASSIC_CROWD: Final = Benchmark(
    "requests-crowd",
    "1,000 members join a classic group on 6 partitions",
    (
        Figure("seconds", "until all are in one generation", "s", "lower", {"ottla": Goal("ratio", 0.5)}),
        Figure("cpu_s", "broker CPU meanwhile", "s", "lower", {"ottla": Goal("ratio", 0.5)}),
    ),
    _measure_crowd,
    disk_gb=0.2,
    contestants=_OTTLA,
)
