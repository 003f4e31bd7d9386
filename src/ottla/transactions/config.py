"""The settings by which transactions go. PURE."""

from typing import NamedTuple


class TransactionConfig(NamedTuple):
    """Kafka's settings of these names; `concurrent_timeout_ms` is how long a request waits for markers."""

    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 604_800_000
    remove_expired_interval_ms: int = 3_600_000
    concurrent_timeout_ms: int = 1_000
