"""Tasks of a streams application: one subtopology, for one partition of its sources. PURE.

active    reads, processes and writes; with one process at a time
standby   follows the changelog of an active task elsewhere, to take over soon
warm-up   a standby task for as long as it takes to catch up
"""

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from ottla.ids import SubtopologyId

Tasks: TypeAlias = Mapping[SubtopologyId, frozenset[int]]
"""Partitions by subtopology; no subtopology without partitions."""

NO_TASKS: Final[Tasks] = MappingProxyType({})


class TaskId(NamedTuple):
    """A task: one partition of a subtopology. Its text is Kafka's, such as `0_3`."""

    subtopology: SubtopologyId
    partition: int

    def __str__(self) -> str:
        return f"{self.subtopology}_{self.partition}"


AssignmentEpochs: TypeAlias = Mapping[TaskId, int]
"""Active tasks of a member, and the epoch at which each was assigned to it: what is older may not commit for them."""

NO_EPOCHS: Final[AssignmentEpochs] = MappingProxyType({})


class TaskSets(NamedTuple):
    """Tasks of each kind: what a member has, is to have or has to give up."""

    active: Tasks = NO_TASKS
    standby: Tasks = NO_TASKS
    warmup: Tasks = NO_TASKS

    @property
    def is_empty(self) -> bool:
        return not (self.active or self.standby or self.warmup)

    def overlaps(self, other: "TaskSets") -> bool:
        """Is there a task that both have, as one of the same kind?"""
        return any(_overlap(ours, theirs) for ours, theirs in zip(self, other, strict=True))

    def is_within(self, other: "TaskSets") -> bool:
        return all(_is_within(ours, theirs) for ours, theirs in zip(self, other, strict=True))


NOTHING: Final = TaskSets()


def each(tasks: Tasks) -> Iterator[TaskId]:
    for subtopology, partitions in tasks.items():
        for partition in partitions:
            yield TaskId(subtopology, partition)


def tasks_of(task_ids: Iterable[TaskId]) -> dict[SubtopologyId, frozenset[int]]:
    """Partitions by subtopology."""
    found: dict[SubtopologyId, set[int]] = {}
    for task in task_ids:
        found.setdefault(task.subtopology, set()).add(task.partition)
    return {subtopology: frozenset(partitions) for subtopology, partitions in found.items()}


def _overlap(one: Tasks, other: Tasks) -> bool:
    return any(not other[key].isdisjoint(partitions) for key, partitions in one.items() if key in other)


def _is_within(one: Tasks, other: Tasks) -> bool:
    return all(partitions <= other.get(key, frozenset()) for key, partitions in one.items())
