"""Transactions as their coordinators know them, and as the partitions see them; what does not match is hanging. PURE.

Source: KIP-664.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from ottla.admin.errors import NotFound, RequestRefused, error_name, refusal
from ottla.admin.operations.cluster import describe_cluster, list_leader_ends
from ottla.admin.operations.core import (
    TRANSACTION,
    Ask,
    Operation,
    ask_coordinator,
    brokers,
    by_topic,
    coordinator,
    leaders,
)
from ottla.client.addresses import Address
from ottla.client.partition import Partition
from ottla.errors import ErrorCode
from ottla.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from ottla.protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

ONGOING: Final = "Ongoing"
STATES: Final = (
    "Empty",
    ONGOING,
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "PrepareEpochFence",
)
"""Kafka's names for the states of a transactional id."""
_FENCING_TIMEOUT_MS: Final = 1_000
"""Every broker allows it; that of the transaction may be above the limit by now."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transactional id as its coordinator describes it.

    `started_ms` is milliseconds since 1970, and outlives the transaction; `coordinator` is the id of a broker.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    state: str
    timeout_ms: int
    started_ms: int
    partitions: frozenset[Partition]
    coordinator: int

    @property
    def is_open(self) -> bool:
        """Whether it has begun and has not ended everywhere."""
        return self.state == ONGOING or self.state.startswith("Prepare")


@dataclass(frozen=True, slots=True, order=True)
class OpenTransaction:
    """A transaction in one partition, whose end is missing there; `last_write_ms` is milliseconds since 1970."""

    partition: Partition
    producer_id: int
    epoch: int
    coordinator_epoch: int
    first_offset: int
    last_write_ms: int


@dataclass(frozen=True, slots=True)
class HangingTransaction:
    """An open transaction that no coordinator will ever end; its transactional id, if one can be found."""

    transaction: OpenTransaction
    transactional_id: str | None


@dataclass(frozen=True, slots=True, order=True)
class HeldBack:
    """What readers of committed records do not see of a partition, because a transaction is open there.

    `first_offset` is the transaction's own first record; `records` are those between the last stable offset and the
    end, if it is this transaction that holds them back, else 0. Offsets are None where no leader answers.
    """

    partition: Partition
    first_offset: int | None = None
    last_stable_offset: int | None = None
    end_offset: int | None = None
    records: int | None = None


def list_transactions(
    *, states: Collection[str] = (), producer_ids: Collection[int] = (), longer_than_ms: int = -1
) -> Operation[list[Transaction]]:
    """List the transactional ids of the cluster: all, or those in one of these states (see `STATES`), of one of these
    producers, or whose transaction has been open for longer (milliseconds).

    Raises `ClientError` if a broker refuses or does not answer.
    """
    found: list[Transaction] = []
    for broker, address in sorted((yield from brokers()).items()):
        wanted = ListTransactionsRequest(
            state_filters=list(states), producer_id_filters=list(producer_ids), duration_filter=longer_than_ms
        )
        listed: ListTransactionsResponse = yield Ask(wanted, address)
        if listed.error_code:
            raise RequestRefused(
                f"broker {broker} does not list its transactions: {refusal(listed.error_code)}", listed.error_code
            )
        ids = [each.transactional_id for each in listed.transaction_states]
        found += yield from _described(ids, broker, address)
    if longer_than_ms >= 0:  # brokers also list ids without a transaction, which began at -1
        found = [each for each in found if each.is_open]
    return sorted(found, key=lambda each: each.transactional_id)


def describe_transaction(transactional_id: str) -> Operation[Transaction]:
    """Describe one transactional id. Raises `NotFound`, `ClientError`."""
    address = yield from coordinator(transactional_id, TRANSACTION)
    broker = next((number for number, there in (yield from brokers()).items() if there == address), -1)
    found = yield from _described([transactional_id], broker, address)
    if not found:
        raise NotFound(f"transactional id {transactional_id!r} does not exist", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    return found[0]


def _described(ids: list[str], broker: int, address: Address) -> Operation[list[Transaction]]:
    if not ids:
        return []
    answer: DescribeTransactionsResponse = yield Ask(DescribeTransactionsRequest(transactional_ids=ids), address)
    found = []
    for each in answer.transaction_states:
        if each.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            continue  # it never existed, or has expired since it was listed
        if each.error_code:
            raise RequestRefused(
                f"transactional id {each.transactional_id!r} cannot be described: {refusal(each.error_code)}",
                each.error_code,
            )
        found.append(
            Transaction(
                each.transactional_id,
                each.producer_id,
                each.producer_epoch,
                each.transaction_state,
                each.transaction_timeout_ms,
                each.transaction_start_time_ms,
                frozenset(Partition(topic.topic, number) for topic in each.topics for number in topic.partitions),
                broker,
            )
        )
    return found


def list_open_transactions(partitions: Iterable[Partition]) -> Operation[list[OpenTransaction]]:
    """List the transactions that are open in these partitions, as their leaders report them.

    Partitions without a leader, or that do not exist, are left out. Raises `ClientError`.
    """
    by_leader: dict[Address, list[Partition]] = {}
    for partition, leader in (yield from leaders(partitions)).items():
        by_leader.setdefault(leader, []).append(partition)
    found: list[OpenTransaction] = []
    for leader, led in by_leader.items():
        wanted = [TopicRequest(name=name, partition_indexes=numbers) for name, numbers in by_topic(led).items()]
        answer: DescribeProducersResponse = yield Ask(DescribeProducersRequest(topics=wanted), leader)
        for topic in answer.topics:
            for described in topic.partitions:
                partition = Partition(topic.name, described.partition_index)
                if described.error_code:
                    reason = refusal(described.error_code, described.error_message)
                    raise RequestRefused(
                        f"the producers of {partition} cannot be described: {reason}", described.error_code
                    )
                found += [
                    OpenTransaction(
                        partition,
                        producer.producer_id,
                        producer.producer_epoch,
                        producer.coordinator_epoch,
                        producer.current_txn_start_offset,
                        producer.last_timestamp,
                    )
                    for producer in described.active_producers
                    if producer.current_txn_start_offset >= 0
                ]
    return sorted(found)


def list_held_back(known: Transaction) -> Operation[list[HeldBack]]:
    """What a transaction holds back in each of its partitions. Raises `ClientError`."""
    cluster = yield from describe_cluster(sorted({each.topic for each in known.partitions}))
    there = [each for each in known.partitions if each in cluster.partitions]  # a topic may have been deleted
    led = sorted(each for each in there if cluster.partitions[each].leader is not None)
    opened = yield from list_open_transactions(led)
    firsts = {each.partition: each.first_offset for each in opened if each.producer_id == known.producer_id}
    ends = yield from list_leader_ends(cluster, led)
    stable = yield from list_leader_ends(cluster, led, committed=True)
    rows = []
    for partition in sorted(known.partitions):
        first, end, last_stable = firsts.get(partition), ends.get(partition), stable.get(partition)
        records = None
        if end is not None and last_stable is not None:
            records = max(end - last_stable, 0) if first is not None and first == last_stable else 0
        rows.append(HeldBack(partition, first, last_stable, end, records))
    return rows


def find_hanging_transactions(
    partitions: Iterable[Partition], silent_since_ms: int
) -> Operation[list[HangingTransaction]]:
    """Find the open transactions in which nothing was written since `silent_since_ms` (milliseconds since 1970), and
    of which no coordinator knows that they reach that partition.

    A coordinator ends each transaction that it knows when its timeout is over, and no timeout is longer than
    `transaction.max.timeout.ms`: with a later `silent_since_ms` than that ago, some found here may still end.
    Raises `ClientError`.
    """
    opened = yield from list_open_transactions(partitions)
    silent = [each for each in opened if each.last_write_ms < silent_since_ms]
    if not silent:
        return []
    known = yield from list_transactions(producer_ids=sorted({each.producer_id for each in silent}))
    owners = {each.producer_id: each for each in known}
    hanging: list[HangingTransaction] = []
    for each in silent:
        owner = owners.get(each.producer_id)
        if owner is None or each.partition not in owner.partitions:
            hanging.append(HangingTransaction(each, None if owner is None else owner.transactional_id))
    return hanging


def abort_transaction(transactional_id: str) -> Operation[None]:
    """Have its coordinator abort the open transaction of a transactional id, in all its partitions, and fence its
    producer. Raises `ClientError`."""
    request = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=_FENCING_TIMEOUT_MS,
        producer_id=-1,
        producer_epoch=-1,
    )
    answer: InitProducerIdResponse = yield from ask_coordinator(
        transactional_id, TRANSACTION, request, lambda answered: int(answered.error_code)
    )
    if answer.error_code:
        raise RequestRefused(
            f"the transaction of {transactional_id!r} cannot be aborted: {refusal(answer.error_code)}",
            answer.error_code,
        )


def find_owner(transaction: OpenTransaction) -> Operation[Transaction | None]:
    """The transactional id whose coordinator knows an open transaction, and will end it; None: it is hanging.

    Raises `ClientError`.
    """
    for known in (yield from list_transactions(producer_ids=[transaction.producer_id])):
        if known.is_open and transaction.partition in known.partitions:
            return known
    return None


def abort_hanging_transaction(transaction: OpenTransaction) -> Operation[None]:
    """Write the marker that aborts a hanging transaction into its one partition.

    Refused for one that a coordinator knows: that may commit it later elsewhere. Raises `ClientError`.
    """
    owner = yield from find_owner(transaction)
    if owner is not None:
        raise RequestRefused(
            "the transaction is not hanging, its coordinator knows it: abort it by its transactional id "
            f"{owner.transactional_id!r}",
            ErrorCode.INVALID_TXN_STATE,
        )
    partition = transaction.partition
    leader = (yield from leaders([partition])).get(partition)
    if leader is None:
        raise NotFound(f"partition {partition} does not exist, or has no leader", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    marker = WritableTxnMarker(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=partition.topic, partition_indexes=[partition.partition])],
        coordinator_epoch=max(transaction.coordinator_epoch, 0),
    )
    answer: WriteTxnMarkersResponse = yield Ask(WriteTxnMarkersRequest(markers=[marker]), leader)
    code = answer.markers[0].topics[0].partitions[0].error_code
    if code:
        raise RequestRefused(f"the transaction in {partition} cannot be aborted: {_marker_failure(code)}", code)


def _marker_failure(code: int) -> str:
    if code == ErrorCode.INVALID_PRODUCER_EPOCH:
        return "its producer has gone on with a later epoch, so the transaction is over"
    if code == ErrorCode.TRANSACTION_COORDINATOR_FENCED:
        return "a coordinator of a later epoch has written there"
    return f"{refusal(code)} ({error_name(code)})"
