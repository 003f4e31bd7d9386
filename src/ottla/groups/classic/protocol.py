"""A group of the classic protocol: members join, the leader divides the work, all receive their assignment. PURE.

Volatile state (joined and missing members) lives in memory. Durable state is one `GroupMetadata` record, written when
a rebalance ends: `replay` puts it into force, on this broker and
on any other.

The broker does not know the divided resources. It selects an assignor that all members support, sends
the leader all subscriptions, and sends every member the leader's assignment; eager and cooperative rebalancing
(KIP-429) differ in these bytes alone.

Sources: the protocol guide's group membership API; KIP-62 (two timeouts), KIP-134 (initial delay), KIP-345 (static
members), KIP-394 (member ids first), KIP-389 (maximal size), KIP-814 (leaders that need not assign).
"""

import logging
from collections.abc import Callable
from typing import Final

from ottla.coordination.state_machine import (
    Append,
    CancelTimer,
    Effect,
    IllegalTransition,
    Reply,
    SetTimer,
    TimerKey,
)
from ottla.errors import ErrorCode
from ottla.groups.classic.group import ClassicState
from ottla.groups.classic.members import Member, Roster
from ottla.groups.classic.records import GroupMetadata
from ottla.groups.classic.states import REPLAYED, GroupState
from ottla.groups.config import GroupConfig
from ottla.groups.events import (
    NO_MEMBER,
    Heartbeat,
    Join,
    Joined,
    Leave,
    LeavingMember,
    Left,
    Sync,
    Synced,
)
from ottla.groups.history import History, with_reason
from ottla.ids import GroupId, MemberId

log = logging.getLogger(__name__)

EMPTY: Final = GroupState.EMPTY
PREPARING: Final = GroupState.PREPARING_REBALANCE
COMPLETING: Final = GroupState.COMPLETING_REBALANCE
STABLE: Final = GroupState.STABLE

SESSION: Final = "session"
REBALANCE: Final = "rebalance"
SYNC: Final = "sync"

DOWNGRADE: Final = "the group has become a classic one"

MIN_REBALANCE_TIMEOUT_MS: Final = 1_000
"""Members may allow no time at all for a rebalance; the wait for missing members lasts at least this long."""

CROWD_TIMEOUT_MS: Final = 500
"""The longest that a group's first rebalance waits, beyond the initial delay, while members keep coming."""
CROWD_PAUSE_MS: Final = 50
"""Members that start together come in shorter intervals."""
CROWD_POLL_MS: Final = 10


class ClassicGroup(ClassicState):
    """One group. Methods named for an event decide and give effects; `replay` applies."""

    def __init__(
        self, group_id: GroupId, config: GroupConfig, new_uuid: Callable[[], str], history: History | None = None
    ) -> None:
        super().__init__(group_id, config, history)
        self._new_uuid = new_uuid
        self._yet_to_sync: set[MemberId] = set()
        self._gathers_until_ms: int | None = None
        """Set while the group's first rebalance waits for more members: the end of that wait."""
        self._last_came_ms = 0
        self._crowds_until_ms = 0
        """Until when the group's first rebalance waits while members keep coming."""

    # --- JoinGroup ---

    def join(self, event: Join, now_ms: int) -> list[Effect]:
        if not self._has_room_for(event.member_id):
            effects: list[Effect] = self._drop(event.member_id)
            effects.append(_refuse_join(event, ErrorCode.GROUP_MAX_SIZE_REACHED, member_id=NO_MEMBER))
            return effects + self._complete_join_if_all_are_here(now_ms)
        if not self._is_compatible(event):
            return [_refuse_join(event, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)]
        if event.member_id == NO_MEMBER:
            return self._join_new(event, now_ms)
        if event.member_id in self.pending:
            if event.instance_id is not None:  # ids are given out to dynamic members only
                return [_refuse_join(event, ErrorCode.UNKNOWN_MEMBER_ID)]
            return self._add(event, event.member_id, now_ms)
        error = self.refusal(event.member_id, event.instance_id)
        if error:
            return [_refuse_join(event, error)]
        return self._rejoin(event, self.members[event.member_id], now_ms)

    def _has_room_for(self, member_id: MemberId) -> bool:
        if self.state is EMPTY:
            return True
        member = self.members.get(member_id)
        if self.state is PREPARING:
            # Members that have joined are counted, so that a group grown too large sheds the last to rejoin.
            already_in = member is not None and member.parked_join is not None
            return already_in or self.members.joining < self._config.group_max_size
        return member is not None or len(self.members) < self._config.group_max_size

    def _is_compatible(self, event: Join) -> bool:
        if not event.protocol_type or not event.protocols:
            return False
        if self.state is EMPTY:
            return True
        return event.protocol_type == self.protocol_type and self.members.supports_any(event.protocols)

    def _join_new(self, event: Join, now_ms: int) -> list[Effect]:
        prefix = event.client_id if event.instance_id is None else event.instance_id
        new_id = MemberId(f"{prefix}-{self._new_uuid()}")
        if event.instance_id is not None:
            old_id = self.members.static_member(event.instance_id)
            if old_id is not None:
                return self._replace_static(event, old_id, new_id, now_ms)
        elif event.requires_member_id:
            self.pending.add(new_id)
            return [
                SetTimer(self._session_timer(new_id), event.session_timeout_ms),
                _refuse_join(event, ErrorCode.MEMBER_ID_REQUIRED, member_id=new_id),
            ]
        return self._add(event, new_id, now_ms)

    def _add(self, event: Join, member_id: MemberId, now_ms: int) -> list[Effect]:
        if self.state is EMPTY:
            self.protocol_type = event.protocol_type
        elif self.state is PREPARING and self._gathers_until_ms is not None:
            self._last_came_ms = now_ms
        self.pending.discard(member_id)
        member = Member(
            member_id,
            event.instance_id,
            event.client_id,
            event.client_host,
            event.session_timeout_ms,
            event.rebalance_timeout_ms,
            event.protocols,
        )
        member.is_new = True
        member.parked_join = event
        self.members.add(member)
        # Its JoinGroup is parked and it has no id to send heartbeats under. A client that gave up and tried again
        # would leave a ghost behind each time: so even a parked one is dropped in the end.
        timeout_ms = self._config.new_member_join_timeout_ms
        effects: list[Effect] = [SetTimer(self._session_timer(member_id), timeout_ms)]
        return effects + self._rebalance_or_complete_join(now_ms, with_reason(f"{member_id} joins", event.reason))

    def _rejoin(self, event: Join, member: Member, now_ms: int) -> list[Effect]:
        if self.state is EMPTY:
            return [_refuse_join(event, ErrorCode.UNKNOWN_MEMBER_ID)]
        unchanged = event.protocols == member.protocols
        is_leader = member.member_id == self.members.leader
        # The leader may ask for a rebalance when nothing in the group has changed: a topic may have grown.
        if unchanged and (self.state is COMPLETING or (self.state is STABLE and not is_leader)):
            return [Reply(event, self._joined(member))]
        effects = self._update(event, member)
        return effects + self._rebalance_or_complete_join(
            now_ms, with_reason(f"{member.member_id} joins again", event.reason)
        )

    def _update(self, event: Join, member: Member) -> list[Effect]:
        self.members.change_protocols(member, event.protocols)
        member.session_timeout_ms = event.session_timeout_ms
        member.rebalance_timeout_ms = event.rebalance_timeout_ms
        superseded = self.members.park_join(member, event)
        if superseded is None:
            return []
        return [Reply(superseded, Joined(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))]

    def _replace_static(self, event: Join, old_id: MemberId, new_id: MemberId, now_ms: int) -> list[Effect]:
        """A process was restarted under the same instance id. The holder of the old member id is fenced."""
        old_leader = self.members.leader
        member = self.members[old_id]
        effects = self._answer_parked(member, ErrorCode.FENCED_INSTANCE_ID)
        effects.append(CancelTimer(self._session_timer(old_id)))
        self.members.rename(old_id, new_id)
        self._yet_to_sync.discard(old_id)
        effects += self._update(event, member)
        effects.append(self._expect_heartbeat(member))
        if self.state is COMPLETING:
            # The leader may be dividing the work for the old id at this moment.
            return effects + self._prepare_rebalance(now_ms, f"instance {event.instance_id} is back as {new_id}")
        if self.state is PREPARING:
            return effects + self._complete_join_if_all_are_here(now_ms)
        if self.members.select_protocol() != self.protocol_name:
            reason = f"instance {event.instance_id} is back as {new_id} with other protocols"
            return effects + self._prepare_rebalance(now_ms, reason)
        # The assignment stands: the new id takes the place of the old one, without a rebalance.
        log.info("group %s: instance %s is back as %s", self.group_id, event.instance_id, new_id)
        self.members.unpark_join(member)
        effects.append(Append((self.as_record(now_ms),)))
        if event.may_skip_assignment:
            leads = self.members.leader == new_id
            effects.append(Reply(event, self._joined(member, skip_assignment=leads)))
        else:
            # An older client that finds itself leading would assign anew: its reply names its former member id as
            # leader.
            reply = Joined(
                ErrorCode.NONE,
                new_id,
                self.generation,
                self.protocol_type,
                self.protocol_name,
                old_leader if old_leader is not None else NO_MEMBER,
            )
            effects.append(Reply(event, reply))
        return effects

    # --- the rebalance ---

    def _rebalance_or_complete_join(self, now_ms: int, reason: str) -> list[Effect]:
        if self.state is PREPARING:
            self.history.because(reason)
            return self._complete_join_if_all_are_here(now_ms)
        return self._prepare_rebalance(now_ms, reason)

    def _prepare_rebalance(self, now_ms: int, reason: str) -> list[Effect]:
        log.info("group %s: rebalance after generation %d (%s)", self.group_id, self.generation, reason)
        self.history.because(reason)
        effects: list[Effect] = []
        for member in self.members.values():
            if self.state is COMPLETING:
                member.assignment = b""
            sync, member.parked_sync = member.parked_sync, None
            if sync is not None:
                effects.append(Reply(sync, Synced(ErrorCode.REBALANCE_IN_PROGRESS)))
                effects.append(self._expect_heartbeat(member))
        if self._yet_to_sync:
            self._yet_to_sync.clear()
            effects.append(CancelTimer((SYNC, self.group_id)))
        is_first = self.state is EMPTY
        self._move(PREPARING)
        if is_first:
            delay_ms = self._config.group_initial_rebalance_delay_ms
            self._gathers_until_ms = now_ms + max(self.members.rebalance_timeout_ms, delay_ms)
            self._last_came_ms = now_ms
            self._crowds_until_ms = now_ms + delay_ms + CROWD_TIMEOUT_MS
            effects.append(SetTimer((REBALANCE, self.group_id), delay_ms))
            return effects
        self._gathers_until_ms = None
        if self._all_are_here:
            return effects + self._complete_join(now_ms)
        effects.append(SetTimer((REBALANCE, self.group_id), self.members.rebalance_timeout_ms))
        return effects

    def downgrade_timer_fired(self, now_ms: int) -> list[Effect]:
        """The group has just become a classic one: its members divide the work themselves from now on."""
        return self._prepare_rebalance(now_ms, DOWNGRADE) if self.state is STABLE else []

    @property
    def _all_are_here(self) -> bool:
        return self.members.joining == len(self.members) and not self.pending

    def _complete_join_if_all_are_here(self, now_ms: int) -> list[Effect]:
        if self.state is not PREPARING or self._gathers_until_ms is not None or not self._all_are_here:
            return []
        return self._complete_join(now_ms)

    def rebalance_timer_fired(self, now_ms: int) -> list[Effect]:
        """The time to join is over; the first rebalance of a group takes more of it while members keep coming.

        It ends when no member has joined for as long as the initial delay. Kafka repeats the whole delay as
        long as a member joined during the last one: up to twice as long for the same members (KIP-134).

        Without a delay, a lone member gets its group at once. Of a crowd that starts together, the first rebalance
        waits for members that follow each other closely, and for those that were just given an id and join with it in a
        moment (KIP-394): otherwise the next rebalance would wait for heartbeats of those that were in, 3 s mostly.
        """
        if self.state is not PREPARING:
            return []
        if self._gathers_until_ms is not None:
            delay_ms = self._config.group_initial_rebalance_delay_ms
            left_ms = min(self._last_came_ms + delay_ms, self._gathers_until_ms) - now_ms
            if 0 < left_ms <= delay_ms:  # more than that is left only when the clock was set back
                return [SetTimer((REBALANCE, self.group_id), left_ms)]
            if self._is_crowd(now_ms) and 0 < self._crowds_until_ms - now_ms <= delay_ms + CROWD_TIMEOUT_MS:
                return [SetTimer((REBALANCE, self.group_id), CROWD_POLL_MS)]
        return self._complete_join(now_ms)

    def _is_crowd(self, now_ms: int) -> bool:
        """Whether more members are about to come."""
        return bool(self.pending) or (len(self.members) > 1 and 0 <= now_ms - self._last_came_ms < CROWD_PAUSE_MS)

    def _complete_join(self, now_ms: int) -> list[Effect]:
        effects: list[Effect] = [CancelTimer((REBALANCE, self.group_id))]
        late = [m for m in self.members.values() if m.parked_join is None and not m.is_static]
        for member in late:
            log.info("group %s: %s has not joined in time", self.group_id, member.member_id)
            self.history.because(f"{member.member_id} has not joined in time")
            effects += self._drop(member.member_id)
        if self.members and not self.members.elect_joined_leader():
            # Static members only, none of them back yet: wait until they are, or their sessions end.
            timeout_ms = max(self.members.rebalance_timeout_ms, MIN_REBALANCE_TIMEOUT_MS)
            effects.append(SetTimer((REBALANCE, self.group_id), timeout_ms))
            return effects
        self._gathers_until_ms = None
        self.generation += 1
        if not self.members:
            self.protocol_name = None
            log.debug("group %s: empty at generation %d", self.group_id, self.generation)
            self._remember(now_ms, {})
            effects.append(Append((self.as_record(now_ms),)))
            return effects
        self.protocol_name = self.members.select_protocol()
        self._move(COMPLETING)
        self._yet_to_sync = set(self.members)
        log.debug("group %s: generation %d, members %d", self.group_id, self.generation, len(self.members))
        for member in self.members.values():
            join = self.members.unpark_join(member)
            member.is_new = False
            if join is not None:
                effects.append(Reply(join, self._joined(member)))
            effects.append(self._expect_heartbeat(member))
        effects.append(SetTimer((SYNC, self.group_id), self.members.rebalance_timeout_ms))
        return effects

    # --- SyncGroup ---

    def sync(self, event: Sync, now_ms: int) -> list[Effect]:
        error = self._sync_refusal(event)
        if error:
            return [Reply(event, Synced(error))]
        member = self.members[event.member_id]
        effects: list[Effect] = []
        self._yet_to_sync.discard(event.member_id)
        if not self._yet_to_sync:
            effects.append(CancelTimer((SYNC, self.group_id)))
        if self.state is STABLE:
            effects.append(Reply(event, self._synced(member.assignment)))
            return effects
        if member.parked_sync is not None:
            effects.append(Reply(member.parked_sync, Synced(ErrorCode.REBALANCE_IN_PROGRESS)))
        member.parked_sync = event
        if event.member_id != self.members.leader:
            return effects
        assignments = event.assignments or {}
        record = self.as_record(now_ms, lambda m: assignments.get(m.member_id, b""))
        if record.approximate_size_bytes > self._config.max_record_bytes:
            return effects + self._give_up_sync(now_ms, record.approximate_size_bytes)
        self._remember(now_ms, assignments)
        effects.append(Append((record,)))
        for other in self.members.values():
            sync, other.parked_sync = other.parked_sync, None
            if sync is not None:
                effects.append(Reply(sync, self._synced(assignments.get(other.member_id, b""))))
                # A session that ended while the member was parked here has been passed over.
                effects.append(self._expect_heartbeat(other))
        return effects

    def _give_up_sync(self, now_ms: int, size_bytes: int) -> list[Effect]:
        log.error(
            "group %s: members and assignments take %d bytes, a record of __consumer_offsets at most %d",
            self.group_id,
            size_bytes,
            self._config.max_record_bytes,
        )
        effects: list[Effect] = []
        for member in self.members.values():
            sync, member.parked_sync = member.parked_sync, None
            if sync is not None:
                effects += [Reply(sync, Synced(ErrorCode.UNKNOWN_SERVER_ERROR)), self._expect_heartbeat(member)]
        return effects + self._prepare_rebalance(now_ms, "the assignments do not fit a record")

    def _sync_refusal(self, event: Sync) -> ErrorCode:
        error = self.refusal(event.member_id, event.instance_id)
        if error:
            return error
        if event.generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if event.protocol_type not in (None, self.protocol_type):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if event.protocol_name is not None and self.protocol_name not in (None, event.protocol_name):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is PREPARING else ErrorCode.NONE

    def sync_timer_fired(self, now_ms: int) -> list[Effect]:
        """Members that have joined must sync within the rebalance timeout too, or be dropped."""
        if self.state not in (COMPLETING, STABLE) or not self._yet_to_sync:
            return []
        late = sorted(self._yet_to_sync)
        effects: list[Effect] = []
        for member_id in late:
            effects += self._drop(member_id)
        return effects + self._prepare_rebalance(now_ms, f"no SyncGroup from {', '.join(late)}")

    # --- Heartbeat, sessions, LeaveGroup ---

    def heartbeat(self, event: Heartbeat) -> list[Effect]:
        error = self.refusal(event.member_id, event.instance_id)
        if not error and event.generation != self.generation:
            error = ErrorCode.ILLEGAL_GENERATION
        if error:
            return [Reply(event, error)]
        if self.state is PREPARING:
            error = ErrorCode.REBALANCE_IN_PROGRESS
        return [self._expect_heartbeat(self.members[event.member_id]), Reply(event, error)]

    def keep_alive(self, member_id: MemberId) -> list[Effect]:
        """An offset commit is as good as a heartbeat."""
        member = self.members.get(member_id)
        if member is None or self.state not in (STABLE, PREPARING):
            return []
        return [self._expect_heartbeat(member)]

    def session_timer_fired(self, member_id: MemberId, now_ms: int) -> list[Effect]:
        if member_id in self.pending:
            self.pending.discard(member_id)
            return self._complete_join_if_all_are_here_at_last(now_ms)
        member = self.members.get(member_id)
        if member is None:
            return []
        if not member.is_new and (member.parked_join is not None or member.parked_sync is not None):
            return []  # it waits for us, not we for it
        log.info("group %s: %s has failed, its session timed out", self.group_id, member_id)
        effects = self._drop(member_id)
        if self.state is PREPARING:
            return effects + self._complete_join_if_all_are_here_at_last(now_ms)
        return effects + self._prepare_rebalance(now_ms, f"{member_id} failed")

    def leave(self, event: Leave, now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        errors: list[ErrorCode] = []
        gone: list[str] = []
        for leaving in event.members:
            error, dropped = self._leave_one(leaving)
            errors.append(error)
            if error is ErrorCode.NONE:
                gone.append(leaving.member_id or leaving.instance_id or "")
            effects += dropped
        if gone:
            if self.state in (STABLE, COMPLETING):
                who = gone[0] if len(gone) == 1 else f"{gone[0]} and {len(gone) - 1} more"
                effects += self._prepare_rebalance(now_ms, f"{who} left")
            else:
                effects += self._complete_join_if_all_are_here(now_ms)
        effects.append(Reply(event, Left(tuple(errors))))
        return effects

    def _leave_one(self, leaving: LeavingMember) -> tuple[ErrorCode, list[Effect]]:
        member_id = leaving.member_id
        if member_id in self.pending:
            self.pending.discard(member_id)
            return ErrorCode.NONE, [CancelTimer(self._session_timer(member_id))]
        if member_id == NO_MEMBER:
            instance_id = leaving.instance_id
            current = self.members.static_member(instance_id) if instance_id is not None else None
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID, []
            member_id = current
        else:
            error = self.refusal(member_id, leaving.instance_id)
            if error:
                return error, []
        log.info("group %s: member gone: %s", self.group_id, with_reason(f"{member_id} leaves", leaving.reason))
        return ErrorCode.NONE, self._drop(member_id)

    def _complete_join_if_all_are_here_at_last(self, now_ms: int) -> list[Effect]:
        """A missing member is gone. Even a first rebalance may then have nothing left to wait for."""
        if self.state is PREPARING and self._all_are_here:
            return self._complete_join(now_ms)
        return []

    # --- what lasts ---

    def replay(self, record: GroupMetadata) -> None:
        """Put a finished rebalance into force: the members and their assignments, or an empty group."""
        target = STABLE if record.members else EMPTY
        if target not in REPLAYED[self.state]:
            raise IllegalTransition(
                f"group {self.group_id}: a record sets state {target}, which cannot follow {self.state}"
            )
        self.state = target
        self.record = record
        self.generation = record.generation
        self.protocol_type = record.protocol_type or None
        self.protocol_name = record.protocol
        self.members = Roster.of_record(record, self.members)

    def loaded(self, now_ms: int) -> list[Effect]:
        """Give every member a full session to contact the new coordinator."""
        effects: list[Effect] = [self._expect_heartbeat(member) for member in self.members.values()]
        if len(self.members) > self._config.group_max_size:
            effects += self._prepare_rebalance(now_ms, "more members than group.max.size")
        elif self.members and self.members.leader is None:
            # The previous coordinator was lost before the rebalance that was to follow.
            effects += self._prepare_rebalance(now_ms, DOWNGRADE)
        return effects

    # --- small things ---

    def _session_timer(self, member_id: MemberId) -> TimerKey:
        return (SESSION, self.group_id, member_id)

    def _expect_heartbeat(self, member: Member) -> SetTimer:
        return SetTimer(self._session_timer(member.member_id), member.session_timeout_ms)

    def _drop(self, member_id: MemberId) -> list[Effect]:
        member = self.members.remove(member_id)
        self._yet_to_sync.discard(member_id)
        if member is None:
            return []
        effects = _answer(member.parked_join, member.parked_sync, ErrorCode.UNKNOWN_MEMBER_ID, NO_MEMBER)
        effects.append(CancelTimer(self._session_timer(member_id)))
        return effects

    def _answer_parked(self, member: Member, error: ErrorCode) -> list[Effect]:
        sync, member.parked_sync = member.parked_sync, None
        return _answer(self.members.unpark_join(member), sync, error, member.member_id)

    def _joined(self, member: Member, *, skip_assignment: bool = False) -> Joined:
        leader = self.members.leader
        return Joined(
            ErrorCode.NONE,
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol_name,
            leader if leader is not None else NO_MEMBER,
            self.members.as_seen_by_leader(self.protocol_name) if member.member_id == leader else (),
            skip_assignment,
        )

    def _synced(self, assignment: bytes) -> Synced:
        return Synced(ErrorCode.NONE, self.protocol_type, self.protocol_name, assignment)


def _answer(join: Join | None, sync: Sync | None, error: ErrorCode, member_id: MemberId) -> list[Effect]:
    effects: list[Effect] = []
    if join is not None:
        effects.append(Reply(join, Joined(error, member_id)))
    if sync is not None:
        effects.append(Reply(sync, Synced(error)))
    return effects


def _refuse_join(event: Join, error: ErrorCode, member_id: MemberId | None = None) -> Reply[Joined]:
    return Reply(event, Joined(error, event.member_id if member_id is None else member_id))
