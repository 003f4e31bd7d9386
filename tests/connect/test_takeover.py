"""A worker that is killed is missed at once, although the session of its group is long: by itself, and by others.

How long it takes is measured by `python -m benches.connect_workers takeover`.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

import pytest

from ottla.testing import Broker, ConnectProcess
from tests.support.connect import values_of
from tests.support.eventually import eventually

pytestmark = [pytest.mark.soak, pytest.mark.timeout(300)]

SESSION_S = 60
SOON_S = 30
"""Before the session is over, and for a machine that is busy."""
NUMBERS = {"connector.class": "tests.connect.connectors.Numbers", "count": "100000", "pause.ms": "20"}
ECHO = {"connector.class": "tests.connect.connectors.Echo", "topics": "in", "to": "out"}


@pytest.fixture
def workers() -> Iterator[tuple[Broker, list[ConnectProcess]]]:
    settings = {"session.timeout.ms": str(1000 * SESSION_S), "heartbeat.interval.ms": "3000"}
    with ExitStack() as running:
        broker = running.enter_context(Broker())
        yield broker, [running.enter_context(ConnectProcess(broker.bootstrap, settings)) for _ in range(2)]


def owners(worker: ConnectProcess) -> set[str]:
    return {worker.wait(name, "RUNNING")["tasks"][0]["worker_id"] for name in ("source", "sink")}


def goes_on(broker: Broker, *topics: str) -> None:
    for topic in topics:
        count = len(values_of(broker.bootstrap, topic, 1))
        eventually(partial(values_of, broker.bootstrap, topic, count + 5), timeout_s=SOON_S)


def test_a_killed_worker_is_missed_long_before_its_session_is_over(
    workers: tuple[Broker, list[ConnectProcess]],
) -> None:
    broker, both = workers
    both[0].put("source", {**NUMBERS, "topic": "in"})
    both[0].put("sink", ECHO)
    owners(both[0])
    eventually(lambda: values_of(broker.bootstrap, "out", 1), timeout_s=60)
    leads = both[0].request("GET", "/connectors/source/status")["connector"]["worker_id"]
    leader, other = sorted(both, key=lambda each: each.url != f"http://{leads}")

    leader.kill()
    began = time.monotonic()
    left = other.url.removeprefix("http://")
    eventually(lambda: owners(other) == {left}, timeout_s=SOON_S)
    goes_on(broker, "in", "out")
    assert other.put("more", {**NUMBERS, "topic": "more"}), "the one that is left leads"
    assert time.monotonic() - began < SESSION_S

    other.kill()  # started again, it has its place in all groups at once
    began = time.monotonic()
    other.start()
    goes_on(broker, "in", "out")
    assert time.monotonic() - began < SESSION_S

    found = [int(value) for value in values_of(broker.bootstrap, "in", 1)]
    assert found == list(range(len(found))), "each number came once"
