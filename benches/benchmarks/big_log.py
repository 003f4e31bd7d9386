"""Whether a broker with 10 GB on disk takes records as fast as an empty one."""

import statistics
from typing import Final

from benches.contestants import Contestant
from benches.generators import create_topic, librdkafka
from benches.model import Bench, Benchmark, Figure, Goal


def _measure(contestant: Contestant, bench: Bench) -> dict[str, float]:
    fill = bench.scaled(10_000_000, 1_000_000)
    burst = bench.scaled(500_000, 100_000)
    bursts = bench.scaled(5, 2)
    rates: dict[str, list[float]] = {"empty": [], "filled": []}
    with bench.broker(contestant) as filled, bench.broker(contestant) as empty:
        create_topic(filled.bootstrap, "large", 6)
        bench.say(f"{contestant.title}: writing {fill / 1e6:g} GB")
        librdkafka("produce", filled.bootstrap, "large", records=fill, size=1000)
        create_topic(empty.bootstrap, "large", 6)
        # Both are warm when it counts; neither has anything to do while the other is measured.
        librdkafka("produce", empty.bootstrap, "large", records=burst, size=1000)
        for number in range(bursts):
            for name, broker in (("empty", empty), ("filled", filled)):
                bench.say(f"{contestant.title}: burst {number + 1} of {bursts}, {name}")
                topic = "large" if name == "filled" else f"small-{number}"
                if name == "empty":
                    create_topic(broker.bootstrap, topic, 6)
                figures = librdkafka("produce", broker.bootstrap, topic, records=burst, size=1000)
                rates[name].append(figures["records_per_s"])
    medians = {name: statistics.median(values) for name, values in rates.items()}
    return {
        "empty_per_s": medians["empty"],
        "filled_per_s": medians["filled"],
        "filled_share": statistics.median(f / e for f, e in zip(rates["filled"], rates["empty"], strict=True)),
    }


BIG_LOG: Final = Benchmark(
    "big-log",
    "librdkafka produce with a log of 10 GB, against an empty one",
    (
        Figure("empty_per_s", "empty", "records/s", "higher"),
        Figure("filled_per_s", "10 GB", "records/s", "higher"),
        Figure("filled_share", "10 GB against empty", "x", "higher", {"ottla": Goal("value", 0.95)}),
    ),
    _measure,
    disk_gb=17,
    max_rounds=1,
    contestants=frozenset({"ottla", "kafka"}),
)
