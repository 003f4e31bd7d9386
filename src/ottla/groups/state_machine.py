"""All groups and offsets of one partition of `__consumer_offsets`. PURE.

The machine is made of parts, one for the offsets and one for each kind of group. Each part lists the events, timers
and records that it owns; the machine finds the part by the class of an event or record, and keeps what all kinds
have in common: listing and deleting.
"""

from collections.abc import Callable
from typing import Any, Final

from ottla.coordination.state_machine import Append, Effect, LongDecision, Reply, TimerFired, TimerKey
from ottla.errors import ErrorCode
from ottla.groups.classic.groups import ClassicGroups
from ottla.groups.config import GroupConfig
from ottla.groups.consumer.classic_members import ClassicMembers
from ottla.groups.consumer.events import DescribeHistory, GroupHistory, TopicsChanged
from ottla.groups.consumer.groups import ConsumerGroups
from ottla.groups.consumer.leaving import Leaving
from ottla.groups.consumer.rebalance import Rebalancing
from ottla.groups.environment import GroupEnvironment
from ottla.groups.events import DeleteGroups, GroupEvent, GroupListing, ListGroups
from ottla.groups.history import Histories
from ottla.groups.kinds import Groups, Part
from ottla.groups.offsets.committed import OffsetStore
from ottla.groups.offsets.records import OffsetDeleted
from ottla.groups.offsets.requests import OffsetRequests
from ottla.groups.records import GroupRecord, GroupRecordFormat
from ottla.groups.share.groups import ShareGroups
from ottla.groups.share.offset_requests import ShareOffsetRequests
from ottla.groups.streams.groups import StreamsGroups

GROUPS_IN_A_TURN: Final = 500
"""How many groups are notified of changed topics in one turn of the event loop: large ones take some microseconds."""


class GroupMachine:
    """A `ottla.coordination.state_machine.StateMachine` of `GroupEvent` and `GroupRecord`."""

    is_compacted: Final = True

    def __init__(
        self, config: GroupConfig, new_uuid: Callable[[], str], environment: GroupEnvironment | None = None
    ) -> None:
        self.records = GroupRecordFormat()
        self.groups: Groups = {}
        self.offsets = OffsetStore()
        self._histories = Histories(self.groups)
        environment = environment or GroupEnvironment()
        rebalancing = Rebalancing(config, environment, self._histories)
        leaving = Leaving(config, environment, rebalancing, self._histories)
        classic_members = ClassicMembers(config, environment, rebalancing, leaving, new_uuid)
        classic = ClassicGroups(self.groups, self.offsets, self._histories, classic_members, config, new_uuid)
        consumer = ConsumerGroups(self.groups, config, environment, rebalancing, leaving, new_uuid, classic.forget)
        offset_requests = OffsetRequests(self.groups, self.offsets, config, classic.ensure_named)
        share = ShareGroups(self.groups, self._histories, config, environment)
        share_offsets = ShareOffsetRequests(self.groups, config, environment)
        streams = StreamsGroups(self.groups, self._histories, config, environment, classic.forget)
        self._parts: tuple[Part, ...] = (classic, consumer, offset_requests, share, share_offsets, streams)
        self._events: dict[type, Callable[[Any, int], list[Effect]]] = {
            TimerFired: self._timer_fired,
            ListGroups: self._list,
            DeleteGroups: self._delete,
            TopicsChanged: self._topics_changed,
            DescribeHistory: self._describe_history,
        }
        self._timers: dict[str, Callable[[TimerKey, int], list[Effect]]] = {}
        self._replays: dict[type, Callable[[Any, int, int], None]] = {}
        for part in self._parts:
            self._events.update(part.events)
            self._timers.update(part.timers)
            self._replays.update(part.replays)

    # --- deciding ---

    def handle(self, event: GroupEvent | TimerFired, now_ms: int) -> list[Effect]:
        return self._events[type(event)](event, now_ms)

    def _timer_fired(self, event: TimerFired, now_ms: int) -> list[Effect]:
        return self._timers[event.key[0]](event.key, now_ms)

    def _list(self, event: ListGroups, now_ms: int) -> list[Effect]:
        listings = tuple(
            GroupListing(group.group_id, group.protocol_type or "", group.state_name, group.kind)
            for group in self.groups.values()
            if (not event.states or group.state_name.lower() in event.states)
            and (not event.kinds or group.kind in event.kinds)
        )
        return [Reply(event, listings)]

    def _delete(self, event: DeleteGroups, now_ms: int) -> list[Effect]:
        records: list[GroupRecord] = []
        errors: list[ErrorCode] = []
        for group_id in event.group_ids:
            group = self.groups.get(group_id)
            if group is None:
                errors.append(ErrorCode.GROUP_ID_NOT_FOUND)
            elif not group.is_empty:
                errors.append(ErrorCode.NON_EMPTY_GROUP)
            else:
                errors.append(ErrorCode.NONE)
                records += [
                    OffsetDeleted(group_id, partition.topic, partition.partition)
                    for partition in self.offsets.known_partitions(group_id)
                ]
                records += group.tombstones()
                self._histories.forget(group_id)
        reply = Reply(event, tuple(errors))
        return [Append(tuple(records)), reply] if records else [reply]

    def _topics_changed(self, event: TopicsChanged, now_ms: int) -> list[Effect]:
        group_ids = tuple(self.groups) if event.group_ids is None else event.group_ids
        for group_id in group_ids[:GROUPS_IN_A_TURN]:
            group = self.groups.get(group_id)
            if group is not None:
                group.topics_changed(event.names)
        return [Reply(event, group_ids[GROUPS_IN_A_TURN:])]

    def _describe_history(self, event: DescribeHistory, now_ms: int) -> list[Effect]:
        if event.group_id not in self.groups:
            return [Reply(event, GroupHistory(ErrorCode.GROUP_ID_NOT_FOUND))]
        rebalances = self._histories.of(event.group_id).rebalances()
        return [Reply(event, GroupHistory(ErrorCode.NONE, rebalances))]

    # --- what lasts ---

    def replay(self, record: GroupRecord, position: int, producer_id: int) -> None:
        self._replays[type(record)](record, position, producer_id)

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        self.offsets.end_transaction(producer_id, committed=committed)

    def loaded(self, now_ms: int) -> LongDecision:
        for part in self._parts:
            yield from part.loaded(now_ms)
