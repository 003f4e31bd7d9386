"""A worker whose brokers are away: it lets go of its clients, and goes on when they are back.

How much of a core 100 connectors use meanwhile is measured by `python -m benches.connect_workers idle`.
"""

from functools import partial

import psutil
import pytest

from ottla.testing import ConnectProcess
from tests.support.connect import values_of
from tests.support.eventually import eventually
from tests.support.ottla_process import OttlaProcess

pytestmark = [pytest.mark.soak, pytest.mark.timeout(300)]

CONNECTORS = 8


def test_tasks_hold_no_clients_while_brokers_are_away_and_go_on_when_they_are_back() -> None:
    with OttlaProcess() as broker, ConnectProcess(broker.bootstrap) as worker:
        echo = {"connector.class": "tests.connect.connectors.Echo", "topics": "in", "to": "out"}
        worker.put("echo", echo)
        for number in range(CONNECTORS):
            config = {"connector.class": "tests.connect.connectors.Numbers", "count": "5", "topic": f"n{number}"}
            worker.put(f"n{number}", config)
        worker.put("in", {"connector.class": "tests.connect.connectors.Numbers", "count": "9", "topic": "in"})
        eventually(lambda: values_of(broker.bootstrap, "out", 9), timeout_s=60)
        process = psutil.Process(worker.pid)
        busy = process.num_threads()
        broker.kill()
        eventually(lambda: process.num_threads() <= busy - 2 * CONNECTORS, timeout_s=60)
        broker.start()
        worker.put("in", {"connector.class": "tests.connect.connectors.Numbers", "count": "12", "topic": "in"})
        found = eventually(partial(values_of, broker.bootstrap, "out", 12), timeout_s=60)
        assert sorted({int(value) for value in found}) == list(range(12))
        worker.wait("n0", "RUNNING")
        assert [int(each) for each in values_of(broker.bootstrap, "n0", 5)] == list(range(5))
