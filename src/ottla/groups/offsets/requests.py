"""The part of the machine that owns committed offsets, whatever the kind of their group. PURE.

Sources: the protocol guide; KIP-211 (expiry), KIP-496 (deletion), KIP-848 (members with epochs).
"""

import logging
from collections.abc import Callable
from types import MappingProxyType
from typing import Final

from ottla.coordination.state_machine import Append, Effect, LongDecision, Reply, SetTimer, TimerKey
from ottla.errors import ErrorCode
from ottla.groups.config import GroupConfig
from ottla.groups.events import (
    CommitOffsets,
    DeleteOffsets,
    FetchOffsets,
    ForgetTopics,
    OffsetsCommitted,
    OffsetsDeleted,
    OffsetsFetched,
)
from ottla.groups.kinds import EventHandlers, Group, Groups, Replays, TimerHandlers
from ottla.groups.offsets.committed import OffsetStore
from ottla.groups.offsets.records import OffsetCommitted, OffsetDeleted
from ottla.groups.records import GroupRecord
from ottla.ids import GroupId, TopicName

log = logging.getLogger(__name__)

EXPIRY: Final = "expire-offsets"

OFFSETS_IN_A_TURN: Final = 5_000
DELETIONS_IN_A_TURN: Final = 500
"""How many offsets are looked at, and deleted with their topics, in one turn of the event loop: a few milliseconds."""


class OffsetRequests:
    """OffsetCommit, OffsetFetch, OffsetDelete, expiry; records with keys 0 and 1."""

    def __init__(
        self, groups: Groups, offsets: OffsetStore, config: GroupConfig, ensure_named: Callable[[GroupId], None]
    ) -> None:
        """`ensure_named` makes a group of this id, unless there is one."""
        self._groups = groups
        self._offsets = offsets
        self._config = config
        self._ensure_named = ensure_named
        self._to_expire: list[GroupId] = []
        """The groups that the expiry under way still has to look at, the next one last."""
        self.events: Final[EventHandlers] = MappingProxyType(
            {
                CommitOffsets: self._commit,
                FetchOffsets: self._fetch,
                DeleteOffsets: self._delete,
                ForgetTopics: self._forget_topics,
            }
        )
        self.timers: Final[TimerHandlers] = MappingProxyType({EXPIRY: self._expiry_is_due})
        self.replays: Final[Replays] = MappingProxyType(
            {OffsetCommitted: self._replay_commit, OffsetDeleted: self._replay_deletion}
        )

    # --- commit, fetch, delete ---

    def _commit(self, event: CommitOffsets, now_ms: int) -> list[Effect]:
        group = self._groups.get(event.group_id)
        transactional = event.producer is not None
        error = ErrorCode.NONE
        effects: list[Effect] = []
        if group is not None:
            error = group.commit_refusal(event)
            if not error and not transactional:
                effects += group.keep_alive(event.member_id)
        elif event.generation >= 0:
            knows_better = event.knows_member_epochs and not transactional
            error = ErrorCode.GROUP_ID_NOT_FOUND if knows_better else ErrorCode.ILLEGAL_GENERATION
        if error:
            return [Reply(event, OffsetsCommitted((error,) * len(event.offsets)))]
        expire_ms = now_ms + event.retention_ms if event.retention_ms >= 0 else -1
        errors: list[ErrorCode] = []
        records: list[GroupRecord] = []
        for requested in event.offsets:
            if len(requested.metadata) > self._config.offset_metadata_max_bytes:
                errors.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
                continue
            errors.append(ErrorCode.NONE)
            records.append(
                OffsetCommitted(
                    event.group_id,
                    requested.topic,
                    requested.partition,
                    requested.offset,
                    requested.leader_epoch,
                    requested.metadata,
                    now_ms,
                    expire_ms,
                    requested.topic_id,
                )
            )
        if records:
            effects.append(Append(tuple(records), event.producer))
        effects.append(Reply(event, OffsetsCommitted(tuple(errors))))
        return effects

    def _fetch(self, event: FetchOffsets, now_ms: int) -> list[Effect]:
        group = self._groups.get(event.group_id)
        error = ErrorCode.NONE if group is None else group.fetch_refusal(event.member_id, event.member_epoch)
        if error is ErrorCode.NONE or error is ErrorCode.GROUP_ID_NOT_FOUND:
            # A group without offsets, of whatever kind, has committed none.
            return [Reply(event, OffsetsFetched(self._offsets.fetch(event)))]
        return [Reply(event, OffsetsFetched((), error))]

    def _delete(self, event: DeleteOffsets, now_ms: int) -> list[Effect]:
        group = self._groups.get(event.group_id)
        error = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.delete_offsets_refusal()
        if group is None or error:
            return [Reply(event, OffsetsDeleted(error))]
        records: list[GroupRecord] = []
        results: list[tuple[TopicName, ErrorCode]] = []
        for topic in event.topics:
            if group.is_subscribed_to(topic.topic):
                results.append((topic.topic, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC))
                continue
            results.append((topic.topic, ErrorCode.NONE))
            records += self._offsets.deletions(event.group_id, topic)
        reply = Reply(event, OffsetsDeleted(ErrorCode.NONE, tuple(results)))
        return [Append(tuple(records)), reply] if records else [reply]

    def _forget_topics(self, event: ForgetTopics, now_ms: int) -> list[Effect]:
        group_ids = tuple(self._groups) if event.group_ids is None else event.group_ids
        records: list[GroupRecord] = []
        finished = looked_at = 0
        for group_id in group_ids:
            if looked_at >= OFFSETS_IN_A_TURN:
                break
            gone = self._offsets.in_topics(group_id, event.topics)
            room = DELETIONS_IN_A_TURN - len(records)
            records += (OffsetDeleted(group_id, at.topic, at.partition) for at in gone[:room])
            if len(gone) > room:
                break
            looked_at += 1 + len(self._offsets.of_group(group_id))
            finished += 1
        reply = Reply(event, group_ids[finished:])
        return [Append(tuple(records)), reply] if records else [reply]

    # --- expiry (KIP-211) ---

    def loaded(self, now_ms: int) -> LongDecision:
        yield self._next_expiry()

    def _next_expiry(self) -> SetTimer:
        return SetTimer((EXPIRY,), self._config.offsets_retention_check_interval_ms)

    def _expiry_is_due(self, key: TimerKey, now_ms: int) -> list[Effect]:
        if not self._to_expire:
            self._to_expire = list(reversed(self._groups))
        records = self._expire(now_ms)
        is_done = not self._to_expire
        next_turn = self._next_expiry() if is_done else SetTimer((EXPIRY,), 0)
        if not records:
            return [next_turn]
        log.info("%d expired offsets and groups", len(records))
        return [Append(tuple(records)), next_turn]

    def _expire(self, now_ms: int) -> list[GroupRecord]:
        """As many of the groups as one turn of the event loop has room for."""
        records: list[GroupRecord] = []
        looked_at = 0
        while self._to_expire and looked_at < OFFSETS_IN_A_TURN and len(records) < DELETIONS_IN_A_TURN:
            group = self._groups.get(self._to_expire[-1])
            if group is None:
                self._to_expire.pop()
                continue
            expired = self._expired(group, now_ms)
            room = DELETIONS_IN_A_TURN - len(records)
            records += expired[:room]
            if len(expired) > room:
                break
            self._to_expire.pop()
            offsets = self._offsets.of_group(group.group_id)
            looked_at += 1 + len(offsets)
            nothing_left = len(expired) == len(offsets)
            if nothing_left and group.may_expire and not self._offsets.has_open_transaction(group.group_id):
                records += group.tombstones()
        return records

    def _expired(self, group: Group, now_ms: int) -> list[GroupRecord]:
        """An offset goes when it has not been needed for the retention time: since the group emptied, or its commit."""
        offsets = self._offsets.of_group(group.group_id)
        expiry = group.offset_expiry() if offsets else None
        if expiry is None:
            return []
        return [
            OffsetDeleted(group.group_id, partition.topic, partition.partition)
            for partition, committed in offsets.items()
            if partition.topic not in expiry.subscribed
            and committed.is_expired(
                expiry.emptied_ms if expiry.emptied_ms >= 0 else committed.commit_timestamp_ms,
                now_ms,
                self._config.offsets_retention_ms,
            )
            and not self._offsets.is_pending(group.group_id, partition)
        ]

    # --- what lasts ---

    def _replay_commit(self, record: OffsetCommitted, position: int, producer_id: int) -> None:
        self._offsets.replay_commit(record, position, producer_id)
        self._ensure_named(record.group_id)

    def _replay_deletion(self, record: OffsetDeleted, position: int, producer_id: int) -> None:
        self._offsets.replay_deletion(record)
