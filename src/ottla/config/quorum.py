"""What the settings say about a quorum of controllers: its addresses, and how it is spoken to. PURE."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.errors import InvalidConfig
from ottla.ids import BrokerId

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig

VOTERS: Final = "controller.quorum.voters"
BOOTSTRAP: Final = "controller.quorum.bootstrap.servers"
SWITCH: Final = "zookeeper.metadata.migration.enable"
_UNROUTABLE: Final = ("0.0.0.0", "0", "::", "[::]")
_ADDRESS: Final = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\s:@/\[\]]+):([0-9]{1,5})")


class Quorum(NamedTuple):
    """Where the controllers of this node's cluster are."""

    voters: Mapping[BrokerId, tuple[str, int]]
    """Node id to address, for a quorum that does not change; empty where its voters are in its log (KIP-853)."""
    bootstrap_servers: tuple[tuple[str, int], ...]
    """Addresses to ask first."""
    listener: str
    """The name of the controllers' listener that this node connects to: the first of `controller.listener.names`."""
    security_protocol: str
    """The security protocol of that listener."""

    @property
    def addresses(self) -> tuple[tuple[str, int], ...]:
        """The addresses at which a node without a leader looks for one."""
        return self.bootstrap_servers or tuple(self.voters.values())


def voters(words: tuple[str, ...]) -> dict[BrokerId, tuple[str, int]]:
    """The addresses in `controller.quorum.voters`, by node id. Raises `InvalidConfig`, which names the wrong one."""
    found: dict[BrokerId, tuple[str, int]] = {}
    for word in filter(None, words):
        number, at, address = word.partition("@")
        if not at or not re.fullmatch(r"[0-9]{1,10}", number) or int(number) >= 1 << 31:
            raise InvalidConfig(f"{VOTERS}: {word!r} is not of the form id@host:port")
        node_id = BrokerId(int(number))
        if node_id in found:
            raise InvalidConfig(f"{VOTERS}: voter {number} is there twice")
        where = _address(VOTERS, word, address, "id@host:port")
        if where[0] in _UNROUTABLE:  # Kafka takes it for a voter that is not known yet; nobody could connect to it
            raise InvalidConfig(f"{VOTERS}: {word!r} has no address that other nodes could connect to")
        found[node_id] = where
    return found


def bootstrap_servers(words: tuple[str, ...]) -> tuple[tuple[str, int], ...]:
    """The addresses in `controller.quorum.bootstrap.servers`. Raises `InvalidConfig`, which names the wrong one."""
    return tuple(_address(BOOTSTRAP, word, word, "host:port") for word in words if word)


def quorum(config: "BrokerConfig") -> Quorum | None:
    """The quorum that a node belongs to; None for a node that has ZooKeeper, or keeps its metadata by itself. A node
    whose cluster moves from ZooKeeper has both.

    A node of both roles that names no controller but itself is such a one. Raises `InvalidConfig` for settings that
    contradict each other, as Kafka does.
    """
    if config.zookeeper_connect is not None and not config.is_migrating:
        return None
    known, servers = (
        voters(config.controller_quorum_voters),
        bootstrap_servers(config.controller_quorum_bootstrap_servers),
    )
    roles = config.process_roles
    if _is_alone(config, known, servers):
        if config.is_migrating:
            raise InvalidConfig(
                f"{SWITCH}: name the controllers that the cluster moves to in {BOOTSTRAP} or {VOTERS}; a node that is "
                "broker and the only controller would be a cluster by itself"
            )
        return None
    names = config.controller_listener_names
    if not known and not servers:
        raise InvalidConfig(
            f"process.roles: a controller needs the controllers of its quorum, itself included, in {BOOTSTRAP} or "
            f"{VOTERS}"
        )
    if not names:
        raise InvalidConfig(
            f"controller.listener.names: must name the listener of the controllers that {_given(config)} has"
        )
    if "controller" in roles:
        _check_controller(config, known)
    else:
        _check_broker(config, known)
    protocol = config.controller_security_protocols.get(names[0].upper())
    if protocol is None:
        raise InvalidConfig(
            f"controller.listener.names: listener {names[0]} has no protocol; add {names[0]}:PLAINTEXT to "
            "listener.security.protocol.map"
        )
    return Quorum(known, servers, names[0].upper(), protocol)


def _is_alone(
    config: "BrokerConfig", known: Mapping[BrokerId, tuple[str, int]], servers: tuple[tuple[str, int], ...]
) -> bool:
    if "broker" not in config.process_roles:
        return False
    if not known and not servers:
        return True
    return "controller" in config.process_roles and len(servers) <= 1 and known.keys() <= {config.node_id}


def _check_broker(config: "BrokerConfig", known: Mapping[BrokerId, tuple[str, int]]) -> None:
    if config.node_id in known:
        raise InvalidConfig(
            f"node.id: {config.node_id} is a controller in {VOTERS}; with process.roles=broker this node needs "
            "another number"
        )
    if config.controller_listeners:
        raise InvalidConfig(
            f"controller.listener.names: {config.controller_listeners[0].name} is in listeners, and with "
            "process.roles=broker this node has no controller to listen there"
        )
    if config.control_plane_listener_name is not None:
        raise InvalidConfig("control.plane.listener.name: has no place in a cluster with a quorum of controllers")


def _check_controller(config: "BrokerConfig", known: Mapping[BrokerId, tuple[str, int]]) -> None:
    if known and config.node_id not in known:
        raise InvalidConfig(
            f"node.id: {config.node_id} is not among the voters of {VOTERS}, and process.roles contains controller"
        )
    there = {listener.name for listener in config.controller_listeners}
    missing = [name for name in config.controller_listener_names if name.upper() not in there]
    if missing:
        raise InvalidConfig(
            f"controller.listener.names: {missing[0]} is not in listeners, and this node is a controller"
        )
    if "broker" not in config.process_roles and config.listeners:
        raise InvalidConfig(
            f"listeners: {config.listeners[0]} is not in controller.listener.names, and with process.roles=controller "
            "this node has no other listeners"
        )


def _given(config: "BrokerConfig") -> str:
    return BOOTSTRAP if config.controller_quorum_bootstrap_servers else VOTERS


def _address(setting: str, word: str, address: str, form: str) -> tuple[str, int]:
    found = _ADDRESS.fullmatch(address)
    if found is None or not 0 < int(found[2]) <= 65535:
        raise InvalidConfig(f"{setting}: {word!r} is not of the form {form}")
    return found[1].strip("[]"), int(found[2])
