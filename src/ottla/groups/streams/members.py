"""A member of a streams group, and the next step from its present to its target tasks. PURE.

                     target epoch is new,                all given up
    +--------+       nothing to give up       +--------+ <---------------+-----------------+
    | STABLE | ------------------------------>| STABLE |                 | UNREVOKED_TASKS |
    +--------+                                +--------+   to give up    +-----------------+
        |                                          ^   +----------------------^
        | others still have some of it             | released                 |
        +---------------------------> UNRELEASED_TASKS -----------------------+ target epoch is new

An active task is free when no process has it, and this process does not keep its state as a standby or warm-up task
either: both would use one directory. Source: KIP-1071, as Kafka 4.3 does it.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from ottla.errors import ApiError, ErrorCode
from ottla.groups.streams.tasks import NO_EPOCHS, NOTHING, AssignmentEpochs, TaskId, Tasks, TaskSets, each, tasks_of
from ottla.ids import InstanceId, MemberId, ProcessId

NO_TIMEOUT: Final = -1
NO_TOPOLOGY: Final = -1


class MemberState(IntEnum):
    """As numbered in the log."""

    STABLE = 1
    UNREVOKED_TASKS = 2
    UNRELEASED_TASKS = 3
    UNKNOWN = 127
    """A state that only later versions know."""


class Endpoint(NamedTuple):
    """Where the application answers interactive queries."""

    host: str
    port: int


class StreamsMember(NamedTuple):
    """One member: its own description, and where it stands. Replaced as a whole."""

    member_id: MemberId
    instance_id: InstanceId | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = NO_TIMEOUT
    topology_epoch: int = NO_TOPOLOGY
    process_id: ProcessId = ProcessId("")
    user_endpoint: Endpoint | None = None
    client_tags: Mapping[str, str] = {}
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: TaskSets = NOTHING
    pending_revocation: TaskSets = NOTHING
    assignment_epochs: AssignmentEpochs = NO_EPOCHS
    """Includes the active tasks that the member has yet to give up."""

    def is_reconciled_to(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == target_epoch


class Owners:
    """Which processes have which tasks, or still have to give them up."""

    def __init__(self) -> None:
        self._active: dict[TaskId, ProcessId] = {}
        self._standby: dict[TaskId, set[ProcessId]] = {}
        self._warmup: dict[TaskId, set[ProcessId]] = {}

    def add(self, member: StreamsMember) -> None:
        for sets in (member.assigned, member.pending_revocation):
            self._active.update(dict.fromkeys(each(sets.active), member.process_id))
            for tasks, owners in ((sets.standby, self._standby), (sets.warmup, self._warmup)):
                for task in each(tasks):
                    owners.setdefault(task, set()).add(member.process_id)

    def remove(self, member: StreamsMember) -> None:
        """The member's tasks are free, unless another process has taken them since."""
        for sets in (member.assigned, member.pending_revocation):
            for task in each(sets.active):
                if self._active.get(task) == member.process_id:
                    del self._active[task]
            for tasks, owners in ((sets.standby, self._standby), (sets.warmup, self._warmup)):
                for task in each(tasks):
                    owners.get(task, set()).discard(member.process_id)
                    if not owners.get(task, True):
                        del owners[task]

    def has_active(self, task: TaskId) -> bool:
        return task in self._active

    def is_in_process(self, task: TaskId, process_id: ProcessId) -> bool:
        """Is the task with the process, as one of any kind?"""
        return self._active.get(task) == process_id or self._keeps_state(task, process_id)

    def is_active_for(self, task: TaskId, process_id: ProcessId) -> bool:
        """Is the task active somewhere, or its state with the process?"""
        return task in self._active or self._keeps_state(task, process_id)

    def _keeps_state(self, task: TaskId, process_id: ProcessId) -> bool:
        return process_id in self._standby.get(task, ()) or process_id in self._warmup.get(task, ())


def reconciled(
    member: StreamsMember, target_epoch: int, target: TaskSets, owners: Owners, owned: TaskSets | None
) -> StreamsMember:
    """The member one step nearer to its target, or as it is.

    `owned`: the tasks that the member reports, None if it does not. Raises `ApiError` FENCED_MEMBER_EPOCH for a state
    that only later versions know.
    """
    match member.state:
        case MemberState.STABLE:
            if member.epoch == target_epoch:
                return member
            return _next_step(member, member.epoch, target_epoch, target, owners, owned)
        case MemberState.UNREVOKED_TASKS:
            if owned is None or owned.overlaps(member.pending_revocation):
                return member
            return _next_step(member, member.epoch + 1, target_epoch, target, owners, owned)
        case MemberState.UNRELEASED_TASKS:
            return _next_step(member, member.epoch, target_epoch, target, owners, owned)
        case MemberState.UNKNOWN:
            if owned is None or not owned.is_empty:
                raise ApiError(
                    ErrorCode.FENCED_MEMBER_EPOCH,
                    "The streams group member is in a unknown state. The member must abandon all its tasks and rejoin.",
                )
            return _next_step(member, target_epoch, target_epoch, target, owners, owned)


class _Difference(NamedTuple):
    """What becomes of the tasks of one kind."""

    kept: frozenset[TaskId]
    to_revoke: frozenset[TaskId]
    to_add: frozenset[TaskId]
    waits: bool
    """Something is still elsewhere."""


def _difference(current: Tasks, wanted: Tasks, is_taken: Callable[[TaskId], bool]) -> _Difference:
    now, then = frozenset(each(current)), frozenset(each(wanted))
    missing = then - now
    free = frozenset(task for task in missing if not is_taken(task))
    return _Difference(now & then, now - then, free, len(free) < len(missing))


def _next_step(
    member: StreamsMember, epoch: int, target_epoch: int, target: TaskSets, owners: Owners, owned: TaskSets | None
) -> StreamsMember:
    """`epoch`: the one to stay in if there is something to give up first."""
    process_id = member.process_id

    def taken_from_active(task: TaskId) -> bool:
        return owners.is_active_for(task, process_id)

    def taken_in_process(task: TaskId) -> bool:
        return owners.is_in_process(task, process_id)

    active = _difference(member.assigned.active, target.active, taken_from_active)
    standby = _difference(member.assigned.standby, target.standby, taken_in_process)
    warmup = _difference(member.assigned.warmup, target.warmup, taken_in_process)
    kinds = (active, standby, warmup)
    to_revoke = _sets(kind.to_revoke for kind in kinds)
    known = member.assignment_epochs
    if not to_revoke.is_empty and (owned is None or owned.overlaps(to_revoke)):
        return member._replace(
            state=MemberState.UNREVOKED_TASKS,
            epoch=epoch,
            previous_epoch=member.epoch,
            assigned=_sets(kind.kept for kind in kinds),
            pending_revocation=to_revoke,
            assignment_epochs={task: known[task] for task in (*active.kept, *active.to_revoke)},
        )
    waits = any(kind.waits for kind in kinds)
    return member._replace(
        state=MemberState.UNRELEASED_TASKS if waits else MemberState.STABLE,
        epoch=target_epoch,
        previous_epoch=member.epoch,
        assigned=_sets(kind.kept | kind.to_add for kind in kinds),
        pending_revocation=NOTHING,
        assignment_epochs={task: known[task] for task in active.kept} | dict.fromkeys(active.to_add, target_epoch),
    )


def _sets(kinds: Iterable[frozenset[TaskId]]) -> TaskSets:
    return TaskSets(*map(tasks_of, kinds))
