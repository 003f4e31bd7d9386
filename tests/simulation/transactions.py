"""A producer of transactions in the simulated cluster: what it commits is seen whole, what it aborts never."""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from ottla.client.asynchronous import AsyncConnection
from ottla.client.errors import BrokerUnavailable
from ottla.errors import ErrorCode
from ottla.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.schema import Message
from ottla.records.record import encode_batch
from tests.simulation.clients import ANSWER_WITHIN_S, INIT_PRODUCER_ID, PAUSE_S, SimProducer, as_records
from tests.simulation.history import Outcome, Transaction

FIND_COORDINATOR: Final = 3
ADD_PARTITIONS_TO_TXN: Final = 3
END_TXN: Final = 3
"""What clients before Kafka 4.0 send: partitions are added by the client."""
TRANSACTION: Final = 1
TIMEOUT_MS: Final = 4_000
PASSES: Final = frozenset(
    (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
    )
)


class Abandoned(Exception):
    """The transaction cannot go on; beginning anew ends it."""


class SimTransactor(SimProducer):
    """One transaction after the other, of one to three partitions; a quarter of them it aborts itself."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._coordinator: str | None = None
        self._identity = (-1, -1)
        self._sequences: dict[int, int] = {}

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._begin_anew()
            try:
                while True:
                    await self._transact(self._history.begin())
                    await self._rest()
            except Abandoned:
                continue

    async def _begin_anew(self) -> None:
        """A new epoch of the transactional id: what was open before is aborted, unless its commit was sent."""
        request = InitProducerIdRequest(transactional_id=self._name, transaction_timeout_ms=TIMEOUT_MS)
        while True:
            answer = await self._ask_coordinator(request, INIT_PRODUCER_ID)
            if not answer.error_code:
                break
            await self._start_over()
        self._identity, self._sequences = (answer.producer_id, answer.producer_epoch), {}
        for transaction in self._history.transactions:
            if transaction.outcome is Outcome.OPEN:
                transaction.outcome = Outcome.ABORTED

    async def _transact(self, transaction: Transaction) -> None:
        """Raises Abandoned."""
        first = await self._some_partition()
        partitions = sorted({first, *(self._random.choice(sorted(self._leaders)) for _ in range(2))})
        await self._add(partitions)
        for partition in partitions:
            values = self._new_values()
            transaction.values += values
            self._history.transaction_of |= dict.fromkeys(values, transaction)
            await self._write(partition, values)
        wants_commit = self._random.random() < 0.75
        if wants_commit:
            transaction.outcome = Outcome.IN_DOUBT
        await self._end(commit=wants_commit)
        transaction.outcome = Outcome.COMMITTED if wants_commit else Outcome.ABORTED

    async def _add(self, partitions: Sequence[int]) -> None:
        producer_id, epoch = self._identity
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._name,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=self._topic, partitions=list(partitions))],
        )
        while True:
            answer = await self._ask_coordinator(request, ADD_PARTITIONS_TO_TXN)
            results = [
                result.partition_error_code
                for topic in answer.results_by_topic_v3_and_below
                for result in topic.results_by_partition
            ]
            if not any(results):
                return
            await self._pass(ErrorCode(max(results)))

    async def _write(self, partition: int, values: Sequence[bytes]) -> None:
        producer_id, epoch = self._identity
        sequence = self._sequences.get(partition, 0)
        batch = encode_batch(
            as_records(values),
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=True,
        )
        offset = await self._produce(partition, batch, transactional_id=self._name)
        if offset is None:
            await self._start_over()
            raise Abandoned
        self._sequences[partition] = sequence + len(values)
        self._acknowledged(partition, offset, values, once=True)

    async def _end(self, *, commit: bool) -> None:
        producer_id, epoch = self._identity
        request = EndTxnRequest(
            transactional_id=self._name, producer_id=producer_id, producer_epoch=epoch, committed=commit
        )
        while True:
            answer = await self._ask_coordinator(request, END_TXN)
            if not answer.error_code:
                return
            await self._pass(ErrorCode(answer.error_code))

    async def _pass(self, code: ErrorCode) -> None:
        """Wait, and look again who coordinates, after an error that passes. Raises Abandoned after others."""
        if code not in PASSES:
            raise Abandoned
        self._coordinator = None
        await asyncio.sleep(PAUSE_S / 4)

    async def _ask_coordinator(self, request: Message, version: int) -> Any:
        while True:
            if self._coordinator is None:
                self._coordinator = await self._find_coordinator()
            if self._coordinator is not None:
                try:
                    return await self._peers[self._coordinator].ask(request, version, timeout_s=ANSWER_WITHIN_S)
                except BrokerUnavailable:
                    self._coordinator = None
            await asyncio.sleep(PAUSE_S)

    async def _find_coordinator(self) -> str | None:
        asked: AsyncConnection = self._anybody()
        request = FindCoordinatorRequest(key=self._name, key_type=TRANSACTION)
        try:
            answer = await asked.ask(request, FIND_COORDINATOR, timeout_s=ANSWER_WITHIN_S)
        except BrokerUnavailable:
            return None
        return None if answer.error_code else str(answer.host)
