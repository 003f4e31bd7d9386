"""The broker's settings about transactions and their coordinator that Ottla acts on; a part of `broker_settings`."""

from typing import Final

from ottla.config.setting import Kind, Setting
from ottla.config.topic_settings import AT_LEAST_1

TRANSACTIONS: Final = (
    Setting(
        "transaction.max.timeout.ms",
        Kind.INT,
        "900000",
        "Longest timeout that a transaction may request. An open transaction holds back read_committed consumers.",
        AT_LEAST_1,
    ),
    Setting(
        "transactional.id.expiration.ms",
        Kind.INT,
        "604800000",
        "How long a transactional id that begins no transaction is remembered.",
        AT_LEAST_1,
    ),
    Setting(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        Kind.INT,
        "3600000",
        "How often expired transactional ids are looked for.",
        AT_LEAST_1,
    ),
    Setting(
        "transaction.state.log.num.partitions",
        Kind.INT,
        "50",
        "Partitions of `__transaction_state`, when it is created.",
        AT_LEAST_1,
    ),
    Setting(
        "transaction.state.log.replication.factor",
        Kind.SHORT,
        "3",
        "Replicas of `__transaction_state`, when it is created; as many as there are brokers where those are fewer.",
        AT_LEAST_1,
    ),
    Setting(
        "transaction.state.log.min.isr",
        Kind.INT,
        "2",
        "`min.insync.replicas` of `__transaction_state`, when it is created; as many as it has replicas where those "
        "are fewer.",
        AT_LEAST_1,
    ),
    Setting(
        "transaction.state.log.segment.bytes",
        Kind.INT,
        "104857600",
        "`segment.bytes` of `__transaction_state`.",
        AT_LEAST_1,
    ),
)
