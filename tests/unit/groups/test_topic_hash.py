"""The hash of a group's topics: the numbers are those that Kafka 4.1.1's own `Utils` gives."""

from uuid import UUID

from ottla.groups.topic_hash import NO_TOPICS, TopicHashes, hash_of_topic
from ottla.groups.topics import FixedTopics, Topic
from ottla.ids import TopicId, TopicName

FOO = Topic(
    TopicName("foo"),
    TopicId(UUID("01020304-0506-0708-1112-131415161718")),
    (("rack0", "rack1"), ("rack1",), ("rack0",)),
)


def test_a_topics_hash_is_kafkas() -> None:
    assert hash_of_topic(FOO) == -7912596637155662144


def test_racks_count_in_any_order() -> None:
    assert hash_of_topic(FOO._replace(racks=(("rack1", "rack0"), *FOO.racks[1:]))) == hash_of_topic(FOO)
    assert hash_of_topic(FOO._replace(racks=(("rack1",), *FOO.racks[1:]))) != hash_of_topic(FOO)


def test_a_group_without_topics_has_none() -> None:
    assert TopicHashes().of([TopicName("gone")], FixedTopics()) == NO_TOPICS


def test_topics_that_do_not_exist_do_not_count() -> None:
    hashes, topics = TopicHashes(), FixedTopics([FOO])
    assert hashes.of([TopicName("foo"), TopicName("gone")], topics) == hashes.of([TopicName("foo")], topics) != 0


def test_a_topic_that_has_grown_has_another_hash() -> None:
    hashes = TopicHashes()
    before = hashes.of([FOO.name], FixedTopics([FOO]))
    assert hashes.of([FOO.name], FixedTopics([FOO._replace(racks=(*FOO.racks, ()))])) != before
    assert hashes.of([FOO.name], FixedTopics([FOO])) == before
