"""What becomes of a transactional id, request by request; error codes are those of genuine Kafka 4.1.1."""

import pytest
from tests.unit.transactions.asking import P0, P1, P2, TIMEOUT_MS, Asking, T

from ottla.coordination.state_machine import IllegalTransition, TimerFired
from ottla.errors import ErrorCode
from ottla.ids import ProducerId, ProducerIdAndEpoch, TransactionalId
from ottla.records.batch import MAX_PRODUCER_EPOCH
from ottla.transactions.config import TransactionConfig
from ottla.transactions.epochs import LAST_EPOCH_OF_CLIENTS
from ottla.transactions.events import (
    AddPartitions,
    DescribeTransaction,
    EndTransaction,
    Granted,
    InitProducer,
    ListTransactions,
    MarkersWritten,
    SendMarkers,
)
from ottla.transactions.states import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    TransactionState,
)

FENCED = Granted(ErrorCode.PRODUCER_FENCED)
BAD_STATE = Granted(ErrorCode.INVALID_TXN_STATE)
UNKNOWN = Granted(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
DONE = Granted(ErrorCode.NONE)
BOTH = pytest.mark.parametrize("version", [0, 2])


def granted(producer_id: int, epoch: int) -> Granted:
    return Granted(ErrorCode.NONE, ProducerId(producer_id), epoch)


# --- starting ---


def test_a_new_id_begins_at_epoch_0() -> None:
    asking = Asking()
    assert asking.init() == granted(100, 0)
    assert (asking.transaction.state, asking.transaction.timeout_ms) == (EMPTY, TIMEOUT_MS)


def test_each_start_fences_the_one_before() -> None:
    asking = Asking()
    first, second = asking.started(), asking.started()
    assert (second.producer_id, second.epoch) == (first.producer_id, 1)
    assert asking.add(first, P0) is ErrorCode.PRODUCER_FENCED
    assert asking.end(first, committed=False) == FENCED
    assert asking.add(second, P0) is ErrorCode.NONE


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_has_its_limits(timeout_ms: int) -> None:
    asking = Asking()
    assert asking.init(timeout_ms=timeout_ms) == Granted(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
    assert asking.driver.log == []


def test_a_producer_goes_on_with_what_it_has_and_may_ask_twice() -> None:
    asking = Asking()
    producer = asking.started()
    assert asking.init(producer) == granted(100, 1)
    assert asking.init(producer) == granted(100, 1), "the answer was lost"
    assert asking.init((100, 1)) == granted(100, 2)
    assert asking.init(producer) == FENCED


def test_the_retry_is_known_to_a_successor() -> None:
    """Kafka forgets the epoch before, and fences the producer."""
    asking = Asking()
    producer = asking.started()
    asking.init(producer)
    asking.take_over()
    assert asking.init(producer) == granted(100, 1)


def test_one_that_goes_on_is_fenced_by_one_that_starts() -> None:
    asking = Asking()
    old = asking.started()
    asking.started()
    assert asking.init(old) == FENCED
    assert asking.init((7, 0)) == FENCED
    assert asking.transaction.producer_epoch == 1


def test_a_producer_of_which_nothing_is_known_any_more_begins_anew() -> None:
    assert Asking().init((7, 3)) == granted(100, 0)


def test_an_ongoing_transaction_is_aborted_before_another_producer_starts() -> None:
    asking = Asking()
    old = asking.started()
    asking.add(old, P0, P1)
    token = asking.send(InitProducer(T, TIMEOUT_MS))
    assert asking.driver.waits(token)
    assert asking.transaction.state is PREPARE_ABORT
    message = asking.write_markers()
    assert message == SendMarkers(T, ProducerIdAndEpoch(100, 1), False, frozenset((P0, P1)), 2)
    assert asking.driver.reply(token) == granted(100, 2)
    assert asking.transaction.state is EMPTY


def test_a_fenced_producer_cannot_take_the_transaction_of_its_successor_away() -> None:
    """Kafka aborts the transaction before it finds out that the one who asks is fenced."""
    asking = Asking()
    old = asking.started()
    new = asking.started()
    asking.add(new, P0)
    assert asking.init(old) == FENCED
    assert asking.transaction.state is ONGOING
    token = asking.send(InitProducer(T, TIMEOUT_MS, new))
    asking.write_markers()
    assert asking.driver.reply(token).error is ErrorCode.NONE


# --- adding and verifying ---


@BOTH
def test_partitions_are_added_once(version: int) -> None:
    asking = Asking()
    producer = asking.started()
    assert asking.add(producer, P0, version=version) is ErrorCode.NONE
    begun = asking.transaction
    assert (begun.state, begun.started_ms, begun.client_version) == (ONGOING, asking.driver.now_ms, version)
    asking.driver.now_ms += 5
    assert asking.add(producer, P1) is ErrorCode.NONE
    written, timers = list(asking.driver.log), dict(asking.driver.timers)
    asking.driver.now_ms += 5
    assert asking.add(producer, P0, P1) is ErrorCode.NONE
    assert asking.driver.log == [*written, written[-1]], "a broker that coordinates no longer cannot write that"
    assert asking.driver.timers == timers
    assert asking.transaction.partitions == {P0, P1}
    assert asking.transaction.started_ms == begun.started_ms
    assert asking.transaction.updated_ms == begun.updated_ms + 5


def test_nothing_is_added_for_the_wrong_producer() -> None:
    asking = Asking()
    assert asking.add(ProducerIdAndEpoch(7, 0), P0) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    producer = asking.started()
    before = asking.transaction
    assert asking.add(ProducerIdAndEpoch(7, 0), P0) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert asking.add(ProducerIdAndEpoch(producer.producer_id, 1), P0) is ErrorCode.PRODUCER_FENCED
    assert asking.transaction == before


def test_verification() -> None:
    asking = Asking()
    assert asking.verify(ProducerIdAndEpoch(7, 0), P0) == {P0: ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    producer = asking.started()
    assert asking.verify(producer, P0) == {P0: ErrorCode.TRANSACTION_ABORTABLE}
    asking.add(producer, P0, version=0)
    assert asking.verify(producer, P0, P1) == {P0: ErrorCode.NONE, P1: ErrorCode.TRANSACTION_ABORTABLE}
    assert asking.verify(ProducerIdAndEpoch(7, 0), P0) == {P0: ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    assert asking.verify(ProducerIdAndEpoch(producer.producer_id, 1), P0) == {P0: ErrorCode.PRODUCER_FENCED}
    asking.end(producer, committed=True, version=0)
    assert asking.verify(producer, P0) == {P0: ErrorCode.CONCURRENT_TRANSACTIONS}
    asking.write_markers()
    assert asking.verify(producer, P0) == {P0: ErrorCode.TRANSACTION_ABORTABLE}


# --- ending, first generation ---


@pytest.mark.parametrize("committed", [True, False])
def test_the_end_of_a_transaction(committed: bool) -> None:
    asking = Asking()
    producer = asking.started()
    asking.add(producer, P0, P1, version=0)
    assert asking.end(producer, committed=committed, version=0) == DONE
    assert asking.transaction.state is (PREPARE_COMMIT if committed else PREPARE_ABORT)
    assert asking.write_markers() == SendMarkers(T, producer, committed, frozenset((P0, P1)))
    assert asking.transaction.state is (COMPLETE_COMMIT if committed else COMPLETE_ABORT)
    assert asking.transaction.partitions == frozenset()
    assert asking.end(producer, committed=committed, version=0) == DONE, "a retry"
    assert asking.end(producer, committed=not committed, version=0) == BAD_STATE
    assert asking.add(producer, P2, version=0) is ErrorCode.NONE
    assert asking.transaction.partitions == {P2}


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("committed", [True, False])
def test_a_repeated_end_is_answered_only_when_it_is_written_again(committed: bool, version: int) -> None:
    """A broker that coordinates no longer, and does not know it, cannot write. There the answer would be about an
    earlier transaction of the producer than the one that it ends (simulation, seed 77038)."""
    asking = Asking()
    producer = asking.started()
    asking.add(producer, P0, version=version)
    asking.end(producer, committed=committed, version=version)
    asking.write_markers()
    written = list(asking.driver.log)
    asking.end(producer, committed=not committed, version=version)
    assert asking.driver.log == written, "refusals are not"
    asking.end(producer, committed=committed, version=version)
    assert asking.driver.log == [*written, written[-1]]
    assert asking.to_send == []


def test_what_never_began_does_not_end() -> None:
    asking = Asking()
    assert asking.end(ProducerIdAndEpoch(7, 0), committed=True, version=0) == UNKNOWN
    producer = asking.started()
    for committed in (True, False):
        assert asking.end(producer, committed=committed, version=0) == BAD_STATE
    assert asking.end(ProducerIdAndEpoch(7, 0), committed=True, version=0) == UNKNOWN
    for epoch in (-1, 1):
        assert asking.end(ProducerIdAndEpoch(100, epoch), committed=True, version=0) == FENCED
    assert asking.to_send == []


# --- ending, second generation ---


@pytest.mark.parametrize("committed", [True, False])
def test_each_transaction_has_its_epoch(committed: bool) -> None:
    asking = Asking()
    producer = asking.started()
    asking.add(producer, P0)
    assert asking.end(producer, committed=committed) == granted(100, 1)
    assert asking.write_markers() == SendMarkers(T, ProducerIdAndEpoch(100, 1), committed, frozenset((P0,)), 2)
    assert asking.end(producer, committed=committed) == granted(100, 1), "a retry"
    assert asking.end(producer, committed=not committed) == BAD_STATE
    assert asking.add(producer, P0) is ErrorCode.PRODUCER_FENCED, "a late request"
    assert asking.add(ProducerIdAndEpoch(100, 1), P1) is ErrorCode.NONE


EMPTY_ABORTS = pytest.mark.parametrize("state", [EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT])


@EMPTY_ABORTS
def test_what_never_began_can_be_aborted_and_not_committed(state: TransactionState) -> None:
    asking = Asking()
    asking.begin_with(
        state=state, producer_id=ProducerId(100), producer_epoch=5, timeout_ms=TIMEOUT_MS, updated_ms=1, started_ms=1
    )
    producer = ProducerIdAndEpoch(100, 5)
    assert asking.end(producer, committed=True) == BAD_STATE
    assert asking.end(producer, committed=False) == granted(100, 6)
    assert asking.transaction.started_ms == asking.driver.now_ms
    assert asking.write_markers().partitions == frozenset()
    assert asking.transaction.state is COMPLETE_ABORT


@pytest.mark.parametrize("epoch", [4, 7])
@EMPTY_ABORTS
def test_the_wrong_epoch_ends_nothing(state: TransactionState, epoch: int) -> None:
    asking = Asking()
    asking.begin_with(
        state=state, producer_id=ProducerId(100), producer_epoch=6, timeout_ms=TIMEOUT_MS, updated_ms=1, started_ms=1
    )
    for committed in (True, False):
        assert asking.end(ProducerIdAndEpoch(100, epoch), committed=committed) == FENCED
        assert asking.end(ProducerIdAndEpoch(99, 6), committed=committed) == UNKNOWN


def test_the_epoch_before_is_no_retry_where_nothing_has_ended() -> None:
    asking = Asking()
    asking.started()
    producer = asking.started()
    before = ProducerIdAndEpoch(100, 0)
    assert asking.end(before, committed=False) == FENCED
    asking.add(producer, P0)
    assert asking.end(before, committed=True) == FENCED


def test_an_end_after_that_of_a_successor_of_the_first_generation_is_no_retry() -> None:
    """Kafka takes it for one, and gives the fenced producer its successor's epoch."""
    asking = Asking()
    fenced, successor = asking.started(), asking.started()
    asking.add(successor, P0, version=0)
    asking.end(successor, committed=False, version=0)
    asking.write_markers()
    assert asking.end(fenced, committed=False) == FENCED
    assert asking.end(fenced, committed=True) == FENCED


# --- epochs that are used up ---


def almost_exhausted(state: TransactionState = EMPTY) -> Asking:
    asking = Asking()
    asking.begin_with(
        state=state,
        producer_id=ProducerId(7),
        producer_epoch=LAST_EPOCH_OF_CLIENTS,
        timeout_ms=TIMEOUT_MS,
        updated_ms=asking.driver.now_ms,
        started_ms=asking.driver.now_ms if state is ONGOING else -1,
        partitions=frozenset((P0,)) if state is ONGOING else frozenset(),
    )
    return asking


LAST = ProducerIdAndEpoch(7, LAST_EPOCH_OF_CLIENTS)


@pytest.mark.parametrize("expected", [None, LAST])
def test_another_producer_id_takes_over(expected: ProducerIdAndEpoch | None) -> None:
    asking = almost_exhausted()
    assert asking.init(expected) == granted(100, 0)
    if expected is None:
        assert asking.init(LAST) == FENCED
    else:
        asking.take_over()
        assert asking.init(expected) == granted(100, 0), "the answer was lost"
    assert asking.add(LAST, P0) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize("takes_over", [False, True])
@pytest.mark.parametrize("committed", [True, False])
def test_another_producer_id_takes_over_at_the_end_of_a_transaction(committed: bool, takes_over: bool) -> None:
    asking = almost_exhausted(ONGOING)
    assert asking.end(LAST, committed=committed) == granted(100, 0)
    if takes_over:
        asking.take_over()
        asking.to_send[:-1] = []
    early = asking.send(AddPartitions(T, ProducerIdAndEpoch(100, 0), frozenset((P1,)), 2))
    assert asking.driver.waits(early)
    assert asking.write_markers() == SendMarkers(
        T, ProducerIdAndEpoch(7, MAX_PRODUCER_EPOCH), committed, frozenset((P0,)), 2
    )
    assert asking.driver.reply(early) is ErrorCode.NONE
    assert (asking.transaction.producer_id, asking.transaction.producer_epoch) == (100, 0)


def test_the_end_that_took_the_last_epoch_can_be_retried() -> None:
    asking = almost_exhausted(ONGOING)
    asking.end(LAST, committed=True)
    asking.write_markers()
    asking.take_over()
    assert asking.end(LAST, committed=True) == granted(100, 0)
    assert asking.end(LAST, committed=False) == BAD_STATE
    assert asking.init(LAST) == granted(100, 0)
    assert asking.end(LAST, committed=True) == FENCED, "it has gone on since"


def test_a_producer_at_its_last_epoch_can_be_fenced() -> None:
    asking = almost_exhausted(ONGOING)
    token = asking.send(InitProducer(T, TIMEOUT_MS, None, ProducerId(55)))
    assert asking.write_markers().producer == (7, MAX_PRODUCER_EPOCH)
    assert asking.driver.reply(token) == granted(55, 0)


def test_an_epoch_that_is_not_for_clients_is_not_given_to_one() -> None:
    asking = almost_exhausted(ONGOING)
    asking.driver.carry_out(asking.driver.machine.loaded(asking.driver.now_ms))
    asking.driver.pass_time(TIMEOUT_MS)
    asking.write_markers()
    assert asking.transaction.producer_epoch == MAX_PRODUCER_EPOCH
    assert asking.end(LAST, committed=False) == FENCED
    assert asking.init(LAST) == granted(100, 0)


# --- while markers are written ---


def test_the_next_transaction_waits_for_the_markers_of_the_last() -> None:
    asking = Asking()
    producer = asking.started()
    asking.add(producer, P0, version=0)
    asking.end(producer, committed=True, version=0)
    added = asking.send(AddPartitions(T, producer, frozenset((P1,)), 0))
    again = asking.send(EndTransaction(T, producer, True, 0))
    assert asking.driver.waits(added)
    assert asking.driver.waits(again)
    asking.write_markers()
    assert asking.driver.reply(added) is ErrorCode.NONE
    assert asking.driver.reply(again) == DONE  # of the transaction that has just begun: they came in this order
    assert asking.transaction.state is PREPARE_COMMIT
    assert asking.write_markers().partitions == {P1}


def test_nobody_waits_for_long() -> None:
    asking = Asking()
    producer = asking.started()
    asking.add(producer, P0)
    asking.end(producer, committed=True)
    now = ProducerIdAndEpoch(100, 1)
    tokens = {
        asking.send(AddPartitions(T, now, frozenset((P1,)), 2)): ErrorCode.CONCURRENT_TRANSACTIONS,
        asking.send(EndTransaction(T, now, True, 2)): Granted(ErrorCode.CONCURRENT_TRANSACTIONS),
        asking.send(InitProducer(T, TIMEOUT_MS)): Granted(ErrorCode.CONCURRENT_TRANSACTIONS),
    }
    asking.driver.pass_time(asking.config.concurrent_timeout_ms - 1)
    assert all(asking.driver.waits(token) for token in tokens)
    asking.driver.pass_time(1)
    assert {token: asking.driver.reply(token) for token in tokens} == tokens
    asking.write_markers()
    assert asking.transaction.state is COMPLETE_COMMIT
    assert asking.transaction.producer_epoch == 1


def test_several_starts_at_once_fence_one_another_in_order() -> None:
    asking = Asking()
    producer = asking.started()
    asking.add(producer, P0)
    tokens = [asking.send(InitProducer(T, TIMEOUT_MS)) for _ in range(3)]
    assert asking.write_markers().producer.epoch == 1
    assert [asking.driver.reply(token) for token in tokens] == [granted(100, epoch) for epoch in (2, 3, 4)]


def test_markers_of_an_end_long_past_change_nothing() -> None:
    asking = Asking()
    producer = asking.started()
    asking.add(producer, P0)
    asking.end(producer, committed=True)
    asking.write_markers()
    before = asking.transaction
    asking.send(MarkersWritten(T, ProducerIdAndEpoch(100, 1)))
    asking.send(MarkersWritten(TransactionalId("other"), ProducerIdAndEpoch(100, 1)))
    assert asking.transaction == before


@pytest.mark.parametrize("committed", [True, False])
def test_a_successor_sends_the_markers(committed: bool) -> None:
    asking = Asking()
    producer = asking.started()
    asking.add(producer, P0)
    asking.end(producer, committed=committed)
    asking.take_over()
    assert asking.write_markers() == SendMarkers(T, ProducerIdAndEpoch(100, 1), committed, frozenset((P0,)), 2)
    assert asking.transaction.state is (COMPLETE_COMMIT if committed else COMPLETE_ABORT)


# --- by the clock ---


@pytest.mark.parametrize("takes_over", [False, True])
@BOTH
def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(version: int, takes_over: bool) -> None:
    asking = Asking(version=version)
    producer = asking.started()
    asking.add(producer, P0, version=version)
    asking.driver.pass_time(TIMEOUT_MS - 1)
    if takes_over:
        asking.take_over()
    assert asking.transaction.state is ONGOING
    asking.driver.pass_time(1)
    assert asking.transaction.state is PREPARE_ABORT
    assert asking.write_markers() == SendMarkers(T, ProducerIdAndEpoch(100, 1), False, frozenset((P0,)), version)
    assert asking.add(producer, P1, version=version) is ErrorCode.PRODUCER_FENCED
    if version == 0:
        assert asking.end(producer, committed=False, version=0) == FENCED
        assert asking.init(producer) == FENCED
    else:
        assert asking.end(producer, committed=True) == BAD_STATE
        assert asking.end(producer, committed=False) == granted(100, 1), "it learns of the abort, and may go on"
        assert asking.init(producer) == granted(100, 1)


@BOTH
def test_a_transaction_that_ends_in_time_is_left_alone(version: int) -> None:
    asking = Asking()
    producer = asking.started()
    asking.add(producer, P0, version=version)
    asking.end(producer, committed=True, version=version)
    asking.write_markers()
    asking.driver.pass_time(TIMEOUT_MS * 2)
    assert asking.transaction.state is COMPLETE_COMMIT
    again = ProducerIdAndEpoch(100, asking.transaction.producer_epoch)
    asking.add(again, P0, version=version)
    asking.driver.pass_time(TIMEOUT_MS - 1)
    assert asking.transaction.state is ONGOING
    asking.driver.pass_time(1)
    assert asking.transaction.state is PREPARE_ABORT


@pytest.mark.parametrize("takes_over", [False, True])
def test_a_clock_that_is_set_back_holds_nobody_up(takes_over: bool) -> None:
    asking = Asking()
    asking.add(asking.started(), P0)
    asking.driver.now_ms -= 10 * TIMEOUT_MS
    asking.driver.timers = {key: at - 10 * TIMEOUT_MS for key, at in asking.driver.timers.items()}
    if takes_over:
        asking.take_over()
    asking.driver.pass_time(TIMEOUT_MS - 1)
    assert asking.transaction.state is ONGOING
    asking.driver.pass_time(1)
    assert asking.transaction.state is PREPARE_ABORT


def test_a_two_phase_transaction_waits_for_ever() -> None:
    """Ottla begins none, but may find one in a directory that it takes over."""
    asking = Asking()
    asking.begin_with(
        state=ONGOING,
        producer_id=ProducerId(7),
        producer_epoch=0,
        timeout_ms=2**31 - 1,
        updated_ms=1,
        started_ms=1,
        partitions=frozenset((P0,)),
    )
    asking.take_over()
    asking.driver.pass_time(2**31)
    assert asking.transaction.state is ONGOING


def test_ids_that_nobody_uses_are_forgotten() -> None:
    config = TransactionConfig(transactional_id_expiration_ms=10_000, remove_expired_interval_ms=1_000)
    asking = Asking(config=config)
    asking.driver.carry_out(asking.driver.machine.loaded(asking.driver.now_ms))
    producer = asking.started()
    busy = TransactionalId("busy")
    asking.send(InitProducer(busy, TIMEOUT_MS, None, ProducerId(8)))
    asking.send(AddPartitions(busy, ProducerIdAndEpoch(8, 0), frozenset((P0,)), 2))
    asking.driver.pass_time(9_999)
    assert T in asking.driver.machine.transactions
    asking.driver.pass_time(1)
    assert [*asking.driver.machine.transactions] == [busy]
    asking.take_over()
    assert [*asking.driver.machine.transactions] == [busy]
    assert asking.add(producer, P0) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert asking.init(producer).producer_id != producer.producer_id


# --- administration ---


def test_ids_are_described_and_listed() -> None:
    asking = Asking()
    assert asking.ask(DescribeTransaction(T)) is None
    assert asking.ask(ListTransactions()) == []
    asking.add(asking.started(), P0)
    assert asking.ask(DescribeTransaction(T)) == asking.transaction
    assert asking.ask(ListTransactions()) == [(T, asking.transaction)]


def test_a_timeout_that_comes_too_late_aborts_nothing() -> None:
    asking = Asking()
    producer = asking.started()
    asking.add(producer, P0)
    asking.end(producer, committed=True)
    written = len(asking.driver.log)
    for transactional_id in (T, TransactionalId("unknown")):
        assert asking.driver.send(TimerFired(("timeout", transactional_id))) == []
    assert len(asking.driver.log) == written


def test_a_state_that_cannot_follow_is_refused() -> None:
    asking = Asking()
    asking.started()
    with pytest.raises(IllegalTransition, match="t is Empty, it cannot be CompleteCommit next"):
        asking.driver.machine._change(T, asking.transaction, COMPLETE_COMMIT)
