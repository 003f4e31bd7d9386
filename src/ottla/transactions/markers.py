"""The end of a transaction, as every partition that takes part in it is told (KIP-98). PURE."""

from typing import NamedTuple


class TransactionMarker(NamedTuple):
    """`coordinator_epoch` is the leader epoch of the coordinator's partition: it fences coordinators of the past."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    committed: bool
