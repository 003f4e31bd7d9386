"""A table under load, through topics, into another table, while what carries it is killed: the same rows in the end."""

import random
import time
from collections import Counter

import pytest

from ottla.testing import Broker, ConnectProcess
from tests.connect.shipped.copying import Load, differences, sink, source
from tests.support.eventually import eventually
from tests.support.ottla_process import OttlaProcess
from tests.support.postgres import Postgres

_SOAK_KILLS = 200
_AT_ONCE = 50
_QUICK = {
    "session.timeout.ms": "3000",
    "consumer.session.timeout.ms": "3000",
    "consumer.heartbeat.interval.ms": "500",
}
"""Who was killed is given up before the next kill."""


@pytest.mark.timeout(240)
def test_the_copy_equals_the_table_after_a_kill_of_the_worker() -> None:
    with (
        Postgres(wal_level="logical") as server,
        Broker() as broker,
        ConnectProcess(broker.bootstrap, {"consumer.session.timeout.ms": "6000"}) as worker,
    ):
        with Load(server, at_least=200, pause_s=0.005):
            worker.put("orders", source(server))
            worker.put("copy", sink(server))
            eventually(lambda: differences(server)[0] >= 0, timeout_s=60)
            time.sleep(1)  # whatever is going on then is cut off
            worker.kill()
            worker.start()
        eventually_equal(server, worker)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(_SOAK_KILLS // _AT_ONCE))
def test_the_copy_equals_the_table_after_200_kills_of_anything(seed: int) -> None:
    """In pieces, each on a database of its own, and with some progress between two kills."""
    dice = random.Random(seed)
    killed: Counter[str] = Counter()
    with (
        Postgres(wal_level="logical") as server,
        OttlaProcess(properties={"group.min.session.timeout.ms": "1000"}) as broker,
        ConnectProcess(broker.bootstrap, _QUICK) as worker,
    ):
        with Load(server, at_least=400, pause_s=0.02):
            worker.put("orders", source(server))
            worker.put("copy", sink(server))
            eventually(lambda: differences(server)[0] >= 0, timeout_s=60)
            for _ in range(_AT_ONCE):
                time.sleep(dice.uniform(0.5, 4))
                victim = dice.choice(["worker", "broker", "database"])
                killed[victim] += 1
                if victim == "worker":
                    worker.kill()
                    worker.start()
                elif victim == "broker":
                    broker.restart(kill=True)
                else:
                    server.crash()
        eventually_equal(server, worker)
    print(f"killed and equal again: {dict(killed)}")


def eventually_equal(server: Postgres, worker: ConnectProcess) -> None:
    """The load has ended, and the copy catches up."""
    eventually(lambda: differences(server) == (0, 0), timeout_s=120)
    for name in ("orders", "copy"):
        assert [each["state"] for each in worker.request("GET", f"/connectors/{name}/status")["tasks"]] == ["RUNNING"]
