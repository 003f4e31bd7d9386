"""What a leader decides about connectors: when they are asked for their tasks, and which answers count."""

import pytest
from tests.support.herders import GRACE_MS, HERE, THERE, Driver

from ottla.connect.herder.events import (
    AskForTasks,
    AssignTurn,
    CommitTasks,
    ConfigRead,
    FenceTasks,
    ForgetTask,
    HerderEffect,
    LeadershipTaken,
    LeadTurn,
    Plan,
    PlanEnded,
    PlanTurn,
    RemoveTasks,
    ReportConnector,
    RunTurn,
    TakeLeadership,
    TasksAnswered,
    TasksCommitted,
    TasksFenced,
    TasksRemoved,
    WriteAssignment,
)
from ottla.connect.herder.planning import PLAN_AGAIN_MS, PLANNING_MS
from ottla.connect.herder.state import CONNECTOR, RESTART, Assignment, Target, TaskId

FIRST, SECOND, THIRD = (TaskId("tested", number) for number in range(3))


@pytest.fixture
def leader() -> Driver:
    driver = Driver()
    driver.send(LeadershipTaken())
    return driver


def turn(leader: Driver, *members: str) -> list[HerderEffect]:
    return leader.send(PlanTurn("tested", members or (HERE,)))


def asked(leader: Driver) -> Plan:
    (effect,) = turn(leader)
    assert isinstance(effect, AskForTasks)
    return effect.plan


def answered(leader: Driver, plan: Plan, *tasks: dict[str, str]) -> list[HerderEffect]:
    """All effects until the commit."""
    return [*leader.send(TasksAnswered(plan, tasks)), *leader.send(TasksFenced(plan))]


def restart(leader: Driver, *, only_failed: bool = False, include_tasks: bool = False) -> None:
    leader.read(RESTART + "tested", {"include-tasks": include_tasks, "only-failed": only_failed})


def test_leadership_is_taken_once_and_again_when_another_worker_has_written() -> None:
    driver = Driver()
    assert driver.send(LeadTurn(is_sole_writer=True)) == [TakeLeadership()]
    assert driver.send(LeadTurn(is_sole_writer=True)) == [TakeLeadership()]  # the first has failed
    driver.send(LeadershipTaken())
    assert driver.send(LeadTurn(is_sole_writer=True)) == []
    assert driver.send(LeadTurn(is_sole_writer=False)) == [TakeLeadership()]
    driver.send(RunTurn(is_settled=True, is_leader=False))
    assert driver.send(LeadTurn(is_sole_writer=True)) == [TakeLeadership()]


def test_a_new_connector_is_asked_once_and_its_tasks_are_committed(leader: Driver) -> None:
    revision = leader.configure("tested", tables="a,b")
    plan = asked(leader)
    assert turn(leader) == []
    assert answered(leader, plan, {"tables": "a"}, {"tables": "b"}) == [
        CommitTasks("tested", [{"tables": "a"}, {"tables": "b"}], revision)
    ]
    leader.commit("tested", [{"tables": "a"}, {"tables": "b"}], revision)
    assert leader.send(PlanEnded(plan)) == []
    assert turn(leader) == [ReportConnector("tested", "RUNNING")]
    assert turn(leader) == []


def committed(leader: Driver, *tasks: dict[str, str], **config: str) -> int:
    """A connector that has been planned."""
    revision = leader.configure("tested", **config)
    plan = asked(leader)
    answered(leader, plan, *tasks)
    leader.commit("tested", tasks, revision)
    leader.send(PlanEnded(plan))
    turn(leader)
    return revision


def test_tasks_whose_configuration_changes_are_fenced_before_the_new_ones_are_known(leader: Driver) -> None:
    committed(leader, {"tables": "a"}, {"tables": "b,c"}, {"tables": "d"})
    revision = leader.configure("tested", tables="a,b")
    plan = asked(leader)
    tasks = [{"tables": "a"}, {"tables": "b"}]
    assert answered(leader, plan, *tasks) == [
        FenceTasks({SECOND: {"tables": "b,c"}, THIRD: {"tables": "d"}}),
        CommitTasks("tested", tasks, revision),
    ]
    leader.known.of_tasks = {task: {"state": "RUNNING", "worker_id": HERE} for task in (FIRST, SECOND, THIRD)}
    assert leader.send(TasksCommitted("tested", 2)) == [ForgetTask(THIRD)]


def test_tasks_that_are_the_same_as_before_go_on(leader: Driver) -> None:
    committed(leader, {"tables": "a"})
    restart(leader)
    assert answered(leader, asked(leader), {"tables": "a"}) == []


def test_the_same_tasks_of_a_new_configuration_are_committed(leader: Driver) -> None:
    committed(leader, {"tables": "a"})
    revision = leader.configure("tested", other="setting")
    assert answered(leader, asked(leader), {"tables": "a"}) == [CommitTasks("tested", [{"tables": "a"}], revision)]


def test_a_connector_that_hangs_is_asked_anew_when_it_changes_and_its_late_answer_does_not_count(
    leader: Driver,
) -> None:
    leader.configure("tested", hangs="yes")
    late = asked(leader)
    revision = leader.configure("tested", hangs="")
    plan = asked(leader)
    assert answered(leader, plan, {}, {}) == [CommitTasks("tested", [{}, {}], revision)]
    leader.commit("tested", [{}, {}], revision)
    leader.send(PlanEnded(plan))
    restart(leader)
    again = asked(leader)
    assert answered(leader, late, {}) == leader.send(PlanEnded(late, "too late")) == []
    assert answered(leader, again, {}, {}, {}) == [CommitTasks("tested", [{}, {}, {}], revision)]


def test_an_answer_that_is_late_after_its_tasks_were_fenced_is_not_committed(leader: Driver) -> None:
    leader.configure("tested")
    plan = asked(leader)
    leader.send(TasksAnswered(plan, [{}]))
    leader.configure("tested", other="setting")
    asked(leader)
    assert leader.send(TasksFenced(plan)) == []


def test_an_answer_of_a_deleted_connector_does_not_count_for_the_next_of_its_name(leader: Driver) -> None:
    leader.configure("tested")
    plan = asked(leader)
    leader.read(CONNECTOR + "tested", None)
    assert turn(leader) == []
    assert answered(leader, plan, {}) == []
    leader.configure("tested")
    assert answered(leader, plan, {}) == []
    assert asked(leader) != plan


def test_a_delay_is_reported(leader: Driver) -> None:
    leader.configure("tested")
    asked(leader)
    leader.now_ms += PLANNING_MS
    assert turn(leader) == []
    leader.now_ms += 1
    (effect,) = turn(leader)
    assert isinstance(effect, ReportConnector)
    assert (effect.state, effect.failure) == (
        "UNASSIGNED",
        "it was asked for its tasks 30 s ago, and has not answered yet",
    )
    assert turn(leader) == []


def failed(leader: Driver) -> None:
    leader.configure("tested")
    assert leader.send(PlanEnded(asked(leader), "no")) == [ReportConnector("tested", "FAILED", "no")]
    assert turn(leader) == []


def test_a_failed_connector_is_asked_again_after_a_pause(leader: Driver) -> None:
    failed(leader)
    leader.now_ms += PLAN_AGAIN_MS + 1
    asked(leader)


def test_a_failed_connector_is_asked_at_once_when_it_changes(leader: Driver) -> None:
    failed(leader)
    leader.configure("tested", better="yes")
    asked(leader)


@pytest.mark.parametrize("only_failed", [True, False])
def test_a_failed_connector_is_asked_at_once_when_it_is_restarted(leader: Driver, only_failed: bool) -> None:
    failed(leader)
    restart(leader, only_failed=only_failed)
    asked(leader)


def test_a_restart_of_what_has_failed_asks_no_other_connector(leader: Driver) -> None:
    committed(leader, {})
    restart(leader, only_failed=True)
    assert turn(leader) == []


def test_a_restart_is_left_to_the_leader() -> None:
    member = Driver()
    revision = member.configure("tested")
    member.commit("tested", [{}], revision)
    restart(member)
    member.send(RunTurn(is_settled=True, is_leader=False))
    member.send(LeadershipTaken())
    assert turn(member) == [ReportConnector("tested", "RUNNING")]


def test_old_restarts_are_left_alone(leader: Driver) -> None:
    committed(leader, {})
    leader.send(ConfigRead(RESTART + "tested", {"include-tasks": True}, leader.offset + 1, is_new=False))
    assert turn(leader) == []


def test_stopped_is_reported_when_the_tasks_have_ended_or_are_fenced(leader: Driver) -> None:
    committed(leader, {"n": "0"}, {"n": "1"})
    leader.known.of_tasks = {
        FIRST: {"state": "RUNNING", "worker_id": HERE},
        SECOND: {"state": "RUNNING", "worker_id": THERE},  # which is gone
    }
    leader.target("tested", Target.STOPPED)
    assert turn(leader) == []
    leader.known.of_tasks[FIRST] = {"state": "UNASSIGNED", "worker_id": HERE}
    assert turn(leader) == [RemoveTasks("tested", {FIRST: {"n": "0"}, SECOND: {"n": "1"}})]
    assert turn(leader) != []  # the first could not be fenced
    leader.commit("tested", [], -1)
    assert leader.send(TasksRemoved("tested")) == [
        ForgetTask(FIRST), ForgetTask(SECOND), ReportConnector("tested", "STOPPED"),
    ]  # fmt: skip
    assert turn(leader) == []
    leader.target("tested", Target.STARTED)
    asked(leader)


def test_tasks_that_do_not_end_are_fenced_and_each_stop_gives_them_time(leader: Driver) -> None:
    committed(leader, {})
    leader.known.of_tasks[FIRST] = {"state": "RUNNING", "worker_id": HERE}
    for _ in range(2):
        leader.target("tested", Target.STOPPED)
        assert turn(leader) == []
        leader.now_ms += GRACE_MS
        assert turn(leader) == []
        leader.target("tested", Target.STARTED)
        turn(leader)
    leader.target("tested", Target.STOPPED)
    turn(leader)
    leader.now_ms += GRACE_MS + 1
    assert turn(leader) == [RemoveTasks("tested", {FIRST: {}})]


def test_a_paused_connector_is_reported_as_such(leader: Driver) -> None:
    committed(leader, {})
    leader.target("tested", Target.PAUSED)
    assert turn(leader) == [ReportConnector("tested", "PAUSED")]
    leader.known.of_connectors["tested"] = {"state": "PAUSED", "worker_id": THERE}
    assert turn(leader) == [ReportConnector("tested", "PAUSED")]


def test_tasks_are_assigned_when_tasks_or_members_change(leader: Driver) -> None:
    committed(leader, {}, {})
    (effect,) = leader.send(AssignTurn([HERE]))
    assert effect == WriteAssignment(Assignment(1, HERE, {HERE: frozenset({FIRST, SECOND})}))
    leader.assign(HERE, {HERE: [FIRST, SECOND]})
    assert leader.send(AssignTurn([HERE])) == []
    (effect,) = leader.send(AssignTurn([HERE, THERE]))
    assert isinstance(effect, WriteAssignment)
    assert sorted(map(len, effect.assignment.workers.values())) == [1, 1]


def test_a_new_leader_assigns_anew(leader: Driver) -> None:
    leader.assign(THERE, {HERE: []})
    (effect,) = leader.send(AssignTurn([HERE]))
    assert isinstance(effect, WriteAssignment)
    assert effect.assignment.leader == HERE


def test_the_leader_looks_at_all_and_the_others_at_the_leader(leader: Driver) -> None:
    leader.assign(HERE, {HERE: [], THERE: [], "third:1": []})
    assert leader.herder.watched(frozenset(), is_leader=True) == {THERE, "third:1"}
    leader.assign(THERE, {HERE: [], THERE: [], "third:1": []})
    assert leader.herder.watched(frozenset(), is_leader=False) == {THERE}
    assert leader.herder.watched(frozenset({THERE}), is_leader=False) == {THERE, "third:1"}
