"""The assignor of streams groups: every task has a home, little moves, no process has a task twice."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from ottla.groups.streams.assignor import Candidate, SubtopologyTasks, assign
from ottla.groups.streams.tasks import NOTHING, TaskId, TaskSets, each
from ottla.ids import MemberId, ProcessId, SubtopologyId

S0, S1 = SubtopologyId("0"), SubtopologyId("1")
A, B, C = (MemberId(name) for name in "abc")
BOTH = [SubtopologyTasks(S0, 6, False), SubtopologyTasks(S1, 6, True)]


def alone(*members: MemberId, targets: dict[MemberId, TaskSets] | None = None) -> dict[MemberId, Candidate]:
    """Each member in a process of its own."""
    known = targets or {}
    return {member: Candidate(ProcessId(f"p-{member}"), known.get(member, NOTHING)) for member in members}


def count(sets: TaskSets) -> tuple[int, int, int]:
    active, standby, warmup = (sum(map(len, tasks.values())) for tasks in sets)
    return active, standby, warmup


def test_members_share_the_tasks() -> None:
    target = assign(alone(A, B, C), BOTH, 0)
    assert {count(sets) for sets in target.values()} == {(4, 0, 0)}


def test_subtopologies_are_shared_alike_and_partitions_stay_together() -> None:
    target = assign(alone(A, B, C), BOTH, 0)
    for sets in target.values():
        assert sets.active[S0] == sets.active[S1]


def test_threads_of_one_process_count_as_members() -> None:
    members = {
        A: Candidate(ProcessId("p"), NOTHING),
        B: Candidate(ProcessId("p"), NOTHING),
        C: Candidate(ProcessId("q"), NOTHING),
    }
    assert {count(sets) for sets in assign(members, BOTH, 0).values()} == {(4, 0, 0)}


def test_a_member_that_comes_takes_no_more_than_its_share() -> None:
    before = assign(alone(A, B), BOTH, 0)
    after = assign(alone(A, B, C, targets=before), BOTH, 0)
    assert {count(sets) for sets in after.values()} == {(4, 0, 0)}
    for member in (A, B):
        assert set(each(after[member].active)) <= set(each(before[member].active))


def test_standby_tasks_are_elsewhere_and_become_active_there() -> None:
    before = assign(alone(A, B, C), BOTH, 1)
    for sets in before.values():
        assert not set(each(sets.active)) & set(each(sets.standby))
    lost = set(each(before[A].active)) & {TaskId(S1, index) for index in range(6)}
    after = assign(alone(B, C, targets={B: before[B], C: before[C]}), BOTH, 1)
    for member in (B, C):
        assert lost & set(each(before[member].standby)) <= set(each(after[member].active))


def test_there_are_no_more_standby_tasks_than_processes() -> None:
    target = assign(alone(A, B), BOTH, 5)
    assert sum(count(sets)[1] for sets in target.values()) == 6


def test_nobody_is_assigned_nothing() -> None:
    assert assign({}, BOTH, 1) == {}
    assert assign(alone(A), [], 1) == {A: NOTHING}


@st.composite
def problems(draw: st.DrawFn) -> tuple[dict[MemberId, ProcessId], list[SubtopologyTasks], int]:
    members = draw(st.lists(st.sampled_from("abcdefg"), unique=True, min_size=1))
    processes = {MemberId(name): ProcessId(draw(st.sampled_from("pqrst"))) for name in members}
    subtopologies = [
        SubtopologyTasks(SubtopologyId(str(number)), draw(st.integers(1, 9)), draw(st.booleans()))
        for number in range(draw(st.integers(0, 4)))
    ]
    return processes, subtopologies, draw(st.integers(0, 2))


@given(problems(), problems())
def test_whatever_came_before(
    first: tuple[dict[MemberId, ProcessId], list[SubtopologyTasks], int],
    second: tuple[dict[MemberId, ProcessId], list[SubtopologyTasks], int],
) -> None:
    target: dict[MemberId, TaskSets] = {}
    for processes, subtopologies, replicas in (first, second, second):
        before = target
        members = {member: Candidate(process, before.get(member, NOTHING)) for member, process in processes.items()}
        target = assign(members, subtopologies, replicas)
        tasks = [TaskId(one.subtopology_id, index) for one in subtopologies for index in range(one.task_count)]
        active = Counter(task for sets in target.values() for task in each(sets.active))
        assert active == Counter(tasks)
        standby = Counter(task for sets in target.values() for task in each(sets.standby))
        stateful = {one.subtopology_id for one in subtopologies if one.is_stateful}
        wanted = min(replicas, len(set(processes.values())) - 1)
        assert standby == Counter({task: wanted for task in tasks if wanted and task.subtopology in stateful})
        in_process = Counter(
            (processes[member], task)
            for member, sets in target.items()
            for tasks_of_kind in sets
            for task in each(tasks_of_kind)
        )
        assert not in_process or max(in_process.values()) == 1
        assert not any(sets.warmup for sets in target.values())
