"""Kafka Connect and Ottla's worker, asked the same: statuses, shapes of answers, error bodies, records in topics."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any, Final

import pytest
from tests.support.connect import messages_of
from tests.support.connect_process import GenuineConnect
from tests.support.console_connect import lived_by_the_console
from tests.support.eventually import eventually

from ottla.testing import Broker, ConnectWorker

pytestmark = [pytest.mark.soak, pytest.mark.timeout(300)]

NAME: Final = "numbers"
TOPICS: Final = ("config", "offset", "status")


class Asked:
    """A worker's REST API, with the class and the settings of a source that it has."""

    def __init__(self, url: str, config: dict[str, str], bootstrap: str, prefix: str) -> None:
        self.url, self.config, self.bootstrap, self.prefix = url, config, bootstrap, prefix

    def __call__(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, data=data, method=method, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                status, text = answer.status, answer.read()
        except urllib.error.HTTPError as refused:
            with refused:
                status, text = refused.code, refused.read()
        return status, json.loads(text) if text else None

    def settled(self, state: str, tasks: int = 1) -> None:
        """Wait until the connector and its tasks are in a state."""

        def states() -> bool:
            status, found = self("GET", f"/connectors/{NAME}/status")
            if status != 200 or len(found["tasks"]) != tasks:
                return False
            return {each["state"] for each in [found["connector"], *found["tasks"]]} == {state}

        eventually(states, timeout_s=60)

    def records(self, log: str) -> dict[str, Any]:
        """Key -> JSON of the records in one of its topics, each key's last one that is no tombstone."""
        messages = messages_of(self.bootstrap, f"{self.prefix}-{log}", 1)
        return {message.key().decode(): json.loads(message.value()) for message in messages if message.value()}


def state_topics(prefix: str) -> dict[str, str]:
    return {f"{log}.storage.topic": f"{prefix}-{log}" for log in TOPICS}


@pytest.fixture(scope="module")
def state_broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture(scope="module")
def genuine(state_broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    lines = tmp_path_factory.mktemp("lines") / "numbers.txt"
    lines.write_text("".join(f"{number}\n" for number in range(100)))
    settings: dict[str, Any] = {"group.id": "genuine", "offset.flush.interval.ms": "200", **state_topics("genuine")}
    settings |= {f"{log}.storage.partitions": "1" for log in ("offset", "status")}
    with GenuineConnect(state_broker.bootstrap, **settings) as worker:
        config = {
            "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
            "topic": "genuine-numbers",
            "file": str(lines),
            "tasks.max": "1",
        }
        yield Asked(worker.url, config, state_broker.bootstrap, "genuine")


@pytest.fixture(scope="module")
def ottla(state_broker: Broker) -> Iterator[Asked]:
    with ConnectWorker(state_broker.bootstrap, {"group.id": "ottla", **state_topics("ottla")}) as worker:
        config = {
            "connector.class": "tests.connect.connectors.Numbers",
            "topic": "ottla-numbers",
            "count": "1000000",
            "pause.ms": "50",
            "tasks.max": "1",
        }
        asked = Asked(worker.url, config, state_broker.bootstrap, "ottla")
        eventually(lambda: asked("DELETE", "/connectors/none")[0] == 404, timeout_s=30)
        yield asked


VALUES: Final = frozenset({"connector", "error_code", "id", "level", "message", "state", "status", "task", "type"})
"""Fields whose values depend on the requests alone."""
BUT_MESSAGES: Final = VALUES - {"message"}


def shape(value: Any, values: frozenset[str] = VALUES) -> Any:
    """Types for values, except in the fields of `values`; lists by their first element."""
    if isinstance(value, dict):
        return {
            name: each if name in values and not isinstance(each, dict | list) else shape(each, values)
            for name, each in sorted(value.items())
        }
    if isinstance(value, list):
        return [shape(value[0], values)] if value else []
    return type(value).__name__


def lived(asked: Asked) -> list[tuple[str, int, Any]]:
    """Ask for everything in a connector's life: what was asked, the status, the answer or its shape."""
    answers: list[tuple[str, int, Any]] = []

    def ask(
        method: str,
        path: str,
        body: Any = None,
        *,
        whole: bool = False,
        keys: bool = False,
        values: frozenset[str] = VALUES,
    ) -> None:
        status, found = asked(method, path, body)
        told = found if whole else sorted(found) if keys else shape(found, values)
        answers.append((f"{method} {path} {body if whole else ''}".rstrip(), status, told))

    for left in asked("GET", "/connectors")[1]:  # by another test
        asked("DELETE", f"/connectors/{left}")
    eventually(lambda: asked("GET", "/connectors")[1] == [], timeout_s=30)
    config = asked.config
    ask("GET", "/")
    ask("GET", "/health")
    ask("GET", "/nowhere", whole=True)
    ask("GET", "/connectors", whole=True)
    ask("GET", "/connectors?expand=status", whole=True)
    for path in ("", "/status", "/config", "/tasks", "/offsets", "/topics", "/tasks/0/status"):
        ask("GET", f"/connectors/none{path}", whole=True)
    for path in ("pause", "resume", "stop"):
        ask("PUT", f"/connectors/none/{path}", whole=True)
    for path in ("restart", "restart?includeTasks=true", "tasks/0/restart"):
        ask("POST", f"/connectors/none/{path}", whole=True)
    ask("DELETE", "/connectors/none", whole=True)
    ask("DELETE", "/connectors/none/offsets", whole=True)
    ask("PATCH", "/connectors/none/config", {"a": "b"}, whole=True)
    ask("PATCH", "/connectors/none/offsets", {"offsets": [{"partition": {}, "offset": {}}]}, whole=True)
    ask("DELETE", "/connectors", whole=True)
    ask("POST", "/connectors", {"name": NAME, "config": {**config, "name": "other"}})
    ask("POST", "/connectors", {"name": NAME, "config": {**config, "tasks.max": "0"}}, values=BUT_MESSAGES)
    ask("POST", "/connectors", {"name": NAME, "config": {**config, "tasks.max": "many"}}, values=BUT_MESSAGES)
    ask("POST", "/connectors", {"name": NAME, "config": {**config, "connector.class": "No"}}, values=BUT_MESSAGES)
    ask("POST", "/connectors", {"name": NAME, "config": {"topic": "t"}}, values=BUT_MESSAGES)
    ask("POST", "/connectors", {"name": NAME, "config": config}, keys=True)
    asked.settled("RUNNING")
    ask("POST", "/connectors", {"name": NAME, "config": config})
    ask("GET", "/connectors", whole=True)
    ask("GET", "/connectors?expand=status&expand=info", keys=True)
    for kinds in (("status", "info"), ("info",), ("status",), ("no",)):
        status, expanded = asked("GET", "/connectors?" + "&".join(f"expand={kind}" for kind in kinds))
        answers.append((f"expanded {kinds}", status, sorted(expanded.get(NAME, {"none": 0}))))
    ask("GET", f"/connectors/{NAME}", keys=True)
    ask("GET", f"/connectors/{NAME}/status")
    status, tasks = asked("GET", f"/connectors/{NAME}/tasks")
    answers.append(("tasks", status, [(sorted(each), each["id"]) for each in tasks]))
    ask("GET", f"/connectors/{NAME}/tasks/0/status")
    ask("GET", f"/connectors/{NAME}/tasks/9/status", whole=True)
    ask("GET", f"/connectors/{NAME}/tasks/x/status", whole=True)
    ask("POST", f"/connectors/{NAME}/tasks/9/restart", whole=True)
    ask("POST", f"/connectors/{NAME}/tasks/0/restart")
    asked.settled("RUNNING")
    ask("PUT", f"/connectors/{NAME}/config", {**config, "name": "other"})
    ask("PUT", f"/connectors/{NAME}/config", config, keys=True)
    ask("PATCH", f"/connectors/{NAME}/config", {"tasks.max": "1"}, keys=True)
    ask("PATCH", f"/connectors/{NAME}/config", {"tasks.max": "0"}, values=BUT_MESSAGES)
    asked.settled("RUNNING")
    eventually(lambda: asked("GET", f"/connectors/{NAME}/topics")[1][NAME]["topics"], timeout_s=30)
    ask("GET", f"/connectors/{NAME}/topics")
    ask("PUT", f"/connectors/{NAME}/topics/reset")
    ask("POST", f"/connectors/{NAME}/restart")
    asked.settled("RUNNING")
    ask("POST", f"/connectors/{NAME}/restart?includeTasks=true&onlyFailed=true")
    ask("POST", f"/connectors/{NAME}/restart?includeTasks=true")
    asked.settled("RUNNING")
    ask("PUT", f"/connectors/{NAME}/pause")
    asked.settled("PAUSED")
    ask("PUT", f"/connectors/{NAME}/resume")
    asked.settled("RUNNING")
    eventually(lambda: asked("GET", f"/connectors/{NAME}/offsets")[1]["offsets"], timeout_s=30)
    ask("PATCH", f"/connectors/{NAME}/offsets", {"offsets": []}, whole=True)
    ask("PATCH", f"/connectors/{NAME}/offsets", {}, whole=True)
    ask("DELETE", f"/connectors/{NAME}/offsets", whole=True)
    ask("PATCH", f"/connectors/{NAME}/offsets", {"offsets": [{"partition": {"a": 1}, "offset": {"b": 2}}]}, whole=True)
    ask("PUT", f"/connectors/{NAME}/stop")
    asked.settled("STOPPED", tasks=0)
    eventually(lambda: asked("DELETE", f"/connectors/{NAME}/offsets")[0] == 200, timeout_s=30)
    ask("GET", f"/connectors/{NAME}/status")
    ask("GET", f"/connectors/{NAME}/tasks", whole=True)
    ask("GET", f"/connectors/{NAME}/offsets", whole=True)
    ask("DELETE", f"/connectors/{NAME}/offsets")
    ask("GET", "/connector-plugins")
    ask("GET", "/connector-plugins?connectorsOnly=false")
    ask("GET", "/connector-plugins/No/config", whole=True)
    ask("PUT", "/connector-plugins/No/config/validate", {"connector.class": "Other"}, whole=True)
    ask("PUT", "/admin/loggers/org.example", {"level": "NO"}, whole=True)
    ask("PUT", "/admin/loggers/org.example", {}, whole=True)
    ask("PUT", "/admin/loggers/org.example", {"level": "DEBUG"})
    ask("PUT", "/admin/loggers/org.example?scope=cluster", {"level": "DEBUG"})
    ask("PUT", "/admin/loggers/org.example?scope=no", {"level": "DEBUG"})
    ask("GET", "/admin/loggers/org.example")
    ask("GET", "/admin/loggers/org.none", whole=True)
    ask("DELETE", f"/connectors/{NAME}")
    ask("DELETE", f"/connectors/{NAME}", whole=True)
    return answers


def test_every_answer_has_kafkas_shape(genuine: Asked, ottla: Asked) -> None:
    theirs, ours = lived(genuine), lived(ottla)
    differences = [(expected, found) for expected, found in zip(theirs, ours, strict=True) if found != expected]
    assert differences == [], "\n".join(f"Kafka: {expected}\nOttla: {found}\n" for expected, found in differences)


def test_bodies_that_are_no_configuration_are_refused_alike(genuine: Asked, ottla: Asked) -> None:
    """But for those that Kafka's stumbles over, with 500 and a word of Java's: they are the asker's fault here."""
    asked_for = (
        ("POST", "/connectors"),
        ("PUT", "/connectors/new/config"),
        ("PATCH", "/connectors/new/config"),
        ("PATCH", "/connectors/new/offsets"),
        ("PUT", "/admin/loggers/org.example"),
    )
    differences = []
    for method, path in asked_for:
        for body in (b"{", b"[]", b'"text"', b"null", b"", b'{"name": "new"}', b'{"config": {}}', b'{"a": {}}'):
            (expected, theirs), (found, ours) = genuine(method, path, body), ottla(method, path, body)
            alike = found == expected if expected != 500 else 400 <= found < 500
            values = BUT_MESSAGES if found == expected else frozenset()
            if not alike or shape(ours, values) != shape(theirs, values):
                differences.append(f"{method} {path} {body!r}\nKafka: {expected} {theirs}\nOttla: {found} {ours}\n")
    assert differences == [], "\n".join(differences)


def test_validation_has_kafkas_shape(genuine: Asked, ottla: Asked) -> None:
    def validated(asked: Asked) -> tuple[Any, Any, Any]:
        name = asked.config["connector.class"]
        config = {**asked.config, "name": NAME, "tasks.max": "0"}
        status, infos = asked("PUT", f"/connector-plugins/{name}/config/validate", config)
        assert status == 200
        wrong = [each["definition"]["name"] for each in infos["configs"] if each["value"]["errors"]]
        (first,) = [each for each in infos["configs"] if each["definition"]["name"] == "connector.class"]
        return infos["error_count"], wrong, shape({**infos, "configs": [first], "groups": ["x"]})

    expected, found = validated(genuine), validated(ottla)
    assert found == expected


def test_topics_hold_kafkas_records(genuine: Asked, ottla: Asked) -> None:
    """Each key of Kafka's is there, with at least its fields."""
    for asked in (genuine, ottla):
        assert asked("POST", "/connectors", {"name": "kept", "config": asked.config})[0] == 201
        assert asked("PUT", "/connectors/kept/pause")[0] == 202

        def states(asked: Asked = asked) -> bool:
            status, found = asked("GET", "/connectors/kept/status")
            return status == 200 and {each["state"] for each in [found["connector"], *found["tasks"]]} == {"PAUSED"}

        eventually(states, timeout_s=60)
    for log in ("config", "status"):
        theirs, ours = genuine.records(log), ottla.records(log)
        for key, value in theirs.items():
            if "kept" in key:
                own = ours[key.replace("genuine-", "ottla-")]
                assert set(value) <= set(own), key


def test_the_console_knows_both(genuine: Asked, ottla: Asked) -> None:
    for asked in (genuine, ottla):
        lived_by_the_console(asked.url, "by-the-console", asked.config, {"tasks.max": "many"})
