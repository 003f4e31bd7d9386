"""A transaction machine that is asked, with clients that remember what they were granted."""

from dataclasses import replace
from itertools import count
from typing import Any, TypeVar, cast

from tests.support.state_machines import Driver

from ottla.coordination.state_machine import Request
from ottla.errors import ErrorCode
from ottla.ids import PartitionId, ProducerId, ProducerIdAndEpoch, TopicName, TopicPartition, TransactionalId
from ottla.transactions.config import TransactionConfig
from ottla.transactions.events import (
    NEEDS_PRODUCER_ID,
    AddPartitions,
    EndTransaction,
    Granted,
    InitProducer,
    MarkersWritten,
    SendMarkers,
    VerifyPartitions,
)
from ottla.transactions.records import Transaction, TransactionChanged
from ottla.transactions.state_machine import TransactionMachine

RequestT = TypeVar("RequestT", bound=Request[Any])

T = TransactionalId("t")
TIMEOUT_MS = 60_000
P0, P1, P2 = (TopicPartition(TopicName("orders"), PartitionId(number)) for number in range(3))
CONFIG = TransactionConfig()


class Asking:
    """Time stands still until `driver.pass_time`; markers are written when the test says so."""

    def __init__(self, *, version: int = 2, config: TransactionConfig = CONFIG) -> None:
        self.version = version
        self.config = config
        self.driver = Driver(self.new_machine())
        self.ids = count(100)

    def new_machine(self) -> TransactionMachine:
        return TransactionMachine(self.config, lambda: self.version)

    def begin_with(self, **fields: Any) -> None:
        """As if a coordinator had left this."""
        self.driver.carry_out([])
        record = TransactionChanged(T, Transaction(**fields))
        self.driver.machine.replay(record, len(self.driver.log), -1)
        self.driver.log.append(record)

    def take_over(self) -> None:
        """Another coordinator reads the log."""
        machine = self.new_machine()
        for position, record in enumerate(self.driver.log):
            encoded = machine.records.encode(record)
            machine.replay(cast(Any, machine.records.decode(*encoded)), position, -1)
        self.driver = Driver(machine, self.driver.now_ms, self.driver.log)
        self.driver.carry_out(machine.loaded(self.driver.now_ms))

    @property
    def transaction(self) -> Transaction:
        found: Transaction = self.driver.machine.transactions[T]
        return found

    @property
    def to_send(self) -> list[SendMarkers]:
        return self.driver.told

    def send(self, request: RequestT) -> RequestT:
        """Send a request, whose reply may come later."""
        self.driver.send(request)
        return request

    def ask(self, event: Any) -> Any:
        """The reply, which has to come at once; with a fresh producer id if one is asked for."""
        answer = self.driver.reply(self.send(event))
        if answer is NEEDS_PRODUCER_ID:
            answer = self.driver.reply(self.send(replace(event, fresh_producer_id=ProducerId(next(self.ids)))))
        return answer

    def init(self, expected: tuple[int, int] | None = None, timeout_ms: int = TIMEOUT_MS) -> Granted:
        named = None if expected is None else ProducerIdAndEpoch(*expected)
        granted: Granted = self.ask(InitProducer(T, timeout_ms, named))
        return granted

    def started(self) -> ProducerIdAndEpoch:
        """A producer that has been granted what it asked for."""
        granted = self.init()
        assert granted.error is ErrorCode.NONE
        return ProducerIdAndEpoch(granted.producer_id, granted.producer_epoch)

    def add(self, producer: ProducerIdAndEpoch, *partitions: TopicPartition, version: int = 2) -> ErrorCode:
        error: ErrorCode = self.ask(AddPartitions(T, producer, frozenset(partitions), version))
        return error

    def verify(self, producer: ProducerIdAndEpoch, *partitions: TopicPartition) -> dict[TopicPartition, ErrorCode]:
        verdicts: dict[TopicPartition, ErrorCode] = self.ask(VerifyPartitions(T, producer, frozenset(partitions)))
        return verdicts

    def end(self, producer: ProducerIdAndEpoch, *, committed: bool, version: int = 2) -> Granted:
        granted: Granted = self.ask(EndTransaction(T, producer, committed, version))
        return granted

    def write_markers(self) -> SendMarkers:
        """Every partition has the marker that is to be sent."""
        message = self.driver.told.pop(0)
        assert isinstance(message, SendMarkers)
        self.send(MarkersWritten(message.transactional_id, message.producer))
        return message
