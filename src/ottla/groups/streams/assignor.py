"""Which member of a streams group is to have which tasks: the sticky assignor. PURE.

    1  a task stays active where it is, or becomes active where it was a standby task, while the member has room
    2  other active tasks go to the least loaded member of the least loaded process, one subtopology after the other
    3  standby tasks of subtopologies with state likewise, never two of one task in one process

A member has room until it has an even share of what has not been given to members that have theirs. The load of a
process is tasks per member. Source: KIP-1071, as Kafka 4.3 does it; it assigns no warm-up tasks, and looks at no
racks or tags. Where several places are equally good, the choice here follows the members' ids.
"""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Final, NamedTuple

from ottla.groups.streams.tasks import TaskId, TaskSets, each, tasks_of
from ottla.ids import MemberId, ProcessId, SubtopologyId

STICKY: Final = "sticky"


class Candidate(NamedTuple):
    """A member that can be given tasks, and those that it was to have so far."""

    process_id: ProcessId
    target: TaskSets


class SubtopologyTasks(NamedTuple):
    subtopology_id: SubtopologyId
    task_count: int
    is_stateful: bool


def assign(
    members: Mapping[MemberId, Candidate], subtopologies: Sequence[SubtopologyTasks], standby_replicas: int
) -> dict[MemberId, TaskSets]:
    """Assign every task; as many standby tasks as there are processes for."""
    return _Assignment(members, subtopologies, standby_replicas).result()


class _Quota:
    """An even share of the tasks left, for each of the members that do not have theirs."""

    def __init__(self, tasks: int, members: int) -> None:
        self._tasks = tasks
        self._members = members
        self.share = _share(tasks, members)

    def given(self, now: int) -> None:
        """A member has so many tasks now."""
        if now == self.share:
            self._members -= 1
            self._tasks -= now
            self.share = _share(self._tasks, self._members)


def _share(tasks: int, members: int) -> int:
    return -(-tasks // members) if members else 0


class _Process:
    """The members of one process: no task may be with two of them."""

    __slots__ = ("_by_count", "counts", "tasks", "total")

    def __init__(self) -> None:
        self.counts: dict[MemberId, int] = {}
        self.tasks: set[TaskId] = set()
        self.total = 0
        self._by_count: list[tuple[int, MemberId]] = []
        """A heap. Counts in it may be too low: they only grow, and are looked up when they come to the top."""

    def add(self, member_id: MemberId) -> None:
        self.counts[member_id] = 0
        heapq.heappush(self._by_count, (0, member_id))

    @property
    def load(self) -> float:
        return self.total / len(self.counts)

    def least_loaded(self) -> MemberId:
        while True:
            noted, member_id = self._by_count[0]
            count_now = self.counts[member_id]
            if noted == count_now:
                return member_id
            heapq.heapreplace(self._by_count, (count_now, member_id))


class _Assignment:
    def __init__(
        self, members: Mapping[MemberId, Candidate], subtopologies: Sequence[SubtopologyTasks], standby_replicas: int
    ) -> None:
        self._members = dict(sorted(members.items()))
        self._replicas = standby_replicas
        self._active = {member_id: set[TaskId]() for member_id in self._members}
        self._standby = {member_id: set[TaskId]() for member_id in self._members}
        self._processes: dict[ProcessId, _Process] = {}
        self._was_active: dict[TaskId, MemberId] = {}
        self._was_standby: dict[TaskId, list[MemberId]] = {}
        for member_id, member in self._members.items():
            self._processes.setdefault(member.process_id, _Process()).add(member_id)
            self._was_active.update(dict.fromkeys(each(member.target.active), member_id))
            for task in each(member.target.standby):
                self._was_standby.setdefault(task, []).append(member_id)
        self._tasks = [TaskId(one.subtopology_id, index) for one in subtopologies for index in range(one.task_count)]
        stateful = {one.subtopology_id for one in subtopologies if one.is_stateful}
        self._stateful = [task for task in self._tasks if task.subtopology in stateful]
        self._active_quota = _Quota(len(self._tasks), len(self._members))
        self._quota = _Quota(len(self._tasks) + standby_replicas * len(self._stateful), len(self._members))

    def result(self) -> dict[MemberId, TaskSets]:
        if self._members:
            self._assign_active()
            if self._replicas:
                self._assign_standby()
        return {
            member_id: TaskSets(tasks_of(self._active[member_id]), tasks_of(self._standby[member_id]))
            for member_id in self._members
        }

    # --- where a task goes ---

    def _process_of(self, member_id: MemberId) -> _Process:
        return self._processes[self._members[member_id].process_id]

    def _give_active(self, task: TaskId, member_id: MemberId) -> None:
        self._active_quota.given(self._give(task, member_id, self._active))

    def _give(self, task: TaskId, member_id: MemberId, to: Mapping[MemberId, set[TaskId]]) -> int:
        process = self._process_of(member_id)
        to[member_id].add(task)
        process.tasks.add(task)
        process.total += 1
        process.counts[member_id] += 1
        now = process.counts[member_id]
        self._quota.given(now)
        return now

    def _has_room(self, member_id: MemberId, quota: _Quota) -> bool:
        return self._process_of(member_id).counts[member_id] < quota.share

    def _least_loaded(self, member_ids: Iterable[MemberId]) -> MemberId | None:
        def load(member_id: MemberId) -> tuple[float, int]:
            process = self._process_of(member_id)
            return process.load, process.counts[member_id]

        return min(member_ids, key=load, default=None)

    # --- active tasks ---

    def _assign_active(self) -> None:
        # What has the same partition lies side by side, so that it stays together.
        by_partition = sorted(self._tasks, key=lambda task: (task.partition, task.subtopology))
        left: list[TaskId] = []
        for task in by_partition:
            member_id = self._was_active.get(task)
            if member_id is not None and self._has_room(member_id, self._active_quota):
                self._give_active(task, member_id)
            else:
                left.append(task)
        homeless: list[TaskId] = []
        for task in left:
            member_id = self._least_loaded(self._was_standby.get(task, ()))
            if member_id is not None and self._has_room(member_id, self._active_quota):
                self._give_active(task, member_id)
            else:
                homeless.append(task)
        queue = _ByLoad(self._processes.values())
        for task in sorted(homeless):
            process = queue.pop()
            self._give_active(task, process.least_loaded())
            queue.push(process)

    # --- standby tasks ---

    def _assign_standby(self) -> None:
        homeless: list[tuple[TaskId, int]] = []
        for task in sorted(self._stateful, key=lambda task: (task.partition, task.subtopology), reverse=True):
            for done in range(self._replicas):
                member_id = self._earlier_owner(task)
                if member_id is None:
                    homeless.append((task, self._replicas - done))
                    break
                self._give(task, member_id, self._standby)
        queue = _ByLoad(self._processes.values())
        for task, wanted in sorted(homeless, reverse=True):
            for _ in range(wanted):
                process = queue.pop_without(task)
                if process is None:
                    break
                self._give(task, process.least_loaded(), self._standby)
                queue.push(process)

    def _earlier_owner(self, task: TaskId) -> MemberId | None:
        """A member that has the task's state already, and room."""
        active = self._was_active.get(task)
        if active is not None and self._can_stand_by(active, task):
            return active
        candidates = [member_id for member_id in self._was_standby.get(task, ()) if self._can_stand_by(member_id, task)]
        return self._least_loaded(candidates)

    def _can_stand_by(self, member_id: MemberId, task: TaskId) -> bool:
        return task not in self._process_of(member_id).tasks and self._has_room(member_id, self._quota)


class _ByLoad:
    """Processes, the least loaded first; of those with the same load, the one that has waited longest."""

    def __init__(self, processes: Iterable[_Process]) -> None:
        self._turns = count()
        self._heap = [(process.load, next(self._turns), process) for process in processes]
        heapq.heapify(self._heap)

    def pop(self) -> _Process:
        return heapq.heappop(self._heap)[2]

    def push(self, process: _Process) -> None:
        heapq.heappush(self._heap, (process.load, next(self._turns), process))

    def pop_without(self, task: TaskId) -> _Process | None:
        """The first that does not have the task; None: all have it."""
        passed = []
        found = None
        while self._heap and found is None:
            entry = heapq.heappop(self._heap)
            if task in entry[2].tasks:
                passed.append(entry)
            else:
                found = entry[2]
        for entry in passed:
            heapq.heappush(self._heap, entry)
        return found
