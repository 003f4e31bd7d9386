"""Genuine Kafka Connect and Ottla's workers, asked the same: statuses, shapes of answers, error bodies, records in
their topics.
"""

import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.testing import Broker, ConnectWorker
from tests.support.connect import messages_of
from tests.support.eventually import eventually
from tests.support.genuine import kafka_tool_command
from tests.support.probe import free_port

NAME = "numbers"
TOPICS = ("config", "offset", "status")


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

    def settled(self, state: str) -> None:
        """Wait until the connector and its task are in a state."""

        def states() -> bool:
            status, found = self("GET", f"/connectors/{NAME}/status")
            return status == 200 and {each["state"] for each in [found["connector"], *found["tasks"]]} == {state}

        eventually(states, timeout_s=60)

    def records(self, log: str) -> dict[str, Any]:
        """Key -> JSON of the records in one of its topics, each key's last one that is no tombstone."""
        messages = messages_of(self.bootstrap, f"{self.prefix}-{log}", 1)
        return {message.key().decode(): json.loads(message.value()) for message in messages if message.value()}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture(scope="module")
def genuine(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    directory: Path = tmp_path_factory.mktemp("connect")
    port = free_port()
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": "genuine",
        "listeners": f"http://127.0.0.1:{port}",
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "plugin.discovery": "service_load",
        "offset.flush.interval.ms": "200",
        **{f"{log}.storage.topic": f"genuine-{log}" for log in TOPICS},
        **{f"{log}.storage.replication.factor": "1" for log in TOPICS},
        **{f"{log}.storage.partitions": "1" for log in TOPICS if log != "config"},
    }
    file = directory / "worker.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    log = directory / "log"
    command = kafka_tool_command("org.apache.kafka.connect.cli.ConnectDistributed", str(file))
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    config = {
        "connector.class": "org.apache.kafka.connect.tools.VerifiableSourceConnector",
        "topic": "genuine-numbers",
        "throughput": "20",
        "tasks.max": "1",
    }
    asked = Asked(f"http://127.0.0.1:{port}", config, broker.bootstrap, "genuine")
    try:
        deadline = time.monotonic() + 90
        while True:
            assert process.poll() is None, log.read_text()[-3000:]
            assert time.monotonic() < deadline, log.read_text()[-3000:]
            try:
                if asked("GET", "/connectors")[0] == 200:
                    break
            except (OSError, ValueError):  # nobody listens, or nobody speaks JSON yet
                pass
            time.sleep(0.1)
        yield asked
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def ottla(broker: Broker) -> Iterator[Asked]:
    settings = {f"{log}.storage.topic": f"ottla-{log}" for log in TOPICS}
    with ConnectWorker(broker.bootstrap, {"group.id": "ottla", **settings}) as worker:
        config = {
            "connector.class": "tests.connect.connectors.Numbers",
            "topic": "ottla-numbers",
            "count": "1000000",
            "pause.ms": "50",
            "tasks.max": "1",
        }
        asked = Asked(worker.url, config, broker.bootstrap, "ottla")
        eventually(lambda: asked("DELETE", "/connectors/none")[0] == 404, timeout_s=30)
        yield asked


def shape(value: Any) -> Any:
    """Types for values; lists by their first element."""
    if isinstance(value, dict):
        return {name: shape(each) for name, each in sorted(value.items())}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return type(value).__name__


def lived(asked: Asked) -> list[tuple[str, int, Any]]:
    """Ask for everything in a connector's life: what was asked, the status, the shape of the answer."""
    answers: list[tuple[str, int, Any]] = []

    def ask(method: str, path: str, body: Any = None, *, whole: bool = False, keys: bool = False) -> None:
        status, found = asked(method, path, body)
        told = found if whole else sorted(found) if keys else shape(found)
        answers.append((f"{method} {path}", status, told))

    config = asked.config
    ask("GET", "/")
    ask("GET", "/nowhere", whole=True)
    ask("GET", "/connectors", whole=True)
    ask("GET", "/connectors/none", whole=True)
    ask("GET", "/connectors/none/status", whole=True)
    ask("GET", "/connectors/none/config", whole=True)
    ask("PUT", "/connectors/none/pause", whole=True)
    ask("DELETE", "/connectors/none", whole=True)
    ask("POST", "/connectors", {"name": NAME, "config": {**config, "name": "other"}}, whole=True)
    ask("POST", "/connectors", {"name": NAME, "config": {**config, "tasks.max": "0"}})
    ask("POST", "/connectors", {"name": NAME, "config": {**config, "connector.class": "No"}})
    ask("POST", "/connectors", {"name": NAME, "config": config})
    asked.settled("RUNNING")
    ask("POST", "/connectors", {"name": NAME, "config": config}, whole=True)
    ask("GET", "/connectors", whole=True)
    ask("GET", "/connectors?expand=status&expand=info", keys=True)
    status, expanded = asked("GET", "/connectors?expand=status&expand=info")
    answers.append(("expanded", status, sorted(expanded[NAME])))
    ask("GET", f"/connectors/{NAME}/status")
    ask("GET", f"/connectors/{NAME}/tasks/0/status")
    ask("GET", f"/connectors/{NAME}/tasks/9/status", whole=True)
    ask("POST", f"/connectors/{NAME}/tasks/9/restart", whole=True)
    ask("POST", f"/connectors/{NAME}/tasks/0/restart")
    ask("PUT", f"/connectors/{NAME}/config", config, keys=True)
    ask("PATCH", f"/connectors/{NAME}/config", {"tasks.max": "1"}, keys=True)
    asked.settled("RUNNING")
    eventually(lambda: asked("GET", f"/connectors/{NAME}/topics")[1][NAME]["topics"], timeout_s=30)
    ask("GET", f"/connectors/{NAME}/topics")
    ask("POST", f"/connectors/{NAME}/restart")
    ask("POST", f"/connectors/{NAME}/restart?includeTasks=true")
    time.sleep(0.3)
    asked.settled("RUNNING")
    ask("PUT", f"/connectors/{NAME}/pause")
    asked.settled("PAUSED")
    ask("PUT", f"/connectors/{NAME}/resume")
    asked.settled("RUNNING")
    eventually(lambda: asked("GET", f"/connectors/{NAME}/offsets")[1]["offsets"], timeout_s=30)
    ask("PATCH", f"/connectors/{NAME}/offsets", {"offsets": []}, whole=True)
    ask("DELETE", f"/connectors/{NAME}/offsets", whole=True)
    ask("PUT", f"/connectors/{NAME}/stop")
    asked.settled("STOPPED")
    eventually(lambda: asked("DELETE", f"/connectors/{NAME}/offsets")[0] == 200, timeout_s=30)
    ask("GET", f"/connectors/{NAME}/status")
    ask("GET", f"/connectors/{NAME}/offsets", whole=True)
    ask("DELETE", f"/connectors/{NAME}/offsets")
    ask("GET", "/connector-plugins")
    ask("GET", "/connector-plugins/No/config", whole=True)
    ask("PUT", "/admin/loggers/org.example", {"level": "NO"}, whole=True)
    ask("PUT", "/admin/loggers/org.example", {}, whole=True)
    ask("PUT", "/admin/loggers/org.example", {"level": "DEBUG"})
    ask("GET", "/admin/loggers/org.example")
    return answers


def test_every_answer_has_kafkas_shape(genuine: Asked, ottla: Asked) -> None:
    for expected, found in zip(lived(genuine), lived(ottla), strict=True):
        assert found == expected


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
    """After `lived`: each key of Kafka's is there, with at least its fields."""
    for log in ("config", "status"):
        theirs, ours = genuine.records(log), ottla.records(log)
        compared = {key.replace("genuine-", "ottla-") for key in theirs} - {"session-key"}
        assert compared <= set(ours), log
        for key, value in theirs.items():
            if key != "session-key":
                own = ours[key.replace("genuine-", "ottla-")]
                assert set(value) <= set(own), key
