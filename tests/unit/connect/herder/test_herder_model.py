"""The herder of one worker against a model of everything around it: any sequence of changes, failures and outcomes.

The model executes effects as `runtime/worker.py` does, but in any order relative to what else happens: tasks report,
fail and end between a decision and its outcome, and turns go on meanwhile.
"""

from dataclasses import dataclass
from typing import Final

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.support.herders import GRACE_MS, HERE, REBALANCE_MS, SESSION_MS, THERE, Driver

from ottla.connect.herder.events import (
    AskForTasks,
    AssignTurn,
    CommitTasks,
    FenceTasks,
    ForgetTask,
    GiveUpTask,
    HerderEvent,
    LeadershipTaken,
    LeadTurn,
    Plan,
    PlanEnded,
    PlanTurn,
    RemoveTasks,
    ReportConnector,
    ReportTask,
    RunTurn,
    StartTask,
    StopTasks,
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
    WriteAssignment,
)
from ottla.connect.herder.state import CONNECTOR, RESTART, Target, TaskId

NAMES: Final = ("a", "b")
LONG_MS: Final = REBALANCE_MS + SESSION_MS


@dataclass
class Thread:
    """A task's thread. It reports its end before it ends, unless it was fenced or given up."""

    config: dict[str, str]
    is_alive: bool = True
    has_failed: bool = False
    is_given_up: bool = False


class HerderModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.driver = Driver()
        self.threads: dict[TaskId, Thread] = {}
        self.stopping: list[tuple[TaskId, ...]] = []
        self.plans: list[Plan] = []
        """Requests without an answer yet."""
        self.fencing: list[Plan] = []
        self.failures: list[tuple[TaskId, str]] = []
        """Of tasks, whose status has to have been written."""
        self.is_settled = self.leads = False
        self.was_settled = False
        """Whether the worker was settled at its last turn."""

    # --- effects ---

    def send(self, event: HerderEvent) -> None:
        state = self.driver.herder.state
        assigned = state.assignment.workers.get(HERE, frozenset())
        ours = {*self.threads}
        if isinstance(event, TasksStopped):
            ours.update(event.tasks)
        elif isinstance(event, TaskNotStarted):
            ours.add(event.task)
        for effect in self.driver.send(event):
            match effect:
                case StartTask(task, config):
                    connector = state.connectors[task.connector]
                    assert task not in self.threads, "two runs of one task"
                    assert task in assigned
                    assert self.was_settled
                    assert connector.target is Target.STARTED
                    assert config == connector.tasks[task.task]
                    self.threads[task] = Thread(dict(config))
                case StopTasks(tasks):
                    assert tasks
                    assert set(tasks) <= set(self.threads)
                    assert not any(set(tasks) & set(others) for others in self.stopping)
                    self.stopping.append(tuple(tasks))
                case GiveUpTask(task):
                    self.threads[task].is_given_up = True
                case ReportTask(task, reported, failure):
                    assert task in ours | assigned, "a status of a task that is another worker's"
                    assert (failure is None) == (reported != "FAILED")
                    if failure is not None:
                        self.failures = [each for each in self.failures if each != (task, failure)]
                case ForgetTask(task):
                    self.driver.known.of_tasks.pop(task, None)
                case TakeLeadership():
                    self.send(LeadershipTaken())
                case AskForTasks(plan, config):
                    assert self.leads
                    assert config == state.connectors[plan.connector].config
                    self.plans.append(plan)
                case RemoveTasks(name, removed):
                    assert state.connectors[name].target is Target.STOPPED
                    assert len(removed) == len(state.connectors[name].tasks)
                    self.driver.commit(name, [], -1)
                    self.send(TasksRemoved(name))
                case CommitTasks(name, configs, revision):
                    assert name in state.connectors
                    self.driver.commit(name, configs, revision)
                    self.send(TasksCommitted(name, len(configs)))
                case WriteAssignment(assignment):
                    self.driver.assign(assignment.leader, {w: sorted(t) for w, t in assignment.workers.items()})
                case ReportConnector(name, reported, failure):
                    assert self.leads or reported == "FAILED"
                    assert (failure is None) == (reported in ("RUNNING", "PAUSED", "STOPPED"))
                case FenceTasks(tasks):
                    assert tasks

    @initialize(leads=st.booleans(), count=st.integers(1, 3))
    def begin(self, leads: bool, count: int) -> None:
        """Most sequences of events from nothing on do not come as far as a running task."""
        revision = self.driver.configure("a", value="0")
        self.driver.commit("a", [{"n": str(n)} for n in range(count)], revision)
        self.driver.assign(HERE if leads else THERE, {HERE: [TaskId("a", n) for n in range(count)]})
        self.is_settled, self.leads = True, leads
        self.turn_of_member()

    # --- what operators do ---

    @rule(name=st.sampled_from(NAMES), wish=st.sampled_from(Target), value=st.integers(0, 2))
    def configure(self, name: str, wish: Target, value: int) -> None:
        self.driver.target(name, wish)
        self.driver.configure(name, value=str(value))

    @rule(name=st.sampled_from(NAMES), wish=st.sampled_from(Target))
    def change_target(self, name: str, wish: Target) -> None:
        self.driver.target(name, wish)

    @rule(name=st.sampled_from(NAMES))
    def delete(self, name: str) -> None:
        self.driver.read(CONNECTOR + name, None)

    @rule(name=st.sampled_from(NAMES), include_tasks=st.booleans(), only_failed=st.booleans())
    def restart(self, name: str, include_tasks: bool, only_failed: bool) -> None:
        self.driver.read(RESTART + name, {"include-tasks": include_tasks, "only-failed": only_failed})

    @rule(name=st.sampled_from(NAMES), number=st.integers(0, 2))
    def restart_task(self, name: str, number: int) -> None:
        self.send(TaskRestartRequested(TaskId(name, number)))

    # --- what the group and the other worker do ---

    @rule(is_settled=st.sampled_from([True, True, False]), leads=st.booleans())
    def rebalance(self, is_settled: bool, leads: bool) -> None:
        self.is_settled, self.leads = is_settled, is_settled and leads

    @precondition(lambda self: not self.leads)
    @rule(name=st.sampled_from(NAMES), count=st.integers(0, 3), data=st.data())
    def other_leader(self, name: str, count: int, data: st.DataObject) -> None:
        state = self.driver.herder.state
        if name in state.connectors and state.connectors[name].target is not Target.STOPPED:
            self.driver.commit(name, [{"n": str(n)} for n in range(count)], state.connectors[name].revision)
        tasks = [TaskId(name, n) for name, each in state.connectors.items() for n in range(len(each.tasks))]
        here = [task for task in tasks if data.draw(st.booleans())]
        self.driver.assign(THERE, {HERE: here, THERE: [task for task in tasks if task not in here]})

    @rule(name=st.sampled_from(NAMES), number=st.integers(0, 2), state=st.sampled_from(["RUNNING", "UNASSIGNED"]))
    def other_reports(self, name: str, number: int, state: str) -> None:
        self.driver.known.of_tasks[TaskId(name, number)] = {"state": state, "worker_id": THERE}

    # --- turns ---

    @rule(passed_ms=st.sampled_from([1, 1_000, GRACE_MS + 1, LONG_MS]))
    def wait(self, passed_ms: int) -> None:
        self.driver.now_ms += passed_ms

    @rule()
    def turn_of_member(self) -> None:
        self.was_settled = self.is_settled
        self.send(RunTurn(self.is_settled, self.leads))

    @rule(passed_ms=st.sampled_from([1, LONG_MS]))
    def turn_later(self, passed_ms: int) -> None:
        self.wait(passed_ms)
        self.turn_of_member()

    @rule(is_sole_writer=st.booleans(), members=st.sampled_from([(HERE,), (HERE, THERE)]))
    def turn(self, is_sole_writer: bool, members: tuple[str, ...]) -> None:
        if self.leads:
            self.send(LeadTurn(is_sole_writer))
            for name in list(self.driver.herder.state.connectors):
                self.send(PlanTurn(name, members))
            self.send(AssignTurn(members))
        self.turn_of_member()

    # --- outcomes ---

    @precondition(lambda self: self.plans)
    @rule(data=st.data(), count=st.integers(0, 3), fails=st.booleans())
    def answer(self, data: st.DataObject, count: int, fails: bool) -> None:
        plan = self.plans.pop(data.draw(st.integers(0, len(self.plans) - 1)))
        if fails:
            self.send(PlanEnded(plan, "no tasks"))
        else:
            self.send(TasksAnswered(plan, [{"n": str(n), "plan": str(plan.number % 2)} for n in range(count)]))
            self.fencing.append(plan)

    @precondition(lambda self: self.fencing)
    @rule(fails=st.booleans())
    def fence(self, fails: bool) -> None:
        plan = self.fencing.pop(0)
        if not fails:
            self.send(TasksFenced(plan))
        self.send(PlanEnded(plan, "it cannot be fenced" if fails else None))

    @precondition(lambda self: self.threads)
    @rule(data=st.data(), how=st.sampled_from(["runs", "fails", "fails", "is fenced", "cannot start"]))
    def task(self, data: st.DataObject, how: str) -> None:
        task = data.draw(st.sampled_from(sorted(self.threads)))
        thread = self.threads[task]
        if not thread.is_alive:
            return
        if how == "runs":
            if not thread.is_given_up:
                self.send(TaskReported(task, "RUNNING", None))
            return
        thread.is_alive = False
        if how == "is fenced" or thread.is_given_up:
            return
        failure = f"failure {len(self.failures)}"
        self.failures.append((task, failure))
        thread.has_failed = True
        if how == "cannot start" and not any(task in tasks for tasks in self.stopping):
            del self.threads[task]
            self.send(TaskNotStarted(task, failure))
        else:
            self.send(TaskReported(task, "FAILED", failure))

    @rule()
    def sweep(self) -> None:
        stopping = {task for tasks in self.stopping for task in tasks}
        for task, thread in list(self.threads.items()):
            if not thread.is_alive and task not in stopping:
                del self.threads[task]
                self.send(TaskEnded(task, thread.has_failed))

    @precondition(lambda self: self.stopping)
    @rule(in_time=st.booleans())
    def stopped(self, in_time: bool) -> None:
        tasks = self.stopping.pop(0)
        abandoned = []
        for task in tasks:
            thread = self.threads[task]
            if thread.is_alive and in_time and not thread.is_given_up:
                self.send(TaskReported(task, "UNASSIGNED", None))
            elif thread.is_alive:
                abandoned.append(task)
            del self.threads[task]
        self.send(TasksStopped(tasks, abandoned))

    # --- what holds ---

    @invariant()
    def every_failure_has_become_a_status(self) -> None:
        assert self.failures == []

    def teardown(self) -> None:
        """When nothing changes any more, exactly the tasks of this worker run, but for failed ones."""
        self.is_settled, self.leads = True, False
        for round_ in range(4):
            self.driver.now_ms += LONG_MS
            self.turn_of_member()
            while self.stopping:
                self.stopped(in_time=round_ % 2 == 0)
            self.sweep()
        state = self.driver.herder.state
        wanted = {
            task: dict(state.connectors[task.connector].tasks[task.task])
            for task in state.assignment.workers.get(HERE, ())
            if task.connector in state.connectors
            and task.task < len(state.connectors[task.connector].tasks)
            and state.connectors[task.connector].target is Target.STARTED
        }
        assert {task: thread.config for task, thread in self.threads.items()}.items() <= wanted.items()
        for task in wanted.keys() - self.threads.keys():
            assert self.driver.send(TaskRestartRequested(task)) == []
            effects = self.driver.send(RunTurn(is_settled=True, is_leader=False))
            self.driver.now_ms += LONG_MS  # another worker may have reported that it runs there
            effects += self.driver.send(RunTurn(is_settled=True, is_leader=False))
            assert StartTask(task, wanted[task]) in effects, f"{task} neither runs nor waits for a restart"


HerderModel.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestHerder = HerderModel.TestCase
