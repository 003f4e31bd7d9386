"""Settings that Kafka had up to 3.9 and no longer has, with what became of each. They are still in many files."""

from typing import Final

_NO_EFFECT: Final = "a setting of earlier Kafka versions without a part in Ottla"
_HOST_AND_PORT: Final = "replaced by {} in Kafka 3.0, and ignored since"

_DEFAULT_QUOTA: Final = "removed in Kafka 3.0: `ottla quota set` sets a quota for all users or client ids"

EARLIER_SETTINGS: Final = {
    "advertised.host.name": _HOST_AND_PORT.format("advertised.listeners"),
    "advertised.port": _HOST_AND_PORT.format("advertised.listeners"),
    "host.name": _HOST_AND_PORT.format("listeners"),
    "port": _HOST_AND_PORT.format("listeners"),
    "inter.broker.protocol.version": "Ottla asks each broker which versions it speaks",
    "log.message.format.version": "records are always kept in format 2",
    "log.message.downconversion.enable": "clients before Kafka 0.11 are not served",
    "log.message.timestamp.difference.max.ms": (
        "replaced by log.message.timestamp.before.max.ms and log.message.timestamp.after.max.ms in Kafka 3.6"
    ),
    "auto.include.jmx.reporter": "Ottla has no JMX",
    "broker.id.generation.enable": "Ottla makes up no node ids: set node.id",
    "reserved.broker.max.id": "Ottla makes up no node ids: set node.id",
    "offsets.commit.required.acks": "commits are acknowledged by all replicas in sync",
    "password.encoder.cipher.algorithm": _NO_EFFECT,
    "password.encoder.iterations": _NO_EFFECT,
    "password.encoder.key.length": _NO_EFFECT,
    "password.encoder.keyfactory.algorithm": _NO_EFFECT,
    "password.encoder.old.secret": _NO_EFFECT,
    "password.encoder.secret": _NO_EFFECT,
    "quota.consumer.default": _DEFAULT_QUOTA,
    "quota.producer.default": _DEFAULT_QUOTA,
    "zookeeper.sync.time.ms": _NO_EFFECT,
    "zookeeper.max.in.flight.requests": _NO_EFFECT,
    "zookeeper.clientCnxnSocket": _NO_EFFECT,
    "zookeeper.ssl.protocol": "zookeeper.ssl.enabled.protocols has the versions of TLS",
    "zookeeper.metadata.migration.min.batch.size": "Ottla moves all metadata in one transaction",
}
"""By name: why it has no effect, as the end of a sentence."""
