"""The settings that consumer groups obey, under Kafka's names. PURE."""

from typing import NamedTuple

MAX_INT32 = 2**31 - 1


class GroupConfig(NamedTuple):
    """Attribute names are the broker's settings, dots as underscores; values default to Kafka's."""

    group_initial_rebalance_delay_ms: int = 3_000
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_max_size: int = MAX_INT32
    group_consumer_assignors: tuple[str, ...] = ("uniform", "range")
    """The first serves members that name none."""
    group_consumer_max_size: int = MAX_INT32
    group_consumer_migration_policy: str = "bidirectional"
    group_consumer_regex_refresh_interval_ms: int = 600_000
    group_share_initialize_retry_interval_ms: int = 30_000
    group_share_max_size: int = 200
    group_streams_max_size: int = MAX_INT32
    offset_metadata_max_bytes: int = 4_096
    offsets_commit_timeout_ms: int = 5_000
    offsets_retention_minutes: int = 7 * 24 * 60
    offsets_retention_check_interval_ms: int = 600_000

    max_record_bytes: int = 1_000_000
    """What fits into a batch of `__consumer_offsets` (max.message.bytes), with some room for the batch itself."""

    new_member_join_timeout_ms: int = 300_000
    """How long a new member's JoinGroup may be parked: it cannot send heartbeats yet. Not a setting in Kafka either."""

    @property
    def allows_upgrade(self) -> bool:
        """May a classic group that has members become a consumer group?"""
        return self.group_consumer_migration_policy.lower() in ("upgrade", "bidirectional")

    @property
    def allows_downgrade(self) -> bool:
        """May a consumer group whose last member of the new protocol leaves become a classic group?"""
        return self.group_consumer_migration_policy.lower() in ("downgrade", "bidirectional")

    @property
    def offsets_retention_ms(self) -> int:
        return self.offsets_retention_minutes * 60_000
