"""How coordinators' topics are made: as genuine Kafka 4.1.1 makes them, as far as there are brokers for it."""

import pytest

from ottla.cluster.controller import NewTopic
from ottla.cluster.image import GROUP_METADATA_TOPIC, SHARE_GROUP_STATE_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.cluster.internal_topics import new_topic
from ottla.config.broker import BrokerConfig
from ottla.ids import TopicName


@pytest.mark.parametrize(("brokers", "replicas", "in_sync"), [(1, 1, "1"), (2, 2, "2"), (5, 3, "2")])
def test_the_transactions_topic(brokers: int, replicas: int, in_sync: str) -> None:
    assert new_topic(TRANSACTION_STATE_TOPIC, BrokerConfig({}), brokers) == NewTopic(
        TRANSACTION_STATE_TOPIC,
        partition_count=50,
        replication_factor=replicas,
        configs={
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": in_sync,
            "segment.bytes": "104857600",
            "unclean.leader.election.enable": "false",
        },
    )


@pytest.mark.parametrize(
    ("name", "prefix"),
    [
        (GROUP_METADATA_TOPIC, "offsets.topic"),
        (TRANSACTION_STATE_TOPIC, "transaction.state.log"),
        (SHARE_GROUP_STATE_TOPIC, "share.coordinator.state.topic"),
    ],
)
def test_settings_say_how_many_partitions_and_how_large_segments(name: TopicName, prefix: str) -> None:
    config = BrokerConfig({f"{prefix}.num.partitions": "7", f"{prefix}.segment.bytes": "4096"})
    made = new_topic(name, config, 1)
    assert (made.partition_count, made.configs["segment.bytes"]) == (7, "1048576"), "a topic's setting has a minimum"


def test_any_other_topic_has_defaults() -> None:
    assert new_topic(TopicName("orders"), BrokerConfig({}), 3) == NewTopic(TopicName("orders"))
