"""The leader's part: connectors are asked for their tasks, and tasks are removed from those that are stopped. PURE.

                     answered, unchanged                  +--- failed: asked again after 10 s, or when it changes
                  +------------------------+              v
     IDLE --> ASKED --> tasks that change are fenced --> commit --> IDLE

An answer counts until the connector is asked anew, or deleted.
"""

import enum
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from ottla.connect.herder.events import (
    AskForTasks,
    CommitTasks,
    Config,
    FenceTasks,
    ForgetTask,
    HerderConfig,
    HerderEffect,
    KnownStatuses,
    Plan,
    PlanEnded,
    RemoveTasks,
    ReportConnector,
    TasksAnswered,
)
from ottla.connect.herder.state import ClusterState, ConnectorState, Restart, Target, TaskId

PLAN_AGAIN_MS: Final = 10_000
"""How long after a failure a connector is asked for its tasks again."""
PLANNING_MS: Final = 30_000
"""Time for a connector to plan its tasks, after which its status reports the delay."""


class _Phase(enum.Enum):
    IDLE = "nothing is asked"
    ASKED = "it has not answered yet, or its answer is being carried out"
    FAILED = "it has no answer, and is asked again after a pause"


@dataclass(slots=True)
class _Planning:
    """The planning of one connector. since_ms: when the phase began. revision: the configuration it was asked with."""

    phase: _Phase = _Phase.IDLE
    since_ms: int = 0
    number: int = 0
    revision: int = -1
    tasks: Sequence[Config] | None = None
    """The answer that is being carried out."""
    is_restart_due: bool = False
    ending_since_ms: int | None = None
    """Since when tasks of a connector that is stopped have been given time to end."""


class Planning:
    """What this worker decides about connectors while it leads."""

    def __init__(self, config: HerderConfig, state: ClusterState, statuses: KnownStatuses) -> None:
        self._config, self._state, self._statuses = config, state, statuses
        self._plannings: dict[str, _Planning] = {}
        self._numbers = 0

    def turn(self, name: str, members: Collection[str], now_ms: int) -> list[HerderEffect]:
        """Look at a connector. members: the workers of the group."""
        connector = self._state.connectors.get(name)
        if connector is None:
            return []
        planning = self._plannings.setdefault(name, _Planning())
        if connector.target is Target.STOPPED:
            return self._remove(name, connector, planning, members, now_ms)
        planning.ending_since_ms = None
        if planning.phase is _Phase.FAILED and (
            planning.revision != connector.revision or now_ms - planning.since_ms > PLAN_AGAIN_MS
        ):
            planning.phase = _Phase.IDLE
        has_failed = planning.phase is _Phase.FAILED
        if connector.planned != connector.revision or planning.is_restart_due:
            return [] if has_failed else self._ask(name, connector, planning, now_ms)
        state = "PAUSED" if connector.target is Target.PAUSED else "RUNNING"
        if has_failed or self._reported(name) == (state, self._config.worker):
            return []
        return [ReportConnector(name, state)]

    def forget_deleted(self) -> None:
        """Let no answer of a deleted connector count, not even for the next one of its name."""
        for name in self._plannings.keys() - self._state.connectors.keys():
            del self._plannings[name]

    def restart(self, asked: Restart) -> None:
        """Ask a connector anew: which tasks it has may be another question by now."""
        known = asked.connector in self._state.connectors
        if known and (not asked.only_failed or self._reported(asked.connector)[0] == "FAILED"):
            planning = self._plannings.setdefault(asked.connector, _Planning())
            planning.is_restart_due = True
            if planning.phase is _Phase.FAILED:
                planning.phase = _Phase.IDLE

    def not_leading(self) -> None:
        """Leave restarts to the leader."""
        for planning in self._plannings.values():
            planning.is_restart_due = False

    def answered(self, event: TasksAnswered) -> list[HerderEffect]:
        """Fence the tasks whose work may be another task's from now on."""
        planning, connector = self._current(event.plan), self._state.connectors.get(event.plan.connector)
        if planning is None or connector is None:
            return []
        tasks, before = [dict(each) for each in event.tasks], [dict(each) for each in connector.tasks]
        if connector.planned == planning.revision and before == tasks:
            return []
        planning.tasks = tasks
        changed = {
            TaskId(event.plan.connector, number): former
            for number, former in enumerate(before)
            if number >= len(tasks) or former != tasks[number]
        }
        return [FenceTasks(changed)] if changed else []

    def fenced(self, plan: Plan) -> list[HerderEffect]:
        """Commit the answer, if it still counts."""
        planning = self._current(plan)
        if planning is None or planning.tasks is None:
            return []
        tasks, planning.tasks = planning.tasks, None
        return [CommitTasks(plan.connector, tasks, planning.revision)]

    def committed(self, name: str, task_count: int) -> list[HerderEffect]:
        """Remove the statuses of tasks that are gone."""
        return [ForgetTask(TaskId(name, number)) for number in self._statuses.tasks(name) if number >= task_count]

    def ended(self, event: PlanEnded, now_ms: int) -> list[HerderEffect]:
        """The connector may be asked again, after a failure only later."""
        planning = self._current(event.plan)
        if planning is None:
            return []
        planning.tasks = None
        planning.phase = _Phase.IDLE if event.failure is None else _Phase.FAILED
        planning.since_ms = now_ms
        return [] if event.failure is None else [ReportConnector(event.plan.connector, "FAILED", event.failure)]

    def removed(self, name: str) -> list[HerderEffect]:
        """Report that a connector is stopped: from now on its positions may be changed."""
        return [*self.committed(name, 0), ReportConnector(name, "STOPPED")]

    def _remove(
        self, name: str, connector: ConnectorState, planning: _Planning, members: Collection[str], now_ms: int
    ) -> list[HerderEffect]:
        if not connector.tasks and self._reported(name)[0] == "STOPPED":
            return []
        if self._is_ending(name, planning, members, now_ms):
            return []
        return [RemoveTasks(name, {TaskId(name, number): each for number, each in enumerate(connector.tasks)})]

    def _is_ending(self, name: str, planning: _Planning, members: Collection[str], now_ms: int) -> bool:
        """Whether tasks of a connector that is stopped may yet end by themselves; those that do not are fenced.

        STOPPED means that positions may be changed, so nothing may be written after it.
        """
        if any(
            each.get("state") == "RUNNING" and each.get("worker_id") in members
            for each in self._statuses.tasks(name).values()
        ):
            if planning.ending_since_ms is None:
                planning.ending_since_ms = now_ms
            if now_ms - planning.ending_since_ms <= self._config.task_shutdown_graceful_timeout_ms:
                return True
        planning.ending_since_ms = None
        return False

    def _ask(self, name: str, connector: ConnectorState, planning: _Planning, now_ms: int) -> list[HerderEffect]:
        is_new = planning.phase is not _Phase.ASKED or planning.revision != connector.revision
        if is_new or planning.is_restart_due:
            self._numbers += 1
            self._plannings[name] = _Planning(_Phase.ASKED, now_ms, self._numbers, connector.revision)
            return [AskForTasks(Plan(name, self._numbers), connector.config)]
        if now_ms - planning.since_ms > PLANNING_MS and self._reported(name)[0] != "UNASSIGNED":
            sentence = f"it was asked for its tasks {PLANNING_MS / 1000:.0f} s ago, and has not answered yet"
            return [ReportConnector(name, "UNASSIGNED", sentence)]
        return []

    def _current(self, plan: Plan) -> _Planning | None:
        planning = self._plannings.get(plan.connector)
        return planning if planning is not None and planning.number == plan.number else None

    def _reported(self, name: str) -> tuple[str | None, str | None]:
        """The state of a connector, and the worker that reported it."""
        status = self._statuses.connector(name)
        return (None, None) if status is None else (str(status.get("state")), str(status.get("worker_id")))
