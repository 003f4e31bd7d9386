"""The settings of each process of a unit."""

import pytest

from ottla.cli.cores.plan import plan
from ottla.config.broker import BrokerConfig
from ottla.errors import InvalidConfig

ZOOKEEPER = {"zookeeper.connect": "z:2181", "log.dirs": "/a,/b/", "node.id": "10"}
QUORUM = {
    "process.roles": "broker,controller",
    "node.id": "10",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "10@box:9093,20@other:9093,30@third:9093",
    "listeners": "PLAINTEXT://box:9192,CONTROLLER://box:9093",
    "advertised.listeners": "PLAINTEXT://box.example:9192,CONTROLLER://box.example:9093",
    "log.dirs": "/data",
}


def test_numbers_ports_and_directories_count_up() -> None:
    given = {
        **ZOOKEEPER,
        "listeners": "PLAINTEXT://[::1]:9092,INSIDE://:9192",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT",
        "metrics.listeners": "http://127.0.0.1:9292/metrics",
        "ottla.audit.file": "/var/log/audit",
        "cordoned.log.dirs": "/b",
    }
    unit = plan(given, 3, "box")
    assert unit.controller is None
    assert not unit.is_whole_cluster
    last = unit.brokers[2]
    assert [broker["node.id"] for broker in unit.brokers] == ["10", "11", "12"]
    assert list(map(str, unit.shared)) == ["PLAINTEXT://[::1]:9092", "INSIDE://:9192"]
    assert unit.shared[0].host == "::1"
    assert last["listeners"] == "PLAINTEXT://[::1]:9095,INSIDE://:9195"
    assert last["metrics.listeners"] == "http://127.0.0.1:9294/metrics"
    assert (last["log.dirs"], last["cordoned.log.dirs"]) == ("/a/core-2,/b/core-2", "/b/core-2")
    assert last["ottla.audit.file"] == "/var/log/audit.core-2"
    assert {broker["broker.rack"] for broker in unit.brokers} == {"box"}
    assert {broker["broker.rack"] for broker in plan({**given, "broker.rack": "r1"}, 2, "box").brokers} == {"r1"}


def test_a_machine_has_one_controller_beside_its_brokers() -> None:
    unit = plan(QUORUM, 2, "box")
    assert unit.controller is not None
    assert unit.controller["node.id"] == "10"
    assert unit.controller["listeners"] == "CONTROLLER://box:9093"
    assert unit.controller["advertised.listeners"] == "CONTROLLER://box.example:9093"
    assert unit.controller["log.dirs"] == "/data/controller"
    assert [broker["node.id"] for broker in unit.brokers] == ["11", "12"]
    assert [broker["process.roles"] for broker in unit.brokers] == ["broker", "broker"]
    assert unit.brokers[1]["advertised.listeners"] == "PLAINTEXT://box.example:9194"
    assert not unit.is_whole_cluster, "two others vote"
    for settings in (unit.controller, *unit.brokers):
        assert BrokerConfig(settings).quorum is not None


def test_without_a_cluster_the_unit_is_one() -> None:
    unit = plan({"listeners": "PLAINTEXT://127.0.0.1:9092", "default.replication.factor": "1"}, 2, "box")
    assert unit.is_whole_cluster
    assert unit.controller is not None
    assert unit.controller["listeners"] == "CONTROLLER://127.0.0.1:9091"
    assert unit.brokers[0]["listeners"] == "PLAINTEXT://127.0.0.1:9093", "9092 is for all"
    assert unit.brokers[0]["controller.quorum.bootstrap.servers"] == "127.0.0.1:9091"
    assert unit.brokers[0]["offsets.topic.replication.factor"] == "1"
    for settings in (unit.controller, *unit.brokers):
        assert BrokerConfig(settings).quorum is not None


def test_its_controller_has_a_protocol_beside_listeners_with_tls() -> None:
    unit = plan({"listeners": "SSL://127.0.0.1:9092", "security.inter.broker.protocol": "SSL"}, 2, "box")
    for settings in unit.brokers:
        config = BrokerConfig(settings)
        assert config.quorum is not None
        assert config.quorum.security_protocol == "PLAINTEXT"
        assert config.security_protocols["SSL"] == "SSL"


def test_ports_that_the_system_chooses_are_not_shared() -> None:
    unit = plan({**ZOOKEEPER, "listeners": "PLAINTEXT://box:0"}, 2, "box")
    assert unit.shared == []
    assert unit.brokers[1]["listeners"] == "PLAINTEXT://box:0"


def test_the_metadata_has_the_controllers_directory() -> None:
    unit = plan({**QUORUM, "metadata.log.dir": "/fast/"}, 2, "box")
    assert unit.controller is not None
    assert unit.controller["log.dirs"] == "/fast/controller"
    assert "metadata.log.dir" not in unit.controller
    assert unit.brokers[1]["metadata.log.dir"] == "/fast/core-1"


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({**ZOOKEEPER, "node.id": "-1"}, "node.id: must be the first number of the unit"),
        ({**ZOOKEEPER, "listeners": "PLAINTEXT://box"}, "has no port"),
        ({**ZOOKEEPER, "listeners": "PLAINTEXT://box:65534"}, "leaves no room"),
        (
            {**ZOOKEEPER, "listeners": "A://box:9092,B://box:9093"},
            r"meets B://box:9093: with --cores 2 each listener of the brokers takes 3 ports",
        ),
        (
            {**ZOOKEEPER, "listeners": "A://box:9092", "metrics.listeners": "http://box:9093"},
            "http://box:9093 meets A://box:9093",
        ),
        ({**QUORUM, "listeners": "PLAINTEXT://box:9092,CONTROLLER://box:9093"}, "meets CONTROLLER://box:9093"),
        ({"listeners": "PLAINTEXT://box:0"}, "needs ports that are given"),
    ],
)
def test_what_cannot_be_shared_out_is_refused(given: dict[str, str], complaint: str) -> None:
    with pytest.raises(InvalidConfig, match=complaint):
        plan(given, 2, "box")


def test_access_rules_need_a_controller_that_knows_its_brokers() -> None:
    with pytest.raises(InvalidConfig, match=r"the controller that --cores adds listens in plain text"):
        plan({"listeners": "PLAINTEXT://127.0.0.1:9092", "authorizer.class.name": "StandardAuthorizer"}, 2, "box")
