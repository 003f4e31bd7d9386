"""How topics of sources are made: what Kafka Connect makes of the same settings."""

import pytest

from ottla.connect.errors import ConfigError
from ottla.connect.runtime.new_topics import NewTopics

DEFAULT = {"topic.creation.default.partitions": "3", "topic.creation.default.replication.factor": "-1"}


def test_a_topic_is_made_as_the_first_group_says_that_has_it() -> None:
    config = DEFAULT | {
        "topic.creation.groups": "compacted, small, default",
        "topic.creation.compacted.include": "shop\\..*, users",
        "topic.creation.compacted.exclude": "shop\\.log",
        "topic.creation.compacted.cleanup.policy": "compact",
        "topic.creation.small.include": ".*log",
        "topic.creation.small.partitions": "1",
        "topic.creation.small.replication.factor": "2",
        "topic.creation.default.retention.ms": "1000",
    }
    topics = NewTopics.of(config)
    assert topics is not None

    def made(topic: str) -> tuple[int, int, dict[str, str]]:
        group = topics.group(topic)
        return group.partitions, group.replicas, dict(group.settings)

    assert made("shop.orders") == made("users") == (3, -1, {"cleanup.policy": "compact"})
    assert made("shop.log") == (1, 2, {})
    assert made("users2") == (3, -1, {"retention.ms": "1000"})


def test_a_connector_that_says_nothing_leaves_its_topics_to_the_brokers() -> None:
    assert NewTopics.of({"topic": "t"}) is None


def test_a_group_without_names_has_no_topics() -> None:
    topics = NewTopics.of(DEFAULT | {"topic.creation.groups": "none", "topic.creation.none.partitions": "9"})
    assert topics is not None
    assert topics.group("t").partitions == topics.group("").partitions == 3


@pytest.mark.parametrize(
    ("wrong", "setting"),
    [
        ({"topic.creation.default.partitions": "3"}, "topic.creation.default.replication.factor"),
        ({"topic.creation.groups": "a"}, "topic.creation.default.partitions"),
        (DEFAULT | {"topic.creation.default.partitions": "0"}, "topic.creation.default.partitions"),
        (DEFAULT | {"topic.creation.groups": "a", "topic.creation.a.include": "("}, "topic.creation.a.include"),
        (DEFAULT | {"topic.creation.groups": "a", "topic.creation.a.partitions": "few"}, "topic.creation.a.partitions"),
    ],
)
def test_what_is_wrong_is_named(wrong: dict[str, str], setting: str) -> None:
    with pytest.raises(ConfigError, match=setting) as refused:
        NewTopics.of(wrong)
    assert refused.value.setting == setting
