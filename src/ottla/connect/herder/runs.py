"""The member's part: the runs of tasks on this worker. PURE.

                           +------ stopped ------- STOPPING <--- no longer assigned, changed, paused, restarted,
                           v                          ^          or this worker is out of its group
     no run --> RUNNING ---+--------------------------+
        ^          |                                  |
        |          +--> FAILING (has reported it) ----+
        |          v         v                         another assignment, configuration, or a restart
        +-- fenced-+--> FAILED (its thread has ended) ---------------------------------> no run

A task has one run at a time: a new one starts when the former has ended, or is given up and can write nothing.
"""

import enum
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from ottla.connect.herder.events import (
    Config,
    ForgetTask,
    GiveUpTask,
    HerderConfig,
    HerderEffect,
    KnownStatuses,
    ReportTask,
    StartTask,
    StopTasks,
    TaskEnded,
    TaskNotStarted,
    TaskReported,
    TasksStopped,
)
from ottla.connect.herder.state import ClusterState, Restart, Target, TaskId


class RunPhase(enum.Enum):
    """Where a run is."""

    RUNNING = enum.auto()
    FAILING = enum.auto()
    STOPPING = enum.auto()
    FAILED = enum.auto()


LIVE: Final = frozenset({RunPhase.RUNNING, RunPhase.FAILING})


class _Version(NamedTuple):
    """What a task runs as: the revision of its configuration, and that at which this worker was given it."""

    tasks_revision: int
    given: int | None


class _Wanted(NamedTuple):
    config: Config
    version: _Version
    target: Target


@dataclass(slots=True)
class _Run:
    version: _Version
    phase: RunPhase = RunPhase.RUNNING
    is_restart_due: bool = False


class Runs:
    """What this worker decides about the tasks that are assigned to it."""

    def __init__(self, config: HerderConfig, state: ClusterState, statuses: KnownStatuses) -> None:
        self._config, self._state, self._statuses = config, state, statuses
        self._runs: dict[TaskId, _Run] = {}
        self._waiting_since: dict[TaskId, int] = {}
        """Since when tasks have been waiting for their former worker."""
        self._is_settled = False
        self._unsettled_since: int | None = None

    def turn(self, now_ms: int, *, is_settled: bool) -> list[HerderEffect]:
        """Stop what is not to run, then start what is: at once, unless runs have to stop first."""
        self._is_settled = is_settled
        if not is_settled:
            return self.stop_all() if self._is_left_alone(now_ms) else []
        self._unsettled_since = None
        wanted = self._wanted()
        stopping = [task for task, run in self._runs.items() if self._is_over(run, wanted.get(task))]
        gone = [task for task in stopping if self._runs[task].phase in LIVE and self._has_moved(task, wanted.get(task))]
        for task in stopping:
            if self._runs[task].phase is RunPhase.FAILED:
                del self._runs[task]
        stops = self._stop([task for task in stopping if task in self._runs])
        return [*map(GiveUpTask, gone), *stops] if stops else self._begin(wanted, now_ms)

    def stop_all(self) -> list[HerderEffect]:
        """Stop everything that runs, to start nothing instead."""
        self._is_settled = False
        return self._stop([task for task, run in self._runs.items() if run.phase in LIVE])

    def stopped(self, event: TasksStopped, now_ms: int) -> list[HerderEffect]:
        """The runs are over: others may start."""
        effects: list[HerderEffect] = []
        for task in event.tasks:
            run = self._runs.get(task)
            if run is None or run.phase is not RunPhase.STOPPING:
                continue
            del self._runs[task]
            if task in event.abandoned and not self._is_elsewhere(task):
                effects.append(ReportTask(task, "UNASSIGNED"))
            connector = self._state.connectors.get(task.connector)
            if connector is None or task.task >= len(connector.tasks):
                effects.append(ForgetTask(task))
        return [*effects, *(self._begin(self._wanted(), now_ms) if self._is_settled else ())]

    def not_started(self, event: TaskNotStarted) -> list[HerderEffect]:
        """The run has failed before it began."""
        run = self._runs.get(event.task)
        if run is None or run.phase is not RunPhase.RUNNING:
            return []
        run.phase = RunPhase.FAILED
        return [ReportTask(event.task, "FAILED", event.failure)]

    def reported(self, event: TaskReported) -> list[HerderEffect]:
        """Every report of a run becomes a status."""
        run = self._runs.get(event.task)
        if run is None or run.phase is RunPhase.FAILED:
            return []
        if event.state == "FAILED" and run.phase is RunPhase.RUNNING:
            run.phase = RunPhase.FAILING
        return [ReportTask(event.task, event.state, event.failure)]

    def ended(self, event: TaskEnded) -> None:
        """A failed task waits for a restart; one that was fenced begins again if it is still this worker's."""
        run = self._runs.get(event.task)
        if run is None or run.phase not in LIVE:
            return
        status = self._statuses.task(event.task)
        if event.has_failed or (status is not None and status.get("state") == "FAILED"):
            run.phase = RunPhase.FAILED
        else:
            del self._runs[event.task]

    def restart(self, asked: Restart) -> None:
        """Stop and start the tasks of a connector, with the next turn."""
        if asked.include_tasks:
            self._restart(
                task
                for task, run in self._runs.items()
                if task.connector == asked.connector
                and (not asked.only_failed or run.phase in (RunPhase.FAILING, RunPhase.FAILED))
            )

    def restart_task(self, task: TaskId) -> None:
        """Stop and start one task, with the next turn."""
        self._restart([task])

    def _restart(self, tasks: Iterable[TaskId]) -> None:
        for task in tasks:
            run = self._runs.get(task)
            if run is not None:
                run.is_restart_due = True

    def _is_left_alone(self, now_ms: int) -> bool:
        """Out of the group for so long that others may have the tasks."""
        if self._unsettled_since is None:
            self._unsettled_since = now_ms
        return now_ms - self._unsettled_since > self._config.session_timeout_ms

    def _wanted(self) -> dict[TaskId, _Wanted]:
        state = self._state
        wanted = {}
        for task in sorted(state.assignment.workers.get(self._config.worker, ())):
            connector = state.connectors.get(task.connector)
            if connector is None or task.task >= len(connector.tasks) or connector.target is Target.STOPPED:
                continue
            version = _Version(connector.tasks_revision, state.given.get(task))
            wanted[task] = _Wanted(connector.tasks[task.task], version, connector.target)
        return wanted

    @staticmethod
    def _is_over(run: _Run, wanted: _Wanted | None) -> bool:
        """Whether a run is to stop. A failed one is over only when it may begin again: a pause leaves it failed."""
        if run.phase is RunPhase.STOPPING:
            return False
        if wanted is None or wanted.version != run.version or run.is_restart_due:
            return True
        return run.phase is RunPhase.RUNNING and wanted.target is Target.PAUSED

    def _has_moved(self, task: TaskId, wanted: _Wanted | None) -> bool:
        """Whether this worker was away: what its run does now is done twice."""
        has_changed = wanted is None or wanted.version != self._runs[task].version
        return has_changed and self._is_elsewhere(task)

    def _stop(self, tasks: Collection[TaskId]) -> list[HerderEffect]:
        for task in tasks:
            self._runs[task].phase = RunPhase.STOPPING
        return [StopTasks(tuple(tasks))] if tasks else []

    def _begin(self, wanted: dict[TaskId, _Wanted], now_ms: int) -> list[HerderEffect]:
        effects: list[HerderEffect] = []
        for task in self._waiting_since.keys() - wanted.keys():
            del self._waiting_since[task]
        for task, (config, version, target) in wanted.items():
            if task in self._runs:
                continue
            if target is Target.PAUSED:
                if self._reported(task) != ("PAUSED", self._config.worker):
                    effects.append(ReportTask(task, "PAUSED"))
            elif self._is_free(task, now_ms):
                self._waiting_since.pop(task, None)
                self._runs[task] = _Run(version)
                effects.append(StartTask(task, config))
        return effects

    def _is_elsewhere(self, task: TaskId) -> bool:
        """Whether another worker has reported that it runs a task."""
        state, worker = self._reported(task)
        return state == "RUNNING" and worker != self._config.worker

    def _is_free(self, task: TaskId, now_ms: int) -> bool:
        """Whether the worker that had the task before has stopped it, or is gone."""
        state, worker = self._reported(task)
        if state not in ("RUNNING", "PAUSED"):
            return True
        if worker == self._config.worker or worker not in self._state.assignment.workers:
            return True
        since = self._waiting_since.setdefault(task, now_ms)
        return now_ms - since > self._config.rebalance_timeout_ms

    def _reported(self, task: TaskId) -> tuple[str | None, str | None]:
        """The state of a task, and the worker that reported it."""
        status = self._statuses.task(task)
        return (None, None) if status is None else (status.get("state"), status.get("worker_id"))
