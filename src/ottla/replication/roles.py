"""What the controller says about this broker's replicas: to lead, to follow, or to let go.

Requests come one after the other. What is older than what is known is refused, by partition; the rest is done.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final
from uuid import UUID

from ottla.cluster.controller_requests import ALL_STATES, EPOCH_WHEN_DELETED, LACKS_ROOM, RECOVERED
from ottla.cluster.image import PartitionImage
from ottla.errors import ErrorCode, OttlaError
from ottla.ids import BrokerId, LeaderEpoch, PartitionId, TopicId, TopicName
from ottla.protocol.messages.leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrRequest
from ottla.protocol.messages.stop_replica import StopReplicaPartitionState, StopReplicaRequest

if TYPE_CHECKING:
    from ottla.replication.manager import ReplicaManager

log = logging.getLogger(__name__)

STATES_PER_TURN: Final = 20


class ReplicaRoles:
    """Of one broker in a cluster. On the loop's thread."""

    def __init__(self, replicas: "ReplicaManager", knows_settings_of: Callable[[TopicId], bool]) -> None:
        """`knows_settings_of`: does the metadata know how a topic is set?"""
        self._replicas = replicas
        self._knows_settings_of = knows_settings_of

    def topics_brought(self, request: LeaderAndIsrRequest) -> dict[TopicId, TopicName]:
        """The topics in it whose settings may not be known yet."""
        return {
            TopicId(topic.topic_id): TopicName(topic.topic_name)
            for topic in request.topic_states
            if not self._knows_settings_of(TopicId(topic.topic_id))
        }

    async def take(self, request: LeaderAndIsrRequest) -> dict[tuple[UUID, int], ErrorCode]:
        """Do what the request says; what became of each partition, by topic id and number.

        STALE_CONTROLLER_EPOCH never: that is for the whole request. FENCED_LEADER_EPOCH is given for a partition of
        which a later epoch is known, KAFKA_STORAGE_ERROR for one that cannot be held, `LACKS_ROOM` for one that is
        held in a log directory without room.
        """
        outcomes: dict[tuple[UUID, int], ErrorCode] = {}
        named: set[tuple[str, int]] = set()
        for topic in request.topic_states:
            name, topic_id = TopicName(topic.topic_name), TopicId(topic.topic_id)
            for state in topic.partition_states:
                named.add((name, state.partition_index))
                outcomes[topic_id, state.partition_index] = self._become(name, topic_id, state)
                if len(outcomes) % STATES_PER_TURN == 0:
                    await asyncio.sleep(0)
        if request.type == ALL_STATES:
            for partition in self._replicas.partitions():
                if partition.topic_partition not in named:
                    log.warning("%s is held by this broker no more", partition.topic_partition)
                    self._replicas.drop(*partition.topic_partition, keep_files=True)
            self._replicas.set_strays_aside(named)
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
        known = self._replicas.find(topic_id, state.partition_index)
        if known is not None and known.leader_epoch > part.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        try:
            self._replicas.become(
                name, topic_id, part, is_new=state.is_new, is_confirmed=state.leader_recovery_state == RECOVERED
            )
        except (OSError, OttlaError) as error:
            log.error("%s-%d cannot be held here: %s", name, state.partition_index, error)
            return ErrorCode.KAFKA_STORAGE_ERROR
        except Exception:  # a defect: the partitions that follow have to be told all the same
            log.exception("%s-%d cannot be held here", name, state.partition_index)
            return ErrorCode.UNKNOWN_SERVER_ERROR
        held = self._replicas.find(topic_id, state.partition_index)
        is_full = held is not None and held.log.directory.parent in self._replicas.full_directories()
        return LACKS_ROOM if is_full else ErrorCode.NONE

    def stop(self, request: StopReplicaRequest) -> dict[tuple[str, int], ErrorCode]:
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
        return outcomes

    def _stop(self, name: TopicName, number: PartitionId, state: StopReplicaPartitionState) -> ErrorCode:
        known = self._replicas.find(name, number)
        if known is None:  # it may be in a log directory that has failed
            if state.delete_partition:
                self._replicas.drop(name, number)
        elif EPOCH_WHEN_DELETED != state.leader_epoch < known.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        elif state.delete_partition:
            self._replicas.drop(name, number)
        else:
            self._replicas.release(known)
        return ErrorCode.NONE
