"""Sources and sinks on a worker inside the process, against an Ottla broker inside the process."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.testing import Broker
from ottla.testing.connect import ConnectWorker
from tests.connect.connectors import COLLECTED
from tests.support.connect import values_of
from tests.support.eventually import eventually


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def test_a_source_writes_and_goes_on_after_a_stop(broker: Broker) -> None:
    config = {"connector.class": "tests.connect.connectors.Numbers", "topic": "numbers", "count": "100"}
    worker = ConnectWorker(broker.bootstrap)
    with worker:
        worker.put("numbers", config)
        worker.wait("numbers", "RUNNING")
        assert eventually(lambda: values_of(broker.bootstrap, "numbers", 100))
        offsets = worker.request("GET", "/connectors/numbers/offsets")
        assert offsets == {"offsets": [{"partition": {}, "offset": {"number": 100}}]}
    with worker:
        worker.put("numbers", {**config, "count": "150"})
        found = eventually(lambda: values_of(broker.bootstrap, "numbers", 150))
    assert [json.loads(value) for value in found] == list(range(150))


def test_a_sink_writes_what_a_source_wrote(broker: Broker) -> None:
    COLLECTED.clear()
    with ConnectWorker(broker.bootstrap) as worker:
        worker.put("numbers", {"connector.class": "tests.connect.connectors.Numbers", "topic": "t", "count": "50"})
        worker.put("out", {"connector.class": "tests.connect.connectors.Collect", "topics": "t"})
        eventually(lambda: len(COLLECTED) == 50)
        assert [record.value for record in COLLECTED] == list(range(50))
        eventually(lambda: [each["lag"] for each in worker.request("GET", "/connectors/out/lag")] == [0])


def test_one_worker_may_keep_its_state_in_a_file(broker: Broker, tmp_path: Path) -> None:
    config = {"connector.class": "tests.connect.connectors.Numbers", "topic": "filed", "count": "20"}
    worker = ConnectWorker(broker.bootstrap, {"offset.storage.file.filename": str(tmp_path / "state")})
    with worker:
        worker.put("numbers", config)
        eventually(lambda: values_of(broker.bootstrap, "filed", 20))
        eventually(lambda: worker.request("GET", "/connectors/numbers/offsets")["offsets"])
    with (tmp_path / "state").open("a") as file:
        file.write('["offs')  # as a crash leaves it
    with worker:
        assert worker.request("GET", "/connectors/numbers/config") == {**config, "name": "numbers"}
        worker.put("numbers", {**config, "count": "30"})
        found = eventually(lambda: values_of(broker.bootstrap, "filed", 30))
    assert [int(value) for value in found] == list(range(30))
