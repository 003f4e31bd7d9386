"""The transaction coordinator of a broker: routes requests to the machine of a transactional id, and has the markers
of ended transactions written to all their partitions.

    EndTxn -> machine -> prepared, committed -> SendMarkers -> MarkerSender -> every partition has its marker
                           |                                                         |
                           +-> the client is answered                                +-> MarkersWritten -> complete

Methods return the machine's reply, or raise the errors of `Coordinator`.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol, Self

from ottla.clock import Clock
from ottla.cluster.image import TRANSACTION_STATE_TOPIC
from ottla.coordination.markers import TransactionMarker
from ottla.coordination.state_machine import StateMachine
from ottla.coordinators.coordinator import Coordinator
from ottla.coordinators.runtime import CoordinatorRuntime
from ottla.coordinators.topic import CoordinatorTopic
from ottla.coordinators.topic_patterns import matcher
from ottla.errors import ApiError, ErrorCode, NotCoordinator, OttlaError
from ottla.ids import (
    LeaderEpoch,
    PartitionId,
    ProducerId,
    ProducerIdAndEpoch,
    TopicPartition,
    TransactionalId,
)
from ottla.tasks import supervised
from ottla.transactions.config import TransactionConfig
from ottla.transactions.events import (
    AddPartitions,
    DescribeTransaction,
    EndTransaction,
    Granted,
    InitProducer,
    ListTransactions,
    MarkersWritten,
    NeedsProducerId,
    SendMarkers,
    TransactionEvent,
    TransactionListing,
    VerifyPartitions,
)
from ottla.transactions.states import STATES_BY_LABEL, TRANSIENT_LABELS

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from ottla.config.broker import BrokerConfig
    from ottla.metadata.view import MetadataView
    from ottla.replication.manager import ReplicaManager
    from ottla.transactions.records import Transaction, TransactionRecord

log = logging.getLogger(__name__)

LONGEST_ID_BYTES: Final = 32_767
"""What the key of a record has room for."""
FIRST_RETRY_S: Final = 0.05
LAST_RETRY_S: Final = 2.0

SETTLED: Final = frozenset(
    (
        ErrorCode.NONE,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.UNSUPPORTED_VERSION,
    )
)
"""After these a partition needs no marker: it has one, has records of a later incarnation of the producer, or is of a
kind that takes none and so has no records of the transaction either."""

SECOND_GENERATION: Final = 2
"""The `transaction.version` of clients whose partitions are added by the partitions' leaders (KIP-890)."""


class MarkerSender(Protocol):
    """Brings the ends of transactions to the leaders of partitions."""

    async def send(
        self, marker: TransactionMarker, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Write the marker to each partition; returns when all that can be is committed.

        NONE: it has the marker. INVALID_PRODUCER_EPOCH: it has records of a later incarnation of the producer.
        TRANSACTION_COORDINATOR_FENCED: a later coordinator has written there. Other errors are retried, unless the
        partition has been deleted.
        """
        ...


class TransactionCoordinator(Coordinator[TransactionEvent, "TransactionRecord"]):
    """The transactions that this broker coordinates."""

    def __init__(
        self,
        topic: CoordinatorTopic,
        markers: MarkerSender,
        clock: Clock,
        *,
        next_producer_id: "Callable[[], Awaitable[ProducerId]]",
        exists: Callable[[TopicPartition], bool] = lambda partition: True,
        transaction_version: Callable[[], int] = lambda: SECOND_GENERATION,
        config: TransactionConfig | None = None,
        commit_timeout_ms: int = 5_000,
    ) -> None:
        """`next_producer_id` gives unused ids; it may raise an `OttlaError`. `exists`: whether a
        partition exists now. `transaction_version`: the cluster's present level of that feature."""
        settings = config or TransactionConfig()
        self._markers = markers
        self._clock = clock
        self._next_producer_id = next_producer_id
        self._exists = exists
        self._transaction_version = transaction_version
        self._sending: dict[TransactionalId, asyncio.Task[None]] = {}
        """Whose markers are on their way."""

        def new_machine() -> "StateMachine[TransactionEvent, TransactionRecord]":
            from ottla.transactions.state_machine import TransactionMachine  # for brokers that have transactions

            return TransactionMachine(settings, transaction_version)

        runtime = CoordinatorRuntime(
            "transaction coordinator",
            topic.log,
            new_machine,
            clock,
            commit_timeout_ms=commit_timeout_ms,
            listener=self._send_markers,
        )
        super().__init__(topic, runtime)

    @classmethod
    def of_broker(
        cls,
        config: "BrokerConfig",
        metadata: "MetadataView",
        replicas: "ReplicaManager",
        markers: MarkerSender,
        clock: Clock,
    ) -> Self:
        """The coordinator of a running broker, subscribed to leadership."""
        settings = TransactionConfig(
            transaction_max_timeout_ms=config.transaction_max_timeout_ms,
            transactional_id_expiration_ms=config.transactional_id_expiration_ms,
            remove_expired_interval_ms=config.transaction_remove_expired_transaction_cleanup_interval_ms,
        )
        topic = CoordinatorTopic.of_broker(
            TRANSACTION_STATE_TOPIC, metadata, replicas, config.transaction_state_log_num_partitions
        )
        created = cls(
            topic,
            markers,
            clock,
            next_producer_id=metadata.next_producer_id,
            exists=lambda partition: metadata.image.partition(partition) is not None,
            transaction_version=lambda: metadata.feature("transaction.version"),
            config=settings,
            commit_timeout_ms=config.request_timeout_ms,
        )
        topic.lead(created, metadata, replicas)
        return created

    def on_resign(self, partition: PartitionId) -> None:
        """Leave the markers still to be written to the partition's next leader."""
        super().on_resign(partition)
        for transactional_id, task in self._sending.items():
            if self.partition_for(transactional_id) == partition:
                task.cancel()

    async def stop(self) -> None:
        """End as every coordinator does, then leave unsent markers to the next coordinator: the last writes
        may have been the end of a transaction."""
        await super().stop()
        sending = list(self._sending.values())
        for task in sending:
            task.cancel()
        await asyncio.gather(*sending, return_exceptions=True)

    # --- producers ---

    async def init_producer(
        self, transactional_id: str, timeout_ms: int, expected: ProducerIdAndEpoch | None = None
    ) -> Granted:
        """An id and epoch for the producer, which fence the previous producer of the transactional id.

        `expected` is the id and epoch of a producer that continues after an error (KIP-360).
        """
        if not transactional_id:
            return Granted(ErrorCode.INVALID_REQUEST)
        if len(transactional_id.encode(errors="surrogatepass")) > LONGEST_ID_BYTES:
            return Granted(ErrorCode.UNKNOWN_SERVER_ERROR)  # as in Kafka, which finds out when it writes the record
        return await self._grant(InitProducer(TransactionalId(transactional_id), timeout_ms, expected))

    async def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        *,
        verify_only: bool,
        client_version: int = SECOND_GENERATION,
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Add partitions to the producer's transaction, which begins with the first ones; or with `verify_only` say of
        each whether it is in the ongoing transaction: NONE, or TRANSACTION_ABORTABLE (KIP-890).

        `client_version` is 0 for clients that add partitions themselves, 2 for those whose leaders do it.
        """
        if not transactional_id:
            return dict.fromkeys(partitions, ErrorCode.INVALID_REQUEST)
        producer, wanted = ProducerIdAndEpoch(producer_id, producer_epoch), frozenset(partitions)
        asked = TransactionalId(transactional_id)
        if verify_only:
            return await self.submit(asked, VerifyPartitions(asked, producer, wanted))
        error = await self.submit(asked, AddPartitions(asked, producer, wanted, client_version))
        return dict.fromkeys(partitions, error)

    async def end_transaction(
        self, transactional_id: str, producer: ProducerIdAndEpoch, *, committed: bool, client_version: int
    ) -> Granted:
        """Commit or abort; returns when that is decided for good. `client_version`: 2 for a client that goes on with
        the id and epoch in the answer, else 0."""
        if not transactional_id:
            return Granted(ErrorCode.INVALID_REQUEST)
        return await self._grant(EndTransaction(TransactionalId(transactional_id), producer, committed, client_version))

    async def _grant(self, request: InitProducer | EndTransaction) -> Granted:
        answer = await self.submit(request.transactional_id, request)
        while isinstance(answer, NeedsProducerId):
            request = replace(request, fresh_producer_id=await self._next_producer_id())
            answer = await self.submit(request.transactional_id, request)
        return answer

    # --- administration ---

    async def describe(self, transactional_id: str) -> "Transaction":
        """Raises `ApiError` INVALID_REQUEST, TRANSACTIONAL_ID_NOT_FOUND."""
        if not transactional_id:
            raise ApiError(ErrorCode.INVALID_REQUEST, "a transactional id cannot be empty")
        asked = TransactionalId(transactional_id)
        found = await self.submit(asked, DescribeTransaction(asked))
        if found is None:
            raise ApiError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, f"no transaction has the id {transactional_id}")
        return found

    async def list_transactions(
        self,
        *,
        states: Collection[str] = (),
        producer_ids: Collection[int] = (),
        longer_than_ms: int = -1,
        id_pattern: str | None = None,
    ) -> list[TransactionListing]:
        """Every transactional id coordinated here that passes all filters; a filter that is empty or negative passes
        everything. A pattern (RE2's, as for subscriptions) has to match the whole id.

        Raises `CoordinatorLoadInProgress` while any partition is being read, `ApiError` INVALID_REGULAR_EXPRESSION.
        """
        matches = _matcher(id_pattern)
        wanted = {STATES_BY_LABEL[state] for state in states if state in STATES_BY_LABEL}
        begun_before_ms = self._clock.now_ms() - longer_than_ms
        found: list[TransactionListing] = []
        for partition in self._runtime.partitions():
            try:
                listings = await self._runtime.submit(partition, ListTransactions())
            except NotCoordinator:
                continue  # it has moved meanwhile, and is listed where it is now
            found += [
                listing
                for listing in listings
                if (not producer_ids or listing.transaction.producer_id in producer_ids)
                and (not states or listing.transaction.state in wanted)
                and (longer_than_ms < 0 or listing.transaction.started_ms < begun_before_ms)
                and (matches is None or matches(listing.transactional_id))
            ]
        return found

    # --- markers ---

    def _send_markers(self, partition: PartitionId, epoch: LeaderEpoch, message: SendMarkers) -> None:
        transactional_id = message.transactional_id
        predecessor = self._sending.get(transactional_id)
        if predecessor is not None:
            # A sender of a discarded machine. Cancelled at once: its last step would be to report completion, and the
            # markers that follow here would come late, and could end the next transaction.
            predecessor.cancel()
        work = self._end_everywhere(partition, epoch, message, predecessor)
        task = supervised(asyncio.get_running_loop(), work, f"markers of {transactional_id}")
        self._sending[transactional_id] = task
        task.add_done_callback(lambda done: self._sent(transactional_id, done))

    def _sent(self, transactional_id: TransactionalId, task: "asyncio.Task[None]") -> None:
        if self._sending.get(transactional_id) is task:
            del self._sending[transactional_id]

    async def _end_everywhere(
        self,
        partition: PartitionId,
        epoch: LeaderEpoch,
        message: SendMarkers,
        predecessor: "asyncio.Task[None] | None",
    ) -> None:
        if predecessor is not None:
            await asyncio.wait([predecessor])
        if not await self._deliver(partition, message, message.marker(epoch)):
            return
        transactional_id, producer = message.transactional_id, message.producer
        try:
            await self.submit(transactional_id, MarkersWritten(transactional_id, producer))
        except OttlaError as error:  # the next coordinator finds the transaction prepared, and sends the markers again
            log.info("%s is not completed here: %s", transactional_id, error)

    async def _deliver(self, partition: PartitionId, message: SendMarkers, marker: TransactionMarker) -> bool:
        """Until every partition has its marker; False if that is not up to this broker any more."""
        waiting, pause_s = set(message.partitions), FIRST_RETRY_S
        while waiting:
            # in order, not as a set has them: a simulated run is to be the same whatever the hash seed
            for taken, error in (await self._try_to_send(marker, sorted(waiting))).items():
                if error is ErrorCode.TRANSACTION_COORDINATOR_FENCED:
                    log.warning("%s: %s has a marker of a later coordinator", message.transactional_id, taken)
                    return False
                if error in SETTLED or not self._exists(taken):
                    waiting.discard(taken)
                if error is not ErrorCode.NONE:
                    log.info("%s: the marker for %s: %s", message.transactional_id, taken, error.name)
            if waiting:
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, LAST_RETRY_S)
                if partition not in self._runtime.partitions():
                    return False
        return True

    async def _try_to_send(
        self, marker: TransactionMarker, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, ErrorCode]:
        try:
            return await self._markers.send(marker, partitions)
        except Exception:  # a defect; but a transaction that never ends holds up its readers and its producer
            log.exception("the markers of producer %d cannot be sent, and will be again", marker.producer_id)
            return {}


def unknown_states(states: Collection[str]) -> list[str]:
    """The names that are no state of a transaction."""
    return [state for state in states if state not in STATES_BY_LABEL and state not in TRANSIENT_LABELS]


def _matcher(pattern: str | None) -> Callable[[str], object] | None:
    if not pattern:
        return None
    try:
        return matcher(pattern)
    except ValueError as error:
        raise ApiError(
            ErrorCode.INVALID_REGULAR_EXPRESSION, f"{pattern!r} is not a valid regular expression: {error}"
        ) from error
