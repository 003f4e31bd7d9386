"""The settings of a topic, each with the broker's settings that give its default.

Names, types, defaults and limits are Kafka 4.3's; `flush.before.ack` is Ottla's own.
"""

from typing import Final, NamedTuple

from ottla.config.log import FOREVER_MS
from ottla.config.setting import GzipLevel, Kind, Limit, OneOf, Range, Setting, ThrottledReplicas

HOUR_MS: Final = 3_600_000
MINUTE_MS: Final = 60_000
INT_MAX: Final = 2**31 - 1

FOREVER: Final = str(FOREVER_MS)
AT_LEAST_0: Final = Range(0)
AT_LEAST_1: Final = Range(1)
COMPRESSION_TYPES: Final = OneOf(("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"))
CLEANUP_POLICIES: Final = OneOf(("compact", "delete"))
TIMESTAMP_TYPES: Final = OneOf(("CreateTime", "LogAppendTime"))
GZIP_LEVEL: Final = GzipLevel()
LZ4_LEVEL: Final = Range(1, 17)
ZSTD_LEVEL: Final = Range(-131072, 22)
RATIO: Final = Range(0, 1)


class Synonym(NamedTuple):
    """A broker's setting that stands for a topic's; its value times `factor` is the topic's."""

    name: str
    factor: int = 1


class TopicSetting(NamedTuple):
    """A topic's setting and, first the one that wins, the broker's settings behind it."""

    setting: Setting
    synonyms: tuple[Synonym, ...]


def _topic(
    name: str,
    kind: Kind,
    default: str | None,
    doc: str,
    limit: Limit | None = None,
    synonyms: tuple[Synonym, ...] = (),
    *,
    acted_on: bool = True,
    internal: bool = False,
) -> TopicSetting:
    return TopicSetting(Setting(name, kind, default, doc, limit, acted_on=acted_on, internal=internal), synonyms)


_ALL: Final = (
    _topic(
        "cleanup.policy",
        Kind.LIST,
        "delete",
        "What happens to old segments: `delete` removes them by age and size, `compact` keeps the latest record of "
        "every key, both together do both.",
        CLEANUP_POLICIES,
        (Synonym("log.cleanup.policy"),),
    ),
    _topic(
        "compression.gzip.level",
        Kind.INT,
        "-1",
        "Level for gzip when the broker compresses; -1 leaves it to the library.",
        GZIP_LEVEL,
        (Synonym("compression.gzip.level"),),
    ),
    _topic(
        "compression.lz4.level",
        Kind.INT,
        "9",
        "Level for lz4 when the broker compresses.",
        LZ4_LEVEL,
        (Synonym("compression.lz4.level"),),
    ),
    _topic(
        "compression.type",
        Kind.STRING,
        "producer",
        "How batches are compressed on disk; `producer` stores them as they come, untouched.",
        COMPRESSION_TYPES,
        (Synonym("compression.type"),),
    ),
    _topic(
        "compression.zstd.level",
        Kind.INT,
        "3",
        "Level for zstd when the broker compresses.",
        ZSTD_LEVEL,
        (Synonym("compression.zstd.level"),),
    ),
    _topic(
        "delete.retention.ms",
        Kind.LONG,
        "86400000",
        "How long a compacted topic keeps a tombstone, so that a consumer that started before it sees the deletion.",
        AT_LEAST_0,
        (Synonym("log.cleaner.delete.retention.ms"),),
    ),
    _topic(
        "file.delete.delay.ms",
        Kind.LONG,
        "60000",
        "How long the files of a deleted segment stay on disk under another name.",
        AT_LEAST_0,
        (Synonym("log.segment.delete.delay.ms"),),
    ),
    _topic(
        "flush.before.ack",
        Kind.BOOLEAN,
        "true",
        "Ottla's own. Answer `acks=all` only after the records are synced to disk, in one group commit per log "
        "directory. "
        "Off: records that the operating system has not yet written are lost when the machine loses power.",
        None,
        (Synonym("log.flush.before.ack"),),
    ),
    _topic(
        "flush.messages",
        Kind.LONG,
        FOREVER,
        "Sync a partition after so many records, besides the syncs that acknowledgements cause.",
        AT_LEAST_1,
        (Synonym("log.flush.interval.messages"),),
    ),
    _topic(
        "flush.ms",
        Kind.LONG,
        FOREVER,
        "Sync a partition that has held unsynced records for so long, besides the syncs that acknowledgements cause.",
        AT_LEAST_0,
        (Synonym("log.flush.interval.ms"), Synonym("log.flush.scheduler.interval.ms")),
    ),
    _topic(
        "follower.replication.throttled.replicas",
        Kind.LIST,
        "",
        "Replicas whose fetching is throttled on the follower's side.",
        ThrottledReplicas(),
    ),
    _topic(
        "index.interval.bytes",
        Kind.INT,
        "4096",
        "About how many bytes of log lie between two entries of the offset index.",
        AT_LEAST_0,
        (Synonym("log.index.interval.bytes"),),
    ),
    _topic(
        "internal.segment.bytes",
        Kind.INT,
        None,
        "Takes the place of `segment.bytes` without its lower limit; for tests.",
        internal=True,
    ),
    _topic(
        "leader.replication.throttled.replicas",
        Kind.LIST,
        "",
        "Replicas whose fetching is throttled on the leader's side.",
        ThrottledReplicas(),
    ),
    _topic(
        "local.retention.bytes",
        Kind.LONG,
        "-2",
        "Size kept on local disks when the rest lies in tiered storage, which Ottla has not.",
        Range(-2),
        (Synonym("log.local.retention.bytes"),),
        acted_on=False,
    ),
    _topic(
        "local.retention.ms",
        Kind.LONG,
        "-2",
        "Time kept on local disks when the rest lies in tiered storage, which Ottla has not.",
        Range(-2),
        (Synonym("log.local.retention.ms"),),
        acted_on=False,
    ),
    _topic(
        "max.compaction.lag.ms",
        Kind.LONG,
        FOREVER,
        "A record becomes due for compaction after so long, however little of the log is dirty.",
        AT_LEAST_1,
        (Synonym("log.cleaner.max.compaction.lag.ms"),),
    ),
    _topic(
        "max.message.bytes",
        Kind.INT,
        "1048588",
        "Size of the largest record batch that is taken.",
        AT_LEAST_0,
        (Synonym("message.max.bytes"),),
    ),
    _topic(
        "message.timestamp.after.max.ms",
        Kind.LONG,
        "3600000",
        "How far a record's timestamp may lie ahead of the broker's clock, with `CreateTime`.",
        AT_LEAST_0,
        (Synonym("log.message.timestamp.after.max.ms"),),
    ),
    _topic(
        "message.timestamp.before.max.ms",
        Kind.LONG,
        FOREVER,
        "How far a record's timestamp may lie behind the broker's clock, with `CreateTime`.",
        AT_LEAST_0,
        (Synonym("log.message.timestamp.before.max.ms"),),
    ),
    _topic(
        "message.timestamp.type",
        Kind.STRING,
        "CreateTime",
        "Whether records keep the producer's timestamp or get the time they are appended.",
        TIMESTAMP_TYPES,
        (Synonym("log.message.timestamp.type"),),
    ),
    _topic(
        "min.cleanable.dirty.ratio",
        Kind.DOUBLE,
        "0.5",
        "Share of a compacted log that must be uncompacted before it is compacted again.",
        RATIO,
        (Synonym("log.cleaner.min.cleanable.ratio"),),
    ),
    _topic(
        "min.compaction.lag.ms",
        Kind.LONG,
        "0",
        "A record stays as it is for at least so long.",
        AT_LEAST_0,
        (Synonym("log.cleaner.min.compaction.lag.ms"),),
    ),
    _topic(
        "min.insync.replicas",
        Kind.INT,
        "1",
        "How many replicas must be in sync for `acks=all` to be taken.",
        AT_LEAST_1,
        (Synonym("min.insync.replicas"),),
    ),
    _topic(
        "preallocate",
        Kind.BOOLEAN,
        "false",
        "Give a segment's file its full length when it is created, and cut it to what it holds when it is closed.",
        None,
        (Synonym("log.preallocate"),),
    ),
    _topic(
        "remote.log.copy.disable",
        Kind.BOOLEAN,
        "false",
        "Make a tiered topic's remote part read-only; Ottla has no tiered storage.",
        acted_on=False,
    ),
    _topic(
        "remote.log.delete.on.disable",
        Kind.BOOLEAN,
        "false",
        "Remove a topic's remote part when tiering is turned off; Ottla has no tiered storage.",
        acted_on=False,
    ),
    _topic(
        "remote.storage.enable",
        Kind.BOOLEAN,
        "false",
        "Move old segments to tiered storage; Ottla has none and refuses `true`.",
        acted_on=False,
    ),
    _topic(
        "retention.bytes",
        Kind.LONG,
        "-1",
        "Remove the oldest segments while a partition is larger than this; -1 sets no limit.",
        None,
        (Synonym("log.retention.bytes"),),
    ),
    _topic(
        "retention.ms",
        Kind.LONG,
        "604800000",
        "Remove segments whose newest record is older than this; -1 keeps them for ever.",
        Range(-1),
        (
            Synonym("log.retention.ms"),
            Synonym("log.retention.minutes", MINUTE_MS),
            Synonym("log.retention.hours", HOUR_MS),
        ),
    ),
    _topic(
        "segment.bytes",
        Kind.INT,
        "1073741824",
        "Start a new segment when the current one reaches this size.",
        Range(1 << 20),
        (Synonym("log.segment.bytes"),),
    ),
    _topic(
        "segment.index.bytes",
        Kind.INT,
        "10485760",
        "Size at which a segment's offset index is full.",
        Range(4),
        (Synonym("log.index.size.max.bytes"),),
    ),
    _topic(
        "segment.jitter.ms",
        Kind.LONG,
        "0",
        "At most so much, chosen at random, is taken off `segment.ms`, so that segments do not all roll at once.",
        AT_LEAST_0,
        (Synonym("log.roll.jitter.ms"), Synonym("log.roll.jitter.hours", HOUR_MS)),
    ),
    _topic(
        "segment.ms",
        Kind.LONG,
        "604800000",
        "Start a new segment after so long even if the current one is small.",
        AT_LEAST_1,
        (Synonym("log.roll.ms"), Synonym("log.roll.hours", HOUR_MS)),
    ),
    _topic(
        "unclean.leader.election.enable",
        Kind.BOOLEAN,
        "false",
        "Let a replica that is not in sync lead when no other is left, at the price of lost records.",
        None,
        (Synonym("unclean.leader.election.enable"),),
    ),
)

TOPIC_SETTINGS: Final[dict[str, TopicSetting]] = {topic.setting.name: topic for topic in _ALL}
