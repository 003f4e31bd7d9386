"""What the settings say about a quorum of controllers: addresses, roles, and what contradicts what."""

import pytest

from ottla.config.broker import BrokerConfig
from ottla.config.listeners import Listener
from ottla.errors import InvalidConfig

BROKER = {
    "process.roles": "broker",
    "node.id": "4",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@a:9093,2@[::1]:9094",
}
CONTROLLER = {
    "process.roles": "controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "a:9093,b:9093",
    "listeners": "CONTROLLER://:9093",
    "advertised.listeners": "CONTROLLER://a:9093",
}


def test_a_broker_knows_its_controllers() -> None:
    quorum = BrokerConfig(BROKER).quorum
    assert quorum is not None
    assert quorum.voters == {1: ("a", 9093), 2: ("::1", 9094)}
    assert quorum.addresses == (("a", 9093), ("::1", 9094))
    assert (quorum.listener, quorum.security_protocol) == ("CONTROLLER", "PLAINTEXT")


def test_addresses_to_begin_with_win_over_voters() -> None:
    quorum = BrokerConfig({**BROKER, "controller.quorum.bootstrap.servers": "c:1"}).quorum
    assert quorum is not None
    assert quorum.addresses == (("c", 1),)


def test_a_controller_has_listeners_of_its_own_alone() -> None:
    config = BrokerConfig(CONTROLLER)
    assert config.listeners == ()
    assert config.controller_listeners == (Listener("CONTROLLER", "", 9093, "PLAINTEXT"),)
    assert config.advertised_controller_listeners == (Listener("CONTROLLER", "a", 9093, "PLAINTEXT"),)
    assert config.quorum is not None
    assert config.quorum.bootstrap_servers == (("a", 9093), ("b", 9093))


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"zookeeper.connect": "zk:2181", "listeners": "PLAINTEXT://a:1", "controller.quorum.voters": "1@a:9093"},
        {**CONTROLLER, "process.roles": "broker,controller", "listeners": "PLAINTEXT://:1,CONTROLLER://:2"}
        | {"controller.quorum.bootstrap.servers": "a:9093", "advertised.listeners": "PLAINTEXT://a:1"},
    ],
    ids=["no settings", "ZooKeeper", "one node of both roles"],
)
def test_other_nodes_have_no_quorum(given: dict[str, str]) -> None:
    assert BrokerConfig(given).quorum is None


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (
            {**BROKER, "controller.quorum.voters": "a:9093"},
            r"controller.quorum.voters: 'a:9093' is not of the form id@",
        ),
        ({**BROKER, "controller.quorum.voters": "x@a:9093"}, "'x@a:9093' is not of the form id@host:port"),
        ({**BROKER, "controller.quorum.voters": "1@a:9093,2@b"}, "'2@b' is not of the form id@host:port"),
        ({**BROKER, "controller.quorum.voters": "1@a:0"}, "'1@a:0' is not of the form"),
        ({**BROKER, "controller.quorum.voters": "1@a:70000"}, "'1@a:70000' is not of the form"),
        ({**BROKER, "controller.quorum.voters": "1@a:1,1@b:1"}, "voter 1 is there twice"),
        ({**BROKER, "controller.quorum.voters": "1@0.0.0.0:1"}, "no address that other nodes could connect to"),
        ({**BROKER, "controller.quorum.bootstrap.servers": "a"}, "bootstrap.servers: 'a' is not of the form host:port"),
        ({**BROKER, "node.id": "1"}, "node.id: 1 is a controller in controller.quorum.voters"),
        ({**BROKER, "controller.listener.names": ""}, "controller.listener.names: must name the listener"),
        (
            {**BROKER, "listeners": "PLAINTEXT://:1,CONTROLLER://:2"},
            "CONTROLLER is in listeners, and with process.roles",
        ),
        ({**BROKER, "listeners": "PLAINTEXT://0.0.0.0:1"}, "needs an address in advertised.listeners"),
        ({**BROKER, "control.plane.listener.name": "PLAINTEXT"}, "control.plane.listener.name: has no place"),
        ({**BROKER, "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"}, "add CONTROLLER:PLAINTEXT"),
        ({**CONTROLLER, "controller.quorum.voters": "2@a:1"}, "node.id: 1 is not among the voters"),
        ({**CONTROLLER, "controller.listener.names": "CONTROLLER,OTHER"}, "OTHER is not in listeners"),
        ({**CONTROLLER, "listeners": "CONTROLLER://:1,PLAINTEXT://:2"}, "is not in controller.listener.names"),
    ],
)
def test_what_contradicts_is_refused_in_a_sentence(given: dict[str, str], problem: str) -> None:
    with pytest.raises(InvalidConfig, match=problem):
        BrokerConfig(given)


MOVING = {
    **CONTROLLER,
    "process.roles": "broker,controller",
    "listeners": "PLAINTEXT://a:1,CONTROLLER://a:2",
    "controller.quorum.voters": "1@a:2,2@b:2",
    "zookeeper.connect": "zk:2181",
    "zookeeper.metadata.migration.enable": "true",
}


def test_a_node_that_moves_from_zookeeper_has_settings_for_before_and_after() -> None:
    moving = BrokerConfig(MOVING)
    assert moving.is_migrating
    assert moving.quorum is not None
    before, after = moving.on_zookeeper(), moving.under_quorum()
    assert (before.is_migrating, before.quorum, before.zookeeper_connect) == (False, None, "zk:2181")
    assert before.process_roles == ("broker",)
    assert [listener.name for listener in before.listeners] == ["PLAINTEXT"]
    assert (after.is_migrating, after.zookeeper_connect, after.quorum) == (False, None, moving.quorum)
    assert after.process_roles == ("broker", "controller")


def test_without_the_switch_a_node_with_zookeeper_stays_there() -> None:
    staying = BrokerConfig({**MOVING, "zookeeper.metadata.migration.enable": "false"})
    assert (staying.is_migrating, staying.quorum) == (False, None)


@pytest.mark.parametrize("voters", ["", "1@a:2"])
def test_a_node_that_moves_names_the_controllers(voters: str) -> None:
    with pytest.raises(InvalidConfig, match=r"zookeeper\.metadata\.migration\.enable: name the controllers"):
        BrokerConfig({**MOVING, "controller.quorum.voters": voters, "controller.quorum.bootstrap.servers": ""})
