"""The settings of tiered storage, which Ottla knows and does not act on."""

from typing import Final

from ottla.config.not_acted_on import NOT_EMPTY, other
from ottla.config.setting import Kind, Range
from ottla.config.topic_settings import AT_LEAST_0, AT_LEAST_1

TIERED_STORAGE: Final = (
    other("remote.fetch.max.wait.ms", Kind.INT, "500", "How long a fetch waits for tiered storage.", AT_LEAST_1),
    other(
        "remote.list.offsets.request.timeout.ms",
        Kind.LONG,
        "30000",
        "How long a look-up of offsets waits for tiered storage.",
        AT_LEAST_1,
    ),
    other(
        "remote.log.index.file.cache.ttl.ms",
        Kind.LONG,
        "900000",
        "How long cached indexes of tiered segments are kept after their last use.",
        Range(-1),
        internal=True,
    ),
    other(
        "remote.log.index.file.cache.total.size.bytes",
        Kind.LONG,
        "1073741824",
        "Space for cached indexes of tiered segments.",
        AT_LEAST_1,
    ),
    other(
        "remote.log.manager.copier.thread.pool.size",
        Kind.INT,
        "10",
        "Threads that copy segments to tiered storage.",
        AT_LEAST_1,
    ),
    other(
        "remote.log.manager.copy.max.bytes.per.second",
        Kind.LONG,
        "9223372036854775807",
        "Bytes per second copied to tiered storage at most.",
        AT_LEAST_1,
    ),
    other("remote.log.manager.copy.quota.window.num", Kind.INT, "11", "Samples kept for that limit.", AT_LEAST_1),
    other("remote.log.manager.copy.quota.window.size.seconds", Kind.INT, "1", "Length of such a sample.", AT_LEAST_1),
    other(
        "follower.fetch.last.tiered.offset.enable",
        Kind.BOOLEAN,
        "false",
        "Whether an empty follower begins behind what is in tiered storage.",
    ),
    other(
        "remote.log.manager.follower.thread.pool.size",
        Kind.INT,
        "2",
        "Threads of followers that ask what is in tiered storage.",
        AT_LEAST_1,
    ),
    other(
        "remote.log.manager.expiration.thread.pool.size",
        Kind.INT,
        "10",
        "Threads that expire tiered segments.",
        AT_LEAST_1,
    ),
    other(
        "remote.log.manager.fetch.max.bytes.per.second",
        Kind.LONG,
        "9223372036854775807",
        "Bytes per second read from tiered storage at most.",
        AT_LEAST_1,
    ),
    other("remote.log.manager.fetch.quota.window.num", Kind.INT, "11", "Samples kept for that limit.", AT_LEAST_1),
    other("remote.log.manager.fetch.quota.window.size.seconds", Kind.INT, "1", "Length of such a sample.", AT_LEAST_1),
    other("remote.log.manager.task.interval.ms", Kind.LONG, "30000", "How often tiering looks for work.", AT_LEAST_1),
    other(
        "remote.log.manager.task.retry.backoff.ms",
        Kind.LONG,
        "500",
        "Pause before tiering tries again.",
        AT_LEAST_1,
        internal=True,
    ),
    other(
        "remote.log.manager.task.retry.backoff.max.ms",
        Kind.LONG,
        "30000",
        "Longest such pause.",
        AT_LEAST_1,
        internal=True,
    ),
    other(
        "remote.log.manager.task.retry.jitter",
        Kind.DOUBLE,
        "0.2",
        "Random part of such a pause.",
        Range(0, 0.5),
        internal=True,
    ),
    other("remote.log.manager.thread.pool.size", Kind.INT, "2", "Threads of tiering.", AT_LEAST_1),
    other(
        "remote.log.metadata.custom.metadata.max.bytes",
        Kind.INT,
        "128",
        "Largest metadata that a tiered storage plug-in may add.",
        AT_LEAST_0,
    ),
    other(
        "remote.log.metadata.manager.class.name",
        Kind.STRING,
        "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager",
        "Java class that stores tiered segments' metadata.",
        NOT_EMPTY,
    ),
    other("remote.log.metadata.manager.class.path", Kind.STRING, None, "Where that class is found."),
    other(
        "remote.log.metadata.manager.impl.prefix",
        Kind.STRING,
        "rlmm.config.",
        "Prefix of that class's settings.",
        NOT_EMPTY,
    ),
    other("remote.log.metadata.manager.listener.name", Kind.STRING, None, "Listener that class uses.", NOT_EMPTY),
    other("remote.log.reader.max.pending.tasks", Kind.INT, "100", "Reads of tiered storage that may wait.", AT_LEAST_1),
    other("remote.log.reader.threads", Kind.INT, "10", "Threads that read tiered storage.", AT_LEAST_1),
    other(
        "remote.log.storage.manager.class.name", Kind.STRING, None, "Java class that stores tiered segments.", NOT_EMPTY
    ),
    other("remote.log.storage.manager.class.path", Kind.STRING, None, "Where that class is found."),
    other(
        "remote.log.storage.manager.impl.prefix",
        Kind.STRING,
        "rsm.config.",
        "Prefix of that class's settings.",
        NOT_EMPTY,
    ),
    other("remote.log.storage.system.enable", Kind.BOOLEAN, "false", "Turn tiered storage on."),
)
