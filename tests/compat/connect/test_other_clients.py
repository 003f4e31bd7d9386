"""What people manage Kafka Connect with, on an Ottla worker: kafka-connect-py, as a library and by its command; and the
console."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from kafka_connect import KafkaConnect
from tests.support.console_connect import lived_by_the_console
from tests.support.eventually import eventually

from ottla.testing import Broker, ConnectWorker


@pytest.fixture(scope="module")
def worker() -> Iterator[ConnectWorker]:
    with Broker() as broker, ConnectWorker(broker.bootstrap) as worker:
        yield worker


@pytest.fixture
def rows(tmp_path: Path) -> dict[str, str]:
    """The settings of a source of two rows."""
    (tmp_path / "rows.csv").write_text("id,name\n1,pear\n2,plum\n")
    return {"connector.class": "file-source", "path": str(tmp_path / "rows.csv"), "topic": "rows", "tasks.max": "1"}


def _states(client: KafkaConnect, name: str) -> list[str]:
    """The states of a connector and its tasks; empty before it has a status, as with Kafka's worker."""
    try:
        status = client.get_connector_status(name)
    except requests.HTTPError as refused:
        if refused.response is not None and refused.response.status_code == 404:
            return []
        raise
    return [each["state"] for each in [status["connector"], *status["tasks"]]]


def _settles(client: KafkaConnect, name: str, states: list[str]) -> None:
    eventually(lambda: _states(client, name) == states, timeout_s=60)


@pytest.mark.timeout(180)
def test_a_connector_lives_its_life_by_another_client(worker: ConnectWorker, rows: dict[str, str]) -> None:
    client = KafkaConnect(url=worker.url)
    assert client.get_cluster_info()["kafka_cluster_id"]
    assert "ottla.connect.connectors.files.source.FileSource" in [
        each["class"] for each in client.list_connector_plugins()
    ]
    valid = client.validate_connector_config("file-source", {**rows, "name": "life"})
    assert valid["error_count"] == 0
    wrong = {**rows, "name": "life", "batch.max.rows": "few"}
    assert client.validate_connector_config("file-source", wrong)["error_count"] == 1

    assert client.create_connector({"name": "life", "config": rows})["config"] == {**rows, "name": "life"}
    _settles(client, "life", ["RUNNING", "RUNNING"])
    eventually(lambda: client.list_connector_topics("life") == {"life": {"topics": ["rows"]}}, timeout_s=60)
    assert [task["id"] for task in client.list_connector_tasks("life")] == [{"connector": "life", "task": 0}]
    assert client.list_connectors(pattern="li.*") == ["life"]
    assert client.list_connectors(expand="status", state="RUNNING")["life"]["status"]["name"] == "life"
    assert client.list_connectors(expand="info")["life"]["info"]["type"] == "source"

    client.pause_connector("life")
    _settles(client, "life", ["PAUSED", "PAUSED"])
    client.resume_connector("life")
    _settles(client, "life", ["RUNNING", "RUNNING"])
    client.restart_connector("life", include_tasks=True)
    client.restart_connector_task("life", 0)
    _settles(client, "life", ["RUNNING", "RUNNING"])
    client.stop_connector("life")
    _settles(client, "life", ["STOPPED"])

    changed = {**rows, "topic": "others"}
    assert client.update_connector("life", changed)["config"]["topic"] == "others"
    assert client.get_connector_config("life") == {**changed, "name": "life"}
    client.delete_connector("life")
    eventually(lambda: client.list_connectors() == [], timeout_s=60)


def test_its_errors_are_raised_as_they_are_for_kafkas(worker: ConnectWorker, rows: dict[str, str]) -> None:
    client = KafkaConnect(url=worker.url)
    with pytest.raises(requests.HTTPError, match="404"):
        client.get_connector_status("nowhere")
    with pytest.raises(requests.HTTPError, match="400"):
        client.create_connector({"name": "bad", "config": {**rows, "tasks.max": "many"}})
    with pytest.raises(requests.HTTPError, match="nowhere"):
        client.restart_connector("nowhere", include_tasks=True)


def test_its_command_manages_connectors(worker: ConnectWorker, rows: dict[str, str], tmp_path: Path) -> None:
    def kc(*arguments: str) -> Any:
        command = [str(Path(sys.executable).with_name("kc")), "-u", worker.url, *arguments]
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
        return json.loads(done.stdout) if done.stdout.strip() else None

    (tmp_path / "rows.json").write_text(json.dumps({"name": "typed", "config": rows}))
    assert kc("create", "--config-file", str(tmp_path / "rows.json"))["name"] == "typed"
    _settles(KafkaConnect(url=worker.url), "typed", ["RUNNING", "RUNNING"])
    assert [task["state"] for task in kc("status", "typed")["tasks"]] == ["RUNNING"]
    assert kc("list") == ["typed"]
    kc("delete", "typed")
    eventually(lambda: kc("list") == [], timeout_s=60)


@pytest.mark.timeout(180)
def test_a_connector_lives_its_life_by_the_console(worker: ConnectWorker, rows: dict[str, str]) -> None:
    config = {**rows, "connector.class": "ottla.connect.connectors.files.source.FileSource"}
    lived_by_the_console(worker.url, "by-the-console", config, {"batch.max.rows": "few"})
