"""PURE. What a cluster that moves from ZooKeeper to a quorum of controllers has in ZooKeeper, and when it is ready.

    /ottla/migration/1   {"version":1,"epoch":77,"incarnation":"...","leader":[11,3],"problem":""}: broker 1, registered
                         in epoch 77, is ready to move to the quorum that controller 11 leads in epoch 3, unless there
                         is a problem (bound to its session)
    /ottla/migration/controllers/12   {"version":1,"leader":[11,3]}: controller 12 has the switch, and follows that
                         leader; it never begins a cluster of its own any more (bound to its session)
    /migration           the tree is frozen: nothing of it changes any more. In Kafka's format (KIP-866), with the
                         cluster and its brokers at that moment as Ottla's own addition; with an offset once the log
                         of the quorum has the metadata
    /controller          {"brokerid":-1,...}: no broker is the controller, and none becomes it

The freeze is one transaction with the end of the controller's term. The node stays for good.
"""

import json
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple
from uuid import UUID

from ottla.cluster.image import NO_LEADER, BrokerImage, MetadataImage
from ottla.config.quorum import SWITCH
from ottla.ids import BrokerId, uuid_from_text, uuid_to_text
from ottla.metadata.store import layout
from ottla.metadata.store.base import Check, Create, Delete, Node, Operation, Update
from ottla.metadata.store.layout import MalformedNode

MIGRATION_PATH: Final = "/migration"
ANNOUNCEMENTS_PATH: Final = "/ottla/migration"
CONTROLLERS_PATH: Final = "/ottla/migration/controllers"
DOES_NOT_RUN: Final = "holds replicas and does not run"
_OFFSET: Final = "kraft_metadata_offset"
_UNKNOWN: Final = -1


class Announcement(NamedTuple):
    """A broker is ready to move, or names the problem that keeps it from that."""

    broker_epoch: int
    """That of its registration in ZooKeeper: another process of the broker has another one."""
    incarnation_id: UUID
    """With which it will register with the quorum."""
    leader: tuple[int, int]
    """The active controller that it follows, and the epoch: there might be two quorums by mistake."""
    problem: str = ""
    """Why it is not ready after all, as the end of a sentence about it."""


class MovingBroker(NamedTuple):
    """A broker at the moment of the freeze."""

    broker: BrokerImage
    incarnation_id: UUID


class Freeze(NamedTuple):
    """The content of `/migration`."""

    cluster_id: str
    brokers: tuple[MovingBroker, ...]
    is_over: bool = False
    """Whether the log of the quorum has the metadata: this tree is out of date."""


def announcement_path(broker_id: BrokerId) -> str:
    """Where a broker announces that it is ready."""
    return f"{ANNOUNCEMENTS_PATH}/{broker_id}"


def announcement_node(announcement: Announcement) -> bytes:
    """Content of a broker's announcement."""
    return _json(
        {
            "version": 1,
            "epoch": announcement.broker_epoch,
            "incarnation": uuid_to_text(announcement.incarnation_id),
            "leader": list(announcement.leader),
            "problem": announcement.problem,
        }
    )


def read_announcements(nodes: Mapping[str, Node]) -> dict[BrokerId, Announcement]:
    """The announcements among nodes; what cannot be read counts as none."""
    found: dict[BrokerId, Announcement] = {}
    for path, node in nodes.items():
        parent, _, name = path.rpartition("/")
        if parent != ANNOUNCEMENTS_PATH:
            continue
        try:
            value = json.loads(node.data)
            found[BrokerId(int(name))] = Announcement(
                int(value["epoch"]),
                uuid_from_text(value["incarnation"]),
                _pair(*value["leader"]),
                str(value.get("problem", "")),
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
    return found


def controller_path(controller_id: int) -> str:
    """Where a controller announces that it waits for the metadata of this tree."""
    return f"{CONTROLLERS_PATH}/{controller_id}"


def controller_node(leader: tuple[int, int]) -> bytes:
    """Content of a controller's announcement: the active controller that it follows, and the epoch."""
    return _json({"version": 1, "leader": list(leader)})


def _read_controllers(nodes: Mapping[str, Node]) -> dict[int, tuple[int, int]]:
    """The leaders that controllers follow, by controller; what cannot be read counts as none."""
    found: dict[int, tuple[int, int]] = {}
    for path, node in nodes.items():
        parent, _, name = path.rpartition("/")
        if parent == CONTROLLERS_PATH:
            try:
                found[int(name)] = _pair(*json.loads(node.data)["leader"])
            except (ValueError, KeyError, TypeError):
                continue
    return found


def unready_controllers(voters: Collection[int], nodes: Mapping[str, Node], leader: tuple[int, int]) -> dict[int, str]:
    """The voters of the quorum that the move has to wait for, with what is missing: each of them might lead it, and
    would begin a cluster without topics if it did not know of the move."""
    announced = _read_controllers(nodes)
    missing: dict[int, str] = {}
    for voter in sorted(voters):
        follows = announced.get(voter)
        if follows is None:
            missing[voter] = f"does not run, or was started without {SWITCH}"
        elif follows[0] == NO_LEADER:
            missing[voter] = "reaches no active controller of the quorum"
        elif follows != leader:
            missing[voter] = f"follows controller {follows[0]}, in epoch {follows[1]}"
    return missing


def holders(image: MetadataImage) -> frozenset[BrokerId]:
    """The brokers that hold replicas."""
    return frozenset(
        replica for topic in image.topics.values() for part in topic.partitions for replica in part.replicas
    )


def unready(
    image: MetadataImage, announcements: Mapping[BrokerId, Announcement], leader: tuple[int, int]
) -> dict[BrokerId, str]:
    """The brokers that the move has to wait for, with what is missing: all that run or hold replicas have to be ready,
    and to follow this leader.

    A broker that is down might come back with replaced disks, and the quorum could not know.
    """
    missing: dict[BrokerId, str] = {}
    for broker_id in sorted({*image.brokers, *holders(image)}):
        broker, announced = image.brokers.get(broker_id), announcements.get(broker_id)
        if broker is None:
            missing[broker_id] = DOES_NOT_RUN
        elif announced is None or announced.broker_epoch != broker.epoch:
            missing[broker_id] = "was started without the settings of the quorum"
        elif announced.problem:
            missing[broker_id] = announced.problem
        elif announced.leader != leader:
            missing[broker_id] = f"follows controller {announced.leader[0]}, in epoch {announced.leader[1]}"
    return missing


def freeze_operations(
    nodes: Mapping[str, Node], controller_id: int, controller_epoch: int, voters: Collection[int]
) -> list[Operation]:
    """The operations that freeze the tree, given all of its nodes: `unready` has named no broker, `unready_controllers`
    no voter, and there has been a controller. `controller_id` and `controller_epoch` are those of the quorum."""
    image, announcements = layout.read_image(nodes), read_announcements(nodes)
    brokers = {}
    operations: list[Operation] = []
    for broker_id, broker in sorted(image.brokers.items()):
        announced = announcements[broker_id]
        brokers[str(broker_id)] = _moving_node(broker, announced)
        paths = (f"{layout.BROKERS_PATH}/{broker_id}", announcement_path(broker_id))
        operations += [Check(path, nodes[path].version) for path in paths]
    operations += [Check(path, nodes[path].version) for path in map(controller_path, sorted(voters))]
    data = _json(
        {
            "version": 0,
            "kraft_controller_id": controller_id,
            "kraft_controller_epoch": controller_epoch,
            _OFFSET: _UNKNOWN,
            "kraft_metadata_epoch": _UNKNOWN,
            "ottla": {"cluster_id": image.cluster_id, "brokers": brokers},
        }
    )
    return [*operations, Create(MIGRATION_PATH, data), _next_epoch(nodes)]


def moved_operations(nodes: Mapping[str, Node], offset: int, epoch: int) -> list[Operation]:
    """The operations that note in the freeze that the log of the quorum has the metadata, up to this offset.

    None if that is noted, or nothing is frozen.
    """
    node, freeze = nodes.get(MIGRATION_PATH), read_freeze(nodes)
    if node is None or freeze is None or freeze.is_over:
        return []
    value = {**json.loads(node.data), _OFFSET: offset, "kraft_metadata_epoch": epoch}
    return [Update(MIGRATION_PATH, _json(value), node.version)]


def vacate_operations(nodes: Mapping[str, Node]) -> list[Operation]:
    """The operations that end the controller's seat in a frozen tree; none if it is taken for good, or is free."""
    node = nodes.get(layout.CONTROLLER_PATH)
    if node is None or is_seat_closed(nodes):
        return []
    return [Delete(layout.CONTROLLER_PATH, node.version)]


def close_operations(nodes: Mapping[str, Node]) -> list[Operation]:
    """The operations that take the free seat for good, so that not even an older broker becomes the controller."""
    data = _json({"version": 2, "brokerid": NO_LEADER, "timestamp": "0", "kraftControllerEpoch": _UNKNOWN})
    return [Create(layout.CONTROLLER_PATH, data), _next_epoch(nodes)]


def is_seat_closed(nodes: Mapping[str, Node]) -> bool:
    """Whether no broker can become the controller."""
    node = nodes.get(layout.CONTROLLER_PATH)
    return node is not None and layout.read_image({layout.CONTROLLER_PATH: node}).controller_id == NO_LEADER


def read_freeze(nodes: Mapping[str, Node]) -> Freeze | None:
    """The content of `/migration`; None if it is not among the nodes. Raises `MalformedNode`."""
    node = nodes.get(MIGRATION_PATH)
    if node is None:
        return None
    try:
        data = json.loads(node.data)
        value = data["ottla"]
        brokers = [_read_moving(BrokerId(int(number)), each) for number, each in value["brokers"].items()]
        return Freeze(str(value["cluster_id"]), tuple(brokers), int(data.get(_OFFSET, _UNKNOWN)) >= 0)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise MalformedNode(
            f"{MIGRATION_PATH} was not written by Ottla ({error!r}): a cluster of genuine Kafka that has begun to move "
            "has to end that with genuine Kafka"
        ) from error


def _next_epoch(nodes: Mapping[str, Node]) -> Update:
    """Deposes the broker that is the controller: its commits check this node."""
    node = nodes[layout.CONTROLLER_EPOCH_PATH]
    return Update(layout.CONTROLLER_EPOCH_PATH, str(int(node.data) + 1).encode(), node.version)


def _pair(leader_id: int, epoch: int) -> tuple[int, int]:
    return int(leader_id), int(epoch)


def _moving_node(broker: BrokerImage, announced: Announcement) -> dict[str, object]:
    return {
        "incarnation": uuid_to_text(announced.incarnation_id),
        "rack": broker.rack,
        "endpoints": {name: [host, port] for name, (host, port) in broker.endpoints.items()},
        "protocols": dict(broker.security_protocols),
    }


def _read_moving(broker_id: BrokerId, value: Mapping[str, object]) -> MovingBroker:
    endpoints, protocols, rack = value["endpoints"], value["protocols"], value["rack"]
    assert isinstance(endpoints, dict)
    assert isinstance(protocols, dict)
    broker = BrokerImage(
        broker_id,
        _UNKNOWN,
        None if rack is None else str(rack),
        {str(name): (str(host), int(port)) for name, (host, port) in endpoints.items()},
        True,
        {str(name): str(protocol) for name, protocol in protocols.items()},
    )
    return MovingBroker(broker, uuid_from_text(str(value["incarnation"])))


def _json(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
