"""Applies the controller's requests for this broker's replicas: to lead, to follow, or to stop.

Requests are applied one after the other. State older than the known one is refused, by partition; the rest is applied.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final
from uuid import UUID

from ottla.cluster.controller_requests import ALL_STATES, EPOCH_WHEN_DELETED, LACKS_ROOM, RECOVERED
from ottla.cluster.image import PartitionImage
from ottla.errors import ErrorCode, OttlaError
from ottla.ids import BrokerId, LeaderEpoch, PartitionId, TopicId, TopicName, TopicPartition
from ottla.log.fs import is_lacking
from ottla.protocol.messages.leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrRequest
from ottla.protocol.messages.stop_replica import StopReplicaPartitionState, StopReplicaRequest
from ottla.replication.decisions.refused_replicas import RefusedReplicas
from ottla.slices import Slices

if TYPE_CHECKING:
    from ottla.clock import Clock
    from ottla.replication.manager import ReplicaManager

log = logging.getLogger(__name__)

STATES_PER_TURN: Final = 20


class ReplicaRoles:
    """The replica roles of one broker in a cluster. On the loop's thread."""

    def __init__(
        self, replicas: "ReplicaManager", knows_settings_of: Callable[[TopicId], bool], clock: "Clock"
    ) -> None:
        """`knows_settings_of`: does the metadata know how a topic is set?"""
        self._replicas = replicas
        self._knows_settings_of = knows_settings_of
        self._slices = Slices(clock)
        self._coming: Counter[str | UUID] = Counter()
        """Topics, by name and id, of requests that are being done."""
        self.refused = RefusedReplicas()

    @contextmanager
    def expecting(self, request: LeaderAndIsrRequest) -> Iterator[None]:
        """Each topic of the request `is_coming` until it is done."""
        names: list[str | UUID] = [key for topic in request.topic_states for key in (topic.topic_name, topic.topic_id)]
        self._coming.update(names)
        try:
            yield
        finally:
            self._coming.subtract(names)
            for name in names:
                if not self._coming[name]:
                    del self._coming[name]

    def is_coming(self, topic: str | UUID) -> bool:
        """Has the controller named the topic in a request that is not done yet?"""
        return topic in self._coming

    def topics_brought(self, request: LeaderAndIsrRequest) -> dict[TopicId, TopicName]:
        """The topics in it whose settings may not be known yet."""
        return {
            TopicId(topic.topic_id): TopicName(topic.topic_name)
            for topic in request.topic_states
            if not self._knows_settings_of(TopicId(topic.topic_id))
        }

    def only_follows_new(self, request: LeaderAndIsrRequest, broker_id: BrokerId) -> bool:
        """Whether the request makes this broker, `broker_id`, the follower of new partitions, and changes nothing else.

        Such a broker can do without the settings for a while: it has no records that retention could delete, and
        accepts none from clients.
        """
        return request.type != ALL_STATES and all(
            state.is_new and state.leader != broker_id
            for topic in request.topic_states
            for state in topic.partition_states
        )

    async def take(self, request: LeaderAndIsrRequest) -> dict[tuple[UUID, int], ErrorCode]:
        """Apply the request; returns the result of each partition, by topic id and number.

        STALE_CONTROLLER_EPOCH never: that is for the whole request. FENCED_LEADER_EPOCH is given for a partition with
        a later known epoch, KAFKA_STORAGE_ERROR for one that cannot be created, `LACKS_ROOM` for one that
        is in a log directory without room.
        """
        outcomes: dict[tuple[UUID, int], ErrorCode] = {}
        named: set[tuple[str, int]] = set()
        for topic in request.topic_states:
            name, topic_id = TopicName(topic.topic_name), TopicId(topic.topic_id)
            for start in range(0, len(topic.partition_states), STATES_PER_TURN):
                some = topic.partition_states[start : start + STATES_PER_TURN]
                for state in some:
                    replica = TopicPartition(name, PartitionId(state.partition_index))
                    state.is_new |= self.refused.is_new(replica, topic_id)
                made = await self._replicas.prepare_logs(
                    (name, topic_id, PartitionId(state.partition_index)) for state in some if state.is_new
                )
                await self._replicas.reopen_logs(
                    TopicPartition(name, PartitionId(state.partition_index)) for state in some
                )
                for state in some:
                    await self._slices.pause()  # one that was lost, or lies in the way, has its files made here
                    named.add((name, state.partition_index))
                    outcomes[topic_id, state.partition_index] = self._become(name, topic_id, state)
                self._replicas.remove_unclaimed(made)
                await asyncio.sleep(0)
        if request.type == ALL_STATES:
            strays = [each.topic_partition for each in self._replicas.partitions() if each.topic_partition not in named]
            for count, stray in enumerate(strays, 1):
                log.warning("%s is no longer a replica of this broker", stray)
                self._replicas.remove_replica(*stray, keep_files=True)
                if count % STATES_PER_TURN == 0:
                    await asyncio.sleep(0)
            are_left = True
            while are_left:
                are_left = self._replicas.set_strays_aside(named, STATES_PER_TURN)
                await asyncio.sleep(0)
        return outcomes

    def _become(self, name: TopicName, topic_id: TopicId, state: LeaderAndIsrPartitionState) -> ErrorCode:
        part = PartitionImage(
            PartitionId(state.partition_index),
            BrokerId(state.leader),
            LeaderEpoch(state.leader_epoch),
            tuple(map(BrokerId, state.replicas)),
            tuple(map(BrokerId, state.isr)),
            state.partition_epoch,
            tuple(map(BrokerId, state.adding_replicas)),
            tuple(map(BrokerId, state.removing_replicas)),
        )
        replica = TopicPartition(name, part.partition)
        known = self._replicas.find(topic_id, state.partition_index)
        if known is not None and known.leader_epoch > part.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        try:
            self._replicas.become(
                name, topic_id, part, is_new=state.is_new, is_confirmed=state.leader_recovery_state == RECOVERED
            )
        except (OSError, OttlaError) as error:
            log.error("%s-%d cannot be held here: %s", name, state.partition_index, error)
            if is_lacking(error):
                self.refused.refuse(replica, topic_id, is_new=state.is_new)
            else:
                self.refused.end(replica)
            return ErrorCode.KAFKA_STORAGE_ERROR
        except Exception:  # a defect: the partitions that follow are applied all the same
            log.exception("%s-%d cannot be held here", name, state.partition_index)
            self.refused.end(replica)
            return ErrorCode.UNKNOWN_SERVER_ERROR
        self.refused.end(replica, is_made=True)
        held = self._replicas.find(topic_id, state.partition_index)
        is_full = held is not None and self._replicas.is_in_full_directory(held)
        return LACKS_ROOM if is_full else ErrorCode.NONE

    async def stop(self, request: StopReplicaRequest) -> dict[tuple[str, int], ErrorCode]:
        """Let replicas go, with their files; what became of each, by topic and number."""
        outcomes: dict[tuple[str, int], ErrorCode] = {}
        for topic in request.topic_states:
            for state in topic.partition_states:
                name, number = TopicName(topic.topic_name), PartitionId(state.partition_index)
                try:
                    outcomes[name, number] = self._stop(name, number, state)
                except (OSError, OttlaError) as error:
                    log.error("%s-%d cannot be let go: %s", name, number, error)
                    outcomes[name, number] = ErrorCode.KAFKA_STORAGE_ERROR
                except Exception:  # a defect: the partitions that follow have to be let go all the same
                    log.exception("%s-%d cannot be let go", name, number)
                    outcomes[name, number] = ErrorCode.UNKNOWN_SERVER_ERROR
                if len(outcomes) % STATES_PER_TURN == 0:
                    await asyncio.sleep(0)
        return outcomes

    def _stop(self, name: TopicName, number: PartitionId, state: StopReplicaPartitionState) -> ErrorCode:
        self.refused.end(TopicPartition(name, number))
        known = self._replicas.find(name, number)
        if known is None:  # it may be in a log directory that has failed
            if state.delete_partition:
                self._replicas.remove_replica(name, number)
        elif EPOCH_WHEN_DELETED != state.leader_epoch < known.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        elif state.delete_partition:
            self._replicas.remove_replica(name, number)
        else:
            self._replicas.stop_replica(known)
        return ErrorCode.NONE
