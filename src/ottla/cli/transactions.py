"""Transactions as their coordinators know them, and as the partitions see them; what does not match is hanging."""

from collections.abc import Collection, Iterable, Iterator
from typing import Final, NamedTuple

from ottla.cli.exits import CommandFailed
from ottla.cli.partition import Partition
from ottla.cli.requests import Address, Requests, error_name, refusal
from ottla.errors import ErrorCode
from ottla.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.protocol.messages.describe_transactions import DescribeTransactionsRequest
from ottla.protocol.messages.list_transactions import ListTransactionsRequest

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
"""Kafka's own words for the states of a transactional id."""


class Known(NamedTuple):
    """A transactional id as its coordinator describes it; `started_ms` outlives the transaction."""

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
        return self.state == ONGOING or self.state.startswith("Prepare")


class Open(NamedTuple):
    """A transaction that a partition waits to see the end of."""

    partition: Partition
    producer_id: int
    epoch: int
    coordinator_epoch: int
    first_offset: int
    last_write_ms: int


class Hanging(NamedTuple):
    """An open transaction that no coordinator will ever end; its transactional id, if it can be told."""

    transaction: Open
    transactional_id: str | None


def known_transactions(
    requests: Requests, *, states: Collection[str] = (), producer_ids: Collection[int] = (), longer_than_ms: int = -1
) -> list[Known]:
    """Every transactional id of the cluster, or those in these states, of these producers, or open for longer.

    Raises CommandFailed.
    """
    found: list[Known] = []
    for broker, address in sorted(requests.brokers().items()):
        wanted = ListTransactionsRequest(
            state_filters=list(states), producer_id_filters=list(producer_ids), duration_filter=longer_than_ms
        )
        listed = requests.ask(wanted, to=address)
        if listed.error_code:
            raise CommandFailed(f"broker {broker} does not list its transactions: {refusal(listed.error_code)}")
        found += _described(requests, [each.transactional_id for each in listed.transaction_states], broker, address)
    return found


def known_transaction(requests: Requests, transactional_id: str) -> Known | None:
    """One of them; None if nobody knows the id. Raises CommandFailed."""
    address = requests.coordinator(transactional_id)
    broker = next((number for number, there in requests.brokers().items() if there == address), -1)
    return next(_described(requests, [transactional_id], broker, address), None)


def _described(requests: Requests, transactional_ids: list[str], broker: int, address: Address) -> Iterator[Known]:
    if not transactional_ids:
        return
    answer = requests.ask(DescribeTransactionsRequest(transactional_ids=transactional_ids), to=address)
    for each in answer.transaction_states:
        if each.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            continue  # it never was, or has expired since it was listed
        if each.error_code:
            raise CommandFailed(
                f"transactional id {each.transactional_id!r} cannot be described: {refusal(each.error_code)}"
            )
        yield Known(
            each.transactional_id,
            each.producer_id,
            each.producer_epoch,
            each.transaction_state,
            each.transaction_timeout_ms,
            each.transaction_start_time_ms,
            frozenset(Partition(topic.topic, number) for topic in each.topics for number in topic.partitions),
            broker,
        )


def open_transactions(requests: Requests, partitions: Iterable[Partition]) -> list[Open]:
    """What the leaders of these partitions say is open in them. Raises CommandFailed."""
    found: list[Open] = []
    by_leader: dict[Address, dict[str, list[int]]] = {}
    for partition, leader in requests.leaders(partitions).items():
        by_leader.setdefault(leader, {}).setdefault(partition.topic, []).append(partition.partition)
    for leader, topics in by_leader.items():
        wanted = [TopicRequest(name=name, partition_indexes=sorted(numbers)) for name, numbers in topics.items()]
        answer = requests.ask(DescribeProducersRequest(topics=wanted), to=leader)
        for topic in answer.topics:
            for described in topic.partitions:
                partition = Partition(topic.name, described.partition_index)
                if described.error_code:
                    reason = refusal(described.error_code, described.error_message)
                    raise CommandFailed(f"the producers of {partition} cannot be described: {reason}")
                found += [
                    Open(
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


def hanging_transactions(requests: Requests, partitions: Iterable[Partition], silent_since_ms: int) -> list[Hanging]:
    """Those in which nothing was written since, and of which no coordinator knows that they reach that partition.

    A coordinator ends every transaction it knows of when its timeout is over, and no timeout is longer than
    `transaction.max.timeout.ms`. Raises CommandFailed.
    """
    silent = [each for each in open_transactions(requests, partitions) if each.last_write_ms < silent_since_ms]
    if not silent:
        return []
    known = {
        each.producer_id: each
        for each in known_transactions(requests, producer_ids=sorted({each.producer_id for each in silent}))
    }
    hanging: list[Hanging] = []
    for each in silent:
        owner = known.get(each.producer_id)
        if owner is None or each.partition not in owner.partitions:
            hanging.append(Hanging(each, None if owner is None else owner.transactional_id))
    return hanging


def marker_failure(code: int) -> str:
    """Why a marker could not be written, as (part of) a sentence."""
    if code == ErrorCode.INVALID_PRODUCER_EPOCH:
        return "its producer has gone on with a later epoch, so the transaction is over"
    if code == ErrorCode.TRANSACTION_COORDINATOR_FENCED:
        return "a coordinator of a later epoch has written there"
    return f"{refusal(code)} ({error_name(code)})"
