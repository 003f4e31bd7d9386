"""From the spawn of the process to the first acknowledged record, on an empty directory; memory at idle."""

import time
from typing import Final

from benches.contestants import Contestant
from benches.generators import seconds_to_first_ack
from benches.model import Bench, Benchmark, Figure, Goal

_CONTESTANTS: Final = ("ottla", "ottla-nosync")


def _measure(contestant: Contestant, bench: Bench) -> dict[str, float]:
    with bench.broker(contestant, started=False) as broker:
        bench.say(f"{contestant.title}: starting")
        seconds = seconds_to_first_ack(broker, "first")
        bench.say(f"{contestant.title}: idling")
        time.sleep(bench.scaled(10, 3))
        cpu_before = broker.cpu_seconds()
        pause = bench.scaled(10, 3)
        time.sleep(pause)
        idle_share = 100 * (broker.cpu_seconds() - cpu_before) / pause
        return {"first_ack_s": seconds, "idle_rss_mb": broker.rss_bytes() / 1e6, "idle_cpu_share": idle_share}


START: Final = Benchmark(
    "start",
    "Start on an empty directory",
    (
        Figure(
            "first_ack_s",
            "process start to first acknowledged record",
            "s",
            "lower",
            {name: Goal("value", 0.5) for name in _CONTESTANTS},
        ),
        Figure("idle_rss_mb", "memory at idle", "MB", "lower", {name: Goal("value", 60) for name in _CONTESTANTS}),
        Figure("idle_cpu_share", "CPU at idle", "% of a core", "lower"),
    ),
    _measure,
    disk_gb=0.2,
)
