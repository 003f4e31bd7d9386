"""One `min.insync.replicas` for all brokers, where there are eligible leader replicas."""

import pytest
from tests.unit.cluster.images import cluster, partition, with_topic

from ottla.cluster.commands import Command, SetConfigs, SetFeatures, SetPartitions
from ottla.cluster.image import NO_LEADER, ResourceType
from ottla.cluster.min_insync import check_min_insync, consequences, unify_min_insync
from ottla.errors import InvalidConfig
from ottla.ids import BrokerId, PartitionId, TopicName

T = TopicName("t")
BROKER = ResourceType.BROKER
ELR = {"eligible.leader.replicas.version": 1}
OWN = {"min.insync.replicas": "3", "log.retention.ms": "5"}


def test_the_setting_of_the_file_becomes_that_of_all_brokers() -> None:
    configs = {(BROKER, "1"): OWN, (BROKER, "2"): {"log.retention.ms": "6"}, (ResourceType.TOPIC, "t"): OWN}
    assert unify_min_insync(ELR, configs, 2) == [
        SetConfigs(BROKER, "", {"min.insync.replicas": "2"}),
        SetConfigs(BROKER, "1", {"log.retention.ms": "5"}),
    ]
    assert unify_min_insync({}, configs, 2) == []
    assert unify_min_insync(ELR, {(BROKER, ""): OWN}, 2) == []


def test_it_is_changed_but_neither_removed_nor_another_one_for_a_broker() -> None:
    image = cluster(1)._replace(features=ELR, configs={(BROKER, ""): OWN})
    check_min_insync(image, SetConfigs(BROKER, "", {"min.insync.replicas": "1"}))
    check_min_insync(image, SetConfigs(ResourceType.TOPIC, "t", OWN))
    check_min_insync(image, SetConfigs(BROKER, "1", {"log.retention.ms": "7"}))
    with pytest.raises(InvalidConfig, match="cannot be removed"):
        check_min_insync(image, SetConfigs(BROKER, "", {"log.retention.ms": "5"}))
    with pytest.raises(InvalidConfig, match="one for all brokers"):
        check_min_insync(image, SetConfigs(BROKER, "1", OWN))
    check_min_insync(image._replace(features={}), SetConfigs(BROKER, "1", OWN))


def test_where_commits_may_need_fewer_replicas_none_that_is_out_of_sync_stays_eligible() -> None:
    """In one step with the change: a leader could else commit what an eligible replica lacks, and lose to it."""
    led = partition(0, 3, (1, 2, 3), isr=(3,))._replace(departed=(BrokerId(2), BrokerId(1)), eligible_count=1)
    left = led._replace(partition=PartitionId(1), leader=NO_LEADER, isr=())
    image = with_topic(cluster(1, 2, 3), "t", led, left)._replace(features=ELR, configs={(BROKER, ""): OWN})
    forgotten = SetPartitions(T, (led._replace(eligible_count=0, partition_epoch=led.partition_epoch + 1),))

    def after(kind: ResourceType, name: str, **changed: str) -> list[Command]:
        before = image.config(kind, name)
        now = {**before, **{key.replace("_", "."): value for key, value in changed.items()}}
        return consequences(image, [SetConfigs(kind, name, now)], 2)

    assert after(BROKER, "", min_insync_replicas="1") == [forgotten]
    assert after(ResourceType.TOPIC, "t", min_insync_replicas="1") == [forgotten]
    assert after(ResourceType.TOPIC, "t", min_insync_replicas="3") == [], "it is the same as before"
    assert after(ResourceType.TOPIC, "t", retention_ms="1") == []
    assert after(ResourceType.TOPIC, "u", min_insync_replicas="1") == []


def test_when_eligible_replicas_begin_to_be_elected_none_is_left_of_before() -> None:
    led = partition(0, 3, (1, 2, 3), isr=(3,))._replace(departed=(BrokerId(2), BrokerId(1)), eligible_count=1)
    image = with_topic(cluster(1, 2, 3)._replace(features={}), "t", led)
    forgotten = led._replace(eligible_count=0, partition_epoch=led.partition_epoch + 1)
    assert consequences(image, [SetFeatures(ELR)], 2) == [
        SetConfigs(BROKER, "", {"min.insync.replicas": "2"}),
        SetPartitions(T, (forgotten,)),
    ]
    assert consequences(image, [SetConfigs(ResourceType.TOPIC, "t", OWN)], 2) == []
