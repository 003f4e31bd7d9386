"""Producers of both generations that start, add, end, crash and send late, while coordinators come and go.

What must hold whatever happens:
- nobody is answered twice, and nobody is left waiting once time has passed;
- a transaction of the second generation ends as its producer was told, in every partition that was added;
- a request of a producer or transaction that is over changes nothing;
- what is decided is done: a prepared transaction is completed the same way, and no partition is forgotten before;
- producer epochs never go back, no two producers that start get the same, and no client gets the highest one;
- a machine that only reads the log knows what the machine that wrote it knows.
"""

from dataclasses import dataclass, field, replace
from typing import Any, cast

from hypothesis import event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.unit.transactions.asking import P0, P1, P2, TIMEOUT_MS, Asking, T

from ottla.coordination.state_machine import Request
from ottla.errors import ErrorCode
from ottla.ids import ProducerId, ProducerIdAndEpoch, TopicPartition
from ottla.transactions.config import TransactionConfig
from ottla.transactions.epochs import LAST_EPOCH_OF_CLIENTS
from ottla.transactions.events import (
    NEEDS_PRODUCER_ID,
    AddPartitions,
    EndTransaction,
    InitProducer,
    MarkersWritten,
    SendMarkers,
)
from ottla.transactions.records import TransactionChanged, TransactionForgotten
from ottla.transactions.states import EMPTY, ONGOING, PREPARE_COMMIT

CLIENTS = st.integers(0, 2)
PARTITIONS = st.frozensets(st.sampled_from([P0, P1, P2]), min_size=1)
STEPS = st.lists(PARTITIONS, min_size=1, max_size=3)
EXPIRATION_MS = 3_600_000


@dataclass
class Client:
    """What a producer knows. The first one speaks the first generation of the protocol."""

    version: int
    producer: ProducerIdAndEpoch | None = None
    added: set[TopicPartition] = field(default_factory=set)


@dataclass
class Sent:
    """A request on its way, or answered."""

    client: int
    event: Any
    producer: ProducerIdAndEpoch | None
    answers: int = 0


class Transactions(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        config = TransactionConfig(transactional_id_expiration_ms=EXPIRATION_MS, remove_expired_interval_ms=60_000)
        self.asking = Asking(config=config)
        self.asking.driver.carry_out(self.asking.driver.machine.loaded(self.asking.driver.now_ms))
        self.clients = [Client(0), Client(2), Client(2)]
        self.sent: dict[Request[Any], Sent] = {}
        self.late: list[Any] = []
        """Requests that may come a second time."""
        self.started: set[ProducerIdAndEpoch] = set()
        self.markers: list[SendMarkers] = []
        """Told, and not yet said to be written; those of coordinators that are gone among them."""

    # --- requests and their answers ---

    def send(self, client: int, request: Any) -> None:
        self.asking.send(request)
        self.sent[request] = Sent(client, request, self.clients[client].producer)
        if not isinstance(request, InitProducer):
            self.late.append(request)
        self.settle()

    def settle(self) -> None:
        """Read the answers; requests that need a producer id are sent again with one."""
        driver = self.asking.driver
        for request, values in list(driver.replies.items()):
            sent = self.sent.get(request)
            if sent is None or sent.answers == len(values):
                continue
            assert len(values) == 1, f"{sent.event} was answered {values}"
            sent.answers = 1
            if values[0] is NEEDS_PRODUCER_ID:
                fresh = replace(sent.event, fresh_producer_id=ProducerId(next(self.asking.ids)))
                self.asking.send(fresh)
                self.sent[fresh] = Sent(sent.client, sent.event, sent.producer)
                self.settle()
                return
            self.read(sent, values[0])
        self.markers += driver.told
        driver.told.clear()

    def read(self, sent: Sent, answer: Any) -> None:
        if isinstance(sent.event, InitProducer) and sent.event.expected is None and answer.error is ErrorCode.NONE:
            fresh = ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)
            assert fresh not in self.started, "two producers are the same"
            self.started.add(fresh)
        client = self.clients[sent.client]
        if client.producer != sent.producer:
            return  # it has gone on since
        match sent.event:
            case InitProducer() if answer.error is ErrorCode.NONE:
                client.producer = ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)
                client.added = set()
                assert client.producer.epoch <= LAST_EPOCH_OF_CLIENTS
            case AddPartitions() if answer is ErrorCode.NONE:
                client.added |= sent.event.partitions
            case EndTransaction() if answer.error is ErrorCode.NONE:
                event(f"generation {client.version} ended, committed: {sent.event.committed}")
                if client.version == 2:
                    self.check_end(sent.event, client.added)
                    client.producer = ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)
                    assert client.producer.epoch <= LAST_EPOCH_OF_CLIENTS
                client.added = set()
            case _:
                pass

    def check_end(self, told: EndTransaction, added: set[TopicPartition]) -> None:
        ends = [
            record.transaction
            for record in self.asking.driver.log
            if isinstance(record, TransactionChanged)
            and record.transaction.state.is_prepared
            and (record.transaction.producer_id, record.transaction.producer_epoch - 1) == told.producer
        ]
        assert [end.state is PREPARE_COMMIT for end in ends] == [told.committed], f"{told} came to {ends}"
        assert added <= ends[0].partitions, f"{added - ends[0].partitions} will not be told of {told}"

    # --- what producers do ---

    @rule(number=CLIENTS, goes_on=st.booleans())
    def starts(self, number: int, goes_on: bool) -> None:
        expected = self.clients[number].producer if goes_on else None
        if not goes_on:
            self.clients[number] = Client(self.clients[number].version)
        self.send(number, InitProducer(T, TIMEOUT_MS, expected))

    @rule(number=CLIENTS, partitions=PARTITIONS)
    def adds(self, number: int, partitions: frozenset[TopicPartition]) -> None:
        client = self.clients[number]
        if client.producer is not None:
            self.send(number, AddPartitions(T, client.producer, partitions, client.version))

    @rule(number=CLIENTS, committed=st.booleans())
    def ends(self, number: int, committed: bool) -> None:
        client = self.clients[number]
        if client.producer is not None:
            self.send(number, EndTransaction(T, client.producer, committed, client.version))

    @rule(number=CLIENTS, steps=STEPS, committed=st.booleans(), aged=st.booleans())
    def goes_through_transactions(
        self, number: int, steps: list[frozenset[TopicPartition]], committed: bool, aged: bool
    ) -> None:
        """Undisturbed, so that everything has to succeed; with `aged`, across the end of a producer id."""
        self.markers_are_written(True)
        self.starts(number, False)
        self.markers_are_written(True)
        if aged:
            self.years_pass(LAST_EPOCH_OF_CLIENTS)
        client = self.clients[number]
        for _ in range(2):
            for partitions in steps:
                self.adds(number, partitions)
            assert client.added == frozenset().union(*steps)
            self.ends(number, committed)
            assert not client.added, "it has not ended"
            self.markers_are_written(True)

    @rule(data=st.data())
    @precondition(lambda self: self.late)
    def comes_late(self, data: st.DataObject) -> None:
        """A request that was sent before, from a connection that was thought dead; nobody hears the answer."""
        request = data.draw(st.sampled_from(self.late))
        before = self.asking.transaction if T in self.asking.driver.machine.transactions else None
        written = len(self.asking.driver.log)
        self.asking.send(replace(request))
        self.markers += self.asking.driver.told
        self.asking.driver.told.clear()
        if before is not None and request.producer != (before.producer_id, before.producer_epoch):
            appended = [
                record for record in self.asking.driver.log[written:] if record != TransactionChanged(T, before)
            ]
            assert not appended or before.state.is_prepared, f"{request} of the past has done {appended}"

    # --- what the coordinator sees of the world ---

    @rule(all_of_them=st.booleans())
    def markers_are_written(self, all_of_them: bool) -> None:
        while self.markers:
            message = self.markers.pop(0)
            event("markers are written")
            self.asking.send(MarkersWritten(message.transactional_id, message.producer))
            self.settle()
            if not all_of_them:
                break

    @rule(ms=st.sampled_from([1, 1_000, TIMEOUT_MS, EXPIRATION_MS]))
    def time_passes(self, ms: int) -> None:
        self.asking.driver.pass_time(ms)
        self.settle()

    @rule(to=st.sampled_from([LAST_EPOCH_OF_CLIENTS - 1, LAST_EPOCH_OF_CLIENTS]))
    @precondition(lambda self: T in self.asking.driver.machine.transactions)
    def years_pass(self, to: int) -> None:
        """So many transactions that the epochs are almost used up."""
        now = self.asking.transaction
        if now.state.is_prepared or now.producer_epoch >= to:
            return
        event("epochs are almost used up")
        here = ProducerIdAndEpoch(now.producer_id, now.producer_epoch)
        self.asking.begin_with(**now._replace(producer_epoch=to, last_producer_epoch=-1)._asdict())
        for client in self.clients:
            if client.producer == here:
                client.producer = ProducerIdAndEpoch(now.producer_id, to)

    @rule(level=st.sampled_from([0, 1, 2]))
    def the_feature_level_changes(self, level: int) -> None:
        self.asking.version = max(level, 1)  # at 0 the log cannot hold all that there is to know

    @rule()
    def another_coordinator_takes_over(self) -> None:
        """The runtime refuses waiting requests, which their clients send again later."""
        for sent in self.sent.values():
            sent.answers = 1
        self.markers.clear()  # who has sent them is gone, and so is what it would have said
        self.asking.take_over()
        self.settle()

    # --- what must hold ---

    @invariant()
    def the_log_tells_it_all(self) -> None:
        machine = self.asking.new_machine()
        for position, record in enumerate(self.asking.driver.log):
            machine.replay(cast(Any, machine.records.decode(*machine.records.encode(record))), position, -1)
        assert machine.transactions == self.asking.driver.machine.transactions

    @invariant()
    def epochs_never_go_back(self) -> None:
        latest: dict[ProducerId, int] = {}
        current: ProducerId | None = None
        for record in self.asking.driver.log:
            if isinstance(record, TransactionForgotten):
                current = None
                continue
            now = record.transaction
            assert now.producer_epoch >= latest.get(now.producer_id, -1), "an epoch went back"
            if current is not None and now.producer_id != current:
                assert now.producer_id not in latest, "a producer id came back"
            latest[now.producer_id], current = now.producer_epoch, now.producer_id

    @invariant()
    def an_end_that_is_decided_stands(self) -> None:
        prepared = None
        for record in self.asking.driver.log:
            if isinstance(record, TransactionForgotten):
                assert prepared is None
                continue
            now = record.transaction
            if prepared is not None:
                expected = prepared.state + 2  # complete, in the way that was decided
                assert now.state == expected, f"{prepared} became {now}"
            prepared = now if now.state.is_prepared else None

    @invariant()
    def partitions_are_told_of_the_end(self) -> None:
        """What was added is in the transaction, until all of it is prepared at once."""
        added: frozenset[TopicPartition] = frozenset()
        for record in self.asking.driver.log:
            if isinstance(record, TransactionForgotten):
                assert not added
                continue
            now = record.transaction
            if now.state is ONGOING or now.state.is_prepared:
                assert added <= now.partitions, "a partition was forgotten"
                added = now.partitions
            elif now.state is EMPTY or now.state.is_complete:
                added = frozenset()

    def teardown(self) -> None:
        self.markers_are_written(True)
        self.time_passes(TIMEOUT_MS)
        self.markers_are_written(True)
        self.settle()
        waiting = [sent.event for sent in self.sent.values() if not sent.answers]
        assert not waiting, f"still waiting: {waiting}"
        for transaction in self.asking.driver.machine.transactions.values():
            assert transaction.state is not ONGOING
            assert not transaction.state.is_prepared


Transactions.TestCase.settings = settings(max_examples=70, stateful_step_count=40, deadline=None)
TestTransactions = Transactions.TestCase
