"""Two workers of one group: requests go to who has to do them, tasks to who is left."""

import urllib.parse
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

import pytest

from ottla.connect.rest.client import RestError
from ottla.testing import Broker, ConnectProcess
from tests.support.connect import values_of
from tests.support.eventually import eventually

pytestmark = [pytest.mark.soak, pytest.mark.timeout(180)]


@pytest.fixture
def workers() -> Iterator[tuple[Broker, list[ConnectProcess]]]:
    with ExitStack() as running:
        broker = running.enter_context(Broker())
        yield broker, [running.enter_context(ConnectProcess(broker.bootstrap)) for _ in range(2)]


def config(topic: str) -> dict[str, str]:
    return {
        "connector.class": "tests.connect.connectors.Numbers", "topic": topic, "count": "60", "pause.ms": "100",
    }  # fmt: skip


def test_names_with_strange_characters_are_passed_on_and_tasks_taken_over(
    workers: tuple[Broker, list[ConnectProcess]],
) -> None:
    broker, both = workers
    names = ["a?b", "100%", "a#b", "\u043a", "a b", "a+b"]
    for number, name in enumerate(names):
        both[number % 2].put(name, config(f"of-{number}"))
    for number, name in enumerate(names):  # one of the two has to pass it on, with the question's own part
        for each in both:
            each.wait(name, "RUNNING")
            path = f"/connectors/{urllib.parse.quote(name, safe='')}"
            assert each.request("POST", f"{path}/restart?includeTasks=true&onlyFailed=true")["name"] == name
            each.request("POST", f"{path}/tasks/0/restart")
        assert both[number % 2].request("PATCH", f"{path}/config", {"extra": name})["config"]["extra"] == name
    owners = {both[0].wait(name, "RUNNING")["tasks"][0]["worker_id"] for name in names}
    assert len(owners) == 2

    both[0].kill()
    left = both[1].url.removeprefix("http://")

    def taken_over() -> bool:
        try:
            return {both[1].request("GET", f"/connectors/{urllib.parse.quote(name, safe='')}/status")["tasks"][0][
                "worker_id"
            ] for name in names} == {left}  # fmt: skip
        except (RestError, IndexError):
            return False

    eventually(taken_over, timeout_s=60)
    for number in range(len(names)):
        found = eventually(partial(values_of, broker.bootstrap, f"of-{number}", 60), timeout_s=60)
        assert [int(value) for value in found] == list(range(60))
    both[0].start()
