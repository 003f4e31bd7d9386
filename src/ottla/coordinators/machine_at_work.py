"""A machine of a coordinator, and what waits around it: requests, timers, writes."""

import asyncio
from collections import deque
from enum import Enum, auto
from typing import Any, Final, Generic, TypeVar

from ottla.coordination.producers import Producers
from ottla.coordination.state_machine import Request, StateMachine
from ottla.coordination.timers import Timers
from ottla.coordinators.batches import QueuedBatch
from ottla.ids import LeaderEpoch, PartitionId

STORY_EVENTS: Final = 32
"""How many events are remembered, for the day a machine breaks."""

EventT = TypeVar("EventT")
RecordT = TypeVar("RecordT")


class LoadState(Enum):
    """How far the machine has come."""

    LOADING = auto()
    ACTIVE = auto()
    GONE = auto()
    """Resigned, or thrown away after a failed write; nothing that still runs for it may have an effect."""


def _subject(event: object) -> object:
    """The group, transaction or timer of an event: its first field."""
    fields: tuple[str, ...] = getattr(event, "__match_args__", ())
    return getattr(event, fields[0]) if fields else ""


class MachineAtWork(Generic[EventT, RecordT]):
    """One machine at work. Lives as long as its machine."""

    def __init__(self, partition: PartitionId, epoch: LeaderEpoch, producers: Producers) -> None:
        self.partition = partition
        self.epoch = epoch
        self.machine: StateMachine[EventT, RecordT]
        """Made when it begins to be loaded."""
        self.producers = producers
        self.state = LoadState.LOADING
        self.settled = asyncio.Event()
        """Set once loading has ended."""
        self.position = 0
        self.timers = Timers()
        self.wakeup: asyncio.TimerHandle | None = None
        self.wakeup_at = 0.0
        self.waiting: dict[Request[Any], asyncio.Future[Any]] = {}
        self._events: deque[tuple[str, object]] = deque(maxlen=STORY_EVENTS)
        self.batches: deque[QueuedBatch] = deque()
        """The first `sent` of them are on their way, the last takes what is appended."""
        self.sent = 0
        self.writer: asyncio.Task[None] | None = None

    @property
    def is_loading(self) -> bool:
        return self.state is LoadState.LOADING

    @property
    def is_active(self) -> bool:
        return self.state is LoadState.ACTIVE

    @property
    def is_gone(self) -> bool:
        return self.state is LoadState.GONE

    def remember(self, event: object) -> None:
        """Note an event for the day the machine cannot handle one."""
        self._events.append((type(event).__name__, _subject(event)))

    def story(self) -> str:
        """The newest events, by kind and subject."""
        return ", ".join(f"{kind} {subject}" for kind, subject in self._events)
