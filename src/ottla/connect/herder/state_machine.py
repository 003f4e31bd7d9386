"""The herder of one worker: as leader it plans tasks and assigns them, as member it decides which run here. PURE.

    event --> handle --> [effect, ...]                  executed in their order by runtime/worker.py, on its threads
      ^                       |
      +--- the outcome -------+

It has no clock, and waits for nothing. What the workers agree on is in `ClusterState`, which changes by the records of
the topic of configurations alone; so an effect that writes one changes nothing here before the record is read back.
Each turn looks at everything again: an effect that fails is decided anew by the next one. The effects of one event do
not depend on each other, so one that fails holds up none of the others.
"""

from ottla.connect.herder.events import (
    AssignTurn,
    ConfigRead,
    HerderConfig,
    HerderEffect,
    HerderEvent,
    KnownStatuses,
    LeadershipTaken,
    LeadTurn,
    PlanEnded,
    PlanTurn,
    RunTurn,
    TakeLeadership,
    TaskEnded,
    TaskNotStarted,
    TaskReported,
    TaskRestartRequested,
    TasksAnswered,
    TasksCommitted,
    TasksFenced,
    TasksRemoved,
    TasksStopped,
    WorkerStopped,
    WriteAssignment,
)
from ottla.connect.herder.planning import Planning
from ottla.connect.herder.runs import Runs
from ottla.connect.herder.state import Assignment, ClusterState, TaskId, share


class Herder:
    """The decisions of one worker. `state` is what it has read of the configurations: only `ConfigRead` changes it."""

    def __init__(self, config: HerderConfig, statuses: KnownStatuses) -> None:
        self.state = ClusterState()
        self._config = config
        self._planning = Planning(config, self.state, statuses)
        self._runs = Runs(config, self.state, statuses)
        self._leads = False

    def handle(self, event: HerderEvent, now_ms: int) -> list[HerderEffect]:
        """Decide. now_ms: of a clock that does not go back."""
        match event:
            case ConfigRead():
                self._replay(event)
            case TaskRestartRequested(task):
                self._runs.restart_task(task)
            case LeadTurn(is_sole_writer):
                return [] if self._leads and is_sole_writer else [TakeLeadership()]
            case LeadershipTaken():
                self._leads = True
            case PlanTurn(connector, members):
                return self._planning.turn(connector, members, now_ms)
            case TasksAnswered():
                return self._planning.answered(event)
            case TasksFenced(plan):
                return self._planning.fenced(plan)
            case TasksCommitted(connector, task_count):
                return self._planning.committed(connector, task_count)
            case PlanEnded():
                return self._planning.ended(event, now_ms)
            case TasksRemoved(connector):
                return self._planning.removed(connector)
            case AssignTurn(members):
                return self._assign(list(members))
            case RunTurn(is_settled, is_leader):
                if not is_leader:
                    self._leads = False
                    self._planning.not_leading()
                return self._runs.turn(now_ms, is_settled=is_settled)
            case WorkerStopped():
                return self._runs.stop_all()
            case TaskNotStarted():
                return self._runs.not_started(event)
            case TaskReported():
                return self._runs.reported(event)
            case TaskEnded():
                self._runs.ended(event)
            case TasksStopped():
                return self._runs.stopped(event, now_ms)
        return []

    def watched(self, gone: frozenset[str], *, is_leader: bool) -> set[str]:
        """The workers to look at: the leader looks at all others; they look at the leader, and at each other when it
        is gone."""
        assignment = self.state.assignment
        if is_leader or assignment.leader in gone:
            return set(assignment.workers) - {self._config.worker, ""}
        return {assignment.leader} - {self._config.worker, ""}

    def _replay(self, event: ConfigRead) -> None:
        restart = self.state.replay(event.key, event.value, event.offset)
        self._planning.forget_deleted()
        if restart is not None and event.is_new:  # older ones were handled by the workers of that time
            self._planning.restart(restart)
            self._runs.restart(restart)

    def _assign(self, members: list[str]) -> list[HerderEffect]:
        connectors, before = self.state.connectors, self.state.assignment
        tasks = [TaskId(name, number) for name, each in connectors.items() for number in range(len(each.tasks))]
        workers = share(tasks, members, before)
        if before.leader == self._config.worker and dict(before.workers) == workers:
            return []
        return [WriteAssignment(Assignment(before.generation + 1, self._config.worker, workers))]
