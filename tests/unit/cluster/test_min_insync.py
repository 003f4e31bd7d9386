"""One `min.insync.replicas` for all brokers, where there are eligible leader replicas."""

import pytest
from tests.unit.cluster.images import cluster

from ottla.cluster.commands import SetConfigs
from ottla.cluster.image import ResourceType
from ottla.cluster.min_insync import check_min_insync, unify_min_insync
from ottla.errors import InvalidConfig

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
