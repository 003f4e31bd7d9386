"""The kinds of groups, and what every group can be asked whatever its kind. PURE."""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple, Protocol, TypeAlias

from ottla.coordination.state_machine import Effect, LongDecision, TimerKey
from ottla.errors import ErrorCode
from ottla.groups.events import CommitOffsets
from ottla.groups.records import GroupRecord
from ottla.ids import GroupId, MemberId, TopicName


class GroupKind(StrEnum):
    """The type of a group, as ListGroups names it."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


class OffsetExpiry(NamedTuple):
    """Which offsets a group does not need, and since when (KIP-211)."""

    emptied_ms: int = -1
    """When the last member left; -1: not known, so that the age of each commit counts."""
    subscribed: frozenset[TopicName] = frozenset()
    """Topics that members read: offsets in them stay."""


class Group(Protocol):
    """A group of any kind. What only one kind can be asked is asked by the part of the machine that owns the kind."""

    @property
    def group_id(self) -> GroupId: ...

    @property
    def kind(self) -> GroupKind: ...

    @property
    def state_name(self) -> str:
        """As clients see it: "Stable"."""
        ...

    @property
    def protocol_type(self) -> str | None:
        """ "consumer", "share", or the name that classic members use; None if unknown."""
        ...

    @property
    def is_empty(self) -> bool:
        """It has no members, and may be deleted."""
        ...

    @property
    def may_expire(self) -> bool:
        """It goes when its last offset has expired."""
        ...

    def commit_refusal(self, commit: CommitOffsets) -> ErrorCode:
        """Why this sender may not commit offsets now, or NONE. `commit.generation`: or the member epoch; -1 if none.

        A producer that commits for the members is fenced by the member data it sends, if any (KIP-447), and
        rebalances do not concern it.
        """
        ...

    def fetch_refusal(self, member_id: MemberId | None, epoch: int) -> ErrorCode:
        """Why this sender may not read offsets; GROUP_ID_NOT_FOUND: a group that has none to read."""
        ...

    def delete_offsets_refusal(self) -> ErrorCode:
        """Why no offsets at all may be deleted now, or NONE."""
        ...

    def is_subscribed_to(self, topic: TopicName) -> bool:
        """Does a member read the topic? In doubt, yes."""
        ...

    def keep_alive(self, member_id: MemberId) -> list[Effect]:
        """A member has committed offsets: is that as good as a heartbeat?"""
        ...

    def offset_expiry(self) -> OffsetExpiry | None:
        """How its offsets expire; None: not at all."""
        ...

    def tombstones(self) -> tuple[GroupRecord, ...]:
        """Take everything of the group out of the log, but its offsets."""
        ...

    def topics_changed(self, names: frozenset[TopicName]) -> None:
        """These topics have been made, have grown or are gone."""
        ...


Groups: TypeAlias = dict[GroupId, Group]
"""All groups of one machine, of all kinds; shared by the parts of the machine."""

EventHandlers: TypeAlias = Mapping[type, Callable[[Any, int], list[Effect]]]
"""Class of an event -> what decides about it, given the event and the time in ms."""

TimerHandlers: TypeAlias = Mapping[str, Callable[[TimerKey, int], list[Effect]]]
"""First word of a timer's key -> what decides when it fires, given the key and the time in ms."""

Replays: TypeAlias = Mapping[type, Callable[[Any, int, int], None]]
"""Class of a record -> what puts it into force, given record, position in the log and producer id."""


class Part(Protocol):
    """What the machine is made of: each part owns some events, timers and records, and no two the same."""

    @property
    def events(self) -> EventHandlers: ...

    @property
    def timers(self) -> TimerHandlers: ...

    @property
    def replays(self) -> Replays: ...

    def loaded(self, now_ms: int) -> LongDecision:
        """The log has been read: the timers that the part's groups need."""
        ...


def left_of_interval_ms(computed_ms: int, interval_ms: int, now_ms: int) -> int:
    """How long an assignment that was computed then still stands; 0 as well if the clock has been set back."""
    return max(computed_ms + interval_ms - now_ms, 0) if 0 < computed_ms <= now_ms else 0
