"""The state of share partitions, wherever its coordinator is (KIP-932).

Leaders of share partitions and group coordinators ask here; what this broker coordinates itself it answers, for the
rest it sends Kafka's own requests to the broker that does.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ottla.client.errors import BrokerUnavailable
from ottla.coordinators.share_coordinator import coordinator_key
from ottla.errors import ApiError, ErrorCode, OttlaError
from ottla.ids import BrokerId, GroupId, PartitionId, TopicId, TopicPartition
from ottla.protocol.messages import delete_share_group_state as deletion
from ottla.protocol.messages import initialize_share_group_state as initialization
from ottla.protocol.messages import read_share_group_state as reading
from ottla.protocol.messages import read_share_group_state_summary as summary
from ottla.protocol.messages import write_share_group_state as writing
from ottla.protocol.schema import Message
from ottla.server.peer_versions import PeerVersions
from ottla.share.state import UNKNOWN_START_OFFSET, SharePartitionKey, SharePartitionState, StateBatch
from ottla.share.state_events import (
    FRESH_EPOCH,
    DeleteState,
    InitializeState,
    StateChanged,
    StateSummary,
    WriteState,
)

if TYPE_CHECKING:
    from ottla.coordinators.share_coordinator import ShareCoordinator
    from ottla.metadata.view import MetadataView
    from ottla.server.remote_coordination import Peers

VERSION: Final = 0
WITH_COMPLETE_COUNT: Final = 1
"""Version of the write and of the summary with the number of finished records (KIP-1226)."""
ANY_LEADER_EPOCH: Final = -1

_Change = TypeVar("_Change", InitializeState, WriteState, DeleteState)


class ClusterShareState:
    """All share coordinators of a cluster, as if they were one. On the loop's thread."""

    def __init__(self, local: "ShareCoordinator", metadata: "MetadataView", peers: "Peers") -> None:
        self._local = local
        self._metadata = metadata
        self._peers = peers
        self._versions = PeerVersions(WITH_COMPLETE_COUNT, VERSION)

    def on_starting_over(self, listener: Callable[[SharePartitionKey], None]) -> None:
        """As of this broker's own coordinator. What another one begins anew, a leader notices by the next write."""
        self._local.on_starting_over(listener)

    async def read(
        self, group_id: GroupId, topic_id: TopicId, partition: PartitionId, leader_epoch: int
    ) -> SharePartitionState:
        """As `ShareCoordinator.read`."""
        key = SharePartitionKey(group_id, topic_id, partition)
        elsewhere = self._elsewhere(key)
        if elsewhere is None:
            return await self._local.read(group_id, topic_id, partition, leader_epoch)
        wanted = reading.PartitionData(partition=partition, leader_epoch=leader_epoch)
        request = reading.ReadShareGroupStateRequest(
            group_id=group_id, topics=[reading.ReadStateData(topic_id=topic_id, partitions=[wanted])]
        )
        found = await self._ask(elsewhere, request)
        if found.error_code:
            code = ErrorCode(found.error_code)
            raise ApiError(code, found.error_message or code.name)
        return SharePartitionState(
            found.state_epoch,
            found.start_offset,
            tuple(
                StateBatch(batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
                for batch in found.state_batches
            ),
        )

    async def write(
        self,
        group_id: GroupId,
        topic_id: TopicId,
        partition: PartitionId,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        batches: Sequence[StateBatch],
        complete_count: int,
    ) -> ErrorCode:
        """As `ShareCoordinator.write`."""
        key = SharePartitionKey(group_id, topic_id, partition)
        try:
            done = await self.change(
                WriteState(key, state_epoch, leader_epoch, start_offset, (*batches,), complete_count)
            )
        except OttlaError as error:
            return error.code
        return done.error

    async def initialize(
        self, key: SharePartitionKey, state_epoch: int, start_offset: int, *, only_if_new: bool = False
    ) -> StateChanged:
        """As `ShareCoordinator.initialize`."""
        await self._local.topic.ensure()
        if self._elsewhere(key) is None:
            return await self._local.initialize(key, state_epoch, start_offset, only_if_new=only_if_new)
        if only_if_new:  # which Kafka's request cannot say
            known = await self.summarize(key)
            if known.state_epoch != FRESH_EPOCH or known.start_offset != UNKNOWN_START_OFFSET:
                return StateChanged()
        return await self.change(InitializeState(key, state_epoch, start_offset))

    async def change(self, event: _Change) -> StateChanged:
        """As `ShareCoordinator.change`."""
        elsewhere = self._elsewhere(event.key)
        if elsewhere is None:
            return await self._local.change(event)
        done = await self._ask(elsewhere, _request(event))
        return StateChanged(ErrorCode(done.error_code), done.error_message)

    async def summarize(self, key: SharePartitionKey) -> StateSummary:
        """As `ShareCoordinator.summarize`."""
        elsewhere = self._elsewhere(key)
        if elsewhere is None:
            return await self._local.summarize(key)
        wanted = summary.PartitionData(partition=key.partition, leader_epoch=ANY_LEADER_EPOCH)
        request = summary.ReadShareGroupStateSummaryRequest(
            group_id=key.group_id, topics=[summary.ReadStateSummaryData(topic_id=key.topic_id, partitions=[wanted])]
        )
        found = await self._ask(elsewhere, request)
        return StateSummary(
            ErrorCode(found.error_code),
            found.error_message,
            found.state_epoch,
            found.leader_epoch,
            found.start_offset,
            found.delivery_complete_count,
        )

    def _elsewhere(self, key: SharePartitionKey) -> BrokerId | None:
        """The broker that coordinates it; None if that is this one, or there is none yet."""
        at = TopicPartition(self._local.topic.name, self._local.partition_for(coordinator_key(*key)))
        found = self._metadata.image.partition(at)
        return None if found is None or found.leader == self._metadata.broker_id else found.leader

    async def _ask(self, broker_id: BrokerId, request: Message) -> Any:
        """The answer for the one partition that is asked about. Raises `ApiError` COORDINATOR_NOT_AVAILABLE."""
        image = self._metadata.image
        has_two = isinstance(request, (writing.WriteShareGroupStateRequest, summary.ReadShareGroupStateSummaryRequest))
        version = self._versions.of(image, broker_id) if has_two else VERSION
        try:
            response = await self._peers.ask(broker_id, request, version)
        except BrokerUnavailable as error:
            if has_two:
                self._versions.unanswered(image, broker_id, version)
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)) from error
        answers = [partition for result in response.results for partition in result.partitions]
        if len(answers) != 1:
            raise ApiError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"broker {broker_id} answers for {len(answers)} partitions"
            )
        return answers[0]


def _request(event: InitializeState | WriteState | DeleteState) -> Message:
    group_id, topic_id, partition = event.key
    if isinstance(event, DeleteState):
        gone = deletion.PartitionData(partition=partition)
        return deletion.DeleteShareGroupStateRequest(
            group_id=group_id, topics=[deletion.DeleteStateData(topic_id=topic_id, partitions=[gone])]
        )
    if isinstance(event, InitializeState):
        fresh = initialization.PartitionData(
            partition=partition, state_epoch=event.state_epoch, start_offset=event.start_offset
        )
        return initialization.InitializeShareGroupStateRequest(
            group_id=group_id, topics=[initialization.InitializeStateData(topic_id=topic_id, partitions=[fresh])]
        )
    written = writing.PartitionData(
        partition=partition,
        state_epoch=event.state_epoch,
        leader_epoch=event.leader_epoch,
        start_offset=event.start_offset,
        delivery_complete_count=event.complete_count,
        state_batches=[
            writing.StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
            for first, last, state, count in event.batches
        ],
    )
    return writing.WriteShareGroupStateRequest(
        group_id=group_id, topics=[writing.WriteStateData(topic_id=topic_id, partitions=[written])]
    )
