"""Statuses of connectors and tasks, and the topics they use: the log `status`, in Kafka Connect's format.

    status-connector-NAME             {"state", "trace", "worker_id", "generation", "version"}
    status-task-NAME-N                the same; Ottla adds "progress": {what: [done, total]}, "warning", and for
                                      sources "delivery": {"started_at", "delivered_at", "changed_at"}
    status-topic-TOPIC:connector-NAME {"topic": {"name", "connector", "task", "discoverTimestamp"}}

Source: `KafkaStatusBackingStore`; KIP-558.
"""

import json
import logging
import threading
from collections.abc import Mapping
from typing import Any, Final

from ottla.connect.converters.json_converter import json_text
from ottla.connect.herder.state import TaskId
from ottla.connect.runtime.logs import Logs

CONNECTOR: Final = "status-connector-"
TASK: Final = "status-task-"
TOPIC: Final = "status-topic-"

log = logging.getLogger(__name__)

Status = Mapping[str, Any]


class Statuses:
    """All statuses that have been read, and writing them. Safe from any thread."""

    def __init__(self) -> None:
        self._known: dict[str, Status] = {}
        self._lock = threading.Lock()

    def replay(self, key: bytes, value: bytes | None) -> None:
        """Take in one record of the log."""
        name = key.decode(errors="replace")
        with self._lock:
            if value is None:
                self._known.pop(name, None)
                return
            try:
                status = json.loads(value)
            except ValueError:
                status = None
            if isinstance(status, dict):
                self._known[name] = status
            else:
                log.warning("the status %s is no object in JSON, and is left alone", name)

    def connector(self, name: str) -> Status | None:
        """The status of a connector itself."""
        with self._lock:
            return self._known.get(CONNECTOR + name)

    def task(self, task: TaskId) -> Status | None:
        """The status of a task."""
        with self._lock:
            return self._known.get(f"{TASK}{task}")

    def tasks(self, name: str) -> dict[int, Status]:
        """The statuses of a connector's tasks."""
        prefix = f"{TASK}{name}-"
        with self._lock:
            found = {key.removeprefix(prefix): value for key, value in self._known.items() if key.startswith(prefix)}
        return dict(sorted((int(number), value) for number, value in found.items() if number.isdecimal()))

    def of_worker(self, worker: str) -> tuple[dict[str, Status], dict[TaskId, Status]]:
        """The statuses that a worker has written last: of connectors, by name, and of tasks."""
        with self._lock:
            written = {key: value for key, value in self._known.items() if value.get("worker_id") == worker}
        connectors = {key.removeprefix(CONNECTOR): each for key, each in written.items() if key.startswith(CONNECTOR)}
        tasks = {}
        for key, each in written.items():
            name, _, number = key.removeprefix(TASK).rpartition("-")
            if key.startswith(TASK) and number.isdecimal():
                tasks[TaskId(name, int(number))] = each
        return dict(sorted(connectors.items())), dict(sorted(tasks.items()))

    def topics(self, name: str) -> list[str]:
        """The topics that a connector has used."""
        suffix = f":connector-{name}"
        with self._lock:
            return sorted(
                key.removeprefix(TOPIC).removesuffix(suffix)
                for key in self._known
                if key.startswith(TOPIC) and key.endswith(suffix)
            )

    @staticmethod
    def put_connector(logs: Logs, name: str, status: Status | None) -> None:
        """Write the status of a connector; None takes it away."""
        logs.put("status", f"{CONNECTOR}{name}".encode(), _value(status), wait=False)

    @staticmethod
    def put_task(logs: Logs, task: TaskId, status: Status | None) -> None:
        """Write the status of a task; None takes it away."""
        logs.put("status", f"{TASK}{task}".encode(), _value(status), wait=False)

    @staticmethod
    def put_topic(logs: Logs, topic: str, task: TaskId, now_ms: int | None) -> None:
        """Note that a task uses a topic; `now_ms` None takes it away."""
        key = f"{TOPIC}{topic}:connector-{task.connector}".encode()
        facts = {"name": topic, "connector": task.connector, "task": task.task, "discoverTimestamp": now_ms}
        logs.put("status", key, None if now_ms is None else _value({"topic": facts}), wait=False)


def _value(status: Status | None) -> bytes | None:
    return None if status is None else json_text(status).encode()


def status_value(
    state: str, worker: str, generation: int, *, trace: str | None = None, version: str | None = None, **extra: Any
) -> dict[str, Any]:
    """A status in Connect's order of fields."""
    value = {"state": state, "trace": trace, "worker_id": worker, "generation": generation, "version": version}
    return {**value, **{name: each for name, each in extra.items() if each}}
