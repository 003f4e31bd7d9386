"""Workers of both clients answer alike, and can be killed and frozen."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.chaos.run import BROKER_PROPERTIES
from tests.chaos.workers import WorkerProcess
from tests.support.broker_process import BrokerProcess
from tests.support.ottla_process import OttlaProcess

StartWorker = Callable[[], WorkerProcess]


@pytest.fixture
def broker() -> Iterator[BrokerProcess]:
    with OttlaProcess(properties=BROKER_PROPERTIES) as started:
        yield started


@pytest.fixture(params=["python", "java"])
def start_worker(request: pytest.FixtureRequest, broker: BrokerProcess, tmp_path: Path) -> Iterator[StartWorker]:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for made in admin.create_topics([NewTopic("a", 2, 1), NewTopic("in", 1, 1), NewTopic("out", 1, 1)]).values():
        made.result(20)
    started: list[WorkerProcess] = []

    def start() -> WorkerProcess:
        settings = {
            "bootstrap": broker.bootstrap,
            "transactional_id": "worker",
            "transaction_timeout_ms": 10_000,
            "group": {"group.id": "workers"},
            "in_flight": 5,
        }
        started.append(WorkerProcess(request.param, settings, tmp_path / "errors"))
        return started[-1]

    yield start
    for process in started:
        process.end()
    assert not [
        line for line in (tmp_path / "errors").read_text().splitlines() if "xception" in line or "Trace" in line
    ]


def done(worker: WorkerProcess, what: str, **task: Any) -> list[Any]:
    """The steps of a task that has to succeed."""
    answer = worker.ask({"what": what, **task})
    assert answer is not None
    assert answer["state"] == "ok", answer
    return list(answer["steps"])


def test_a_worker_tells_what_it_sent_and_read(start_worker: StartWorker) -> None:
    worker = start_worker()
    done(worker, "assign", keys=["a-0", "a-1"], from_start=True)
    assert done(worker, "send", steps=[["send", "a-0", 1], ["send", "a-0", 2]]) == [
        ["send", "a-0", 1, 0],
        ["send", "a-0", 2, 1],
    ]
    sent = done(worker, "txn", steps=[["send", "a-1", 3], ["wait", 0.01], ["send", "a-0", 4]])
    assert sent == [["send", "a-1", 3, 0], ["send", "a-0", 4, 2]]
    audited = done(worker, "audit", keys=["a-0", "a-1", "out-0"], seconds=20)
    assert audited == [["poll", {"a-0": [[0, 1], [1, 2], [2, 4]], "a-1": [[0, 3]], "out-0": []}]]
    read: dict[str, list[list[int]]] = {}
    while sum(map(len, read.values())) < 4:
        for step in done(worker, "poll", steps=[["poll"]]):
            for key, records in step[1].items():
                read.setdefault(key, []).extend(records)
    assert read == {"a-0": [[0, 1], [1, 2], [2, 4]], "a-1": [[0, 3]]}


def test_a_worker_relays(start_worker: StartWorker) -> None:
    worker = start_worker()
    done(worker, "send", steps=[["send", "in-0", 5], ["send", "in-0", 6]])
    done(worker, "subscribe", keys=["in"])
    sent: list[Any] = []
    while len(sent) < 2:
        sent += [step for step in done(worker, "relay") if step[0] == "send"]
    assert sent == [["send", "out-0", 1_000_000_005, 0], ["send", "out-0", 1_000_000_006, 1]]


def test_who_takes_the_place_of_a_killed_worker_ends_its_transaction(start_worker: StartWorker) -> None:
    first, second = start_worker(), start_worker()
    done(first, "txn", steps=[["send", "a-0", 7]])
    first.freeze()
    assert first.ask({"what": "txn", "steps": [["send", "a-0", 8]]}) is None, "it is frozen"
    done(second, "txn", steps=[["send", "a-0", 9]])
    first.kill()
    assert first.ask({"what": "poll", "steps": [["poll"]]}) is None, "it is dead"
    (step,) = done(second, "audit", keys=["a-0"], seconds=20)
    assert [value for _, value in step[1]["a-0"]] == [7, 9]
