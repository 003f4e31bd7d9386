"""PURE: the content of the topic of configurations, record by record, in Kafka Connect's format.

    connector-NAME            {"properties": {...}}               as the user configured it; null: deleted
    task-NAME-N               {"properties": {...}}               without effect until the next
    commit-NAME               {"tasks": N}                        tasks 0..N-1 are as written above
    target-state-NAME         {"state": "STARTED"|"PAUSED", "state.v2": ... |"STOPPED"}
    restart-connector-NAME    {"include-tasks": bool, "only-failed": bool}
    logger-cluster-NAME       {"level": "DEBUG"}
    ottla-assignment          {"generation": G, "leader": ID, "workers": {ID: ["NAME-0", ...]}}      Ottla's own (ADR
    13)

Source: `KafkaConfigBackingStore`; KIP-745, KIP-875, KIP-976.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

CONNECTOR: Final = "connector-"
TASK: Final = "task-"
COMMIT: Final = "commit-"
TARGET_STATE: Final = "target-state-"
RESTART: Final = "restart-connector-"
LOGGER: Final = "logger-cluster-"
ASSIGNMENT: Final = "ottla-assignment"


class Target(enum.StrEnum):
    """What a connector shall do."""

    STARTED = "STARTED"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"


class TaskId(NamedTuple):
    """A task of a connector."""

    connector: str
    task: int

    def __str__(self) -> str:
        return f"{self.connector}-{self.task}"


@dataclass(frozen=True, slots=True)
class Assignment:
    """The assignment of tasks to workers by the leader."""

    generation: int = 0
    leader: str = ""
    workers: Mapping[str, frozenset[TaskId]] = field(default_factory=dict)

    def owner(self, task: TaskId) -> str | None:
        """The worker that shall run a task."""
        return next((worker for worker, tasks in self.workers.items() if task in tasks), None)


@dataclass(slots=True)
class ConnectorState:
    """One connector. `revision` and `tasks_revision` are the offsets of the records with `config` and the tasks'
    commit.
    """

    config: Mapping[str, str]
    revision: int
    target: Target = Target.STARTED
    tasks: tuple[Mapping[str, str], ...] = ()
    tasks_revision: int = -1
    planned: int = -1
    """The revision of the configuration for which the tasks were written: that before their commit."""


class Restart(NamedTuple):
    """A request to restart a connector, once."""

    connector: str
    include_tasks: bool
    only_failed: bool


class ClusterState:
    """All connectors, from the records of the topic alone."""

    def __init__(self) -> None:
        self.connectors: dict[str, ConnectorState] = {}
        self.assignment = Assignment()
        self.given: dict[TaskId, int] = {}
        """The revision at which each task was given to its worker: a worker that was away, and has it back,
        sees that another one had it meanwhile."""
        self.revision = -1
        self._written: dict[str, dict[int, Mapping[str, str]]] = {}
        self._targets: dict[str, Target] = {}

    def replay(self, key: str, value: Mapping[str, Any] | None, offset: int) -> Restart | None:
        """Apply one record; unknown keys are ignored. Returns a request to restart, if it is one."""
        self.revision = offset
        if key == ASSIGNMENT:
            if value is not None:
                self._assign(_assignment(value))
        elif key.startswith(TARGET_STATE):
            self._target(key.removeprefix(TARGET_STATE), value)
        elif key.startswith(RESTART):
            if value is not None:
                name = key.removeprefix(RESTART)
                return Restart(name, bool(value.get("include-tasks")), bool(value.get("only-failed")))
        elif key.startswith(CONNECTOR):
            self._connector(key.removeprefix(CONNECTOR), value)
        elif key.startswith(TASK):
            self._task(key.removeprefix(TASK), value)
        elif key.startswith(COMMIT):
            self._commit(key.removeprefix(COMMIT), value)
        return None

    def _assign(self, new: Assignment) -> None:
        before, self.assignment = self.assignment, new
        self.given = {
            task: self.given[task] if task in before.workers.get(worker, ()) else self.revision
            for worker, tasks in new.workers.items()
            for task in tasks
        }

    def _connector(self, name: str, value: Mapping[str, Any] | None) -> None:
        if value is None:
            self.connectors.pop(name, None)
            self._written.pop(name, None)
            return
        config = _strings(value.get("properties"))
        known = self.connectors.get(name)
        if known is None:
            target = self._targets.get(name, Target.STARTED)
            self.connectors[name] = ConnectorState(config, self.revision, target)
        else:
            known.config, known.revision = config, self.revision

    def _task(self, name: str, value: Mapping[str, Any] | None) -> None:
        connector, _, number = name.rpartition("-")
        if value is not None and connector and number.isdecimal():
            self._written.setdefault(connector, {})[int(number)] = _strings(value.get("properties"))

    def _commit(self, name: str, value: Mapping[str, Any] | None) -> None:
        known = self.connectors.get(name)
        if known is None or value is None:
            return
        count = int(value.get("tasks", 0))
        written = self._written.get(name, {})
        if all(
            number in written for number in range(count)
        ):  # else a compaction took some: the leader writes them anew
            known.tasks = tuple(written[number] for number in range(count))
            known.tasks_revision = self.revision
            known.planned = int(value.get("ottla.config", known.revision))

    def _target(self, name: str, value: Mapping[str, Any] | None) -> None:
        if value is None:
            self._targets.pop(name, None)
            return
        text = str(value.get("state.v2") or value.get("state"))
        target = Target(text) if text in Target.__members__ else Target.STARTED
        self._targets[name] = target
        if name in self.connectors:
            self.connectors[name].target = target


def _strings(properties: Any) -> dict[str, str]:
    if not isinstance(properties, Mapping):
        return {}
    return {str(name): str(value) for name, value in properties.items() if value is not None}


def _assignment(value: Mapping[str, Any]) -> Assignment:
    workers = {}
    for worker, tasks in dict(value.get("workers") or {}).items():
        parts = [str(task).rpartition("-") for task in tasks]
        workers[str(worker)] = frozenset(TaskId(name, int(number)) for name, _, number in parts)
    return Assignment(int(value.get("generation", 0)), str(value.get("leader", "")), workers)


def assignment_value(assignment: Assignment) -> dict[str, Any]:
    """The record's value for an assignment."""
    workers = {worker: sorted(map(str, tasks)) for worker, tasks in sorted(assignment.workers.items())}
    return {"generation": assignment.generation, "leader": assignment.leader, "workers": workers}


def share(tasks: list[TaskId], members: list[str], before: Assignment) -> dict[str, frozenset[TaskId]]:
    """Spread tasks over workers as evenly as possible; tasks stay where they are as far as that allows."""
    if not members:
        return {}
    fair, extra = divmod(len(tasks), len(members))
    wanted = set(tasks)
    given: dict[str, list[TaskId]] = {}
    for member in sorted(members, key=lambda name: (-len(before.workers.get(name, ())), name)):
        limit = fair + (1 if extra > 0 else 0)
        kept = sorted(before.workers.get(member, frozenset()) & wanted)[:limit]
        extra -= len(kept) > fair
        given[member] = kept
        wanted.difference_update(kept)
    for task in sorted(wanted):
        member = min(given, key=lambda name: (len(given[name]), name))
        given[member].append(task)
    return {member: frozenset(tasks) for member, tasks in given.items()}
