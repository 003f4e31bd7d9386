"""The broker's settings that Kafka 4.3 knows and Ottla does not act on: a warning is given for each that is set.

They are described and changed as in Kafka, without effect.
"""

from typing import Final

from ottla.config.changeable import CHANGEABLE
from ottla.config.setting import Change, Kind, Limit, NotEmpty, OneOf, Range, Setting
from ottla.config.topic_settings import AT_LEAST_0, AT_LEAST_1

NOT_EMPTY: Final = NotEmpty()


def _other(
    name: str, kind: Kind, default: str | None, doc: str, limit: Limit | None = None, *, internal: bool = False
) -> Setting:
    change = CHANGEABLE.get(name, Change.READ_ONLY)
    return Setting(name, kind, default, doc, limit, change, acted_on=False, internal=internal)


# Network and threads
_NETWORK_AND_THREADS: Final = (
    _other("background.threads", Kind.INT, "10", "Threads for background work.", AT_LEAST_1),
    _other(
        "num.network.threads",
        Kind.INT,
        "3",
        "Threads that read and write sockets. Ottla has one event loop per broker.",
        AT_LEAST_1,
    ),
    _other(
        "num.io.threads",
        Kind.INT,
        "8",
        "Threads that work on requests. Ottla has one event loop per broker.",
        AT_LEAST_1,
    ),
    _other(
        "queued.max.requests",
        Kind.INT,
        "500",
        "Requests that may wait before sockets stop being read. Ottla bounds each connection instead.",
        AT_LEAST_1,
    ),
    _other(
        "connection.failed.authentication.delay.ms",
        Kind.INT,
        "100",
        "Pause before a connection that failed to authenticate is closed.",
        AT_LEAST_0,
    ),
    _other(
        "connections.max.reauth.ms",
        Kind.LONG,
        "0",
        "How long a SASL session lasts before the client must authenticate again.",
    ),
    _other(
        "socket.connection.setup.timeout.ms", Kind.LONG, "10000", "How long the broker tries to reach another broker."
    ),
    _other("socket.connection.setup.timeout.max.ms", Kind.LONG, "30000", "Longest such time after repeated failures."),
    _other("early.start.listeners", Kind.LIST, None, "Listeners opened before the authorizer is ready."),
    _other(
        "security.inter.broker.protocol",
        Kind.STRING,
        "PLAINTEXT",
        "Security protocol between brokers.",
        OneOf(("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")),
    ),
    _other(
        "server.max.startup.time.ms",
        Kind.LONG,
        "9223372036854775807",
        "Give up a start that takes longer.",
        AT_LEAST_0,
        internal=True,
    ),
    _other(
        "fetch.purgatory.purge.interval.requests",
        Kind.INT,
        "1000",
        "Completed fetches kept in Kafka's waiting room before it is swept.",
    ),
    _other(
        "producer.purgatory.purge.interval.requests",
        Kind.INT,
        "1000",
        "Completed produce requests kept in Kafka's waiting room before it is swept.",
    ),
    _other(
        "delete.records.purgatory.purge.interval.requests",
        Kind.INT,
        "1",
        "Completed record deletions kept in Kafka's waiting room before it is swept.",
    ),
    _other(
        "share.fetch.purgatory.purge.interval.requests",
        Kind.INT,
        "1000",
        "Completed share fetches kept in Kafka's waiting room before it is swept.",
    ),
    _other(
        "unstable.api.versions.enable",
        Kind.BOOLEAN,
        "false",
        "Offer versions of requests that are still being worked on.",
        internal=True,
    ),
    _other(
        "unstable.feature.versions.enable",
        Kind.BOOLEAN,
        "false",
        "Offer feature levels that are still being worked on.",
        internal=True,
    ),
)

# Replication and the cluster
_REPLICATION_AND_THE_CLUSTER: Final = (
    _other(
        "replica.high.watermark.checkpoint.interval.ms",
        Kind.LONG,
        "5000",
        "How often the high watermarks are written. Ottla writes them with the recovery points.",
    ),
    _other("broker.heartbeat.interval.ms", Kind.INT, "2000", "How often a broker reports to the quorum's controller."),
    _other("broker.session.timeout.ms", Kind.INT, "9000", "How long a silent broker counts as alive."),
    _other(
        "initial.broker.registration.timeout.ms", Kind.INT, "60000", "How long a starting broker tries to register."
    ),
    _other("replica.socket.receive.buffer.bytes", Kind.INT, "65536", "Receive buffer of a follower's socket."),
    _other("num.replica.fetchers", Kind.INT, "1", "Fetching threads per source broker.", AT_LEAST_1),
    _other("num.replica.alter.log.dirs.threads", Kind.INT, None, "Threads that move partitions between directories."),
    _other(
        "unclean.leader.election.interval.ms",
        Kind.LONG,
        "300000",
        "How often partitions without a leader are looked at for an unclean election.",
        AT_LEAST_1,
        internal=True,
    ),
    _other(
        "log.dir.failure.timeout.ms",
        Kind.LONG,
        "30000",
        "Stop if a failed directory cannot be reported within this time.",
        AT_LEAST_1,
    ),
)

# Kafka's quorum (KRaft)
_KAFKA_QUORUM: Final = (
    _other("controller.quorum.voters", Kind.LIST, "", "Members of Kafka's quorum."),
    _other("controller.quorum.bootstrap.servers", Kind.LIST, "", "Where Kafka's quorum is found."),
    _other(
        "controller.quorum.append.linger.ms",
        Kind.INT,
        "25",
        "How long the quorum's leader collects writes.",
        AT_LEAST_0,
    ),
    _other(
        "controller.quorum.election.backoff.max.ms",
        Kind.INT,
        "1000",
        "Longest pause between elections in the quorum.",
        AT_LEAST_0,
    ),
    _other(
        "controller.quorum.election.timeout.ms", Kind.INT, "1000", "How long a candidate waits for votes.", AT_LEAST_0
    ),
    _other(
        "controller.quorum.auto.join.enable",
        Kind.BOOLEAN,
        "false",
        "Whether a controller joins the quorum by itself.",
    ),
    _other("controller.quorum.fetch.max.bytes", Kind.INT, "1048576", "Largest fetch of the quorum's log.", AT_LEAST_1),
    _other(
        "controller.quorum.fetch.snapshot.max.bytes",
        Kind.INT,
        "1048576",
        "Largest fetch of the quorum's snapshots.",
        AT_LEAST_1,
    ),
    _other(
        "controller.quorum.fetch.timeout.ms",
        Kind.INT,
        "2000",
        "How long without the leader before an election.",
        AT_LEAST_0,
    ),
    _other(
        "controller.quorum.request.timeout.ms",
        Kind.INT,
        "2000",
        "How long a member of the quorum waits for an answer.",
        AT_LEAST_0,
    ),
    _other(
        "controller.quorum.retry.backoff.ms",
        Kind.INT,
        "20",
        "Pause before a member of the quorum asks again.",
        AT_LEAST_0,
    ),
    _other(
        "controller.performance.always.log.threshold.ms",
        Kind.LONG,
        "2000",
        "Log controller events slower than this.",
        AT_LEAST_0,
        internal=True,
    ),
    _other(
        "controller.performance.sample.period.ms",
        Kind.LONG,
        "60000",
        "How often the controller's event times are logged.",
        Range(100),
        internal=True,
    ),
    _other(
        "metadata.log.max.record.bytes.between.snapshots",
        Kind.LONG,
        "20971520",
        "Bytes of the quorum's log between snapshots.",
        AT_LEAST_1,
    ),
    _other(
        "metadata.log.max.snapshot.interval.ms",
        Kind.LONG,
        "3600000",
        "Longest time between snapshots of the quorum's log.",
        AT_LEAST_0,
    ),
    _other("metadata.log.segment.bytes", Kind.INT, "1073741824", "Segment size of the quorum's log.", Range(8388608)),
    _other("metadata.log.segment.ms", Kind.LONG, "604800000", "Segment age of the quorum's log."),
    _other(
        "metadata.max.idle.interval.ms", Kind.INT, "500", "How often an idle quorum writes an empty record.", AT_LEAST_0
    ),
    _other("metadata.max.retention.bytes", Kind.LONG, "104857600", "Size to which the quorum's log is cut."),
    _other("metadata.max.retention.ms", Kind.LONG, "604800000", "Age to which the quorum's log is cut."),
    _other(
        "internal.metadata.delete.delay.millis",
        Kind.LONG,
        "60000",
        "How long deleted files of the quorum's log stay.",
        internal=True,
    ),
    _other(
        "internal.metadata.log.segment.bytes",
        Kind.INT,
        None,
        "Segment size of the quorum's log, for tests.",
        internal=True,
    ),
    _other(
        "internal.metadata.max.batch.size.in.bytes",
        Kind.INT,
        "8388608",
        "Largest batch of the quorum's log.",
        internal=True,
    ),
    _other(
        "internal.metadata.max.fetch.size.in.bytes",
        Kind.INT,
        "8388608",
        "Largest fetch of the quorum's log, until Kafka 4.1.",
        internal=True,
    ),
)

# Log
_LOG: Final = (
    _other("cordoned.log.dirs", Kind.LIST, "", "Log directories that get no new replicas."),
    _other(
        "log.flush.start.offset.checkpoint.interval.ms",
        Kind.INT,
        "60000",
        "How often the log start offsets are written. Ottla writes them with the recovery points.",
        AT_LEAST_0,
    ),
    _other(
        "num.recovery.threads.per.data.dir",
        Kind.INT,
        "2",
        "Threads per log directory that repair partitions after a crash. Ottla needs one.",
        AT_LEAST_1,
    ),
    _other("log.cleaner.threads", Kind.INT, "1", "Threads that compact. Ottla compacts one log at a time.", AT_LEAST_0),
    _other("log.cleaner.io.buffer.load.factor", Kind.DOUBLE, "0.9", "How full the table of keys may get."),
    _other(
        "log.local.retention.bytes",
        Kind.LONG,
        "-2",
        "Default of the topic setting `local.retention.bytes` (tiered storage).",
        Range(-2),
    ),
    _other(
        "log.local.retention.ms",
        Kind.LONG,
        "-2",
        "Default of the topic setting `local.retention.ms` (tiered storage).",
        Range(-2),
    ),
)

# Groups of the new kinds
_GROUPS_OF_THE_NEW_KINDS: Final = (
    _other(
        "offsets.topic.compression.codec",
        Kind.INT,
        "0",
        "Compression of committed offsets. Ottla writes them uncompressed.",
    ),
    _other(
        "group.coordinator.append.linger.ms",
        Kind.INT,
        "-1",
        "How long the group coordinator collects writes; -1: until the next one is done.",
        Range(-1),
    ),
    _other(
        "group.coordinator.background.threads",
        Kind.INT,
        "2",
        "Threads that look up regular expressions and compute assignments.",
        AT_LEAST_1,
    ),
    _other(
        "group.coordinator.cached.buffer.max.bytes",
        Kind.INT,
        "1048588",
        "Largest buffer that the group coordinator keeps for reuse. Ottla keeps none.",
        Range(524288),
    ),
    _other("group.coordinator.threads", Kind.INT, "4", "Threads of the group coordinator.", AT_LEAST_1),
    _other(
        "offsets.load.buffer.size",
        Kind.INT,
        "5242880",
        "Bytes read at once when a coordinator loads its offsets.",
        AT_LEAST_1,
    ),
    _other(
        "group.share.assignors",
        Kind.LIST,
        "simple",
        "The assignor of share groups (KIP-932); Ottla has the one that is built in.",
        OneOf(("simple",)),
    ),
    _other(
        "group.share.enable",
        Kind.BOOLEAN,
        "false",
        "Offer share groups, in Kafka 4.1. Ottla does while the feature `share.version` is 1, as it is from the start.",
        internal=True,
    ),
    _other(
        "group.share.persister.class.name",
        Kind.STRING,
        "org.apache.kafka.server.share.persister.DefaultStatePersister",
        "Java class that stores the state of share groups.",
        internal=True,
    ),
    _other(
        "share.coordinator.append.linger.ms",
        Kind.INT,
        "-1",
        "How long the share coordinator collects writes; -1: until the next one is done.",
        Range(-1),
    ),
    _other(
        "share.coordinator.cached.buffer.max.bytes",
        Kind.INT,
        "1048588",
        "Largest buffer that the share coordinator keeps for reuse. Ottla keeps none.",
        Range(524288),
    ),
    _other(
        "share.coordinator.load.buffer.size",
        Kind.INT,
        "5242880",
        "Bytes read at once when a share coordinator loads.",
        AT_LEAST_1,
    ),
    _other(
        "share.coordinator.state.topic.compression.codec",
        Kind.INT,
        "0",
        "Compression of the share groups' state topic.",
    ),
    _other("share.coordinator.threads", Kind.INT, "1", "Threads of the share coordinator.", AT_LEAST_1),
)

# Transactions
_TRANSACTIONS: Final = (
    _other(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        Kind.INT,
        "10000",
        "How often transactions that took too long are aborted. Ottla aborts each of them on time.",
        AT_LEAST_1,
    ),
    _other(
        "transaction.state.log.load.buffer.size",
        Kind.INT,
        "5242880",
        "Bytes read at once when a transaction coordinator loads.",
        AT_LEAST_1,
    ),
    _other(
        "transaction.two.phase.commit.enable",
        Kind.BOOLEAN,
        "false",
        "Let transactions take part in a two-phase commit (KIP-939).",
    ),
)

# Quotas
_QUOTAS: Final = (
    _other(
        "alter.log.dirs.replication.quota.window.num",
        Kind.INT,
        "11",
        "Samples kept for the quota of moves between directories.",
        AT_LEAST_1,
    ),
    _other(
        "alter.log.dirs.replication.quota.window.size.seconds", Kind.INT, "1", "Length of such a sample.", AT_LEAST_1
    ),
    _other("controller.quota.window.num", Kind.INT, "11", "Samples kept for the quota of topic changes.", AT_LEAST_1),
    _other("controller.quota.window.size.seconds", Kind.INT, "1", "Length of such a sample.", AT_LEAST_1),
    _other("quota.window.num", Kind.INT, "11", "Samples kept for clients' quotas.", AT_LEAST_1),
    _other("quota.window.size.seconds", Kind.INT, "1", "Length of such a sample.", AT_LEAST_1),
    _other("replication.quota.window.num", Kind.INT, "11", "Samples kept for replication quotas.", AT_LEAST_1),
    _other("replication.quota.window.size.seconds", Kind.INT, "1", "Length of such a sample.", AT_LEAST_1),
    _other("client.quota.callback.class", Kind.CLASS, None, "Java class that decides clients' quotas."),
)

# Plug-ins and metrics
_PLUG_INS_AND_METRICS: Final = (
    _other("config.providers", Kind.LIST, "", "Where values come from that name one, such as `${env:HOME}`."),
    _other("alter.config.policy.class.name", Kind.CLASS, None, "Java class that may refuse changes of settings."),
    _other("create.topic.policy.class.name", Kind.CLASS, None, "Java class that may refuse new topics."),
    _other("authorizer.class.name", Kind.STRING, "", "Java class that decides who may do what."),
    _other(
        "principal.builder.class",
        Kind.CLASS,
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
        "Java class that names the principal of a connection.",
    ),
    _other(
        "kafka.metrics.polling.interval.secs",
        Kind.INT,
        "10",
        "How often the older metrics reporters are called.",
        AT_LEAST_1,
    ),
    _other("kafka.metrics.reporters", Kind.LIST, "", "Java classes of the older metrics reporters."),
    _other(
        "metric.reporters",
        Kind.LIST,
        "org.apache.kafka.common.metrics.JmxReporter",
        "Java classes that metrics are reported to.",
    ),
    _other("metrics.num.samples", Kind.INT, "2", "Samples behind a metric.", AT_LEAST_1),
    _other("metrics.recording.level", Kind.STRING, "INFO", "Which metrics are recorded."),
    _other("metrics.sample.window.ms", Kind.LONG, "30000", "Length of a metric's sample.", AT_LEAST_1),
    _other("telemetry.max.bytes", Kind.INT, "1048576", "Largest push of a client's metrics (KIP-714).", AT_LEAST_1),
)

# Tiered storage
_TIERED_STORAGE: Final = (
    _other("remote.fetch.max.wait.ms", Kind.INT, "500", "How long a fetch waits for tiered storage.", AT_LEAST_1),
    _other(
        "remote.list.offsets.request.timeout.ms",
        Kind.LONG,
        "30000",
        "How long a look-up of offsets waits for tiered storage.",
        AT_LEAST_1,
    ),
    _other(
        "remote.log.index.file.cache.ttl.ms",
        Kind.LONG,
        "900000",
        "How long cached indexes of tiered segments are kept after their last use.",
        Range(-1),
        internal=True,
    ),
    _other(
        "remote.log.index.file.cache.total.size.bytes",
        Kind.LONG,
        "1073741824",
        "Space for cached indexes of tiered segments.",
        AT_LEAST_1,
    ),
    _other(
        "remote.log.manager.copier.thread.pool.size",
        Kind.INT,
        "10",
        "Threads that copy segments to tiered storage.",
        AT_LEAST_1,
    ),
    _other(
        "remote.log.manager.copy.max.bytes.per.second",
        Kind.LONG,
        "9223372036854775807",
        "Bytes per second copied to tiered storage at most.",
        AT_LEAST_1,
    ),
    _other("remote.log.manager.copy.quota.window.num", Kind.INT, "11", "Samples kept for that limit.", AT_LEAST_1),
    _other("remote.log.manager.copy.quota.window.size.seconds", Kind.INT, "1", "Length of such a sample.", AT_LEAST_1),
    _other(
        "follower.fetch.last.tiered.offset.enable",
        Kind.BOOLEAN,
        "false",
        "Whether an empty follower begins behind what is in tiered storage.",
    ),
    _other(
        "remote.log.manager.follower.thread.pool.size",
        Kind.INT,
        "2",
        "Threads of followers that ask what is in tiered storage.",
        AT_LEAST_1,
    ),
    _other(
        "remote.log.manager.expiration.thread.pool.size",
        Kind.INT,
        "10",
        "Threads that expire tiered segments.",
        AT_LEAST_1,
    ),
    _other(
        "remote.log.manager.fetch.max.bytes.per.second",
        Kind.LONG,
        "9223372036854775807",
        "Bytes per second read from tiered storage at most.",
        AT_LEAST_1,
    ),
    _other("remote.log.manager.fetch.quota.window.num", Kind.INT, "11", "Samples kept for that limit.", AT_LEAST_1),
    _other("remote.log.manager.fetch.quota.window.size.seconds", Kind.INT, "1", "Length of such a sample.", AT_LEAST_1),
    _other("remote.log.manager.task.interval.ms", Kind.LONG, "30000", "How often tiering looks for work.", AT_LEAST_1),
    _other(
        "remote.log.manager.task.retry.backoff.ms",
        Kind.LONG,
        "500",
        "Pause before tiering tries again.",
        AT_LEAST_1,
        internal=True,
    ),
    _other(
        "remote.log.manager.task.retry.backoff.max.ms",
        Kind.LONG,
        "30000",
        "Longest such pause.",
        AT_LEAST_1,
        internal=True,
    ),
    _other(
        "remote.log.manager.task.retry.jitter",
        Kind.DOUBLE,
        "0.2",
        "Random part of such a pause.",
        Range(0, 0.5),
        internal=True,
    ),
    _other("remote.log.manager.thread.pool.size", Kind.INT, "2", "Threads of tiering.", AT_LEAST_1),
    _other(
        "remote.log.metadata.custom.metadata.max.bytes",
        Kind.INT,
        "128",
        "Largest metadata that a tiered storage plug-in may add.",
        AT_LEAST_0,
    ),
    _other(
        "remote.log.metadata.manager.class.name",
        Kind.STRING,
        "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager",
        "Java class that stores tiered segments' metadata.",
        NOT_EMPTY,
    ),
    _other("remote.log.metadata.manager.class.path", Kind.STRING, None, "Where that class is found."),
    _other(
        "remote.log.metadata.manager.impl.prefix",
        Kind.STRING,
        "rlmm.config.",
        "Prefix of that class's settings.",
        NOT_EMPTY,
    ),
    _other("remote.log.metadata.manager.listener.name", Kind.STRING, None, "Listener that class uses.", NOT_EMPTY),
    _other(
        "remote.log.reader.max.pending.tasks", Kind.INT, "100", "Reads of tiered storage that may wait.", AT_LEAST_1
    ),
    _other("remote.log.reader.threads", Kind.INT, "10", "Threads that read tiered storage.", AT_LEAST_1),
    _other(
        "remote.log.storage.manager.class.name", Kind.STRING, None, "Java class that stores tiered segments.", NOT_EMPTY
    ),
    _other("remote.log.storage.manager.class.path", Kind.STRING, None, "Where that class is found."),
    _other(
        "remote.log.storage.manager.impl.prefix",
        Kind.STRING,
        "rsm.config.",
        "Prefix of that class's settings.",
        NOT_EMPTY,
    ),
    _other("remote.log.storage.system.enable", Kind.BOOLEAN, "false", "Turn tiered storage on."),
)

# Security: delegation tokens
_SECURITY_DELEGATION_TOKENS: Final = (
    _other(
        "delegation.token.expiry.check.interval.ms",
        Kind.LONG,
        "3600000",
        "How often expired delegation tokens are removed.",
        AT_LEAST_1,
    ),
    _other(
        "delegation.token.expiry.time.ms",
        Kind.LONG,
        "86400000",
        "How long a delegation token lasts without renewal.",
        AT_LEAST_1,
    ),
    _other(
        "delegation.token.max.lifetime.ms",
        Kind.LONG,
        "604800000",
        "How long a delegation token can be renewed.",
        AT_LEAST_1,
    ),
    _other("delegation.token.secret.key", Kind.PASSWORD, None, "Secret behind the delegation tokens."),
)

# Security: SASL
_SECURITY_SASL: Final = (
    _other(
        "sasl.client.callback.handler.class", Kind.CLASS, None, "Java class that answers a SASL client's questions."
    ),
    _other("sasl.enabled.mechanisms", Kind.LIST, "GSSAPI", "SASL mechanisms that are offered."),
    _other("sasl.jaas.config", Kind.PASSWORD, None, "Login modules of SASL, in JAAS's form."),
    _other("sasl.kerberos.kinit.cmd", Kind.STRING, "/usr/bin/kinit", "The kinit program."),
    _other(
        "sasl.kerberos.min.time.before.relogin",
        Kind.LONG,
        "60000",
        "Shortest time, in ms, between two Kerberos logins.",
    ),
    _other(
        "sasl.kerberos.principal.to.local.rules", Kind.LIST, "DEFAULT", "Rules from Kerberos principals to short names."
    ),
    _other("sasl.kerberos.service.name", Kind.STRING, None, "Kerberos name of the service."),
    _other("sasl.kerberos.ticket.renew.jitter", Kind.DOUBLE, "0.05", "Random part of the time to a ticket's renewal."),
    _other(
        "sasl.kerberos.ticket.renew.window.factor",
        Kind.DOUBLE,
        "0.8",
        "Share of a ticket's life after which it is renewed.",
    ),
    _other("sasl.login.callback.handler.class", Kind.CLASS, None, "Java class that answers a login's questions."),
    _other("sasl.login.class", Kind.CLASS, None, "Java class that logs in."),
    _other("sasl.login.connect.timeout.ms", Kind.INT, None, "How long to try to reach the identity provider."),
    _other("sasl.login.read.timeout.ms", Kind.INT, None, "How long to wait for the identity provider's answer."),
    _other(
        "sasl.login.refresh.buffer.seconds", Kind.SHORT, "300", "A login is renewed at least so long before it expires."
    ),
    _other("sasl.login.refresh.min.period.seconds", Kind.SHORT, "60", "A login is renewed at earliest after so long."),
    _other(
        "sasl.login.refresh.window.factor", Kind.DOUBLE, "0.8", "Share of a login's life after which it is renewed."
    ),
    _other("sasl.login.refresh.window.jitter", Kind.DOUBLE, "0.05", "Random part of that share."),
    _other("sasl.login.retry.backoff.ms", Kind.LONG, "100", "Pause before the identity provider is asked again."),
    _other("sasl.login.retry.backoff.max.ms", Kind.LONG, "10000", "Longest such pause."),
    _other("sasl.mechanism.controller.protocol", Kind.STRING, "GSSAPI", "SASL mechanism towards controllers."),
    _other("sasl.mechanism.inter.broker.protocol", Kind.STRING, "GSSAPI", "SASL mechanism between brokers."),
    _other(
        "sasl.oauthbearer.assertion.algorithm",
        Kind.STRING,
        "RS256",
        "Algorithm that signs an assertion.",
        OneOf(("ES256", "RS256"), any_case=True),
    ),
    _other("sasl.oauthbearer.assertion.claim.aud", Kind.STRING, None, "Audience claimed in an assertion."),
    _other(
        "sasl.oauthbearer.assertion.claim.exp.seconds",
        Kind.INT,
        "300",
        "How long an assertion is valid.",
        Range(0, 86400),
    ),
    _other("sasl.oauthbearer.assertion.claim.iss", Kind.STRING, None, "Issuer claimed in an assertion."),
    _other("sasl.oauthbearer.assertion.claim.jti.include", Kind.BOOLEAN, "false", "Give assertions an id."),
    _other(
        "sasl.oauthbearer.assertion.claim.nbf.seconds",
        Kind.INT,
        "60",
        "How far back an assertion's validity begins.",
        Range(0, 3600),
    ),
    _other("sasl.oauthbearer.assertion.claim.sub", Kind.STRING, None, "Subject claimed in an assertion."),
    _other("sasl.oauthbearer.assertion.file", Kind.STRING, None, "File with a ready assertion."),
    _other(
        "sasl.oauthbearer.assertion.private.key.file", Kind.STRING, None, "File with the key that signs assertions."
    ),
    _other("sasl.oauthbearer.assertion.private.key.passphrase", Kind.PASSWORD, None, "Passphrase of that key."),
    _other(
        "sasl.oauthbearer.assertion.template.file",
        Kind.STRING,
        None,
        "File with the parts of an assertion that stay the same.",
    ),
    _other(
        "sasl.oauthbearer.client.credentials.client.id",
        Kind.STRING,
        None,
        "Client id for the client-credentials grant.",
    ),
    _other("sasl.oauthbearer.client.credentials.client.secret", Kind.PASSWORD, None, "Secret that goes with it."),
    _other("sasl.oauthbearer.clock.skew.seconds", Kind.INT, "30", "Difference of clocks that is tolerated in tokens."),
    _other("sasl.oauthbearer.expected.audience", Kind.LIST, "", "Audiences a token must name."),
    _other("sasl.oauthbearer.expected.issuer", Kind.STRING, None, "Issuer a token must name."),
    _other(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        Kind.LONG,
        "3600000",
        "How often the provider's keys are read again.",
    ),
    _other(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", Kind.LONG, "100", "Pause before they are asked for again."
    ),
    _other("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", Kind.LONG, "10000", "Longest such pause."),
    _other("sasl.oauthbearer.jwks.endpoint.url", Kind.STRING, None, "Where the provider's keys are."),
    _other(
        "sasl.oauthbearer.jwt.retriever.class",
        Kind.CLASS,
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",
        "Java class that gets tokens.",
    ),
    _other(
        "sasl.oauthbearer.jwt.validator.class",
        Kind.CLASS,
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator",
        "Java class that checks tokens.",
    ),
    _other("sasl.oauthbearer.scope", Kind.STRING, None, "Scope asked for."),
    _other("sasl.oauthbearer.scope.claim.name", Kind.STRING, "scope", "Claim that holds the scope."),
    _other("sasl.oauthbearer.sub.claim.name", Kind.STRING, "sub", "Claim that holds the subject."),
    _other("sasl.oauthbearer.token.endpoint.url", Kind.STRING, None, "Where tokens are given out."),
    _other(
        "sasl.server.callback.handler.class", Kind.CLASS, None, "Java class that answers a SASL server's questions."
    ),
    _other("sasl.server.max.receive.size", Kind.INT, "524288", "Largest SASL message, in bytes."),
    _other("security.providers", Kind.STRING, None, "Java classes that provide security algorithms."),
)

# Security: TLS
_SECURITY_TLS: Final = (
    _other("ssl.allow.dn.changes", Kind.BOOLEAN, "false", "Let a renewed certificate have another distinguished name."),
    _other("ssl.allow.san.changes", Kind.BOOLEAN, "false", "Let a renewed certificate lose alternative names."),
    _other("ssl.cipher.suites", Kind.LIST, "", "Cipher suites that are allowed."),
    _other(
        "ssl.client.auth",
        Kind.STRING,
        "none",
        "Whether clients must show a certificate.",
        OneOf(("required", "requested", "none")),
    ),
    _other("ssl.enabled.protocols", Kind.LIST, "TLSv1.2,TLSv1.3", "Versions of TLS that are allowed."),
    _other(
        "ssl.endpoint.identification.algorithm",
        Kind.STRING,
        "https",
        "How a server's name is checked against its certificate.",
    ),
    _other("ssl.engine.factory.class", Kind.CLASS, None, "Java class that makes TLS engines."),
    _other("ssl.key.password", Kind.PASSWORD, None, "Password of the private key."),
    _other("ssl.keymanager.algorithm", Kind.STRING, "SunX509", "Algorithm of the key manager."),
    _other("ssl.keystore.certificate.chain", Kind.PASSWORD, None, "Certificate chain, as PEM text."),
    _other("ssl.keystore.key", Kind.PASSWORD, None, "Private key, as PEM text."),
    _other("ssl.keystore.location", Kind.STRING, None, "File with the private key and its certificates."),
    _other("ssl.keystore.password", Kind.PASSWORD, None, "Password of that file."),
    _other("ssl.keystore.type", Kind.STRING, "JKS", "Format of that file."),
    _other("ssl.principal.mapping.rules", Kind.STRING, "DEFAULT", "Rules from distinguished names to short names."),
    _other("ssl.protocol", Kind.STRING, "TLSv1.3", "Version of TLS that is preferred."),
    _other("ssl.provider", Kind.STRING, None, "Java provider of TLS."),
    _other("ssl.secure.random.implementation", Kind.STRING, None, "Source of random numbers."),
    _other("ssl.trustmanager.algorithm", Kind.STRING, "PKIX", "Algorithm of the trust manager."),
    _other("ssl.truststore.certificates", Kind.PASSWORD, None, "Trusted certificates, as PEM text."),
    _other("ssl.truststore.location", Kind.STRING, None, "File with the trusted certificates."),
    _other("ssl.truststore.password", Kind.PASSWORD, None, "Password of that file."),
    _other("ssl.truststore.type", Kind.STRING, "JKS", "Format of that file."),
)

OTHER_SETTINGS: Final[dict[str, Setting]] = {
    setting.name: setting
    for setting in (
        *_NETWORK_AND_THREADS,
        *_REPLICATION_AND_THE_CLUSTER,
        *_KAFKA_QUORUM,
        *_LOG,
        *_GROUPS_OF_THE_NEW_KINDS,
        *_TRANSACTIONS,
        *_QUOTAS,
        *_PLUG_INS_AND_METRICS,
        *_TIERED_STORAGE,
        *_SECURITY_DELEGATION_TOKENS,
        *_SECURITY_SASL,
        *_SECURITY_TLS,
    )
}
