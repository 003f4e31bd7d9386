"""Topics as groups see them: from an image, and what differs between two."""

from uuid import UUID

from ottla.cluster.image import BrokerImage, MetadataImage, PartitionImage, TopicImage, empty_image
from ottla.coordinators.image_topics import ImageTopics
from ottla.groups.topics import Topic
from ottla.ids import BrokerId, LeaderEpoch, PartitionId, TopicId, TopicName

A, B = TopicName("a"), TopicName("b")


def topic(name: str, partitions: int = 1, *, topic_id: int = 1, leader_epoch: int = 0) -> TopicImage:
    return TopicImage(
        TopicName(name),
        TopicId(UUID(int=topic_id)),
        tuple(
            PartitionImage(
                PartitionId(number),
                BrokerId(1),
                LeaderEpoch(leader_epoch),
                (BrokerId(1), BrokerId(2)),
                (BrokerId(1),),
                0,
            )
            for number in range(partitions)
        ),
    )


def image(*topics: TopicImage, racks: tuple[str | None, ...] = (None, None)) -> MetadataImage:
    brokers = {
        BrokerId(number): BrokerImage(BrokerId(number), 1, rack, {}) for number, rack in enumerate(racks, start=1)
    }
    return empty_image("c")._replace(
        brokers=brokers,
        topics={topic.name: topic for topic in topics},
        topics_by_id={topic.topic_id: topic for topic in topics},
    )


def changes(before: MetadataImage, after: MetadataImage) -> tuple[set[str], int]:
    """Changed topics, and by how much the version has grown."""
    old = ImageTopics(before, 7)
    new = old.after(after)
    return set(old.changes(new)), new.version - old.version


def test_a_topic_by_name_and_by_id() -> None:
    topics = ImageTopics(image(topic("a", 2), racks=("x", None)), 3)
    expected = Topic(A, TopicId(UUID(int=1)), (("x",), ("x",)))
    assert topics.by_name(A) == topics.by_id(TopicId(UUID(int=1))) == expected
    assert topics.by_name(A) is topics.by_name(A)
    assert expected.partition_count == 2
    assert topics.by_name(B) is None
    assert topics.by_id(TopicId(UUID(int=2))) is None
    assert (topics.names(), topics.version) == (("a",), 3)


def test_a_broker_that_is_not_there_has_no_rack() -> None:
    found = ImageTopics(image(topic("a"), racks=("x",)), 0).by_name(A)
    assert found is not None
    assert found.racks == (("x",),)


def test_what_comes_and_goes_is_a_change_and_another_version() -> None:
    assert changes(image(), image(topic("a"))) == ({"a"}, 1)
    assert changes(image(topic("a")), image()) == ({"a"}, 1)
    assert changes(image(topic("a")), image(topic("a", topic_id=2))) == ({"a"}, 1)


def test_what_grows_or_moves_is_a_change() -> None:
    both = (topic("a"), topic("b", topic_id=2))
    assert changes(image(*both), image(topic("a", 2), both[1])) == ({"a"}, 0)
    assert changes(image(*both), image(*both, racks=("x", None))) == ({"a", "b"}, 0)


def test_another_leader_is_no_change() -> None:
    assert changes(image(topic("a")), image(topic("a", leader_epoch=1))) == (set(), 0)
    same = image(topic("a"))
    assert changes(same, same._replace(controller_id=BrokerId(9))) == (set(), 0)
