"""Topics that are encoded once: the answer is that of describing them anew, whatever has changed in between."""

from typing import Any
from uuid import UUID

import pytest

from ottla.cluster.image import BrokerImage, MetadataImage, PartitionImage, TopicImage, empty_image
from ottla.errors import ErrorCode
from ottla.ids import BrokerId, LeaderEpoch, PartitionId, TopicId, TopicName
from ottla.protocol.compiled import encode_part
from ottla.protocol.messages.metadata import MetadataResponse
from ottla.server.metadata_topics import MAX_VIEWS, MetadataTopics, describe

BROKERS = {
    BrokerId(1): BrokerImage(BrokerId(1), 1, None, {"PLAINTEXT": ("a", 9092), "INSIDE": ("a", 9093)}),
    BrokerId(2): BrokerImage(BrokerId(2), 1, None, {"PLAINTEXT": ("b", 9092)}),
}


def topic(name: str, *leaders: int) -> TopicImage:
    both = (BrokerId(1), BrokerId(2))
    partitions = tuple(
        PartitionImage(PartitionId(number), BrokerId(leader), LeaderEpoch(3), both, both, 1)
        for number, leader in enumerate(leaders)
    )
    return TopicImage(TopicName(name), TopicId(UUID(int=7)), partitions)


def image_of(*topics: TopicImage) -> MetadataImage:
    return empty_image("c")._replace(brokers=BROKERS, topics={found.name: found for found in topics})


def assert_true(topics: MetadataTopics, image: MetadataImage, listener: str = "PLAINTEXT", version: int = 12) -> None:
    for found in image.topics.values():
        anew = encode_part(describe(found, image, listener, version), MetadataResponse, version)
        assert topics.encoded(found, image, listener, version) == anew


def test_a_topic_is_described_once_for_all_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    described: list[Any] = []

    def counted(*given: Any) -> Any:
        described.append(given)
        return describe(*given)

    monkeypatch.setattr("ottla.server.metadata_topics.describe", counted)
    topics, image = MetadataTopics(), image_of(topic("t", 1, 2), topic("u", 1))
    for _ in range(3):
        assert_true(topics, image)
    assert len(described) == 2

    changed = image._replace(topics=dict(image.topics) | {TopicName("u"): topic("u", 2)})
    assert_true(topics, changed)
    assert len(described) == 3, "only the topic that changed"


def test_a_broker_that_goes_is_seen_at_once() -> None:
    topics, image = MetadataTopics(), image_of(topic("t", 1, 2))
    assert_true(topics, image)
    assert_true(topics, image._replace(brokers={BrokerId(1): BROKERS[BrokerId(1)]}))
    assert_true(topics, image._replace(failed_replicas=frozenset({(BrokerId(1), TopicName("t"), PartitionId(0))})))


@pytest.mark.parametrize("version", MetadataResponse.VERSIONS)
def test_listeners_and_versions_have_answers_of_their_own(version: int) -> None:
    topics, image = MetadataTopics(), image_of(topic("t", 1, 2))
    for listener in ("PLAINTEXT", "INSIDE"):
        assert_true(topics, image, listener, version)
        assert_true(topics, image, listener, version)
    codes = [partition.error_code for partition in describe(topic("t", 1, 2), image, "INSIDE", version).partitions]
    unreachable = ErrorCode.LISTENER_NOT_FOUND if version >= 6 else ErrorCode.LEADER_NOT_AVAILABLE
    assert codes == [ErrorCode.NONE, unreachable]


def test_what_is_kept_is_bounded() -> None:
    topics = MetadataTopics()
    for number in range(50):
        image = image_of(topic(f"t{number}", 1))
        assert_true(topics, image)
    assert len(topics._views) == 1
    assert len(topics._views["PLAINTEXT", 12].topics) <= 2, "deleted topics go"
    for version in MetadataResponse.VERSIONS:
        assert_true(topics, image, "PLAINTEXT", version)
    assert len(topics._views) == MAX_VIEWS
