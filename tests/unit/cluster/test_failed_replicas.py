"""Replicas in log directories that have failed: what brokers, and their clients, hear of them."""

import asyncio
from typing import Any

from tests.unit.cluster.images import cluster, partition, with_topic

from ottla.clock import SystemClock
from ottla.cluster.controller_requests import Sender, requests_after
from ottla.cluster.image import MetadataImage, empty_image
from ottla.config.broker import BrokerConfig
from ottla.ids import BrokerId, PartitionId, TopicName
from ottla.metadata.cluster_metadata import ClusterMetadata
from ottla.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from ottla.protocol.messages.update_metadata import UpdateMetadataRequest
from ottla.testing.memory_store import MemoryStore, MemoryTree

T = TopicName("t")
WELL = with_topic(cluster(1, 2, 3), "t", partition(0, 1, (1, 2, 3)), partition(1, 2, (2, 3)))
FAILED = WELL._replace(failed_replicas=frozenset({(BrokerId(3), T, PartitionId(0))}))


def offline(image: MetadataImage) -> list[tuple[BrokerId, ...]]:
    topic = image.topics[T]
    return [image.offline_replicas(T, part) for part in topic.partitions]


def told(*steps: tuple[MetadataImage, MetadataImage]) -> list[list[tuple[BrokerId, ...]]]:
    """What broker 2 takes for offline after each of these changes."""

    async def main() -> list[list[tuple[BrokerId, ...]]]:
        config = BrokerConfig({"node.id": "2", "zookeeper.connect": "in-memory"})
        metadata = ClusterMetadata(MemoryStore(MemoryTree()), config, SystemClock())
        metadata._settings_known |= WELL.topics_by_id.keys()
        found = []
        for old, new in steps:
            for request in _sent(old, new, UpdateMetadataRequest):
                metadata.update(request)
            found.append(offline(metadata.image))
        return found

    return asyncio.run(main())


def _sent(old: MetadataImage, new: MetadataImage, kind: type) -> list[Any]:
    planned = requests_after(Sender(BrokerId(1), 1, "PLAINTEXT"), old, new)
    return [request for request in planned.get(BrokerId(2), []) if isinstance(request, kind)]


def test_a_replica_is_offline_when_its_broker_is_or_its_directory() -> None:
    assert offline(WELL) == [(), ()]
    assert offline(FAILED) == [(3,), ()]
    assert offline(FAILED._replace(brokers=cluster(2).brokers)) == [(1, 3), (3,)]


def test_brokers_are_told_when_a_directory_fails_and_when_it_is_mended_and_nothing_else() -> None:
    first = (empty_image(""), WELL)
    assert told(first, (WELL, FAILED), (FAILED, WELL)) == [[(), ()], [(3,), ()], [(), ()]]
    (request,) = _sent(WELL, FAILED, UpdateMetadataRequest)
    assert [state.partition_index for topic in request.topic_states for state in topic.partition_states] == [0]
    assert _sent(WELL, FAILED, LeaderAndIsrRequest) == []


def test_a_broker_that_was_started_is_told_all_of_it() -> None:
    assert told((empty_image(""), FAILED)) == [[(3,), ()]]


def test_what_had_failed_is_forgotten_with_its_broker() -> None:
    gone = FAILED._replace(brokers=cluster(1, 2).brokers, failed_replicas=frozenset())
    assert told((empty_image(""), FAILED), (FAILED, gone), (gone, WELL))[1:] == [[(3,), (3,)], [(), ()]]
