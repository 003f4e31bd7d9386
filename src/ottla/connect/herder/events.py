"""What happens to a worker, and what its herder decides to do about it. PURE.

Turns are the events of the worker's own thread: it sends them whenever something has changed, and once a second. All
times are in milliseconds of one clock, which need not be the wall clock.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from ottla.connect.herder.state import Assignment, TaskId

Status: TypeAlias = Mapping[str, Any]
Config: TypeAlias = Mapping[str, str]


class KnownStatuses(Protocol):
    """The statuses that the workers have reported, as far as they have been read."""

    def connector(self, name: str) -> Status | None:
        """The status of a connector itself."""

    def task(self, task: TaskId) -> Status | None:
        """The status of a task."""

    def tasks(self, name: str) -> Mapping[int, Status]:
        """The statuses of a connector's tasks, by number."""


class HerderConfig(NamedTuple):
    """A worker's id (`host:port` of its REST API) and the settings by which it decides, in milliseconds."""

    worker: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    task_shutdown_graceful_timeout_ms: int


class Plan(NamedTuple):
    """One request to a connector for its tasks; an answer counts until the next request."""

    connector: str
    number: int


# --- events ---


class ConfigRead(NamedTuple):
    """A record of the topic of configurations. is_new: written after the worker had read the topic to its end."""

    key: str
    value: Mapping[str, Any] | None
    offset: int
    is_new: bool


class TaskRestartRequested(NamedTuple):
    """Stop and start one task that runs here."""

    task: TaskId


class LeadTurn(NamedTuple):
    """This worker leads the group. is_sole_writer: configurations are written by no other worker."""

    is_sole_writer: bool


class LeadershipTaken(NamedTuple):
    """The outcome of `TakeLeadership`: the former leader is fenced, and its last records have been read."""


class PlanTurn(NamedTuple):
    """As leader: look at a connector. members: the workers of the group."""

    connector: str
    members: Sequence[str]


class TasksAnswered(NamedTuple):
    """A connector has answered with the configurations of its tasks."""

    plan: Plan
    tasks: Sequence[Config]


class TasksFenced(NamedTuple):
    """All tasks that an answer changes are fenced."""

    plan: Plan


class TasksCommitted(NamedTuple):
    """The outcome of `CommitTasks`."""

    connector: str
    task_count: int


class PlanEnded(NamedTuple):
    """The end of a request, the last event about it. failure: why the connector has no tasks; None: it was carried out,
    or another worker leads."""

    plan: Plan
    failure: str | None = None


class TasksRemoved(NamedTuple):
    """The outcome of `RemoveTasks`: nothing is written for the connector."""

    connector: str


class AssignTurn(NamedTuple):
    """As leader: share the tasks out. members: the workers of the group."""

    members: Sequence[str]


class RunTurn(NamedTuple):
    """As member: start and stop tasks. is_settled: in the group, and no rebalance is under way."""

    is_settled: bool
    is_leader: bool


class WorkerStopped(NamedTuple):
    """This worker ends."""


class TaskNotStarted(NamedTuple):
    """The outcome of a `StartTask` that has no effect, and why."""

    task: TaskId
    failure: str


class TaskReported(NamedTuple):
    """A task has reported its state, or again that it runs. failure: why it failed."""

    task: TaskId
    state: str
    failure: str | None


class TaskEnded(NamedTuple):
    """A task has ended by itself: it failed, or was fenced."""

    task: TaskId
    has_failed: bool


class TasksStopped(NamedTuple):
    """The outcome of `StopTasks`. abandoned: those that did not end in time; they write nothing from now on."""

    tasks: Sequence[TaskId]
    abandoned: Sequence[TaskId] = ()


HerderEvent: TypeAlias = (
    ConfigRead
    | TaskRestartRequested
    | LeadTurn
    | LeadershipTaken
    | PlanTurn
    | TasksAnswered
    | TasksFenced
    | TasksCommitted
    | PlanEnded
    | TasksRemoved
    | AssignTurn
    | RunTurn
    | WorkerStopped
    | TaskNotStarted
    | TaskReported
    | TaskEnded
    | TasksStopped
)


# --- effects ---


class TakeLeadership(NamedTuple):
    """Become the only writer of configurations, then send `LeadershipTaken`."""


class AskForTasks(NamedTuple):
    """Ask a connector for its tasks, in a thread: it may take long, or never answer. Then send `TasksAnswered`, and
    `TasksFenced` once the effects of that have succeeded; in any case `PlanEnded`."""

    plan: Plan
    config: Config


class FenceTasks(NamedTuple):
    """Make sure that tasks write nothing further with the configurations that they had."""

    tasks: Mapping[TaskId, Config]


class CommitTasks(NamedTuple):
    """Write the configurations of a connector's tasks, and their commit for this revision of its configuration; then
    send `TasksCommitted`."""

    connector: str
    tasks: Sequence[Config]
    revision: int


class RemoveTasks(NamedTuple):
    """Fence all tasks of a connector, commit that it has none, then send `TasksRemoved`."""

    connector: str
    tasks: Mapping[TaskId, Config]


class WriteAssignment(NamedTuple):
    """Write a new assignment of tasks to workers."""

    assignment: Assignment


class StartTask(NamedTuple):
    """Start a task, or send `TaskNotStarted`."""

    task: TaskId
    config: Config


class GiveUpTask(NamedTuple):
    """Let a task, which went on at another worker while this one was away, write nothing further."""

    task: TaskId


class StopTasks(NamedTuple):
    """Stop tasks that run here, give up those that do not end in time, then send `TasksStopped`."""

    tasks: Sequence[TaskId]


class ReportConnector(NamedTuple):
    """Write the status of a connector. failure: why it failed, or waits."""

    connector: str
    state: str
    failure: str | None = None


class ReportTask(NamedTuple):
    """Write the status of a task. failure: why it failed."""

    task: TaskId
    state: str
    failure: str | None = None


class ForgetTask(NamedTuple):
    """Remove the status of a task that is gone."""

    task: TaskId


HerderEffect: TypeAlias = (
    TakeLeadership
    | AskForTasks
    | FenceTasks
    | CommitTasks
    | RemoveTasks
    | WriteAssignment
    | StartTask
    | GiveUpTask
    | StopTasks
    | ReportConnector
    | ReportTask
    | ForgetTask
)
