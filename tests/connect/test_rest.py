"""What the REST API answers where something is wrong; beside Kafka's own in tests/compat/connect."""

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from urllib.parse import quote

import pytest

from ottla.connect.rest.client import RestError
from ottla.testing import Broker, ConnectWorker
from tests.support.eventually import eventually

NUMBERS = {"connector.class": "tests.connect.connectors.Numbers", "topic": "n"}


@pytest.fixture(scope="module")
def worker() -> Iterator[ConnectWorker]:
    with Broker() as broker, ConnectWorker(broker.bootstrap) as worker:
        worker.request("PUT", "/connectors/first/config", NUMBERS)  # the first request waits until the worker leads
        worker.request("DELETE", "/connectors/first")
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


@pytest.mark.parametrize("name", ["a b", "a?b", "a#b", "100%", "\u043a\u043b\u044e\u0447", "a;b", "a+b", " t "])
def test_names_may_have_any_character_that_is_no_slash(worker: ConnectWorker, name: str) -> None:
    path = f"/connectors/{quote(name, safe='')}"
    assert worker.put(name, NUMBERS)["name"] == name
    request = urllib.request.Request(f"{worker.url}{path}/config/", method="GET")  # the slash at the end is none
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.url == request.full_url
        assert json.load(answer) == {**NUMBERS, "name": name}
    assert worker.wait(name, "RUNNING")["name"] == name
    worker.request("DELETE", path)
    assert worker.request("GET", "/connectors") == []


def test_where_a_new_connector_is_stands_in_ascii(worker: ConnectWorker) -> None:
    body = json.dumps({"name": "cl\u00e9 \u043a", "config": NUMBERS}).encode()
    request = urllib.request.Request(f"{worker.url}/connectors", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.headers["Location"] == "/connectors/cl%C3%A9%20%D0%BA"
    worker.request("DELETE", "/connectors/cl%C3%A9%20%D0%BA")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"name": "new\nline", "config": NUMBERS}, "Connector name may not contain control sequences but had the"),
        ({"name": "a/b", "config": NUMBERS}, "Connector name may not contain a slash"),
        ({"name": "half \ud800", "config": NUMBERS}, "Bad Request: the body is no JSON: 'utf-8' codec can't encode"),
        ({"name": {"a": 1}, "config": NUMBERS}, "The `name` is a string"),
        ({"name": "n", "config": NUMBERS, "intial_state": "PAUSED"}, 'Unrecognized field "intial_state": known are'),
        ({"name": "n", "config": NUMBERS, "initial_state": 5}, "No initial_state 5; it is one of"),
        ({"name": "n", "config": {**NUMBERS, "count": None}}, "Null value can not be supplied as the configuration"),
        (b"[" * 100_000, "Bad Request: the body is no JSON: maximum recursion depth exceeded"),
        (b"\xff\xfe", "Bad Request: the body is no JSON"),
    ],
)
def test_a_body_that_cannot_be_is_refused(worker: ConnectWorker, body: Any, said: str) -> None:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(f"{worker.url}/connectors", data, {"Content-Type": "application/json"})
    with pytest.raises(urllib.error.HTTPError) as answer, urllib.request.urlopen(request, timeout=60):
        pass
    with answer.value as refusal:
        assert refusal.status == 400
        assert json.load(refusal)["message"].startswith(said)
    assert worker.request("GET", "/connectors") == []


def test_a_configuration_that_no_topic_takes_is_refused_and_the_next_one_taken(worker: ConnectWorker) -> None:
    status, said = refused(worker, "PUT", "/connectors/large/config", {**NUMBERS, "extra": "y" * 2_000_000})
    assert (status, "too large" in said) == (500, True)
    assert worker.request("PUT", "/connectors/small/config", NUMBERS)["name"] == "small"
    assert refused(worker, "GET", "/connectors/small/logs?lines=many")[0] == 400
    assert refused(worker, "POST", "/connectors/small/tasks/%C2%B2/restart")[0] == 404
    assert refused(worker, "PUT", "/connectors/a%2Fb/config", NUMBERS)[0] == 400
    worker.request("DELETE", "/connectors/small")


def test_offsets_are_altered_all_or_none(worker: ConnectWorker) -> None:
    worker.put("stopped", NUMBERS)
    worker.request("PUT", "/connectors/stopped/stop")
    one = {"partition": {"of": 1}, "offset": {"at": 2}}

    def altered() -> bool:
        try:
            worker.request("PATCH", "/connectors/stopped/offsets", {"offsets": [one]})
        except RestError as not_yet:
            return "must be in the STOPPED state" not in not_yet.message
        return True

    eventually(altered, timeout_s=60)
    for wrong in ({"partition": 7, "offset": {}}, {"partition": {"of": 1}, "offset": 3}, 5, {}):
        wanted = {"offsets": [{**one, "offset": {"at": 9}}, wrong]}
        assert refused(worker, "PATCH", "/connectors/stopped/offsets", wanted)[0] == 400
    found = worker.request("GET", "/connectors/stopped/offsets")["offsets"]
    assert [each for each in found if each["partition"]] == [one]
    worker.request("DELETE", "/connectors/stopped")


def test_of_two_who_make_one_connector_one_is_told_so_and_no_patch_is_lost(worker: ConnectWorker) -> None:
    answers: list[int] = []

    def make() -> None:
        try:
            worker.request("POST", "/connectors", {"name": "one", "config": NUMBERS})
            answers.append(201)
        except RestError as conflict:
            answers.append(conflict.status)

    def all_of(*actions: Callable[[], Any]) -> None:
        threads = [threading.Thread(target=each) for each in actions]
        for each in threads:
            each.start()
        for each in threads:
            each.join()

    all_of(*[make] * 8)
    assert sorted(answers) == [201] + [409] * 7
    all_of(*[partial(worker.request, "PATCH", "/connectors/one/config", {f"x{n}": "y"}) for n in range(8)])
    assert {name for name in worker.request("GET", "/connectors/one/config") if name.startswith("x")} == {
        f"x{number}" for number in range(8)
    }
    worker.request("DELETE", "/connectors/one")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/json", "Origin": "http://evil.example"}, 403),
        ({"Content-Type": "application/json", "Host": "evil.example"}, 403),
    ],
)
def test_a_page_in_a_browser_makes_no_connector(worker: ConnectWorker, headers: dict[str, str], status: int) -> None:
    body = json.dumps({"name": "stolen", "config": NUMBERS}).encode()
    request = urllib.request.Request(f"{worker.url}/connectors", data=body, headers=headers, method="POST")
    with pytest.raises(urllib.error.HTTPError) as answer:
        urllib.request.urlopen(request, timeout=10)
    assert answer.value.code == status
    assert json.loads(answer.value.read())["error_code"] == status
    assert "stolen" not in worker.request("GET", "/connectors")
