"""The broker's settings that Ottla acts on. Those Kafka knows besides are in `other_settings`.

Names, types, defaults and limits are Kafka 4.3's except where a setting's text names a difference.
"""

from typing import Final

from ottla.config.broker_audit_settings import AUDIT
from ottla.config.broker_cluster_settings import CLUSTER
from ottla.config.broker_group_settings import CONSUMER_GROUPS, GROUPS, SHARE_GROUPS, STREAMS_GROUPS
from ottla.config.broker_metrics_settings import METRICS
from ottla.config.broker_quorum_settings import QUORUM
from ottla.config.broker_sasl_settings import DELEGATION_TOKENS, INITIAL_USERS, SASL
from ottla.config.broker_tls_settings import TLS
from ottla.config.broker_transaction_settings import TRANSACTIONS
from ottla.config.broker_zookeeper_settings import ZOOKEEPER
from ottla.config.setting import Change, Kind, Limit, OneOf, Range, Setting
from ottla.config.topic_settings import (
    AT_LEAST_0,
    AT_LEAST_1,
    CLEANUP_POLICIES,
    COMPRESSION_TYPES,
    FOREVER,
    GZIP_LEVEL,
    LZ4_LEVEL,
    RATIO,
    TIMESTAMP_TYPES,
    ZSTD_LEVEL,
)

INT_MAX: Final = "2147483647"
DOUBLE_MAX: Final = "1.7976931348623157E308"


def _fixed(name: str, kind: Kind, default: str | None, doc: str, limit: Limit | None = None) -> Setting:
    return Setting(name, kind, default, doc, limit)


def _dynamic(name: str, kind: Kind, default: str | None, doc: str, limit: Limit | None = None) -> Setting:
    return Setting(name, kind, default, doc, limit, Change.CLUSTER_WIDE)


_WHO: Final = (
    _fixed("node.id", Kind.INT, "1", "This broker's number, unique in its cluster.", AT_LEAST_0),
    _fixed("broker.id", Kind.INT, "-1", "Older name of `node.id`; -1 means unset. If both are set they must agree."),
    _fixed(
        "broker.rack",
        Kind.STRING,
        None,
        "Rack or host of this broker, advertised to clients; replicas are spread over racks.",
    ),
    _fixed(
        "process.roles",
        Kind.LIST,
        "broker",
        "`broker`, under a quorum of controllers where `controller.quorum.*` names one, and `controller` for one of "
        "its controllers. For a node that names no other controllers, a `controller` beside `broker` changes nothing. "
        "Kafka has no default.",
        OneOf(("broker", "controller")),
    ),
)

_LISTENERS: Final = (
    _fixed(
        "listeners",
        Kind.STRING,
        "PLAINTEXT://127.0.0.1:9092",
        "Where clients are listened for: `NAME://host:port`, comma-separated. An empty host means every "
        "interface, port 0 a free port. Kafka's default listens on every interface. Changed while the broker runs, "
        "listeners are opened and closed; one that cannot be opened refuses the change. A cluster learns of new "
        "listeners with a restart.",
    )._replace(change=Change.PER_BROKER),
    _fixed(
        "advertised.listeners",
        Kind.STRING,
        None,
        "Addresses advertised to clients, by listener name; those of `listeners` where unset. As in Kafka 4.3, "
        "they change with a restart only.",
    ),
    _fixed(
        "listener.security.protocol.map",
        Kind.STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "Security protocol of each listener name: `NAME:PROTOCOL`, comma-separated. "
        "PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.",
    )._replace(change=Change.PER_BROKER),
    _fixed(
        "controller.listener.names",
        Kind.STRING,
        None,
        "Listeners of controllers: only the controllers of a quorum open them. A node connects to controllers with the "
        "protocol that `listener.security.protocol.map` has for the first of them.",
    ),
)

_DIRECTORIES: Final = (
    _fixed("log.dirs", Kind.STRING, None, "Directories that hold the log, comma-separated; `log.dir` where unset."),
    _fixed(
        "log.dir",
        Kind.STRING,
        "./ottla-data",
        "The directory that holds the log, if `log.dirs` does not name several. Kafka's default is /tmp/kafka-logs.",
    ),
    _dynamic(
        "cordoned.log.dirs",
        Kind.LIST,
        "",
        "Log directories that get no new replicas, `*` for all (KIP-1066). In a cluster the controller passes over "
        "other brokers that have this set to `*` while they run.",
    )._replace(change=Change.PER_BROKER),
    _fixed(
        "metadata.log.dir",
        Kind.STRING,
        None,
        "Directory of the cluster's metadata: `metadata.db`, or under a quorum of controllers the copy of its log, "
        "`__cluster_metadata-0`; the first log directory where unset.",
    ),
)

_POLICIES: Final = (
    _fixed(
        "create.topic.policy.class.name",
        Kind.CLASS,
        None,
        "Policy that may refuse new topics: an entry point of the group `ottla.policies`.",
    ),
    _fixed(
        "alter.config.policy.class.name",
        Kind.CLASS,
        None,
        "Policy that may refuse changes of settings: an entry point of the group `ottla.policies`.",
    ),
)

_TELEMETRY: Final = (
    _fixed(
        "telemetry.max.bytes",
        Kind.INT,
        "1048576",
        "Largest push of a client's metrics (KIP-714), as sent and unpacked.",
        AT_LEAST_1,
    ),
)

_TOPICS: Final = (
    _fixed(
        "auto.create.topics.enable",
        Kind.BOOLEAN,
        "true",
        "Create a topic when a client asks for one that is not there.",
    ),
    _fixed("delete.topic.enable", Kind.BOOLEAN, "true", "Allow topics to be deleted."),
    _fixed("num.partitions", Kind.INT, "1", "Partitions of a topic that is created without a number.", AT_LEAST_1),
    _fixed("default.replication.factor", Kind.INT, "1", "Replicas of a topic that is created without a number."),
    _dynamic("min.insync.replicas", Kind.INT, "1", "Default of the topic setting of the same name.", AT_LEAST_1),
    _dynamic("unclean.leader.election.enable", Kind.BOOLEAN, "false", "Default of the topic setting of the same name."),
    _dynamic(
        "compression.type", Kind.STRING, "producer", "Default of the topic setting of the same name.", COMPRESSION_TYPES
    ),
    _dynamic("compression.gzip.level", Kind.INT, "-1", "Default of the topic setting of the same name.", GZIP_LEVEL),
    _dynamic("compression.lz4.level", Kind.INT, "9", "Default of the topic setting of the same name.", LZ4_LEVEL),
    _dynamic("compression.zstd.level", Kind.INT, "3", "Default of the topic setting of the same name.", ZSTD_LEVEL),
    _dynamic("message.max.bytes", Kind.INT, "1048588", "Default of the topic setting `max.message.bytes`.", AT_LEAST_0),
    _fixed(
        "max.request.partition.size.limit",
        Kind.INT,
        "2000",
        "Most partitions in one answer to DescribeTopicPartitions.",
        AT_LEAST_1,
    ),
)

_LOG: Final = (
    _dynamic(
        "log.cleanup.policy", Kind.LIST, "delete", "Default of the topic setting `cleanup.policy`.", CLEANUP_POLICIES
    ),
    _dynamic(
        "log.flush.before.ack",
        Kind.BOOLEAN,
        "true",
        "Ottla's own. Default of the topic setting `flush.before.ack`: answer `acks=all` only after a sync to disk.",
    ),
    _dynamic(
        "log.flush.interval.messages", Kind.LONG, FOREVER, "Default of the topic setting `flush.messages`.", AT_LEAST_1
    ),
    _dynamic(
        "log.flush.interval.ms",
        Kind.LONG,
        None,
        "Default of the topic setting `flush.ms`; `log.flush.scheduler.interval.ms` where unset.",
    ),
    _fixed(
        "log.flush.scheduler.interval.ms", Kind.LONG, FOREVER, "How often partitions due for a sync are looked for."
    ),
    _fixed(
        "log.flush.offset.checkpoint.interval.ms",
        Kind.INT,
        "60000",
        "How often the recovery points are written: what lies below is not read again after a crash.",
        AT_LEAST_0,
    ),
    _dynamic(
        "log.index.interval.bytes", Kind.INT, "4096", "Default of the topic setting `index.interval.bytes`.", AT_LEAST_0
    ),
    _dynamic(
        "log.index.size.max.bytes",
        Kind.INT,
        "10485760",
        "Default of the topic setting `segment.index.bytes`.",
        Range(4),
    ),
    _dynamic(
        "log.message.timestamp.after.max.ms",
        Kind.LONG,
        "3600000",
        "Default of the topic setting `message.timestamp.after.max.ms`.",
        AT_LEAST_0,
    ),
    _dynamic(
        "log.message.timestamp.before.max.ms",
        Kind.LONG,
        FOREVER,
        "Default of the topic setting `message.timestamp.before.max.ms`.",
        AT_LEAST_0,
    ),
    _dynamic(
        "log.message.timestamp.type",
        Kind.STRING,
        "CreateTime",
        "Default of the topic setting `message.timestamp.type`.",
        TIMESTAMP_TYPES,
    ),
    _dynamic("log.preallocate", Kind.BOOLEAN, "false", "Default of the topic setting `preallocate`."),
    _dynamic("log.retention.bytes", Kind.LONG, "-1", "Default of the topic setting `retention.bytes`."),
    _fixed(
        "log.retention.check.interval.ms",
        Kind.LONG,
        "300000",
        "How often segments that retention may remove are looked for.",
        AT_LEAST_1,
    ),
    _fixed(
        "log.retention.hours", Kind.INT, "168", "`log.retention.ms` in hours, where neither it nor the minutes are set."
    ),
    _fixed("log.retention.minutes", Kind.INT, None, "`log.retention.ms` in minutes, where that is unset."),
    _dynamic("log.retention.ms", Kind.LONG, None, "Default of the topic setting `retention.ms`."),
    _fixed("log.roll.hours", Kind.INT, "168", "`log.roll.ms` in hours, where that is unset.", AT_LEAST_1),
    _fixed("log.roll.jitter.hours", Kind.INT, "0", "`log.roll.jitter.ms` in hours, where that is unset.", AT_LEAST_0),
    _dynamic("log.roll.jitter.ms", Kind.LONG, None, "Default of the topic setting `segment.jitter.ms`."),
    _dynamic("log.roll.ms", Kind.LONG, None, "Default of the topic setting `segment.ms`."),
    _dynamic(
        "log.segment.bytes", Kind.INT, "1073741824", "Default of the topic setting `segment.bytes`.", Range(1 << 20)
    ),
    _dynamic(
        "log.segment.delete.delay.ms",
        Kind.LONG,
        "60000",
        "Default of the topic setting `file.delete.delay.ms`.",
        AT_LEAST_0,
    ),
    Setting(
        "log.initial.task.delay.ms",
        Kind.LONG,
        "30000",
        "How long after the start the recurring work on the log begins.",
        AT_LEAST_0,
        internal=True,
    ),
)

_CLEANER: Final = (
    _fixed("log.cleaner.enable", Kind.BOOLEAN, "true", "Compact the topics that ask for it."),
    _dynamic(
        "log.cleaner.backoff.ms", Kind.LONG, "15000", "Pause of the compaction when there is nothing to do.", AT_LEAST_0
    ),
    _dynamic(
        "log.cleaner.dedupe.buffer.size",
        Kind.LONG,
        "134217728",
        "Most memory, in bytes, for the keys of one compaction.",
    ),
    _dynamic("log.cleaner.io.buffer.size", Kind.INT, "524288", "Bytes read at once by the compaction.", AT_LEAST_0),
    _dynamic(
        "log.cleaner.io.max.bytes.per.second",
        Kind.DOUBLE,
        DOUBLE_MAX,
        "Bytes per second that the compaction reads and writes at most.",
    ),
    _dynamic(
        "log.cleaner.delete.retention.ms",
        Kind.LONG,
        "86400000",
        "Default of the topic setting `delete.retention.ms`.",
        AT_LEAST_0,
    ),
    _dynamic(
        "log.cleaner.max.compaction.lag.ms",
        Kind.LONG,
        FOREVER,
        "Default of the topic setting `max.compaction.lag.ms`.",
        AT_LEAST_1,
    ),
    _dynamic(
        "log.cleaner.min.cleanable.ratio",
        Kind.DOUBLE,
        "0.5",
        "Default of the topic setting `min.cleanable.dirty.ratio`.",
        RATIO,
    ),
    _dynamic(
        "log.cleaner.min.compaction.lag.ms",
        Kind.LONG,
        "0",
        "Default of the topic setting `min.compaction.lag.ms`.",
        AT_LEAST_0,
    ),
)

_CONNECTIONS: Final = (
    _fixed(
        "connections.max.idle.ms", Kind.LONG, "600000", "Close a connection that was silent for so long; -1 for never."
    ),
    _dynamic(
        "max.connections",
        Kind.INT,
        INT_MAX,
        "Connections open at the same time at most, on all listeners together. Further connections wait to be "
        "accepted; the inter-broker listener is spared where clients have another one. With the prefix "
        "`listener.name.<name>.`, a limit of that listener alone.",
        AT_LEAST_0,
    ),
    _dynamic(
        "max.connections.per.ip",
        Kind.INT,
        INT_MAX,
        "Connections open at the same time from one address at most; further ones are closed.",
        AT_LEAST_0,
    ),
    _dynamic(
        "max.connections.per.ip.overrides",
        Kind.STRING,
        "",
        "Other limits for some addresses: `host:count`, comma-separated; names are looked up once.",
    ),
    _dynamic(
        "max.connection.creation.rate",
        Kind.INT,
        INT_MAX,
        "New connections per second at most, on all listeners but the inter-broker listener. With the prefix "
        "`listener.name.<name>.`, a limit of that listener alone. Measured over `quota.window.num` samples, so that a "
        "burst may take what the window allows.",
        AT_LEAST_0,
    ),
    _fixed(
        "socket.send.buffer.bytes",
        Kind.INT,
        "102400",
        "Send buffer of a client's socket, if set: Ottla takes a megabyte otherwise. -1 leaves it to the system.",
    ),
    _fixed(
        "socket.receive.buffer.bytes",
        Kind.INT,
        "102400",
        "Receive buffer of a client's socket, if set: Ottla leaves it to the system otherwise, as for -1.",
    ),
    _fixed(
        "socket.listen.backlog.size",
        Kind.INT,
        "50",
        "Connections that may wait to be accepted, if set: Ottla lets 1,024 wait otherwise.",
        AT_LEAST_1,
    ),
    _fixed(
        "queued.max.request.bytes",
        Kind.LONG,
        "-1",
        "Bytes that requests and answers of all clients may hold in memory; -1 for 256 MB. The inter-broker listener "
        "may hold an eighth more where clients have another one. Not counted are one answer of each connection that is "
        "not a fetch, four reads of a megabyte from disks, fetches that wait (100 MB at "
        "most), and what this broker copies as a follower (replica.fetch.response.max.bytes from each leader).",
    ),
    _fixed("socket.request.max.bytes", Kind.INT, "104857600", "Size of the largest request that is taken.", AT_LEAST_1),
    _fixed("fetch.max.bytes", Kind.INT, "57671680", "Most bytes of records in one answer to a fetch.", Range(1024)),
    _fixed(
        "max.incremental.fetch.session.cache.slots",
        Kind.INT,
        "1000",
        "Incremental fetch sessions kept (KIP-227).",
        AT_LEAST_0,
    ),
)

_QUOTAS: Final = (
    _fixed(
        "quota.window.num",
        Kind.INT,
        "11",
        "Samples in the window over which the use of quotas is measured.",
        AT_LEAST_1,
    ),
    _fixed("quota.window.size.seconds", Kind.INT, "1", "Length of such a sample.", AT_LEAST_1),
    _fixed(
        "controller.quota.window.num",
        Kind.INT,
        "11",
        "Samples in the window for quotas of topic changes: a burst may take what the window allows.",
        AT_LEAST_1,
    ),
    _fixed("controller.quota.window.size.seconds", Kind.INT, "1", "Length of such a sample.", AT_LEAST_1),
)

_PRODUCERS: Final = (
    _dynamic(
        "producer.id.expiration.ms",
        Kind.INT,
        "86400000",
        "How long a partition remembers a silent producer, to know its duplicates.",
        AT_LEAST_1,
    ),
    Setting(
        "producer.id.expiration.check.interval.ms",
        Kind.INT,
        "600000",
        "How often forgotten producers are looked for.",
        AT_LEAST_1,
        internal=True,
    ),
)

_TRANSACTIONAL_WRITES: Final = (
    _dynamic(
        "transaction.partition.verification.enable",
        Kind.BOOLEAN,
        "true",
        "Check that a partition belongs to a producer's transaction before writing to it (KIP-890).",
    ),
    _fixed(
        "add.partitions.to.txn.retry.backoff.ms",
        Kind.INT,
        "20",
        "Pause before a partition is added to a transaction again while the one before is being ended.",
        AT_LEAST_1,
    ),
    _fixed(
        "add.partitions.to.txn.retry.backoff.max.ms",
        Kind.INT,
        "100",
        "Longest time spent on adding a partition to a transaction.",
        AT_LEAST_0,
    ),
    _fixed(
        "request.timeout.ms",
        Kind.INT,
        "30000",
        "How long the end of a transaction may take to be written to a partition before it is tried again.",
    ),
)

BROKER_SETTINGS: Final[dict[str, Setting]] = {
    setting.name: setting
    for setting in (
        *_WHO,
        *CLUSTER,
        *ZOOKEEPER,
        *QUORUM,
        *_LISTENERS,
        *TLS,
        *SASL,
        *DELEGATION_TOKENS,
        INITIAL_USERS,
        *AUDIT,
        *_DIRECTORIES,
        *_POLICIES,
        *_TELEMETRY,
        *METRICS,
        *_TOPICS,
        *_LOG,
        *_CLEANER,
        *_CONNECTIONS,
        *_QUOTAS,
        *GROUPS,
        *CONSUMER_GROUPS,
        *SHARE_GROUPS,
        *STREAMS_GROUPS,
        *_PRODUCERS,
        *_TRANSACTIONAL_WRITES,
        *TRANSACTIONS,
    )
}
"""What Ottla acts on, by name, in the order of the documentation."""
