"""Consumer groups: how soon fifty consumers settle, what a thousand members cost at rest, and a thousand groups."""

from typing import Final

from benches.contestants import Contestant
from benches.generators import consumers, create_topic, members
from benches.model import Bench, Benchmark, Figure, Goal

_OTTLA: Final = frozenset({"ottla", "kafka"})
_SETTLE_GOALS: Final = {"ottla": Goal("ratio", 0.7)}
_GROUPS: Final = 20
_MEMBERS: Final = 50
_PROTOCOLS: Final = {"classic": "classic", "consumer": "KIP-848"}
_DELAY: Final = "group.initial.rebalance.delay.ms"
_DEFAULT_DELAY_MS: Final = "3000"


def _measure_settling(contestant: Contestant, bench: Bench) -> dict[str, float]:
    figures: dict[str, float] = {}
    for delay, name in (("0", "at_once"), (_DEFAULT_DELAY_MS, "default")):
        with bench.broker(contestant, started=True, **{_DELAY: delay}) as broker:
            create_topic(broker.bootstrap, "shared", 2 * _MEMBERS)
            consumers(broker.bootstrap, "shared", 2, "classic")  # makes the offsets topic, and warms up
            for protocol, title in _PROTOCOLS.items():
                if (protocol, name) == ("consumer", "at_once"):
                    continue  # that protocol knows no delay
                bench.say(f"{contestant.title}: {_MEMBERS} consumers, {title}, delay {delay} ms")
                figures[f"{protocol}_{name}_s"] = consumers(broker.bootstrap, "shared", _MEMBERS, protocol)
    return figures


def _measure_heartbeats(contestant: Contestant, bench: Bench) -> dict[str, float]:
    seconds = bench.scaled(60, 15)
    figures: dict[str, float] = {}
    for protocol, title in _PROTOCOLS.items():
        with bench.broker(contestant, started=True, **{_DELAY: _DEFAULT_DELAY_MS}) as broker:
            create_topic(broker.bootstrap, "beaten", _MEMBERS)
            bench.say(f"{contestant.title}: heartbeats of {_GROUPS * _MEMBERS} members, {title}")
            found = members(
                "heartbeats", broker, "beaten", protocol=protocol, groups=_GROUPS, members=_MEMBERS, seconds=seconds
            )
            figures[f"{protocol}_cpu_share"] = found["cpu_share"]
    return figures


def _measure_memory(contestant: Contestant, bench: Bench) -> dict[str, float]:
    figures: dict[str, float] = {}
    for protocol, title in _PROTOCOLS.items():
        with bench.broker(contestant) as broker:
            create_topic(broker.bootstrap, "remembered", 10)
            bench.say(f"{contestant.title}: a thousand groups, {title}")
            figures[f"{protocol}_mb"] = members("groups", broker, "remembered", protocol=protocol, groups=1000)[
                "megabytes"
            ]
    return figures


GROUP_SETTLING: Final = Benchmark(
    "group-settling",
    f"{_MEMBERS} librdkafka consumers subscribe, until each has its share of {2 * _MEMBERS} partitions",
    (
        Figure("classic_default_s", f"classic, {_DELAY}={_DEFAULT_DELAY_MS} (default)", "s", "lower", _SETTLE_GOALS),
        Figure("classic_at_once_s", f"classic, {_DELAY}=0", "s", "lower", _SETTLE_GOALS),
        Figure("consumer_default_s", "KIP-848", "s", "lower", _SETTLE_GOALS),
    ),
    _measure_settling,
    disk_gb=0.2,
    contestants=_OTTLA,
)

HEARTBEATS: Final = Benchmark(
    "heartbeats",
    f"{_GROUPS * _MEMBERS:,} members at rest, in groups of {_MEMBERS}",
    (
        Figure("classic_cpu_share", "classic, every 3 s", "% of a core", "lower", {"ottla": Goal("value", 10)}),
        Figure("consumer_cpu_share", "KIP-848, every 5 s", "% of a core", "lower", {"ottla": Goal("value", 10)}),
    ),
    _measure_heartbeats,
    disk_gb=0.2,
    contestants=_OTTLA,
)

GROUP_MEMORY: Final = Benchmark(
    "group-memory",
    "1,000 groups of one member, with offsets for 10 partitions each",
    (
        Figure("classic_mb", "classic, memory", "MB", "lower", {"ottla": Goal("value", 20)}),
        Figure("consumer_mb", "KIP-848, memory", "MB", "lower", {"ottla": Goal("value", 20)}),
    ),
    _measure_memory,
    disk_gb=0.2,
    contestants=_OTTLA,
)
