"""All transactional ids of one partition of `__transaction_state`. PURE.

    InitProducer ----> an id and epoch that fence the previous producer of the transactional id
    AddPartitions ---> the partitions that get a marker at the end
    EndTransaction --> [Append(prepared), Reply, Notify(SendMarkers)] ... MarkersWritten --> [Append(complete)]

From the moment it is prepared, a transaction ends the way it was decided. Until it is complete, requests for its id
would be answered with CONCURRENT_TRANSACTIONS, upon which clients sleep for 20 to 100 ms; markers are written in less,
so such requests are parked and handled when the transaction is complete (or refused when that takes too long).

Kafka decides in two steps, and remembers a state that is being written. Here no request sees a state before it is
committed (see `ottla.coordination.state_machine`), so there is nothing to remember.
"""

import logging
from collections.abc import Callable
from typing import Any, Final

from ottla.coordination.markers import EPOCH_PER_TRANSACTION
from ottla.coordination.state_machine import (
    Append,
    CancelTimer,
    Effect,
    IllegalTransition,
    LongDecision,
    Notify,
    Reply,
    SetTimer,
    TimerFired,
)
from ottla.errors import ErrorCode
from ottla.ids import ProducerIdAndEpoch, TransactionalId
from ottla.transactions.config import TransactionConfig
from ottla.transactions.epochs import End, Init, end_of, is_exhausted, next_for
from ottla.transactions.events import (
    NEEDS_PRODUCER_ID,
    AddPartitions,
    DescribeTransaction,
    EndTransaction,
    Granted,
    InitProducer,
    ListTransactions,
    MarkersWritten,
    SendMarkers,
    TransactionEvent,
    TransactionListing,
    VerifyPartitions,
)
from ottla.transactions.records import (
    NEVER,
    NO_EPOCH,
    NO_ID,
    Transaction,
    TransactionChanged,
    TransactionForgotten,
    TransactionRecord,
    TransactionRecordFormat,
)
from ottla.transactions.states import (
    ALLOWED,
    AT_REST,
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    TransactionState,
)

NO_TIMEOUT_MS: Final = 2**31 - 1
"""The timeout of a transaction that takes part in a two-phase commit: it waits for ever (KIP-939)."""

log = logging.getLogger(__name__)

EXPIRY: Final = ("expiry",)

Parkable = InitProducer | AddPartitions | EndTransaction


class TransactionMachine:
    """A `ottla.coordination.state_machine.StateMachine`."""

    is_compacted: Final = True

    def __init__(self, config: TransactionConfig, transaction_version: Callable[[], int]) -> None:
        """`transaction_version`: the cluster's level of that feature as it is now."""
        self._config = config
        self._transaction_version = transaction_version
        self.records = TransactionRecordFormat(transaction_version)
        self.transactions: dict[TransactionalId, Transaction] = {}
        self._parked: dict[TransactionalId, list[Parkable]] = {}
        """Requests that wait until the transaction is complete, in the order they came."""

    # --- what is durable ---

    def replay(self, record: TransactionRecord, position: int, producer_id: int) -> None:
        if isinstance(record, TransactionChanged):
            self.transactions[record.transactional_id] = record.transaction
        else:
            self.transactions.pop(record.transactional_id, None)

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Does nothing: `__transaction_state` has no transactions."""

    def loaded(self, now_ms: int) -> LongDecision:
        """Go on with what is prepared, watch over what is ongoing."""
        yield SetTimer(EXPIRY, self._config.remove_expired_interval_ms)
        for transactional_id, transaction in list(self.transactions.items()):
            if transaction.state.is_prepared:
                yield _send_markers(transactional_id, transaction)
            elif transaction.state is ONGOING:
                yield from _watch(transactional_id, transaction, now_ms)
            else:
                yield None

    # --- what is asked ---

    def handle(self, event: TransactionEvent | TimerFired, now_ms: int) -> list[Effect]:
        match event:
            case InitProducer() | AddPartitions() | EndTransaction():
                return self._decide(event, self.transactions.get(event.transactional_id), now_ms)
            case MarkersWritten():
                return self._complete(event, now_ms)
            case VerifyPartitions():
                return self._verify(event)
            case DescribeTransaction(transactional_id):
                return [Reply(event, self.transactions.get(transactional_id))]
            case ListTransactions():
                return [Reply(event, [TransactionListing(*item) for item in self.transactions.items()])]
            case TimerFired(("timeout", transactional_id)):
                return self._time_out(TransactionalId(transactional_id), now_ms)
            case TimerFired(("parked", transactional_id)):
                return self._refuse_parked(TransactionalId(transactional_id))
            case TimerFired():
                return self._forget_expired(now_ms)

    def _decide(self, event: Parkable, transaction: Transaction | None, now_ms: int) -> list[Effect]:
        """`transaction` is what the id has come to, which for a parked event is not replayed yet."""
        match event:
            case InitProducer():
                return self._init(event, transaction, now_ms)
            case AddPartitions():
                return self._add(event, transaction, now_ms)
            case EndTransaction():
                return self._end(event, transaction, now_ms)

    def _init(self, event: InitProducer, transaction: Transaction | None, now_ms: int) -> list[Effect]:
        if not 0 < event.timeout_ms <= self._config.transaction_max_timeout_ms:
            return [Reply(event, Granted(ErrorCode.INVALID_TRANSACTION_TIMEOUT))]
        if transaction is None:
            if event.fresh_producer_id is None:
                return [Reply(event, NEEDS_PRODUCER_ID)]
            fresh = event.fresh_producer_id
            new = Transaction(EMPTY, fresh, 0, event.timeout_ms, now_ms, previous_producer_id=fresh)
            return [
                Append((TransactionChanged(event.transactional_id, new),)),
                Reply(event, Granted(ErrorCode.NONE, fresh, 0)),
            ]
        if transaction.state.is_prepared:
            return self._park(event)
        if transaction.state is ONGOING:
            # A producer that was fenced must not take the transaction away from the one that has fenced it.
            if event.expected is not None and event.expected != _producer(transaction):
                return [Reply(event, Granted(ErrorCode.PRODUCER_FENCED))]
            log.info(
                "the transaction of %s (producer %d, epoch %d) is aborted: %s",
                event.transactional_id,
                *_producer(transaction),
                "another producer has started" if event.expected is None else "its producer starts over",
            )
            return [*self._fence(event.transactional_id, transaction, now_ms), *self._park(event)]
        return self._start(event, transaction, now_ms)

    def _start(self, event: InitProducer, transaction: Transaction, now_ms: int) -> list[Effect]:
        producer_id, epoch, last_epoch = transaction.producer_id, transaction.producer_epoch, NO_EPOCH
        previous_id = producer_id
        match next_for(transaction, event.expected):
            case Init.FENCED:
                return [Reply(event, Granted(ErrorCode.PRODUCER_FENCED))]
            case Init.ROTATE:
                if event.fresh_producer_id is None:
                    return [Reply(event, NEEDS_PRODUCER_ID)]
                last_epoch = NO_EPOCH if event.expected is None else event.expected.epoch
                producer_id, epoch = event.fresh_producer_id, 0
            case Init.REPEAT:
                last_epoch, previous_id = transaction.last_producer_epoch, transaction.previous_producer_id
            case Init.BUMP:
                last_epoch = NO_EPOCH if event.expected is None else epoch
                epoch += 1
        return [
            self._change(
                event.transactional_id,
                transaction,
                EMPTY,
                producer_id=producer_id,
                producer_epoch=epoch,
                last_producer_epoch=last_epoch,
                previous_producer_id=previous_id,
                timeout_ms=event.timeout_ms,
                partitions=frozenset(),
                started_ms=NEVER,
                updated_ms=now_ms,
            ),
            Reply(event, Granted(ErrorCode.NONE, producer_id, epoch)),
        ]

    def _add(self, event: AddPartitions, transaction: Transaction | None, now_ms: int) -> list[Effect]:
        if transaction is None:
            return [Reply(event, ErrorCode.INVALID_PRODUCER_ID_MAPPING)]
        if transaction.state.is_prepared:  # the producer may have been given an id that is still to take over
            return self._park(event)
        refusal = _refusal(transaction, event.producer)
        if refusal is not None:
            return [Reply(event, refusal)]
        is_ongoing = transaction.state is ONGOING
        if is_ongoing and event.partitions <= transaction.partitions:
            return self._confirm(event, transaction, ErrorCode.NONE)
        changed = self._change(
            event.transactional_id,
            transaction,
            ONGOING,
            partitions=transaction.partitions | event.partitions,
            started_ms=transaction.started_ms if is_ongoing else now_ms,
            updated_ms=now_ms,
            client_version=event.client_version,
        )
        watch = [] if is_ongoing else _watch(event.transactional_id, changed.records[0].transaction, now_ms)
        return [changed, *watch, Reply(event, ErrorCode.NONE)]

    def _verify(self, event: VerifyPartitions) -> list[Effect]:
        transaction = self.transactions.get(event.transactional_id)
        if transaction is None:
            error: ErrorCode | None = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        else:
            error = _refusal(transaction, event.producer)
            if error is None and transaction.state.is_prepared:
                error = ErrorCode.CONCURRENT_TRANSACTIONS
        if error is not None or transaction is None:
            return [Reply(event, dict.fromkeys(event.partitions, error))]
        verdicts = {
            partition: ErrorCode.NONE if partition in transaction.partitions else ErrorCode.TRANSACTION_ABORTABLE
            for partition in event.partitions
        }
        return [Reply(event, verdicts)]

    # --- the end of a transaction ---

    def _end(self, event: EndTransaction, transaction: Transaction | None, now_ms: int) -> list[Effect]:
        if transaction is None:
            return [Reply(event, Granted(ErrorCode.INVALID_PRODUCER_ID_MAPPING))]
        if event.client_version >= EPOCH_PER_TRANSACTION:
            return self._end_of_own_epoch(event, transaction, now_ms)
        refusal = _refusal(transaction, event.producer)
        if refusal is not None:
            return [Reply(event, Granted(refusal))]
        if transaction.state.is_prepared:
            return self._park(event)
        if transaction.state is ONGOING:
            prepared = self._prepare(
                event.transactional_id, transaction, committed=event.committed, updated_ms=now_ms, client_version=0
            )
            return [*prepared, Reply(event, Granted(ErrorCode.NONE))]
        if transaction.state is not _complete(committed=event.committed):
            return [Reply(event, Granted(ErrorCode.INVALID_TXN_STATE))]
        return self._confirm(event, transaction, Granted(ErrorCode.NONE))

    @staticmethod
    def _confirm(
        event: AddPartitions | EndTransaction, transaction: Transaction, done: ErrorCode | Granted
    ) -> list[Effect]:
        """Answer that something is done already, for a request that may be a repetition: once the state is written
        again.

        This broker may not be the coordinator any longer, and not know it; then that fails. At its successor another
        transaction of this producer may be open, which is the one that the request is about.
        """
        return [Append((TransactionChanged(event.transactional_id, transaction),)), Reply(event, done)]

    def _end_of_own_epoch(self, event: EndTransaction, transaction: Transaction, now_ms: int) -> list[Effect]:
        """EndTxn of a client of the second generation, whose transactions have an epoch each (KIP-890)."""
        if transaction.state.is_prepared:
            return self._park(event)
        match end_of(transaction, event.producer):
            case End.UNKNOWN_ID:
                return [Reply(event, Granted(ErrorCode.INVALID_PRODUCER_ID_MAPPING))]
            case End.FENCED:
                return [Reply(event, Granted(ErrorCode.PRODUCER_FENCED))]
            case End.RETRY:
                if transaction.state is not _complete(committed=event.committed):
                    return [Reply(event, Granted(ErrorCode.INVALID_TXN_STATE))]
                granted = Granted(ErrorCode.NONE, transaction.producer_id, transaction.producer_epoch)
                return self._confirm(event, transaction, granted)
        is_ongoing = transaction.state is ONGOING
        if event.committed and not is_ongoing:
            return [Reply(event, Granted(ErrorCode.INVALID_TXN_STATE))]
        next_id = NO_ID
        if is_exhausted(transaction.producer_epoch):
            if event.fresh_producer_id is None:
                return [Reply(event, NEEDS_PRODUCER_ID)]
            next_id = event.fresh_producer_id
        prepared = self._prepare(
            event.transactional_id,
            transaction,
            committed=event.committed,
            updated_ms=now_ms,
            started_ms=transaction.started_ms if is_ongoing else now_ms,
            producer_epoch=transaction.producer_epoch + 1,
            last_producer_epoch=transaction.producer_epoch,
            next_producer_id=next_id,
            client_version=event.client_version,
        )
        if next_id == NO_ID:
            granted = Granted(ErrorCode.NONE, transaction.producer_id, transaction.producer_epoch + 1)
        else:
            granted = Granted(ErrorCode.NONE, next_id, 0)
        return [*prepared, Reply(event, granted)]

    def _fence(self, transactional_id: TransactionalId, transaction: Transaction, now_ms: int) -> list[Effect]:
        """Abort an ongoing transaction on the coordinator's own account, at an epoch that its producer has not got.

        Where transactions have epochs of their own, the producer may go on at the next one after it has learned of
        the abort.
        """
        has_own_epoch = self._transaction_version() >= EPOCH_PER_TRANSACTION
        return self._prepare(
            transactional_id,
            transaction,
            committed=False,
            updated_ms=now_ms,
            producer_epoch=transaction.producer_epoch + 1,
            last_producer_epoch=transaction.producer_epoch if has_own_epoch else NO_EPOCH,
            client_version=self._transaction_version() if has_own_epoch else 0,
        )

    def _prepare(
        self, transactional_id: TransactionalId, transaction: Transaction, *, committed: bool, **changes: Any
    ) -> list[Effect]:
        state = PREPARE_COMMIT if committed else PREPARE_ABORT
        append = self._change(transactional_id, transaction, state, **changes)
        prepared = append.records[0].transaction
        return [
            append,
            CancelTimer(("timeout", transactional_id)),
            _send_markers(transactional_id, prepared),
        ]

    def _complete(self, event: MarkersWritten, now_ms: int) -> list[Effect]:
        transaction = self.transactions.get(event.transactional_id)
        if transaction is None or not transaction.state.is_prepared or _producer(transaction) != event.producer:
            return [Reply(event, None)]  # it was completed before
        rotates = transaction.next_producer_id != NO_ID
        completed = self._change(
            event.transactional_id,
            transaction,
            _complete(committed=transaction.state is PREPARE_COMMIT),
            producer_id=transaction.next_producer_id if rotates else transaction.producer_id,
            producer_epoch=0 if rotates else transaction.producer_epoch,
            next_producer_id=NO_ID,
            partitions=frozenset(),
            updated_ms=now_ms,
        )
        return [completed, Reply(event, None), *self._unpark(event.transactional_id, completed, now_ms)]

    def _change(
        self, transactional_id: TransactionalId, transaction: Transaction, state: TransactionState, **changes: Any
    ) -> Append:
        """`previous_producer_id` is what the record before had, unless given: it differs right after a rotation."""
        if state not in ALLOWED[transaction.state]:
            raise IllegalTransition(f"{transactional_id} is {transaction.state.label}, it cannot be {state.label} next")
        changed = transaction._replace(**{"previous_producer_id": transaction.producer_id, **changes}, state=state)
        return Append((TransactionChanged(transactional_id, changed),))

    # --- requests that wait for markers ---

    def _park(self, event: Parkable) -> list[Effect]:
        parked = self._parked.setdefault(event.transactional_id, [])
        parked.append(event)
        if len(parked) > 1:
            return []
        return [SetTimer(("parked", event.transactional_id), self._config.concurrent_timeout_ms)]

    def _unpark(self, transactional_id: TransactionalId, append: Append, now_ms: int) -> list[Effect]:
        """Handle the requests that waited for `append`, each on the state the previous one left; a new end parks them
        again.
        """
        parked = self._parked.pop(transactional_id, None)
        if parked is None:
            return []
        effects: list[Effect] = [CancelTimer(("parked", transactional_id))]
        for event in parked:
            decided = self._decide(event, append.records[-1].transaction, now_ms)
            append = next((effect for effect in decided if isinstance(effect, Append)), append)
            effects += decided
        return effects

    def _refuse_parked(self, transactional_id: TransactionalId) -> list[Effect]:
        return [
            Reply(event, ErrorCode.CONCURRENT_TRANSACTIONS)
            if isinstance(event, AddPartitions)
            else Reply(event, Granted(ErrorCode.CONCURRENT_TRANSACTIONS))
            for event in self._parked.pop(transactional_id, ())
        ]

    # --- by the clock ---

    def _time_out(self, transactional_id: TransactionalId, now_ms: int) -> list[Effect]:
        transaction = self.transactions.get(transactional_id)
        if transaction is None or transaction.state is not ONGOING:
            return []
        log.info(
            "the transaction of %s (producer %d, epoch %d) is aborted: it has taken more than %d ms",
            transactional_id,
            *_producer(transaction),
            transaction.timeout_ms,
        )
        return self._fence(transactional_id, transaction, now_ms)

    def _forget_expired(self, now_ms: int) -> list[Effect]:
        oldest_ms = now_ms - self._config.transactional_id_expiration_ms
        expired = tuple(
            TransactionForgotten(transactional_id)
            for transactional_id, transaction in self.transactions.items()
            if transaction.state in AT_REST and transaction.updated_ms <= oldest_ms
        )
        again = SetTimer(EXPIRY, self._config.remove_expired_interval_ms)
        return [Append(expired), again] if expired else [again]


def _producer(transaction: Transaction) -> ProducerIdAndEpoch:
    return ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch)


def _refusal(transaction: Transaction, producer: ProducerIdAndEpoch) -> ErrorCode | None:
    if producer.producer_id != transaction.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return None if producer.epoch == transaction.producer_epoch else ErrorCode.PRODUCER_FENCED


def _complete(*, committed: bool) -> TransactionState:
    return COMPLETE_COMMIT if committed else COMPLETE_ABORT


def _send_markers(transactional_id: TransactionalId, prepared: Transaction) -> Notify:
    committed = prepared.state is PREPARE_COMMIT
    return Notify(
        SendMarkers(transactional_id, _producer(prepared), committed, prepared.partitions, prepared.client_version)
    )


def _watch(transactional_id: TransactionalId, ongoing: Transaction, now_ms: int) -> list[Effect]:
    if ongoing.timeout_ms == NO_TIMEOUT_MS:
        return []
    left_ms = ongoing.started_ms + ongoing.timeout_ms - now_ms
    # Not more than all of it: the wall clock may have been set back, and readers are waiting.
    return [SetTimer(("timeout", transactional_id), min(max(left_ms, 0), ongoing.timeout_ms))]
