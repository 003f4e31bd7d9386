"""Which member of a streams group is to have which tasks: the sticky assignor. PURE.

    1  a task stays active where it is, or becomes active where it was a standby task, while the member has room
    2  other active tasks go to the least loaded member of the least loaded process, one subtopology after the other
    3  standby tasks of subtopologies with state likewise, never two of one task in one process

A member has room until it has an even share of what has not been given to members that have theirs. The load of a
process is tasks per member. Source: KIP-1071, as Kafka 4.3 does it; it assigns no warm-up tasks, and looks at no
racks or tags. Where several places are equally good, the choice here follows the members' ids.

A group may have 20,000 tasks, and all of them are assigned in one turn of the event loop. Inside, a task is therefore a
number: its place in the order of subtopology and partition.
"""

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count, repeat
from typing import Final, NamedTuple, TypeAlias

from ottla.groups.streams.tasks import Tasks, TaskSets
from ottla.ids import MemberId, ProcessId, SubtopologyId

STICKY: Final = "sticky"


class Candidate(NamedTuple):
    """A member that can be given tasks, and those that it was to have so far."""

    process_id: ProcessId
    target: TaskSets


class SubtopologyTasks(NamedTuple):
    """The tasks of a subtopology: one for each of its partitions."""

    subtopology_id: SubtopologyId
    task_count: int
    is_stateful: bool


def assign(
    members: Mapping[MemberId, Candidate], subtopologies: Sequence[SubtopologyTasks], standby_replicas: int
) -> dict[MemberId, TaskSets]:
    """Assign every task; as many standby tasks as there are processes for. No two subtopologies have the same id."""
    return _Assignment(members, subtopologies, standby_replicas).result()


_Task: TypeAlias = int
"""A task's number."""


class _Numbering:
    """The numbers of tasks: those of a subtopology follow each other."""

    def __init__(self, subtopologies: Sequence[SubtopologyTasks]) -> None:
        self._first: dict[SubtopologyId, tuple[_Task, int]] = {}
        """The number of the first task of each, and how many there are."""
        self._ids: list[SubtopologyId] = []
        self._ends: list[_Task] = []
        self._partitions: list[int] = []
        self._is_stateful: list[bool] = []
        for each in sorted(subtopologies):
            self._first[each.subtopology_id] = len(self._partitions), each.task_count
            self._ids.append(each.subtopology_id)
            self._partitions += range(each.task_count)
            self._is_stateful += repeat(each.is_stateful, each.task_count)
            self._ends.append(len(self._partitions))

    def __len__(self) -> int:
        return len(self._partitions)

    def by_partition(self) -> list[_Task]:
        """Tasks with the same partition lie side by side, so that they stay together."""
        return sorted(range(len(self._partitions)), key=self._partitions.__getitem__)

    def stateful(self, tasks: Iterable[_Task]) -> list[_Task]:
        is_stateful = self._is_stateful
        return [task for task in tasks if is_stateful[task]]

    def numbers(self, tasks: Tasks) -> Iterator[_Task]:
        """The tasks that there still are."""
        for subtopology_id, partitions in tasks.items():
            first, task_count = self._first.get(subtopology_id, (0, 0))
            yield from (first + partition for partition in partitions if 0 <= partition < task_count)

    def named(self, tasks: list[_Task]) -> dict[SubtopologyId, frozenset[int]]:
        tasks.sort()
        found: dict[SubtopologyId, frozenset[int]] = {}
        begin = 0
        while begin < len(tasks):
            place = bisect_right(self._ends, tasks[begin])
            end = bisect_left(tasks, self._ends[place], begin)
            found[self._ids[place]] = frozenset(map(self._partitions.__getitem__, tasks[begin:end]))
            begin = end
        return found


class _Quota:
    """An even share of the tasks left, for each of the members that do not have theirs."""

    __slots__ = ("_members", "_tasks", "share")

    def __init__(self, tasks: int, members: int) -> None:
        self._tasks = tasks
        self._members = members
        self.share = _share(tasks, members)

    def reached(self) -> None:
        """A member has its share."""
        self._members -= 1
        self._tasks -= self.share
        self.share = _share(self._tasks, self._members)


def _share(tasks: int, members: int) -> int:
    return -(-tasks // members) if members else 0


class _Process:
    """The members of one process: no task may be with two of them."""

    __slots__ = ("_by_count", "members", "tasks")

    def __init__(self) -> None:
        self.members: list[_Member] = []
        self.tasks: set[_Task] = set()
        self._by_count: list[tuple[int, int]] = []
        """A heap of counts and places in `members`. Counts in it may be too low: they only grow, and are looked up when
        they come to the top."""

    def add(self, member: "_Member") -> None:
        heapq.heappush(self._by_count, (0, len(self.members)))
        self.members.append(member)

    @property
    def load(self) -> float:
        return len(self.tasks) / len(self.members)

    def least_loaded(self) -> "_Member":
        if len(self.members) == 1:
            return self.members[0]
        while True:
            noted, place = self._by_count[0]
            member = self.members[place]
            if noted == member.count:
                return member
            heapq.heapreplace(self._by_count, (member.count, place))


class _Member:
    __slots__ = ("active", "count", "process", "standby")

    def __init__(self, process: _Process) -> None:
        self.process = process
        self.active: list[_Task] = []
        self.standby: list[_Task] = []
        self.count = 0
        process.add(self)


class _Assignment:
    def __init__(
        self, members: Mapping[MemberId, Candidate], subtopologies: Sequence[SubtopologyTasks], standby_replicas: int
    ) -> None:
        self._replicas = standby_replicas
        self._tasks = _Numbering(subtopologies)
        self._by_partition = self._tasks.by_partition()
        self._processes: dict[ProcessId, _Process] = {}
        self._members: dict[MemberId, _Member] = {}
        self._was_active: dict[_Task, _Member] = {}
        self._was_standby: dict[_Task, list[_Member]] = {}
        for member_id, candidate in sorted(members.items()):
            process = self._processes.setdefault(candidate.process_id, _Process())
            member = self._members[member_id] = _Member(process)
            self._was_active.update(dict.fromkeys(self._tasks.numbers(candidate.target.active), member))
            for task in self._tasks.numbers(candidate.target.standby):
                self._was_standby.setdefault(task, []).append(member)
        self._stateful = self._tasks.stateful(reversed(self._by_partition)) if standby_replicas else []
        self._active_quota = _Quota(len(self._tasks), len(members))
        self._quota = _Quota(len(self._tasks) + standby_replicas * len(self._stateful), len(members))

    def result(self) -> dict[MemberId, TaskSets]:
        if self._members:
            self._assign_active()
            if self._replicas:
                self._assign_standby()
        named = self._tasks.named
        return {
            member_id: TaskSets(named(member.active), named(member.standby))
            for member_id, member in self._members.items()
        }

    # --- where a task goes ---

    def _give_active(self, task: _Task, member: _Member) -> None:
        member.active.append(task)
        self._give(task, member)
        if member.count == self._active_quota.share:
            self._active_quota.reached()

    def _give_standby(self, task: _Task, member: _Member) -> None:
        member.standby.append(task)
        self._give(task, member)

    def _give(self, task: _Task, member: _Member) -> None:
        member.process.tasks.add(task)
        member.count += 1
        if member.count == self._quota.share:
            self._quota.reached()

    # --- active tasks ---

    def _assign_active(self) -> None:
        quota = self._active_quota
        placed: set[_Task] = set()

        def keep(task: _Task, member: _Member | None) -> None:
            if member is not None and member.count < quota.share:
                self._give_active(task, member)
                placed.add(task)

        for task in self._by_partition:
            if task in self._was_active:
                keep(task, self._was_active[task])
        for task in self._by_partition:
            if task in self._was_standby and task not in placed:
                keep(task, _least_loaded(self._was_standby[task]))
        queue = _ByLoad(self._processes.values())
        for task in range(len(self._tasks)):
            if task not in placed:
                queue.give(task, self._give_active)

    # --- standby tasks ---

    def _assign_standby(self) -> None:
        homeless: dict[_Task, int] = {}
        """How many standby tasks of each are still to be placed."""
        for task in self._stateful:
            for done in range(self._replicas):
                member = self._earlier_owner(task)
                if member is None:
                    homeless[task] = self._replicas - done
                    break
                self._give_standby(task, member)
        queue = _ByLoad(self._processes.values())
        for task in sorted(homeless, reverse=True):
            for _ in range(homeless[task]):
                if not queue.give(task, self._give_standby):
                    break

    def _earlier_owner(self, task: _Task) -> _Member | None:
        """A member that has the task's state already, and room."""
        share = self._quota.share
        active = self._was_active.get(task)
        if active is not None and active.count < share and task not in active.process.tasks:
            return active
        earlier = self._was_standby.get(task)
        if earlier is None:
            return None
        return _least_loaded([one for one in earlier if one.count < share and task not in one.process.tasks])


def _least_loaded(members: Sequence[_Member]) -> _Member | None:
    if len(members) < 2:
        return members[0] if members else None
    return min(members, key=lambda member: (member.process.load, member.count))


class _ByLoad:
    """Processes, the least loaded first; of those with the same load, the one that has waited longest."""

    def __init__(self, processes: Iterable[_Process]) -> None:
        self._turns = count()
        self._heap = [(process.load, next(self._turns), process) for process in processes]
        heapq.heapify(self._heap)

    def give(self, task: _Task, to: Callable[[_Task, _Member], None]) -> bool:
        """Give the task to the first process without it; False: all have it."""
        heap = self._heap
        passed = []
        while heap and task in heap[0][2].tasks:
            passed.append(heapq.heappop(heap))
        is_found = bool(heap)
        if is_found:
            process = heap[0][2]
            to(task, process.least_loaded())
            heapq.heapreplace(heap, (process.load, next(self._turns), process))
        for entry in passed:
            heapq.heappush(heap, entry)
        return is_found
