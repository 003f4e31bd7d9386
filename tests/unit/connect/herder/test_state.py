"""The state of the workers from its records, and how tasks are shared out."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.connect.herder.state import (
    ASSIGNMENT,
    Assignment,
    ClusterState,
    Restart,
    Target,
    TaskId,
    assignment_value,
    share,
)


def replayed(*records: tuple[str, object]) -> ClusterState:
    state = ClusterState()
    for offset, (key, value) in enumerate(records):
        state.replay(key, value, offset)  # type: ignore[arg-type] # records as they come
    return state


def test_tasks_count_from_their_commit_on() -> None:
    records = [("connector-a", {"properties": {"x": "1"}}), ("task-a-0", {"properties": {"n": "0"}})]
    assert replayed(*records).connectors["a"].tasks == ()
    committed = replayed(*records, ("commit-a", {"tasks": 1, "ottla.config": 0})).connectors["a"]
    assert committed.tasks == ({"n": "0"},)
    assert committed.planned == committed.revision == 0
    assert replayed(*records, ("commit-a", {"tasks": 2})).connectors["a"].tasks == ()


def test_a_changed_configuration_keeps_its_tasks_until_the_next_commit() -> None:
    state = replayed(
        ("connector-a", {"properties": {"x": "1"}}),
        ("task-a-0", {"properties": {"n": "0"}}),
        ("commit-a", {"tasks": 1, "ottla.config": 0}),
        ("connector-a", {"properties": {"x": "2"}}),
    )
    assert state.connectors["a"].tasks == ({"n": "0"},)
    assert (state.connectors["a"].planned, state.connectors["a"].revision) == (0, 3)


def test_targets_may_come_before_their_connector() -> None:
    state = replayed(
        ("target-state-a", {"state": "PAUSED", "state.v2": "STOPPED"}), ("connector-a", {"properties": {}})
    )
    assert state.connectors["a"].target is Target.STOPPED
    state.replay("target-state-a", {"state": "STARTED"}, 2)  # as written before there was STOPPED
    assert state.connectors["a"].target is Target.STARTED


def test_a_deleted_connector_is_gone_and_strangers_are_left_alone() -> None:
    state = replayed(
        ("connector-a", {"properties": {}}), ("session-key", {"key": "x"}), ("connector-a", None), ("commit-a", None)
    )
    assert state.connectors == {}


def test_restarts_are_asked_once() -> None:
    state = replayed(("connector-a-b", {"properties": {}}))
    asked = state.replay("restart-connector-a-b", {"include-tasks": True, "only-failed": False}, 1)
    assert asked == Restart("a-b", include_tasks=True, only_failed=False)


def test_an_assignment_comes_back_as_it_was_written() -> None:
    assignment = Assignment(3, "h:1", {"h:1": frozenset({TaskId("a-b", 0)}), "h:2": frozenset()})
    state = replayed((ASSIGNMENT, assignment_value(assignment)))
    assert state.assignment == assignment
    assert state.assignment.owner(TaskId("a-b", 0)) == "h:1"
    assert state.assignment.owner(TaskId("a", 0)) is None


MEMBERS = st.lists(st.sampled_from("abcdef"), unique=True, min_size=1).map(sorted)
TASKS = st.lists(st.integers(0, 30), unique=True).map(lambda numbers: [TaskId("c", number) for number in numbers])


@given(TASKS, MEMBERS, TASKS, MEMBERS)
def test_sharing_is_even_and_moves_little(
    tasks: list[TaskId], members: list[str], tasks_before: list[TaskId], members_before: list[str]
) -> None:
    before = Assignment(1, "a", share(tasks_before, members_before, Assignment()))
    shared = share(tasks, members, before)
    counts = [len(each) for each in shared.values()]
    assert sorted(shared) == members
    assert sorted(task for each in shared.values() for task in each) == sorted(tasks)
    assert max(counts) - min(counts) <= 1
    most = -(-len(tasks) // len(members))
    for member in members:
        had = before.workers.get(member, frozenset()) & set(tasks)
        assert len(had & shared[member]) >= min(len(had), most - 1)
    assert share(tasks, members, Assignment(2, "a", shared)) == shared


def test_a_task_that_comes_back_to_a_worker_is_given_anew() -> None:
    task, other = TaskId("a", 0), TaskId("a", 1)

    def assigned(**workers: frozenset[TaskId]) -> dict[str, object]:
        return dict(assignment_value(Assignment(1, "one", workers)))

    state = ClusterState()
    for offset, owners in enumerate(("one", "one", "two", "one")):
        state.replay(ASSIGNMENT, assigned(**{owners: frozenset({task}), "three": frozenset({other})}), offset)
        assert state.given[task] == (0, 0, 2, 3)[offset]
        assert state.given[other] == 0
