"""How the topics in which coordinators keep their state are created. PURE."""

from ottla.cluster.controller import NewTopic
from ottla.cluster.image import GROUP_METADATA_TOPIC, SHARE_GROUP_STATE_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.config.broker import BrokerConfig
from ottla.ids import TopicName


def new_topic(name: TopicName, config: BrokerConfig, brokers: int) -> NewTopic:
    """A topic that is created because it is used: an internal one by the broker's settings for it, any other with
    defaults. `brokers` is how many there are to keep replicas."""
    if name == GROUP_METADATA_TOPIC:
        return NewTopic(
            name,
            partition_count=config.offsets_topic_num_partitions,
            replication_factor=min(config.offsets_topic_replication_factor, brokers),
            configs={
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": _segment_bytes(config.offsets_topic_segment_bytes),
            },
        )
    if name == TRANSACTION_STATE_TOPIC:
        replicas = min(config.transaction_state_log_replication_factor, brokers)
        return NewTopic(
            name,
            partition_count=config.transaction_state_log_num_partitions,
            replication_factor=replicas,
            configs={
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": str(min(config.transaction_state_log_min_isr, replicas)),
                "segment.bytes": _segment_bytes(config.transaction_state_log_segment_bytes),
                "unclean.leader.election.enable": "false",
            },
        )
    if name == SHARE_GROUP_STATE_TOPIC:
        replicas = min(config.share_coordinator_state_topic_replication_factor, brokers)
        return NewTopic(
            name,
            partition_count=config.share_coordinator_state_topic_num_partitions,
            replication_factor=replicas,
            configs={
                "cleanup.policy": "delete",
                "compression.type": "producer",
                "min.insync.replicas": str(min(config.share_coordinator_state_topic_min_isr, replicas)),
                "retention.ms": "-1",
                "segment.bytes": _segment_bytes(config.share_coordinator_state_topic_segment_bytes),
            },
        )
    return NewTopic(name)


def _segment_bytes(wanted: int) -> str:
    """A topic's own setting has a lower limit that the broker's has not."""
    return str(max(wanted, 1 << 20))
