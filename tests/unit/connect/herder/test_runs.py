"""What a worker decides about the tasks that are assigned to it."""

from typing import Any

import pytest
from tests.support.herders import HERE, REBALANCE_MS, SESSION_MS, THERE, Driver

from ottla.connect.herder.events import (
    ForgetTask,
    GiveUpTask,
    HerderEffect,
    ReportTask,
    RunTurn,
    StartTask,
    StopTasks,
    TaskEnded,
    TaskNotStarted,
    TaskReported,
    TaskRestartRequested,
    TasksStopped,
    WorkerStopped,
)
from ottla.connect.herder.state import CONNECTOR, RESTART, Target, TaskId

TASK = TaskId("tested", 0)


@pytest.fixture
def member() -> Driver:
    """A worker to which the only task of a connector is assigned."""
    driver = Driver()
    driver.commit("tested", [{"n": "0"}], driver.configure("tested"))
    driver.assign(THERE, {HERE: [TASK], THERE: []})
    return driver


def turn(member: Driver, *, is_settled: bool = True) -> list[HerderEffect]:
    return member.send(RunTurn(is_settled, is_leader=False))


def started(member: Driver) -> None:
    assert turn(member) == [StartTask(TASK, {"n": "0"})]
    assert member.send(TaskReported(TASK, "RUNNING", None)) == [ReportTask(TASK, "RUNNING")]
    assert turn(member) == []


def stopped(member: Driver) -> list[HerderEffect]:
    """After a turn that stops the task."""
    assert turn(member) == [StopTasks((TASK,))]
    assert turn(member) == []
    member.send(TaskReported(TASK, "UNASSIGNED", None))
    return member.send(TasksStopped((TASK,)))


def failed(member: Driver, *, has_ended: bool = True) -> None:
    started(member)
    assert member.send(TaskReported(TASK, "FAILED", "no")) == [ReportTask(TASK, "FAILED", "no")]
    if has_ended:
        member.send(TaskEnded(TASK, has_failed=True))
    assert turn(member) == []


def restart(member: Driver, *, only_failed: bool = False, include_tasks: bool = True) -> None:
    member.read(RESTART + "tested", {"include-tasks": include_tasks, "only-failed": only_failed})


def test_a_task_that_is_no_longer_assigned_stops(member: Driver) -> None:
    started(member)
    member.assign(THERE, {HERE: [], THERE: [TASK]})
    assert stopped(member) == []
    assert turn(member) == []


def test_a_task_that_is_committed_anew_starts_when_the_former_has_stopped(member: Driver) -> None:
    started(member)
    member.commit("tested", [{"n": "1"}], member.offset)
    assert stopped(member) == [StartTask(TASK, {"n": "1"})]


@pytest.mark.parametrize("deleted", [True, False])
def test_the_status_of_a_task_that_is_gone_is_removed(member: Driver, deleted: bool) -> None:
    started(member)
    if deleted:
        member.read(CONNECTOR + "tested", None)
    else:
        member.commit("tested", [], member.offset)
    assert stopped(member) == [ForgetTask(TASK)]


def test_a_task_that_does_not_end_is_reported_as_unassigned(member: Driver) -> None:
    started(member)
    member.target("tested", Target.STOPPED)
    assert turn(member) == [StopTasks((TASK,))]
    assert member.send(TasksStopped((TASK,), abandoned=(TASK,))) == [ReportTask(TASK, "UNASSIGNED")]


def test_a_task_that_went_on_elsewhere_is_given_up_and_its_status_is_left_to_the_other(member: Driver) -> None:
    started(member)
    member.known.of_tasks[TASK] = {"state": "RUNNING", "worker_id": THERE}
    member.assign(THERE, {HERE: [], THERE: [TASK]})
    assert turn(member) == [GiveUpTask(TASK), StopTasks((TASK,))]
    assert member.send(TasksStopped((TASK,), abandoned=(TASK,))) == []


def test_a_task_that_another_worker_had_meanwhile_starts_anew(member: Driver) -> None:
    started(member)
    member.assign(THERE, {HERE: [], THERE: [TASK]})
    member.assign(THERE, {HERE: [TASK], THERE: []})
    assert stopped(member) == [StartTask(TASK, {"n": "0"})]


def test_a_task_waits_for_its_former_worker_but_not_for_ever(member: Driver) -> None:
    member.known.of_tasks[TASK] = {"state": "RUNNING", "worker_id": THERE}
    assert turn(member) == []
    member.now_ms += REBALANCE_MS
    assert turn(member) == []
    member.now_ms += 1
    assert turn(member) == [StartTask(TASK, {"n": "0"})]


def test_a_task_waits_as_long_again_when_it_is_assigned_again(member: Driver) -> None:
    member.known.of_tasks[TASK] = {"state": "RUNNING", "worker_id": THERE}
    turn(member)
    member.assign(THERE, {HERE: [], THERE: [TASK]})
    turn(member)
    member.now_ms += REBALANCE_MS + 1
    member.assign(THERE, {HERE: [TASK], THERE: []})
    assert turn(member) == []


@pytest.mark.parametrize(
    "status",
    [{"state": "UNASSIGNED", "worker_id": THERE}, {"state": "RUNNING", "worker_id": "gone:1"}],
)
def test_a_task_does_not_wait_for_a_worker_that_has_stopped_it_or_is_gone(
    member: Driver, status: dict[str, str]
) -> None:
    member.known.of_tasks[TASK] = status
    assert turn(member) == [StartTask(TASK, {"n": "0"})]


def test_a_paused_task_stops_and_starts_again_when_it_is_resumed(member: Driver) -> None:
    started(member)
    member.target("tested", Target.PAUSED)
    assert stopped(member) == [ReportTask(TASK, "PAUSED")]
    assert turn(member) == []
    member.target("tested", Target.STARTED)
    assert turn(member) == [StartTask(TASK, {"n": "0"})]


def test_a_failed_task_stays_failed_while_its_connector_is_paused(member: Driver) -> None:
    """As in Kafka. It used to be reported as paused, for ever: a resumed task that has failed does not start."""
    failed(member)
    member.target("tested", Target.PAUSED)
    assert turn(member) == []
    member.target("tested", Target.STARTED)
    assert turn(member) == []
    assert member.known.of_tasks[TASK]["state"] == "FAILED"
    restart(member, only_failed=True)
    assert turn(member) == [StartTask(TASK, {"n": "0"})]


def test_a_failed_task_starts_with_its_next_configuration(member: Driver) -> None:
    failed(member)
    member.commit("tested", [{"n": "1"}], member.offset)
    assert turn(member) == [StartTask(TASK, {"n": "1"})]


def test_a_task_that_was_fenced_starts_again(member: Driver) -> None:
    started(member)
    member.send(TaskEnded(TASK, has_failed=False))
    assert turn(member) == [StartTask(TASK, {"n": "0"})]


def test_a_task_that_was_fenced_and_has_failed_elsewhere_waits_for_a_restart(member: Driver) -> None:
    started(member)
    member.known.of_tasks[TASK] = {"state": "FAILED", "worker_id": THERE}
    member.send(TaskEnded(TASK, has_failed=False))
    assert turn(member) == []


def test_a_task_that_cannot_start_has_failed(member: Driver) -> None:
    turn(member)
    assert member.send(TaskNotStarted(TASK, "no such connector")) == [ReportTask(TASK, "FAILED", "no such connector")]
    assert turn(member) == []
    assert member.send(TaskNotStarted(TASK, "again")) == []
    restart(member)
    assert turn(member) == [StartTask(TASK, {"n": "0"})]


@pytest.mark.parametrize("only_failed", [True, False])
def test_a_failed_task_is_restarted(member: Driver, only_failed: bool) -> None:
    failed(member)
    restart(member, include_tasks=False)
    assert turn(member) == []
    restart(member, only_failed=only_failed)
    assert turn(member) == [StartTask(TASK, {"n": "0"})]


def test_a_task_that_has_just_failed_is_restarted_when_it_has_ended(member: Driver) -> None:
    failed(member, has_ended=False)
    restart(member, only_failed=True)
    assert turn(member) == [StopTasks((TASK,))]
    assert member.send(TasksStopped((TASK,))) == [StartTask(TASK, {"n": "0"})]


def test_a_running_task_is_restarted_unless_only_failed_ones_are(member: Driver) -> None:
    started(member)
    restart(member, only_failed=True)
    assert turn(member) == []
    restart(member)
    assert stopped(member) == [StartTask(TASK, {"n": "0"})]
    assert turn(member) == []


def test_one_task_is_restarted(member: Driver) -> None:
    member.send(TaskRestartRequested(TASK))  # it does not run yet
    started(member)
    member.send(TaskRestartRequested(TASK))
    assert stopped(member) == [StartTask(TASK, {"n": "0"})]


def test_a_worker_out_of_its_group_stops_its_tasks_after_a_session_and_starts_none(member: Driver) -> None:
    started(member)
    assert turn(member, is_settled=False) == []
    member.now_ms += SESSION_MS
    assert turn(member, is_settled=False) == []
    assert turn(member) == []  # the time begins anew
    turn(member, is_settled=False)
    member.now_ms += SESSION_MS + 1
    assert turn(member, is_settled=False) == [StopTasks((TASK,))]
    assert member.send(TasksStopped((TASK,))) == []
    assert turn(member, is_settled=False) == []
    assert turn(member) == [StartTask(TASK, {"n": "0"})]


def test_a_worker_that_stops_starts_nothing_instead(member: Driver) -> None:
    started(member)
    assert member.send(WorkerStopped()) == [StopTasks((TASK,))]
    assert member.send(TasksStopped((TASK,))) == []


@pytest.mark.parametrize(
    "late", [TaskReported(TASK, "FAILED", "late"), TaskEnded(TASK, has_failed=True), TasksStopped((TASK,), (TASK,))]
)
def test_late_events_of_a_run_that_is_over_have_no_effect(member: Driver, late: Any) -> None:
    started(member)
    member.target("tested", Target.STOPPED)
    stopped(member)
    assert member.send(late) == []
    member.target("tested", Target.STARTED)
    assert turn(member) == [StartTask(TASK, {"n": "0"})]
