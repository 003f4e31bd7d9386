"""The broker's settings about clusters of several brokers that Ottla acts on; a part of `broker_settings`.

The settings of ZooKeeper and of its controller are Kafka 3.9's, the last release that had them.
"""

from typing import Final

from ottla.config.setting import Change, Kind, Networks, OneOf, Setting
from ottla.config.topic_settings import AT_LEAST_0, AT_LEAST_1, FOREVER

CLUSTER: Final = (
    Setting(
        "zookeeper.connect",
        Kind.STRING,
        None,
        "Where the ZooKeeper of the cluster is: `host:port`, comma-separated, perhaps with a path at the end. Without "
        "it the broker is alone, and keeps its metadata in a file.",
    ),
    Setting(
        "zookeeper.session.timeout.ms",
        Kind.INT,
        "18000",
        "How long ZooKeeper waits for a broker's heartbeat before it ends the broker's session.",
        AT_LEAST_1,
    ),
    Setting(
        "zookeeper.connection.timeout.ms",
        Kind.INT,
        "18000",
        "How long a broker tries to reach ZooKeeper when it starts. Kafka takes the session timeout.",
        AT_LEAST_1,
    ),
    Setting(
        "inter.broker.listener.name",
        Kind.STRING,
        None,
        "Listener for requests between brokers; PLAINTEXT, or the first one, if it is not given. Requests that only "
        "brokers may send are served at this listener alone, and refused to clients as far as is possible without TLS.",
    ),
    Setting(
        "security.inter.broker.protocol",
        Kind.STRING,
        "PLAINTEXT",
        "Name of the listener for requests between brokers, where `inter.broker.listener.name` is not given: that of "
        "its protocol.",
        OneOf(("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")),
    ),
    Setting(
        "control.plane.listener.name",
        Kind.STRING,
        None,
        "Listener over which the controller speaks to this broker (Kafka 3.9); the one between brokers if it is not "
        "given.",
    ),
    Setting(
        "inter.broker.peer.addresses",
        Kind.LIST,
        "",
        "Networks such as `10.1.0.0/16` from which brokers connect besides the addresses they are registered with: for "
        "brokers with several addresses, or behind NAT.",
        Networks(),
    ),
    Setting(
        "controller.socket.timeout.ms",
        Kind.INT,
        "30000",
        "How long the controller waits for a broker's answer.",
        AT_LEAST_1,
    ),
    Setting(
        "auto.leader.rebalance.enable",
        Kind.BOOLEAN,
        "true",
        "Move leadership back to the preferred replicas from time to time.",
    ),
    Setting(
        "leader.imbalance.check.interval.seconds",
        Kind.LONG,
        "300",
        "How often leadership is looked at for that.",
        AT_LEAST_1,
    ),
    Setting(
        "leader.imbalance.per.broker.percentage",
        Kind.INT,
        "10",
        "Percentage of a broker's preferred partitions that others may lead before leadership moves back.",
        AT_LEAST_0,
    ),
    Setting("controlled.shutdown.enable", Kind.BOOLEAN, "true", "Hand over leadership before stopping."),
    Setting(
        "controlled.shutdown.max.retries",
        Kind.INT,
        "3",
        "How often that is tried again when some partitions could not be handed over.",
        AT_LEAST_0,
    ),
    Setting(
        "controlled.shutdown.retry.backoff.ms",
        Kind.LONG,
        "5000",
        "Pause before it is tried again.",
        AT_LEAST_0,
    ),
    Setting(
        "replica.lag.time.max.ms",
        Kind.LONG,
        "30000",
        "How long a follower may lag before it is out of sync.",
        AT_LEAST_1,
    ),
    Setting(
        "replica.fetch.backoff.ms", Kind.INT, "1000", "Longest pause of a follower after a failed fetch.", AT_LEAST_0
    ),
    Setting("replica.fetch.max.bytes", Kind.INT, "1048576", "Bytes per partition a follower asks for.", AT_LEAST_0),
    Setting("replica.fetch.min.bytes", Kind.INT, "1", "Bytes the leader waits for before it answers a follower."),
    Setting("replica.fetch.response.max.bytes", Kind.INT, "10485760", "Bytes in one answer to a follower.", AT_LEAST_0),
    Setting("replica.fetch.wait.max.ms", Kind.INT, "500", "How long the leader may hold a follower's fetch."),
    Setting("replica.socket.timeout.ms", Kind.INT, "30000", "How long a follower waits for an answer."),
    Setting(
        "replica.selector.class",
        Kind.STRING,
        None,
        "What picks the replica a consumer reads from (KIP-392). "
        "`org.apache.kafka.common.replica.RackAwareReplicaSelector` sends it to one in its own rack; with any "
        "other, or none, it reads from the leader.",
    ),
    Setting(
        "leader.replication.throttled.rate",
        Kind.LONG,
        FOREVER,
        "How fast followers that are not in sync may copy from this broker, for the replicas that the topic setting "
        "`leader.replication.throttled.replicas` names. Kafka takes it while it runs only.",
        AT_LEAST_0,
        Change.CLUSTER_WIDE,
        internal=True,
    ),
    Setting(
        "follower.replication.throttled.rate",
        Kind.LONG,
        FOREVER,
        "How fast this broker copies what it is not in sync with, for the replicas that the topic setting "
        "`follower.replication.throttled.replicas` names. Kafka takes it while it runs only.",
        AT_LEAST_0,
        Change.CLUSTER_WIDE,
        internal=True,
    ),
    Setting(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        Kind.LONG,
        FOREVER,
        "How fast replicas are copied from one log directory of this broker to another. Kafka takes it while it runs "
        "only.",
        AT_LEAST_0,
        Change.CLUSTER_WIDE,
        internal=True,
    ),
)
