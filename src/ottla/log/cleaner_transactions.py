"""Transactions as compaction tracks them while it walks through a log (KIP-98, KIP-534).

Data of aborted transactions goes at once. A marker stays as long as data of its transaction is in the log (even as an
empty batch), since readers need it to recognize aborted data; then it gets a delete horizon, like a tombstone.
"""

from heapq import heapify, heappop

from ottla.errors import InvalidRecord
from ottla.log.transaction_index import AbortedTransaction, TransactionIndex
from ottla.records.batch import BatchHeader, Buffer
from ottla.records.control import decode_end_transaction


class CleanedTransactions:
    """Sees every batch of a log in turn; reports the ones that are no longer needed.

    `aborted` are all aborted transactions with records in the part to be walked through. Those that are still needed
    are appended to `index`, if there is one: the transaction index of the segment that is being written.
    """

    __slots__ = ("_committed", "_ongoing", "_seen", "_waiting", "index")

    def __init__(self, aborted: list[AbortedTransaction]) -> None:
        self.index: TransactionIndex | None = None
        self._waiting = [(entry.first_offset, entry) for entry in set(aborted)]
        heapify(self._waiting)
        self._ongoing: dict[int, AbortedTransaction] = {}
        """Aborted transactions that the walk is within, by producer."""
        self._seen: set[int] = set()
        """Producers of aborted transactions with a batch seen so far."""
        self._committed: set[int] = set()
        """Producers with a batch in a transaction that was not aborted, and whose marker is still to come."""

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether a data batch belongs to an aborted transaction. To be called for each one."""
        if not header.is_transactional:
            return False
        self._begin(header.last_offset)
        if header.producer_id in self._ongoing:
            self._seen.add(header.producer_id)
            return True
        self._committed.add(header.producer_id)
        return False

    def is_spent(self, batch: Buffer, header: BatchHeader) -> bool:
        """Whether a control batch (which `batch` is) is of no use any more. To be called for each one.

        Raises CorruptMessage, OSError.
        """
        self._begin(header.last_offset)
        try:
            marker = decode_end_transaction(batch, header._replace(position=0))
        except InvalidRecord:
            return False  # of a type that is not known here: it stays
        if marker is None:
            return True
        producer_id = header.producer_id
        if not marker.is_abort:
            if producer_id in self._committed:
                self._committed.remove(producer_id)
                return False
            return True
        transaction = self._ongoing.pop(producer_id, None)
        if transaction is None or producer_id not in self._seen:
            return True
        self._seen.remove(producer_id)
        if self.index is not None:
            self.index.append(transaction)
        return False

    def _begin(self, offset: int) -> None:
        while self._waiting and self._waiting[0][0] <= offset:
            transaction = heappop(self._waiting)[1]
            self._ongoing.setdefault(transaction.producer_id, transaction)
