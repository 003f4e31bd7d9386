"""What workers of connectors cost when nothing happens, and how long a killed one is missed.

    python -m benches.connect_workers idle             100 connectors: CPU of the worker with its broker there, and away
    python -m benches.connect_workers takeover -n 20   SIGKILL of a worker: until a source and a sink go on

Prints lines of `name value unit`.
"""

import argparse
import contextlib
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, Producer, TopicPartition
from tests.support.connect import values_of
from tests.support.eventually import eventually
from tests.support.ottla_process import OttlaProcess

from ottla.testing import ConnectProcess

_CONNECTORS: Final = 100
_WATCHED_S: Final = 20.0
_KILLS: Final = 20
_BETWEEN_S: Final = 8.0
"""Between two kills: the session of the one before may be over or not."""
_SOURCE: Final = {"connector.class": "tests.connect.connectors.Numbers", "count": "0"}
_SINK: Final = {"connector.class": "tests.connect.connectors.Collect", "topics": "filled"}
_DEFAULTS: Final = ("session.timeout.ms", "heartbeat.interval.ms", "offset.flush.interval.ms")
"""What tests set otherwise than a worker by itself, and what is measured here is a worker by itself."""


def worker(bootstrap: str, **settings: str) -> ConnectProcess:
    """A worker with the settings that it has by itself."""
    made = ConnectProcess(bootstrap, settings)
    for name in _DEFAULTS:
        if name not in settings:
            made.settings.pop(name)
    return made


def cpu_shares(pid: int, seconds: float) -> dict[str, float]:
    """How much of a core each kind of thread of a process uses, in per cent, by its name without numbers."""

    def ticks(stat: Path) -> int:
        fields = stat.read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    def used() -> dict[str, int]:
        found: Counter[str] = Counter(all=ticks(Path(f"/proc/{pid}/stat")))  # also of threads that have ended
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                found[(task / "comm").read_text().strip().rstrip("0123456789/")] += ticks(task / "stat")
        return found

    before, began = used(), time.monotonic()
    time.sleep(seconds)
    per_tick = 100 / os.sysconf("SC_CLK_TCK") / (time.monotonic() - began)
    found = {name: (ticks - before.get(name, 0)) * per_tick for name, ticks in used().items()}
    return {name: share for name, share in sorted(found.items()) if name == "all" or share >= 0.05}


def idle(connectors: int = _CONNECTORS, seconds: float = _WATCHED_S) -> Iterator[tuple[str, dict[str, float]]]:
    """CPU of a worker with half sources and half sinks that have nothing to do: its broker there, away, and back."""
    with ExitStack() as open_ones:
        broker = open_ones.enter_context(OttlaProcess())
        one = open_ones.enter_context(worker(broker.bootstrap))
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce("filled", b"1")
        producer.flush()
        for number in range(connectors):
            one.put(f"c{number}", {**_SOURCE, "topic": f"t{number}"} if number % 2 else _SINK)
        for number in range(connectors):
            one.wait(f"c{number}", "RUNNING")
        time.sleep(5)
        yield "broker there", cpu_shares(one.pid, seconds)
        broker.kill()
        for after_s in (0, 10, 10):
            time.sleep(after_s)
            yield "broker away", cpu_shares(one.pid, seconds)
        broker.start()
        began = time.monotonic()
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce("filled", b"2")
        producer.flush()
        eventually(lambda: committed(broker.bootstrap, "connect-c0", "filled") >= 2, timeout_s=120)
        yield "seconds until a sink is back", {"all": time.monotonic() - began}


def committed(bootstrap: str, group: str, topic: str) -> int:
    """The offset that a group has committed of partition 0."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        return int(consumer.committed([TopicPartition(topic, 0)], timeout=10)[0].offset)
    finally:
        consumer.close()


def ends(bootstrap: str, topics: list[str]) -> Callable[[], list[int]]:
    """Asks for the ends of topics."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "asks-for-ends"})
    return lambda: [consumer.get_watermark_offsets(TopicPartition(each, 0), timeout=10)[1] for each in topics]


def takeover(kills: int, *, same: bool, leader: bool) -> dict[str, list[float]]:
    """Seconds from a SIGKILL to the next records of a source, and of a sink whose worker was killed.

    same: the worker is started again at once and nobody else is there; otherwise another one takes over.
    leader: whether the one that is killed leads.
    """
    source = {"connector.class": "tests.connect.connectors.Numbers", "count": "100000000", "pause.ms": "20"}
    found: dict[str, list[float]] = {"source": [], "sink": []}
    with ExitStack() as open_ones:
        broker = open_ones.enter_context(OttlaProcess())
        workers = [open_ones.enter_context(worker(broker.bootstrap)) for _ in range(1 if same else 2)]
        workers[0].put("source", {**source, "topic": "in"})
        workers[0].put("feed", {**source, "topic": "fed"})
        workers[0].put("sink", {"connector.class": "tests.connect.connectors.Echo", "topics": "fed", "to": "out"})
        for name in ("source", "feed", "sink"):
            workers[0].wait(name, "RUNNING")
        for topic in ("in", "out"):
            eventually(partial(values_of, broker.bootstrap, topic, 1), timeout_s=120)
        asked = ends(broker.bootstrap, ["in", "out"])
        eventually(lambda: min(asked()) > 0, timeout_s=120)
        for _ in range(kills):
            victim = _victim(workers, leader=leader)
            owned = [name for name in found if _owner(victim, name) == victim.url.removeprefix("http://")]
            victim.kill()
            began, before = time.monotonic(), asked()
            if same:
                victim.start()
            waited = dict(zip(found, before, strict=True))
            while any(name in waited for name in owned):
                for name, end in zip(found, asked(), strict=True):
                    if name in owned and name in waited and end > waited[name] + 1:
                        found[name].append(time.monotonic() - began)
                        del waited[name]
                time.sleep(0.02)
            if not same:
                victim.start()
            time.sleep(_BETWEEN_S)
    return found


def _owner(asked: ConnectProcess, name: str) -> str:
    """The worker of a connector's only task."""
    return str(asked.wait(name, "RUNNING")["tasks"][0]["worker_id"])


def _victim(workers: list[ConnectProcess], *, leader: bool) -> ConnectProcess:
    """The worker to kill: the one that leads or the other, with the connectors moved there for its part."""
    if len(workers) == 1:
        return workers[0]
    status = workers[0].request("GET", "/connectors/source/status")
    leads = status["connector"]["worker_id"]
    return next(each for each in workers if (each.url == f"http://{leads}") is leader)


def main() -> None:
    """Measure what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("what", choices=["idle", "takeover"])
    parser.add_argument("-n", type=int, default=0, help="kills of each kind (20), or connectors (100)")
    given = parser.parse_args()
    if given.what == "idle":
        for name, shares in idle(given.n or _CONNECTORS):
            print(name, ", ".join(f"{kind} {share:.1f}" for kind, share in shares.items()), flush=True)
        return
    for kind, same, leader in (
        ("itself", True, True),
        ("another", False, False),
        ("another, of the leader", False, True),
    ):
        for name, seconds in takeover(given.n or _KILLS, same=same, leader=leader).items():
            shown = ", ".join(f"{each:.2f}" for each in sorted(seconds))
            print(f"{name} by {kind}, {len(seconds)} kills: {shown} s", flush=True)


if __name__ == "__main__":
    main()
