"""A herder in tests: the statuses that it sees, and records of the topic of configurations."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ottla.connect.herder.events import (
    ConfigRead,
    HerderConfig,
    HerderEffect,
    HerderEvent,
    ReportConnector,
    ReportTask,
    Status,
)
from ottla.connect.herder.state import ASSIGNMENT, COMMIT, CONNECTOR, TARGET_STATE, TASK, Target, TaskId
from ottla.connect.herder.state_machine import Herder

HERE, THERE = "here:1", "there:1"
SESSION_MS, REBALANCE_MS, GRACE_MS = 10_000, 60_000, 5_000


@dataclass
class Known:
    """The statuses that have been read."""

    of_connectors: dict[str, Status] = field(default_factory=dict)
    of_tasks: dict[TaskId, Status] = field(default_factory=dict)

    def connector(self, name: str) -> Status | None:
        return self.of_connectors.get(name)

    def task(self, task: TaskId) -> Status | None:
        return self.of_tasks.get(task)

    def tasks(self, name: str) -> Mapping[int, Status]:
        return {task.task: status for task, status in sorted(self.of_tasks.items()) if task.connector == name}


class Driver:
    """Sends events to a herder at a time of its own, and reads back what it reports."""

    def __init__(self) -> None:
        self.known = Known()
        self.herder = Herder(HerderConfig(HERE, SESSION_MS, REBALANCE_MS, GRACE_MS), self.known)
        self.now_ms = 1_000
        self.offset = 0

    def send(self, event: HerderEvent) -> list[HerderEffect]:
        """What it decides; its reports are read back at once."""
        effects = self.herder.handle(event, self.now_ms)
        for effect in effects:
            if isinstance(effect, ReportConnector):
                self.known.of_connectors[effect.connector] = {"state": effect.state, "worker_id": HERE}
            elif isinstance(effect, ReportTask):
                self.known.of_tasks[effect.task] = {"state": effect.state, "worker_id": HERE}
        return effects

    def read(self, key: str, value: Mapping[str, Any] | None) -> None:
        """A new record of the configurations."""
        self.offset += 1
        self.send(ConfigRead(key, value, self.offset, is_new=True))

    def configure(self, name: str, **config: str) -> int:
        """Returns the configuration's revision."""
        self.read(CONNECTOR + name, {"properties": config})
        return self.offset

    def commit(self, name: str, tasks: Sequence[Mapping[str, str]], revision: int) -> None:
        for number, each in enumerate(tasks):
            self.read(f"{TASK}{name}-{number}", {"properties": each})
        self.read(COMMIT + name, {"tasks": len(tasks), "ottla.config": revision})

    def target(self, name: str, target: Target) -> None:
        self.read(TARGET_STATE + name, {"state": target})

    def assign(self, leader: str, workers: Mapping[str, Sequence[TaskId]]) -> None:
        value = {worker: [str(task) for task in tasks] for worker, tasks in workers.items()}
        self.read(ASSIGNMENT, {"generation": self.offset, "leader": leader, "workers": value})
