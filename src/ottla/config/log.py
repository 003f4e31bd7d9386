"""What a partition's log needs to know: the topic's settings, resolved against the broker's defaults."""

from dataclasses import dataclass
from enum import Enum
from typing import Final

UNLIMITED: Final = -1
FOREVER_MS: Final = 2**63 - 1


class TimestampType(Enum):
    """Values of `message.timestamp.type`: the time that the producer set, or that of the append."""

    CREATE_TIME = "CreateTime"
    LOG_APPEND_TIME = "LogAppendTime"


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Settings of one topic, by the names of Kafka's topic configs (dots as underscores).

    Times are milliseconds, sizes bytes, `UNLIMITED` (-1) lifts a retention limit.
    """

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 24 * 3600 * 1000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    preallocate: bool = False
    """New segments have their full length at once."""
    flush_messages: int = FOREVER_MS
    flush_ms: int = FOREVER_MS
    flush_before_ack: bool = True
    """Ottla's own: `acks=all` waits for a group-committed fdatasync, and consumers see only what is synced."""
    retention_ms: int = 7 * 24 * 3600 * 1000
    retention_bytes: int = UNLIMITED
    file_delete_delay_ms: int = 60_000
    max_message_bytes: int = 1_048_588
    message_timestamp_type: TimestampType = TimestampType.CREATE_TIME
    message_timestamp_before_max_ms: int = FOREVER_MS
    message_timestamp_after_max_ms: int = 3_600_000
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    compact: bool = False
    delete: bool = True
    """`cleanup.policy`, taken apart: compact, delete or both."""
    delete_retention_ms: int = 24 * 3600 * 1000
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = FOREVER_MS
    min_cleanable_dirty_ratio: float = 0.5
    min_insync_replicas: int = 1
    unclean_leader_election_enable: bool = False

    @property
    def preallocated_bytes(self) -> int:
        """The length of a new segment's file."""
        return self.segment_bytes if self.preallocate else 0

    @property
    def longest_segment_ms(self) -> int:
        """When a segment is closed: a compacted topic's no later than records must be compacted (KIP-354)."""
        if self.compact and 0 < self.max_compaction_lag_ms < self.segment_ms:
            return self.max_compaction_lag_ms
        return self.segment_ms
