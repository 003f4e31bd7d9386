"""The broker's settings that Kafka 4.3 knows and Ottla does not act on: a warning is given for each that is set.

They are described and changed as in Kafka, without effect.
"""

from typing import Final

from ottla.config.not_acted_on import other
from ottla.config.other_quorum_settings import QUORUM
from ottla.config.other_security_settings import SECURITY
from ottla.config.other_tiered_settings import TIERED_STORAGE
from ottla.config.setting import Kind, OneOf, Range, Setting
from ottla.config.topic_settings import AT_LEAST_0, AT_LEAST_1

# Network and threads
_NETWORK_AND_THREADS: Final = (
    other("background.threads", Kind.INT, "10", "Threads for background work.", AT_LEAST_1),
    other(
        "num.network.threads",
        Kind.INT,
        "3",
        "Threads that read and write sockets. Ottla has one event loop per broker.",
        AT_LEAST_1,
    ),
    other(
        "num.io.threads",
        Kind.INT,
        "8",
        "Threads that work on requests. Ottla has one event loop per broker.",
        AT_LEAST_1,
    ),
    other(
        "queued.max.requests",
        Kind.INT,
        "500",
        "Requests that may wait before sockets stop being read. Ottla bounds each connection instead.",
        AT_LEAST_1,
    ),
    other(
        "socket.connection.setup.timeout.ms", Kind.LONG, "10000", "How long the broker tries to reach another broker."
    ),
    other("socket.connection.setup.timeout.max.ms", Kind.LONG, "30000", "Longest such time after repeated failures."),
    other("early.start.listeners", Kind.LIST, None, "Listeners opened before the authorizer is ready."),
    other(
        "server.max.startup.time.ms",
        Kind.LONG,
        "9223372036854775807",
        "Give up a start that takes longer.",
        AT_LEAST_0,
        internal=True,
    ),
    other(
        "fetch.purgatory.purge.interval.requests",
        Kind.INT,
        "1000",
        "Completed fetches kept in Kafka's waiting room before it is swept.",
    ),
    other(
        "producer.purgatory.purge.interval.requests",
        Kind.INT,
        "1000",
        "Completed produce requests kept in Kafka's waiting room before it is swept.",
    ),
    other(
        "delete.records.purgatory.purge.interval.requests",
        Kind.INT,
        "1",
        "Completed record deletions kept in Kafka's waiting room before it is swept.",
    ),
    other(
        "share.fetch.purgatory.purge.interval.requests",
        Kind.INT,
        "1000",
        "Completed share fetches kept in Kafka's waiting room before it is swept.",
    ),
    other(
        "unstable.api.versions.enable",
        Kind.BOOLEAN,
        "false",
        "Offer versions of requests that are still being worked on.",
        internal=True,
    ),
    other(
        "unstable.feature.versions.enable",
        Kind.BOOLEAN,
        "false",
        "Offer feature levels that are still being worked on.",
        internal=True,
    ),
)

# Replication and the cluster
_REPLICATION_AND_THE_CLUSTER: Final = (
    other(
        "replica.high.watermark.checkpoint.interval.ms",
        Kind.LONG,
        "5000",
        "How often the high watermarks are written. Ottla writes them with the recovery points.",
    ),
    other("replica.socket.receive.buffer.bytes", Kind.INT, "65536", "Receive buffer of a follower's socket."),
    other("num.replica.fetchers", Kind.INT, "1", "Fetching threads per source broker.", AT_LEAST_1),
    other("num.replica.alter.log.dirs.threads", Kind.INT, None, "Threads that move partitions between directories."),
    other(
        "unclean.leader.election.interval.ms",
        Kind.LONG,
        "300000",
        "How often partitions without a leader are looked at for an unclean election.",
        AT_LEAST_1,
        internal=True,
    ),
    other(
        "log.dir.failure.timeout.ms",
        Kind.LONG,
        "30000",
        "Stop if a failed directory cannot be reported within this time.",
        AT_LEAST_1,
    ),
)

# Log
_LOG: Final = (
    other(
        "log.flush.start.offset.checkpoint.interval.ms",
        Kind.INT,
        "60000",
        "How often the log start offsets are written. Ottla writes them with the recovery points.",
        AT_LEAST_0,
    ),
    other(
        "num.recovery.threads.per.data.dir",
        Kind.INT,
        "2",
        "Threads per log directory that repair partitions after a crash. Ottla needs one.",
        AT_LEAST_1,
    ),
    other("log.cleaner.threads", Kind.INT, "1", "Threads that compact. Ottla compacts one log at a time.", AT_LEAST_0),
    other("log.cleaner.io.buffer.load.factor", Kind.DOUBLE, "0.9", "How full the table of keys may get."),
    other(
        "log.local.retention.bytes",
        Kind.LONG,
        "-2",
        "Default of the topic setting `local.retention.bytes` (tiered storage).",
        Range(-2),
    ),
    other(
        "log.local.retention.ms",
        Kind.LONG,
        "-2",
        "Default of the topic setting `local.retention.ms` (tiered storage).",
        Range(-2),
    ),
)

# Groups of the new kinds
_GROUPS_OF_THE_NEW_KINDS: Final = (
    other(
        "offsets.topic.compression.codec",
        Kind.INT,
        "0",
        "Compression of committed offsets. Ottla writes them uncompressed.",
    ),
    other(
        "group.coordinator.append.linger.ms",
        Kind.INT,
        "-1",
        "How long the group coordinator collects writes; -1: until the next one is done.",
        Range(-1),
    ),
    other(
        "group.coordinator.background.threads",
        Kind.INT,
        "2",
        "Threads that look up regular expressions and compute assignments.",
        AT_LEAST_1,
    ),
    other(
        "group.coordinator.cached.buffer.max.bytes",
        Kind.INT,
        "1048588",
        "Largest buffer that the group coordinator keeps for reuse. Ottla keeps none.",
        Range(524288),
    ),
    other("group.coordinator.threads", Kind.INT, "4", "Threads of the group coordinator.", AT_LEAST_1),
    other(
        "offsets.load.buffer.size",
        Kind.INT,
        "5242880",
        "Bytes read at once when a coordinator loads its offsets.",
        AT_LEAST_1,
    ),
    other(
        "group.share.assignors",
        Kind.LIST,
        "simple",
        "The assignor of share groups (KIP-932); Ottla has the one that is built in.",
        OneOf(("simple",)),
    ),
    other(
        "group.share.enable",
        Kind.BOOLEAN,
        "false",
        "Offer share groups, in Kafka 4.1. Ottla does while the feature `share.version` is 1, as it is from the start.",
        internal=True,
    ),
    other(
        "group.share.persister.class.name",
        Kind.STRING,
        "org.apache.kafka.server.share.persister.DefaultStatePersister",
        "Java class that stores the state of share groups.",
        internal=True,
    ),
    other(
        "share.coordinator.append.linger.ms",
        Kind.INT,
        "-1",
        "How long the share coordinator collects writes; -1: until the next one is done.",
        Range(-1),
    ),
    other(
        "share.coordinator.cached.buffer.max.bytes",
        Kind.INT,
        "1048588",
        "Largest buffer that the share coordinator keeps for reuse. Ottla keeps none.",
        Range(524288),
    ),
    other(
        "share.coordinator.load.buffer.size",
        Kind.INT,
        "5242880",
        "Bytes read at once when a share coordinator loads.",
        AT_LEAST_1,
    ),
    other(
        "share.coordinator.state.topic.compression.codec",
        Kind.INT,
        "0",
        "Compression of the share groups' state topic.",
    ),
    other("share.coordinator.threads", Kind.INT, "1", "Threads of the share coordinator.", AT_LEAST_1),
)

# Transactions
_TRANSACTIONS: Final = (
    other(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        Kind.INT,
        "10000",
        "How often transactions that took too long are aborted. Ottla aborts each of them on time.",
        AT_LEAST_1,
    ),
    other(
        "transaction.state.log.load.buffer.size",
        Kind.INT,
        "5242880",
        "Bytes read at once when a transaction coordinator loads.",
        AT_LEAST_1,
    ),
    other(
        "transaction.two.phase.commit.enable",
        Kind.BOOLEAN,
        "false",
        "Let transactions take part in a two-phase commit (KIP-939).",
    ),
)

# Quotas
_QUOTAS: Final = (
    other(
        "alter.log.dirs.replication.quota.window.num",
        Kind.INT,
        "11",
        "Samples kept for the quota of moves between directories.",
        AT_LEAST_1,
    ),
    other(
        "alter.log.dirs.replication.quota.window.size.seconds", Kind.INT, "1", "Length of such a sample.", AT_LEAST_1
    ),
    other("replication.quota.window.num", Kind.INT, "11", "Samples kept for replication quotas.", AT_LEAST_1),
    other("replication.quota.window.size.seconds", Kind.INT, "1", "Length of such a sample.", AT_LEAST_1),
    other("client.quota.callback.class", Kind.CLASS, None, "Java class that decides clients' quotas."),
)

# Plug-ins and metrics
_PLUG_INS_AND_METRICS: Final = (
    other("config.providers", Kind.LIST, "", "Where values come from that name one, such as `${env:HOME}`."),
    other("authorizer.class.name", Kind.STRING, "", "Java class of the authorizer."),
    other("super.users", Kind.STRING, None, "Principals that may do everything, with semicolons.", internal=True),
    other(
        "allow.everyone.if.no.acl.found",
        Kind.BOOLEAN,
        None,
        "Whether everybody may use what no rule mentions.",
        internal=True,
    ),
    other(
        "principal.builder.class",
        Kind.CLASS,
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
        "Java class that names the principal of a connection.",
    ),
    other(
        "kafka.metrics.polling.interval.secs",
        Kind.INT,
        "10",
        "How often the older metrics reporters are called.",
        AT_LEAST_1,
    ),
    other("kafka.metrics.reporters", Kind.LIST, "", "Java classes of the older metrics reporters."),
    other(
        "metric.reporters",
        Kind.LIST,
        "org.apache.kafka.common.metrics.JmxReporter",
        "Java classes that metrics are reported to.",
    ),
    other("metrics.num.samples", Kind.INT, "2", "Samples behind a metric.", AT_LEAST_1),
    other("metrics.recording.level", Kind.STRING, "INFO", "Which metrics are recorded."),
    other("metrics.sample.window.ms", Kind.LONG, "30000", "Length of a metric's sample.", AT_LEAST_1),
)

OTHER_SETTINGS: Final[dict[str, Setting]] = {
    setting.name: setting
    for setting in (
        *_NETWORK_AND_THREADS,
        *_REPLICATION_AND_THE_CLUSTER,
        *QUORUM,
        *_LOG,
        *_GROUPS_OF_THE_NEW_KINDS,
        *_TRANSACTIONS,
        *_QUOTAS,
        *_PLUG_INS_AND_METRICS,
        *TIERED_STORAGE,
        *SECURITY,
    )
}
