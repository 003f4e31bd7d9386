"""The part of the machine that owns streams groups: heartbeats, tasks, members that go. PURE.

What a heartbeat leads to, in this order and each only if needed: the member's description is written, the topology is
written by the first member, it is held against the topics, the group's epoch moves, the tasks are assigned for it, and
the member goes one step towards its part.

Source: KIP-1071, as Kafka 4.3 does it: no static members, no topologies that change, no warm-up tasks yet. Other than
in Kafka, members come back sooner while tasks move or topics are being created (ADR 10).
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from ottla.coordination.state_machine import (
    Append,
    CancelTimer,
    Effect,
    IllegalTransition,
    LongDecision,
    Reply,
    SetTimer,
    TimerKey,
)
from ottla.errors import ApiError, ErrorCode
from ottla.groups.classic.protocol import ClassicGroup
from ottla.groups.config import GroupConfig
from ottla.groups.consumer.migration import dissolved
from ottla.groups.environment import GroupEnvironment
from ottla.groups.history import KEPT_MOVES, AssignmentByName, Histories, Move, Rebalance, moves_between
from ottla.groups.kinds import EventHandlers, Groups, Replays, TimerHandlers
from ottla.groups.records import GroupRecord
from ottla.groups.streams.assignor import STICKY, Candidate, SubtopologyTasks, assign
from ottla.groups.streams.configured import ConfiguredTopology, Status, StatusCode, configure
from ottla.groups.streams.description import description
from ottla.groups.streams.events import (
    JOINING,
    LEAVING,
    LEAVING_FOR_A_WHILE,
    DescribeStreamsGroups,
    EndpointPartitions,
    EndpointTopic,
    StreamsBeat,
    StreamsHeartbeat,
)
from ottla.groups.streams.group import STREAMS_PROTOCOL, StreamsGroup, made_by_a_deletion
from ottla.groups.streams.members import NO_TIMEOUT, MemberState, StreamsMember, reconciled
from ottla.groups.streams.records import ENCODERS as STREAMS_RECORDS
from ottla.groups.streams.records import (
    StreamsAssignment,
    StreamsGroupDeleted,
    StreamsGroupEpoch,
    StreamsMemberMetadata,
    StreamsRecord,
    StreamsTarget,
    StreamsTargetEpoch,
    StreamsTopology,
)
from ottla.groups.streams.refusals import (
    DELAYED_AT_FIRST,
    DELAYED_BY_INTERVAL,
    not_a_streams_group,
    refuse_epoch,
    refuse_unknown_tasks,
    shutdown,
    stale_topology,
    unknown_member,
)
from ottla.groups.streams.tasks import NOTHING, Tasks, TaskSets
from ottla.groups.streams.topology import Topology
from ottla.groups.topic_hash import TopicHashes
from ottla.groups.topics import TopicsView
from ottla.ids import GroupId, MemberId, TopicName

log = logging.getLogger(__name__)

SESSION: Final = "streams-session"
REBALANCE: Final = "streams-rebalance"
FIRST_ASSIGNMENT: Final = "streams-first-assignment"

FAST_HEARTBEATS_MS: Final = 10_000
"""For how long after its epoch has moved a group's members are asked to come back sooner."""
HURRY_LEAST_MS: Final = 100
HURRY_MS_PER_MEMBER: Final = 5
"""How soon members are asked to come back while tasks move: together, some 200 times a second."""

STANDBY_REPLICAS: Final = "num.standby.replicas"


class StreamsGroups:
    """StreamsGroupHeartbeat and StreamsGroupDescribe; records with keys 17 to 23."""

    def __init__(
        self,
        groups: Groups,
        histories: Histories,
        config: GroupConfig,
        environment: GroupEnvironment,
        forget: Callable[[GroupId], None],
    ) -> None:
        """`forget` lets go of a group that the log no longer knows."""
        self._groups = groups
        self._histories = histories
        self._config = config
        self._environment = environment
        self._forget = forget
        self._hashes = TopicHashes()
        self.events: Final[EventHandlers] = MappingProxyType(
            {StreamsHeartbeat: self._heartbeat, DescribeStreamsGroups: self._describe}
        )
        self.timers: Final[TimerHandlers] = MappingProxyType(
            {
                SESSION: self._session_ended,
                REBALANCE: self._revocation_is_overdue,
                FIRST_ASSIGNMENT: self._first_assignment_is_due,
            }
        )
        self.replays: Final[Replays] = MappingProxyType(
            {**dict.fromkeys(STREAMS_RECORDS, self._replay), StreamsGroupDeleted: self._replay_deletion}
        )

    # --- StreamsGroupHeartbeat ---

    def _heartbeat(self, event: StreamsHeartbeat, now_ms: int) -> list[Effect]:
        try:
            if event.member_epoch in (LEAVING, LEAVING_FOR_A_WHILE):
                return self._leave(event, now_ms)
            return self._move_on(event, now_ms)
        except ApiError as refused:
            return [Reply(event, StreamsBeat(refused.code, str(refused)))]

    def _move_on(self, event: StreamsHeartbeat, now_ms: int) -> list[Effect]:
        """Raises `ApiError`."""
        records: list[GroupRecord] = []
        timers: list[Effect] = []
        group = self._group_for(event, records, timers)
        is_new = self._groups.get(event.group_id) is not group
        before = self._member_for(event, group)
        member = _as_described(before, event)
        reasons: list[str] = []
        if member != before:
            records.append(_metadata_record(group.group_id, member))
            known = before.member_id in group.members
            reasons.append(f"{member.member_id} {'describes itself anew' if known else 'joins'}")
        topology = self._topology_for(event, group, records)
        configured, metadata_hash = self._configured(group, topology, reasons)
        if configured.is_ready:
            refuse_unknown_tasks(configured, event.owned)

        statuses: list[Status] = []
        if member.topology_epoch < topology.epoch:
            statuses.append(stale_topology(member, topology))
        epoch = self._next_epoch(group, configured, metadata_hash, reasons, records, now_ms)
        if group.is_empty:
            timers += self._delay_first_assignment(group)
        target_epoch, target = self._target(group, epoch, member, configured, records, statuses, now_ms)
        member = self._reconcile(group, member, target_epoch, target, event.owned, records, timers)

        # Nothing is refused from here on.
        self._groups[event.group_id] = group
        group.configured = configured
        group.needs_refresh = False
        if event.shutdown and group.shutdown_requested_by is None:
            log.info("streams group %s: %s asks the whole application to stop", group.group_id, member.member_id)
            group.shutdown_requested_by = member.member_id
        is_changed = event.member_epoch == JOINING or member.assigned != before.assigned
        if is_changed and member.user_endpoint is not None and not is_new:
            group.endpoint_epoch += 1
        if configured.problem is not None:
            statuses.append(configured.problem)
        if group.shutdown_requested_by is not None:
            statuses.append(shutdown(group.shutdown_requested_by))
        beat = StreamsBeat(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self._interval_ms(group, member, statuses, now_ms),
            statuses=tuple(statuses),
            tasks=member.assigned if is_changed or _has_missed_an_answer(event, before, member) else None,
            endpoint_epoch=group.endpoint_epoch,
            endpoints=None if event.endpoint_epoch == group.endpoint_epoch else self._endpoints(group, member),
            create=configured.missing,
        )
        appended: list[Effect] = [Append(tuple(records))] if records else []
        return [*appended, *timers, self._session_timer(group.group_id, member.member_id), Reply(event, beat)]

    def _interval_ms(self, group: StreamsGroup, member: StreamsMember, statuses: Sequence[Status], now_ms: int) -> int:
        """When the member is to come back: sooner while the group moves, since each step waits for a heartbeat."""
        usual_ms = self._environment.settings(group.group_id).streams_heartbeat_interval_ms
        # More only if the clock was set back.
        has_just_moved = 0 < group.fast_heartbeats_until_ms - now_ms <= FAST_HEARTBEATS_MS
        waits = any(status.code is StatusCode.ASSIGNMENT_DELAYED for status in statuses)
        if not has_just_moved and not waits and member.state is MemberState.STABLE:
            return usual_ms
        return min(usual_ms, max(HURRY_LEAST_MS, HURRY_MS_PER_MEMBER * (len(group.members) + 1)))

    # --- which group, which member, which topology ---

    def _group_for(self, event: StreamsHeartbeat, records: list[GroupRecord], effects: list[Effect]) -> StreamsGroup:
        """A member that joins makes the group, also of an empty classic one. Raises `ApiError`."""
        found = self._groups.get(event.group_id)
        if isinstance(found, StreamsGroup):
            if event.member_epoch == JOINING:
                self._refuse_if_full(found)
            return found
        if event.member_epoch != JOINING or not (found is None or (isinstance(found, ClassicGroup) and found.is_empty)):
            raise not_a_streams_group(event.group_id, exists=found is not None, prefix="Streams group")
        if found is not None:
            log.info("group %s becomes a streams group", event.group_id)
            records += found.tombstones()
            effects += dissolved(found)
        return StreamsGroup(event.group_id)

    def _refuse_if_full(self, group: StreamsGroup) -> None:
        most = self._config.group_streams_max_size
        if len(group.members) >= most:
            raise ApiError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The streams group has reached its maximum capacity of {most} members.",
            )

    def _member_for(self, event: StreamsHeartbeat, group: StreamsGroup) -> StreamsMember:
        """The member as it is, or as it is before it has described itself. Raises `ApiError`."""
        member = group.members.get(event.member_id)
        if event.member_epoch == JOINING:
            if member is None:
                log.info("streams group %s: member %s joins", event.group_id, event.member_id)
            return member or StreamsMember(event.member_id)
        if member is None:
            raise unknown_member(group.group_id, event.member_id)
        refuse_epoch(member, event.member_epoch, event.owned)
        return member

    def _topology_for(self, event: StreamsHeartbeat, group: StreamsGroup, records: list[GroupRecord]) -> Topology:
        """The group's topology, which its first member brings along. Raises `ApiError`."""
        wanted = event.topology
        if group.topology is None:
            if wanted is None:
                raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"Streams group {group.group_id} has no topology.")
            log.info("streams group %s: topology of epoch %d", group.group_id, wanted.epoch)
            records.append(StreamsTopology(group.group_id, wanted))
            return wanted
        if wanted is not None and wanted.epoch >= group.topology.epoch and wanted != group.topology:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Topology updates are not supported yet.")
        return group.topology

    def _configured(
        self, group: StreamsGroup, topology: Topology, reasons: list[str]
    ) -> tuple[ConfiguredTopology, int]:
        """The topology held against the topics, and the hash of these. Raises `ApiError`."""
        known, is_new = group.configured, group.topology is None
        if known is not None and not is_new and not group.needs_refresh:
            return known, group.metadata_hash
        topics = self._environment.topics()
        metadata_hash = self._hashes.of(topology.required_topics, topics)
        have_changed = metadata_hash != group.metadata_hash
        if have_changed:
            reasons.append("its topics have changed" if group.members else "the group is new")
        if known is None or is_new or have_changed:
            known = configure(topology, topics)
            if known.problem is not None:
                log.info("streams group %s: %s", group.group_id, known.problem.detail)
        return known, metadata_hash

    # --- group epoch ---

    def _next_epoch(
        self,
        group: StreamsGroup,
        configured: ConfiguredTopology,
        metadata_hash: int,
        reasons: list[str],
        records: list[GroupRecord],
        now_ms: int,
    ) -> int:
        """The group's epoch: a new one if tasks may have to be assigned anew."""
        validated = configured.epoch if configured.is_ready else -1
        configs = self._assignment_configs(group.group_id)
        if validated != group.validated_topology_epoch and group.members:
            reasons.append("all topics are there" if configured.is_ready else "topics are missing or do not fit")
        if configs != group.assignment_configs and group.members:
            reasons.append("settings have changed")
        if not reasons:
            return group.epoch
        return self._bump(group, metadata_hash, validated, configs, reasons, records, now_ms)

    def _assignment_configs(self, group_id: GroupId) -> Mapping[str, str]:
        """What an assignment depends on besides members and topics, in the words of the log."""
        return {STANDBY_REPLICAS: str(self._environment.settings(group_id).streams_num_standby_replicas)}

    def _bump(
        self,
        group: StreamsGroup,
        metadata_hash: int,
        validated: int,
        configs: Mapping[str, str],
        reasons: Sequence[str],
        records: list[GroupRecord],
        now_ms: int,
    ) -> int:
        group.fast_heartbeats_until_ms = now_ms + FAST_HEARTBEATS_MS
        history = self._histories.of(group.group_id)
        for reason in reasons:
            history.because(reason)
        epoch = group.epoch + 1
        log.debug("streams group %s: epoch %d (%s)", group.group_id, epoch, "; ".join(reasons))
        records.append(StreamsGroupEpoch(group.group_id, epoch, metadata_hash, validated, configs))
        return epoch

    # --- target assignment ---

    def _delay_first_assignment(self, group: StreamsGroup) -> list[Effect]:
        """A group that was empty waits for more members, counted from the first."""
        delay_ms = self._environment.settings(group.group_id).streams_initial_rebalance_delay_ms
        if group.is_delayed or delay_ms <= 0:
            return []
        group.is_delayed = True
        return [SetTimer((FIRST_ASSIGNMENT, group.group_id), delay_ms)]

    def _target(
        self,
        group: StreamsGroup,
        epoch: int,
        member: StreamsMember,
        configured: ConfiguredTopology,
        records: list[GroupRecord],
        statuses: list[Status],
        now_ms: int,
    ) -> tuple[int, TaskSets]:
        """The epoch of the target assignment, and what it gives the member."""
        if group.is_delayed:
            statuses.append(DELAYED_AT_FIRST)
            return group.assignment_epoch, NOTHING
        last = group.target.get(member.member_id, NOTHING)
        if group.assignment_epoch >= epoch:
            return group.assignment_epoch, last
        interval_ms = self._environment.settings(group.group_id).streams_assignment_interval_ms
        if group.assigned_at_ms > 0 and interval_ms > 0 and now_ms < group.assigned_at_ms + interval_ms:
            statuses.append(DELAYED_BY_INTERVAL)
            return group.assignment_epoch, last
        target = self._assign(group, epoch, group.with_member(member), configured, records, now_ms)
        return epoch, target[member.member_id]

    def _assign(
        self,
        group: StreamsGroup,
        epoch: int,
        members: Mapping[MemberId, StreamsMember],
        configured: ConfiguredTopology,
        records: list[GroupRecord],
        now_ms: int,
    ) -> Mapping[MemberId, TaskSets]:
        """Work out which member is to have which tasks at this epoch; none, while the topology does not fit."""
        if configured.is_ready:
            candidates = {
                member_id: Candidate(member.process_id, group.target.get(member_id, NOTHING))
                for member_id, member in members.items()
            }
            subtopologies = [
                SubtopologyTasks(each.subtopology_id, each.task_count, each.is_stateful)
                for each in configured.subtopologies
            ]
            replicas = self._environment.settings(group.group_id).streams_num_standby_replicas
            target = assign(candidates, subtopologies, replicas)
        else:
            target = dict.fromkeys(members, NOTHING)
        for member_id, tasks in target.items():
            if group.target.get(member_id) != tasks:
                records.append(StreamsTarget(group.group_id, member_id, tasks))
        records.append(StreamsTargetEpoch(group.group_id, epoch, now_ms))
        self._remember(group, epoch, target, now_ms)
        return target

    def _remember(self, group: StreamsGroup, epoch: int, target: Mapping[MemberId, TaskSets], now_ms: int) -> None:
        """Active tasks move between members; a standby task may be with several, so that one gets what none loses."""
        history = self._histories.of(group.group_id)
        reasons = history.take_reasons()
        moved, moves = moves_between(_active_by_name(group.target), _active_by_name(target))
        others: list[Move] = []
        for member_id in sorted({*target, *group.target}):
            had, gets = group.target.get(member_id, NOTHING).standby, target.get(member_id, NOTHING).standby
            others += [Move(name, each, None, member_id) for name, each in _standby_beyond(gets, had)]
            others += [Move(name, each, member_id, None) for name, each in _standby_beyond(had, gets)]
        moved += sum(len(move.partitions) for move in others)
        kept = (*moves, *others)[:KEPT_MOVES]
        history.add(Rebalance(now_ms, epoch, STREAMS_PROTOCOL, STICKY, reasons, len(target), moved, kept))

    def _first_assignment_is_due(self, key: TimerKey, now_ms: int) -> list[Effect]:
        group = self._groups.get(GroupId(key[1]))
        if not isinstance(group, StreamsGroup) or not group.is_delayed:
            return []
        group.is_delayed = False
        if group.is_empty or group.configured is None or group.epoch <= group.assignment_epoch:
            return []
        records: list[GroupRecord] = []
        self._assign(group, group.epoch, group.members, group.configured, records, now_ms)
        return [Append(tuple(records))]

    # --- current assignment ---

    def _reconcile(
        self,
        group: StreamsGroup,
        member: StreamsMember,
        target_epoch: int,
        target: TaskSets,
        owned: TaskSets | None,
        records: list[GroupRecord],
        timers: list[Effect],
    ) -> StreamsMember:
        """The member one step nearer to its target. Raises `ApiError` FENCED_MEMBER_EPOCH."""
        if member.is_reconciled_to(target_epoch):
            return member
        updated = reconciled(member, target_epoch, target, group.owners, owned)
        if updated == member:
            return member
        records.append(_assignment_record(group.group_id, updated))
        timers.append(
            self._revocation_timer(group.group_id, updated)
            if updated.state is MemberState.UNREVOKED_TASKS
            else CancelTimer((REBALANCE, group.group_id, member.member_id))
        )
        return updated

    def _endpoints(self, group: StreamsGroup, member: StreamsMember) -> tuple[EndpointPartitions, ...]:
        """Which partitions can be queried where; `member` as it is about to be."""
        if group.configured is None:
            return ()
        topics = self._environment.topics()
        inputs = {each.subtopology_id: each.input_topics for each in group.configured.subtopologies}

        def partitions(tasks: Tasks) -> tuple[EndpointTopic, ...]:
            return tuple(
                EndpointTopic(name, _first_of(indexes, name, topics))
                for subtopology, indexes in sorted(tasks.items())
                for name in inputs.get(subtopology, ())
            )

        return tuple(
            EndpointPartitions(each.user_endpoint, partitions(each.assigned.active), partitions(each.assigned.standby))
            for each in (*(each for key, each in group.members.items() if key != member.member_id), member)
            if each.user_endpoint is not None
        )

    # --- members that go ---

    def _leave(self, event: StreamsHeartbeat, now_ms: int) -> list[Effect]:
        """Raises `ApiError`."""
        group = self._groups.get(event.group_id)
        if not isinstance(group, StreamsGroup):
            raise not_a_streams_group(event.group_id, exists=group is not None)
        if event.shutdown and group.shutdown_requested_by is None:
            group.shutdown_requested_by = event.member_id
        if event.member_id not in group.members:
            raise unknown_member(group.group_id, event.member_id)
        beat = StreamsBeat(member_id=event.member_id, member_epoch=event.member_epoch)
        return [*self._remove(group, event.member_id, "leaves", now_ms), Reply(event, beat)]

    def _session_ended(self, key: TimerKey, now_ms: int) -> list[Effect]:
        return self._fence(key, "has sent no heartbeat in time", now_ms)

    def _revocation_is_overdue(self, key: TimerKey, now_ms: int) -> list[Effect]:
        return self._fence(key, "has not given up its tasks in time", now_ms)

    def _fence(self, key: TimerKey, why: str, now_ms: int) -> list[Effect]:
        group, member_id = self._groups.get(GroupId(key[1])), MemberId(key[2])
        if not isinstance(group, StreamsGroup) or member_id not in group.members:
            return []
        return self._remove(group, member_id, why, now_ms)

    def _remove(self, group: StreamsGroup, member_id: MemberId, why: str, now_ms: int) -> list[Effect]:
        """The next heartbeat of another member has its tasks assigned anew."""
        log.info("streams group %s: member %s %s", group.group_id, member_id, why)
        records: list[GroupRecord] = list(group.member_tombstones(member_id))
        self._bump(
            group,
            group.metadata_hash,
            group.validated_topology_epoch,
            group.assignment_configs,
            (f"{member_id} {why}",),
            records,
            now_ms,
        )
        return [
            Append(tuple(records)),
            CancelTimer((SESSION, group.group_id, member_id)),
            CancelTimer((REBALANCE, group.group_id, member_id)),
        ]

    # --- StreamsGroupDescribe ---

    def _describe(self, event: DescribeStreamsGroups, now_ms: int) -> list[Effect]:
        described = tuple(description(group_id, self._groups.get(group_id)) for group_id in event.group_ids)
        return [Reply(event, described)]

    # --- timers ---

    def _session_timer(self, group_id: GroupId, member_id: MemberId) -> SetTimer:
        after_ms = self._environment.settings(group_id).streams_session_timeout_ms
        return SetTimer((SESSION, group_id, member_id), after_ms)

    def _revocation_timer(self, group_id: GroupId, member: StreamsMember) -> SetTimer:
        return SetTimer((REBALANCE, group_id, member.member_id), max(member.rebalance_timeout_ms, 0))

    def loaded(self, now_ms: int) -> LongDecision:
        """Give every member a full session to show up at the new coordinator."""
        for group in list(self._groups.values()):
            yield None
            if not isinstance(group, StreamsGroup):
                continue
            for member in list(group.members.values()):
                yield self._session_timer(group.group_id, member.member_id)
                if member.state is MemberState.UNREVOKED_TASKS:
                    yield self._revocation_timer(group.group_id, member)

    # --- what lasts ---

    def _replay(self, record: StreamsRecord, position: int, producer_id: int) -> None:
        group = self._groups.get(record.group_id)
        if not isinstance(group, StreamsGroup):
            if made_by_a_deletion(record):
                return
            if group is not None and not (isinstance(group, ClassicGroup) and group.is_simple):
                raise IllegalTransition(f"group {record.group_id}: a record of a streams group in a {group.kind} group")
            group = self._groups[record.group_id] = StreamsGroup(record.group_id)
        group.apply(record)

    def _replay_deletion(self, record: StreamsGroupDeleted, position: int, producer_id: int) -> None:
        if isinstance(self._groups.get(record.group_id), StreamsGroup):
            self._forget(record.group_id)


# --- small things ----------------------------------------------------------------------------------------------


def _as_described(member: StreamsMember, event: StreamsHeartbeat) -> StreamsMember:
    """The member as the request describes it; what the request leaves out is as before."""
    return member._replace(
        rack_id=member.rack_id if event.rack_id is None else event.rack_id,
        client_id=event.client_id,
        client_host=event.client_host,
        rebalance_timeout_ms=(
            member.rebalance_timeout_ms if event.rebalance_timeout_ms == NO_TIMEOUT else event.rebalance_timeout_ms
        ),
        topology_epoch=member.topology_epoch if event.topology is None else event.topology.epoch,
        process_id=member.process_id if event.process_id is None else event.process_id,
        user_endpoint=member.user_endpoint if event.user_endpoint is None else event.user_endpoint,
        client_tags=member.client_tags if event.client_tags is None else event.client_tags,
    )


def _metadata_record(group_id: GroupId, member: StreamsMember) -> StreamsMemberMetadata:
    return StreamsMemberMetadata(
        group_id,
        member.member_id,
        member.instance_id,
        member.rack_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        member.topology_epoch,
        member.process_id,
        member.user_endpoint,
        member.client_tags,
    )


def _assignment_record(group_id: GroupId, member: StreamsMember) -> StreamsAssignment:
    return StreamsAssignment(
        group_id,
        member.member_id,
        member.epoch,
        member.previous_epoch,
        member.state,
        member.assigned,
        member.pending_revocation,
        member.assignment_epochs,
    )


def _has_missed_an_answer(event: StreamsHeartbeat, before: StreamsMember, after: StreamsMember) -> bool:
    """May the member not know its tasks, since the answer that had them was lost? It comes with its former epoch, or
    reports other tasks. Kafka 4.3 leaves it without: its tasks would rest until the next rebalance."""
    return event.member_epoch != before.epoch or (event.owned is not None and event.owned != after.assigned)


def _first_of(tasks: frozenset[int], name: TopicName, topics: TopicsView) -> tuple[int, ...]:
    """The partitions of a topic that these tasks read: a task reads only topics that have its partition."""
    topic = topics.by_name(name)
    count = 0 if topic is None else topic.partition_count
    return tuple(index for index in sorted(tasks) if index < count)


def _active_by_name(target: Mapping[MemberId, TaskSets]) -> dict[MemberId, AssignmentByName]:
    return {
        member_id: {TopicName(f"subtopology {key}"): partitions for key, partitions in tasks.active.items()}
        for member_id, tasks in target.items()
    }


def _standby_beyond(some: Tasks, others: Tasks) -> list[tuple[TopicName, tuple[int, ...]]]:
    """The standby tasks in `some` that are not among the `others`, by name."""
    found = ((key, partitions - others.get(key, frozenset())) for key, partitions in sorted(some.items()))
    return [
        (TopicName(f"subtopology {key} (standby)"), tuple(sorted(partitions)))
        for key, partitions in found
        if partitions
    ]
