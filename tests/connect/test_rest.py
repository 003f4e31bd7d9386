"""What the REST API answers where something is wrong; beside Kafka's own in tests/compat/connect."""

from collections.abc import Iterator
from typing import Any

import pytest

from ottla.testing import Broker, ConnectWorker
from ottla.testing.connect import RestError
from tests.support.eventually import eventually

NUMBERS = {"connector.class": "tests.connect.connectors.Numbers", "topic": "n"}


@pytest.fixture(scope="module")
def worker() -> Iterator[ConnectWorker]:
    with Broker() as broker, ConnectWorker(broker.bootstrap) as worker:
        eventually(lambda: refused(worker, "DELETE", "/connectors/none")[0] == 404, timeout_s=60)
        yield worker


def refused(worker: ConnectWorker, method: str, path: str, body: Any = None) -> tuple[int, str]:
    with pytest.raises(RestError) as answer:
        worker.request(method, path, body)
    assert answer.value.body["error_code"] == answer.value.status
    return answer.value.status, answer.value.body["message"]


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"topic": "t"}, "connector.class is missing: it names the connector"),
        ({**NUMBERS, "connector.class": "No"}, "Failed to find any class that implements Connector and which name"),
        ({**NUMBERS, "tasks.max": "0"}, "Connector configuration is invalid and contains the following 1 error(s):"),
        ({**NUMBERS, "name": "other"}, "Connector name configuration (other) doesn't match connector name in the URL"),
        ({**NUMBERS, "topic": {"a": 1}}, "The setting topic is a string, a number or a boolean"),
    ],
)
def test_a_configuration_that_cannot_be_is_the_askers_fault(
    worker: ConnectWorker, config: dict[str, Any], said: str
) -> None:
    for method, path, body in (
        ("PUT", "/connectors/new/config", config),
        ("POST", "/connectors", {"name": "new", "config": config}),
    ):
        status, message = refused(worker, method, path, body)
        assert status == 400
        assert message.startswith(said)
    assert worker.request("GET", "/connectors") == []


@pytest.mark.parametrize("body", [None, [], "text", {"a": "b"}])
def test_who_does_not_exist_is_missed_before_the_body_is_looked_at(worker: ConnectWorker, body: Any) -> None:
    assert refused(worker, "PATCH", "/connectors/none/config", body) == (404, "Connector none not found")


def test_setting_a_level_names_the_loggers_that_had_another(worker: ConnectWorker) -> None:
    changed = worker.request("PUT", "/admin/loggers/tests.rest", {"level": "DEBUG"})
    assert changed == ["tests.rest"]
    assert worker.request("PUT", "/admin/loggers/tests.rest", {"level": "debug"}) == []
    assert worker.request("GET", "/admin/loggers/tests.rest")["level"] == "DEBUG"
    assert refused(worker, "PUT", "/admin/loggers/tests.rest", {"level": "NO"}) == (404, "invalid log level 'NO'.")
