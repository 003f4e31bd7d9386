"""What can be asked of the share coordinator's machine, and what is answered. PURE."""

from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from ottla.coordination.state_machine import Request
from ottla.errors import ErrorCode
from ottla.ids import TopicId
from ottla.share.state import UNKNOWN_COUNT, UNKNOWN_START_OFFSET, SharePartitionKey, SharePartitionState, StateBatch

FRESH_EPOCH: Final = 0
"""The epochs of a share partition without a leader or an initialization."""


class ShareStateConfig(NamedTuple):
    """Attribute names are the broker's settings without `share.coordinator.`; values default to Kafka's."""

    snapshot_update_records_per_snapshot: int = 500
    cold_partition_snapshot_interval_ms: int = 300_000


@dataclass(slots=True, eq=False)
class InitializeState(Request["StateChanged"]):
    """Start over at `start_offset` (-1: not known yet). Answered with `StateChanged`."""

    key: SharePartitionKey
    state_epoch: int
    start_offset: int
    only_if_new: bool = False
    """Change nothing if the state exists: the request may be a late duplicate."""


@dataclass(slots=True, eq=False)
class ReadState(Request["StateRead"]):
    """A leader takes over: leaders of earlier epochs are fenced. Answered with `StateRead`."""

    key: SharePartitionKey
    leader_epoch: int


@dataclass(slots=True, eq=False)
class WriteState(Request["StateChanged"]):
    """Answered with `StateChanged`. Epochs and start offset of -1 are left as they are."""

    key: SharePartitionKey
    state_epoch: int
    leader_epoch: int
    start_offset: int
    batches: tuple[StateBatch, ...] = ()
    complete_count: int = UNKNOWN_COUNT
    """How many of the records from the start offset on are finished (KIP-1226)."""


@dataclass(slots=True, eq=False)
class SummarizeState(Request["StateSummary"]):
    """Answered with `StateSummary`; an unknown share partition starts at -1."""

    key: SharePartitionKey


@dataclass(slots=True, eq=False)
class DeleteState(Request["StateChanged"]):
    """Answered with `StateChanged`; one that is not there is as good as deleted."""

    key: SharePartitionKey


@dataclass(slots=True, eq=False)
class ForgetTopics(Request[None]):
    """These topics are deleted. Answered with None."""

    topic_ids: frozenset[TopicId]


@dataclass(slots=True, eq=False)
class FindNeeded(Request[int | None]):
    """Find the position in the log from which records are needed. Answered with it, or None if it is unknown."""


ShareStateEvent: TypeAlias = (
    InitializeState | ReadState | WriteState | SummarizeState | DeleteState | ForgetTopics | FindNeeded
)


class StateChanged(NamedTuple):
    """The reply to events that change delivery state."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    starts_over: bool = False
    """The delivery state was discarded: the leader of the share partition has to read it again."""


class StateRead(NamedTuple):
    """The reply to `ReadState`."""

    error: ErrorCode
    message: str | None = None
    state: SharePartitionState = SharePartitionState(FRESH_EPOCH, UNKNOWN_START_OFFSET)


class StateSummary(NamedTuple):
    """The reply to `ReadSummary`: the state without its batches."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    state_epoch: int = FRESH_EPOCH
    leader_epoch: int = FRESH_EPOCH
    start_offset: int = UNKNOWN_START_OFFSET
    complete_count: int = UNKNOWN_COUNT
