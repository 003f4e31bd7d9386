"""The end of a transaction, as every partition that takes part in it receives it (KIP-98). PURE."""

from typing import Final, NamedTuple

EPOCH_PER_TRANSACTION: Final = 2
"""The `transaction.version` since which every transaction has an epoch of its own (KIP-890)."""


class TransactionMarker(NamedTuple):
    """`coordinator_epoch` is the leader epoch of the coordinator's partition: it fences coordinators of the past."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    committed: bool
    transaction_version: int = 0
    """Level of `transaction.version` under which the transaction ran. From 2 on its marker bears the epoch of the next
    transaction (KIP-890), so a marker of an epoch that has records in an open transaction comes too late (KIP-1228)."""

    @property
    def bears_next_epoch(self) -> bool:
        """Whether the marker's epoch is higher than that of the records which it ends."""
        return self.transaction_version >= EPOCH_PER_TRANSACTION
