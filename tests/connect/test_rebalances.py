"""Workers that join and leave while connectors are under load: every record comes once, through source and sink."""

import random
from contextlib import ExitStack
from pathlib import Path

import pytest

from ottla.testing import Broker, ConnectProcess
from tests.connect.test_crashes import taken_by
from tests.support.connect import values_of
from tests.support.eventually import eventually

pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]

SOURCES = 4
CHANGES = 8
MORE = 150
QUICK = {"session.timeout.ms": "6000", "heartbeat.interval.ms": "500", "rebalance.timeout.ms": "10000"}


@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_is_lost_or_doubled_while_workers_come_and_go(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    topics = [f"n-{number}" for number in range(SOURCES)]
    databases = {topic: tmp_path / f"{topic}.db" for topic in topics}
    with ExitStack() as running:
        broker = running.enter_context(Broker())
        first = running.enter_context(ConnectProcess(broker.bootstrap, QUICK))
        others = [ConnectProcess(broker.bootstrap, QUICK) for _ in range(2)]
        for each in others:
            running.callback(each.stop)
        for topic, database in databases.items():
            numbers = {"topic": topic, "count": "1000000", "pause.ms": "4"}
            first.put(f"source-{topic}", {"connector.class": "tests.connect.connectors.Numbers", **numbers})
            table = {"topics": topic, "database": str(database)}
            first.put(f"sink-{topic}", {"connector.class": "tests.connect.connectors.Table", **table})
        alive: set[int] = set()
        for _ in range(CHANGES):
            number = dice.randrange(len(others))
            if number not in alive:
                others[number].start()
                alive.add(number)
            else:
                dice.choice([others[number].kill, others[number].stop])()
                alive.discard(number)
            # the next change comes as soon as some sinks have gone on, in the middle of the others' rebalance
            for topic in dice.sample(topics, dice.randint(1, SOURCES)):
                before = len(taken_by(databases[topic], 0))
                eventually(lambda topic=topic, before=before: taken_by(databases[topic], before + MORE), timeout_s=90)
        for topic, database in databases.items():
            written = [int(value) for value in values_of(broker.bootstrap, topic, 1)]
            assert written == list(range(len(written))), f"{topic}: the source lost or doubled numbers"
            count = len(written)
            taken = eventually(lambda database=database, count=count: taken_by(database, count), timeout_s=90)
            assert taken == list(range(len(taken))), f"{topic}: the sink lost or doubled numbers"
