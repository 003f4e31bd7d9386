"""All groups and offsets of one partition of `__consumer_offsets`. PURE.

The machine is made of parts, one for the offsets and one for each kind of group. Each part lists the events, timers
and records that it owns; the machine finds the part by the class of an event or record, and keeps what all kinds
have in common: listing and deleting.
"""

from collections.abc import Callable
from typing import Any

from ottla.coordination.machine import Append, Effect, Reply, TimerFired, TimerKey
from ottla.errors import ErrorCode
from ottla.groups.classic_groups import ClassicGroups
from ottla.groups.config import GroupConfig
from ottla.groups.events import DeleteGroups, GroupEvent, GroupListing, ListGroups
from ottla.groups.kinds import Groups, Part
from ottla.groups.offset_records import OffsetDeleted
from ottla.groups.offset_requests import OffsetRequests
from ottla.groups.offsets import OffsetStore
from ottla.groups.records import GroupRecord, GroupRecordFormat


class GroupMachine:
    """A `ottla.coordination.machine.Machine` of `GroupEvent` and `GroupRecord`."""

    def __init__(self, config: GroupConfig, new_uuid: Callable[[], str]) -> None:
        self.records = GroupRecordFormat()
        self.groups: Groups = {}
        self.offsets = OffsetStore()
        classic = ClassicGroups(self.groups, self.offsets, config, new_uuid)
        self._offset_requests = OffsetRequests(self.groups, self.offsets, config, classic.ensure_named)
        parts: tuple[Part, ...] = (classic, self._offset_requests)
        self._events: dict[type, Callable[[Any, int], list[Effect]]] = {
            TimerFired: self._timer_fired,
            ListGroups: self._list,
            DeleteGroups: self._delete,
        }
        self._timers: dict[str, Callable[[TimerKey, int], list[Effect]]] = {}
        self._replays: dict[type, Callable[[Any, int, int], None]] = {}
        for part in parts:
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
        return [Reply(event.token, listings)]

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
        reply = Reply(event.token, tuple(errors))
        return [Append(tuple(records)), reply] if records else [reply]

    # --- what lasts ---

    def replay(self, record: GroupRecord, position: int, producer_id: int) -> None:
        self._replays[type(record)](record, position, producer_id)

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        self.offsets.end_transaction(producer_id, committed=committed)

    def loaded(self, now_ms: int) -> list[Effect]:
        effects: list[Effect] = [self._offset_requests.next_expiry()]
        for group in self.groups.values():
            effects += group.loaded(now_ms)
        return effects
