"""Writes the end of transactions into this broker's partitions (KIP-98): a control batch in each.

`__consumer_offsets` gets its markers through the group coordinator, which has to know when offsets come into force;
other partitions get them straight into their logs. Everything that is to be written for one transaction is appended
first and waited for together, so that it shares a sync.
"""

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from ottla.cluster.image import GROUP_METADATA_TOPIC
from ottla.errors import ErrorCode, OttlaError
from ottla.ids import Offset, TopicPartition
from ottla.log.producer_state import Origin
from ottla.records.control import ControlType, EndTransaction, encode_end_transaction
from ottla.replication.delayed import DelayedProduce
from ottla.replication.manager import ADMIN_CLIENT_ID, ALL_IN_SYNC
from ottla.slices import Slices, Steps

if TYPE_CHECKING:
    from ottla.clock import Clock
    from ottla.coordination.markers import TransactionMarker
    from ottla.coordinators.group_coordinator import GroupCoordinator
    from ottla.replication.manager import ReplicaManager

log = logging.getLogger(__name__)

NOT_READY: Final = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)
"""What a group coordinator may answer, of which a transaction coordinator knows nothing."""


class LocalMarkers:
    """Sends markers to the partitions of this broker. On the loop's thread."""

    def __init__(
        self, replicas: "ReplicaManager", groups: "GroupCoordinator", clock: "Clock", timeout_ms: int = 30_000
    ) -> None:
        """`timeout_ms` (request.timeout.ms) is how long a marker may take to be committed."""
        self._replicas = replicas
        self._groups = groups
        self._clock = clock
        self._slices = Slices(clock)
        self._timeout_s = timeout_ms / 1_000

    async def send(
        self, marker: "TransactionMarker", partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Write the marker to each partition; returns when it is committed everywhere, or has failed.

        UNKNOWN_TOPIC_OR_PARTITION: there is no such partition (any more). NOT_LEADER_OR_FOLLOWER,
        KAFKA_STORAGE_ERROR, REQUEST_TIMED_OUT: to be tried again. INVALID_PRODUCER_EPOCH and
        TRANSACTION_COORDINATOR_FENCED: it comes too late for ever.
        """
        outcomes: dict[TopicPartition, ErrorCode] = {}
        offsets: dict[TopicPartition, asyncio.Future[None]] = {}
        places = list(partitions)
        settled: asyncio.Future[dict[int, ErrorCode]] = asyncio.get_running_loop().create_future()

        def finish(uncommitted: dict[int, ErrorCode]) -> None:
            if not settled.done():
                settled.set_result(uncommitted)

        delayed = DelayedProduce(None, self._timeout_s, self._replicas.timeouts, finish)
        steps = self._append(marker, places, delayed, outcomes, offsets)
        if self._slices.begin(steps) is None:
            await self._slices.run(steps)
        delayed.complete()
        outcomes.update((places[key], code) for key, code in (await settled).items())
        for topic_partition, future in offsets.items():
            try:
                await future
            except OttlaError as error:
                outcomes[topic_partition] = _error_for_coordinator(error.code)
        return outcomes

    def _append(
        self,
        marker: "TransactionMarker",
        places: Sequence[TopicPartition],
        delayed: DelayedProduce,
        outcomes: dict[TopicPartition, ErrorCode],
        offsets: "dict[TopicPartition, asyncio.Future[None]]",
    ) -> Steps[None]:
        """Append the marker to each place. `delayed` expects the numbers of those that have to be waited for, and
        `offsets` gets the futures of those that the group coordinator writes."""
        batch = self._batch(marker)
        for key, topic_partition in enumerate(places):
            topic, number = topic_partition
            outcomes[topic_partition] = ErrorCode.NONE
            try:
                found = self._replicas.for_produce(topic, number, ALL_IN_SYNC, ADMIN_CLIENT_ID)
                if topic == GROUP_METADATA_TOPIC:
                    offsets[topic_partition] = self._groups.end_transaction(number, marker)
                else:
                    info = found.append(bytearray(batch), Origin.COORDINATOR, bears_next_epoch=marker.bears_next_epoch)
                    end = Offset(info.last_offset + 1)
                    if found.high_watermark < end:
                        delayed.expect(key)
                        found.when_committed(end, key, delayed)
            except OttlaError as error:
                outcomes[topic_partition] = _error_for_coordinator(error.code)
                if error.code is ErrorCode.UNKNOWN_SERVER_ERROR:
                    log.exception("no marker can be written to %s", topic_partition)
            yield

    def _batch(self, marker: "TransactionMarker") -> bytearray:
        outcome = ControlType.COMMIT if marker.committed else ControlType.ABORT
        return encode_end_transaction(
            EndTransaction(outcome, marker.coordinator_epoch, self._clock.now_ms()),
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
        )


def _error_for_coordinator(code: ErrorCode) -> ErrorCode:
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if code in NOT_READY else code
