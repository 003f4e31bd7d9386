"""PURE. The content of each path in the metadata store: Kafka 3.9's layout in ZooKeeper, for every store.

    /cluster/id                                {"version":"1","id":"..."}
    /brokers/ids/1                             addresses of a living broker (bound to its session)
    /brokers/topics/orders                     topic id and replicas
    /brokers/topics/orders/partitions/0/state  leader, epochs, in-sync replicas
    /config/topics/orders                      settings; likewise /config/brokers/1 and /config/brokers/<default>
    /config/users/alice                        a user's credentials and quotas; quotas of /config/clients/<id>,
                                               /config/users/alice/clients/<id> and /config/ips/<address>
    /config/groups/my%20group                  settings of a group, whose name may hold anything (Ottla's own)
    /config/changes/config_change_0000000007   {"version":2,"entity_path":"topics/orders"}: those have changed
    /ottla/config_changes/config_change_...    likewise, of settings that are Ottla's own
    /feature                                   {"version":2,"status":1,"features":{"x":{"max_version_level":2}}}
    /admin/delete_topics/orders                the topic is being deleted
    /controller, /controller_epoch             the controller (bound to its session), and its epoch
    /latest_producer_id_block                  the producer ids given out last
    /log_dir_event_notification/log_dir_event_0000000003   {"version":1,"broker":2,"event":1}: it has lost a directory
    /ottla/log_directories/1                   {"version":1,"directories":{"id":7}}: those of broker 1, how often each
                                               has been taken into use (Ottla's own)

Source: Kafka 3.9, `ZkData`.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from ottla.cluster.commands import (
    BeginDeletion,
    Command,
    CreateTopic,
    DeleteTopic,
    RegisterBroker,
    RemoveBroker,
    SetConfigs,
    SetController,
    SetFeatures,
    SetPartitions,
    with_partitions,
)
from ottla.cluster.entity_names import DEFAULT_NODE, node_of
from ottla.cluster.image import (
    CLUSTER_DEFAULT,
    INITIAL_FEATURES,
    NO_LEADER,
    NOT_YET_LED,
    BrokerImage,
    MetadataImage,
    PartitionImage,
    ResourceType,
    TopicImage,
)
from ottla.errors import OttlaError
from ottla.ids import BrokerId, LeaderEpoch, PartitionId, ProducerId, TopicId, TopicName, uuid_from_text, uuid_to_text
from ottla.metadata.store.base import Create, Delete, Node, Operation, Update

CLUSTER_ID_PATH: Final = "/cluster/id"
BROKERS_PATH: Final = "/brokers/ids"
TOPICS_PATH: Final = "/brokers/topics"
CONFIG_PATH: Final = "/config"
CONFIG_CHANGES_PATH: Final = "/config/changes"
OWN_CONFIG_CHANGES_PATH: Final = "/ottla/config_changes"
"""Notifications of settings that Kafka 3.9 does not have."""
LOG_DIRECTORIES_PATH: Final = "/ottla/log_directories"
CONTROLLER_PATH: Final = "/controller"
CONTROLLER_EPOCH_PATH: Final = "/controller_epoch"
FEATURE_PATH: Final = "/feature"
PRODUCER_IDS_PATH: Final = "/latest_producer_id_block"
DELETIONS_PATH: Final = "/admin/delete_topics"
LOG_DIRECTORY_EVENTS_PATH: Final = "/log_dir_event_notification"
LOG_DIRECTORY_FAILURE: Final = 1
LEADER_RECOVERING: Final = 1

PRODUCER_ID_BLOCK_SIZE: Final = 1000

_CONFIG_DIRECTORIES: Final = {
    ResourceType.TOPIC: "topics",
    ResourceType.BROKER: "brokers",
    ResourceType.GROUP: "groups",
    ResourceType.CLIENT_METRICS: "client-metrics",
    ResourceType.USER: "users",
    ResourceType.CLIENT: "clients",
    ResourceType.IP: "ips",
}
_SANITIZED: Final = frozenset((ResourceType.USER, ResourceType.CLIENT))
_CONFIG_TYPES: Final = {directory: resource_type for resource_type, directory in _CONFIG_DIRECTORIES.items()}
_KAFKAS_ENTITIES: Final = ("topics/", "brokers/", "users/", "clients/", "ips/")
PLAINTEXT: Final = "PLAINTEXT"


class MalformedNode(OttlaError):
    """A node holds what neither Kafka nor Ottla writes; the message names it."""


class ProducerIdBlock(NamedTuple):
    """Producer ids from `first` to `last`, both included, given to one broker."""

    broker_id: BrokerId
    first: ProducerId
    last: ProducerId


# -- nodes to image ------------------------------------------------------------------------------------------------


def read_image(nodes: Mapping[str, Node]) -> MetadataImage:
    """The image of all the nodes; raises `MalformedNode`."""
    brokers: dict[BrokerId, BrokerImage] = {}
    topics: dict[TopicName, TopicImage] = {}
    configs: dict[tuple[ResourceType, str], Mapping[str, str]] = {}
    cluster_id, controller_id = "", NO_LEADER
    features, features_epoch = INITIAL_FEATURES, 0
    path = ""
    try:
        for path, node in nodes.items():
            parts = path.split("/")
            match parts[1:]:
                case ["brokers", "topics", name]:
                    topics[TopicName(name)] = _read_topic(TopicName(name), json.loads(node.data), nodes)
                case ["brokers", "ids", number]:
                    broker_id = BrokerId(int(number))
                    brokers[broker_id] = _read_broker(broker_id, json.loads(node.data), node.created)
                case ["config", *rest] if (resource := _config_resource(rest)) is not None:
                    found: dict[str, str] = json.loads(node.data).get("config", {})
                    if found:
                        configs[resource] = found
                case ["cluster", "id"]:
                    cluster_id = json.loads(node.data)["id"]
                case ["feature"]:
                    features, features_epoch = _read_features(json.loads(node.data)), node.version + 1
                case ["controller"]:
                    controller_id = BrokerId(json.loads(node.data)["brokerid"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise MalformedNode(f"the metadata at {path} cannot be read: {error!r}") from error
    by_id = {topic.topic_id: topic for topic in topics.values()}
    return MetadataImage(cluster_id, controller_id, brokers, topics, by_id, configs, features, features_epoch)


def _read_features(value: dict[str, dict[str, dict[str, int]]]) -> Mapping[str, int]:
    return {feature: int(levels["max_version_level"]) for feature, levels in value["features"].items()}


def _read_topic(name: TopicName, value: dict[str, object], nodes: Mapping[str, Node]) -> TopicImage:
    assignments = value["partitions"]
    assert isinstance(assignments, dict)
    adding, removing = value.get("adding_replicas", {}), value.get("removing_replicas", {})
    assert isinstance(adding, dict)
    assert isinstance(removing, dict)
    partitions: list[PartitionImage] = []
    for number in range(len(assignments)):
        replicas = tuple(BrokerId(replica) for replica in assignments[str(number)])
        node = nodes.get(state_path(name, number))
        if node is None:  # Kafka's controller writes the topic first, and may have gone before it wrote the state
            leader, epoch, isr, version, sure = NO_LEADER, LeaderEpoch(-1), (), NOT_YET_LED, NO_LEADER
            departed, eligible, begins_anew = (), 0, False
        else:
            state = json.loads(node.data)
            leader, epoch = BrokerId(state["leader"]), LeaderEpoch(state["leader_epoch"])
            isr, version = tuple(state["isr"]), node.version
            sure = BrokerId(state.get("last_known_leader", NO_LEADER))
            departed, eligible = tuple(state.get("departed", ())), int(state.get("eligible", 0))
            begins_anew = state.get("begins_anew") is True
        partitions.append(
            PartitionImage(
                PartitionId(number),
                leader,
                epoch,
                replicas,
                isr,
                version,
                tuple(adding.get(str(number), ())),
                tuple(removing.get(str(number), ())),
                sure,
                departed,
                eligible,
                begins_anew,
            )
        )
    return TopicImage(name, TopicId(uuid_from_text(str(value["topic_id"]))), tuple(partitions))


def _read_broker(broker_id: BrokerId, value: dict[str, object], created: int) -> BrokerImage:
    """Its epoch is the transaction that registered it, where the store numbers those (KIP-380)."""
    endpoints: dict[str, tuple[str, int]] = {}
    listed = value["endpoints"]
    assert isinstance(listed, list)
    for endpoint in listed:
        name, _, address = endpoint.partition("://")
        host, _, port = address.rpartition(":")
        endpoints[name] = (host.removeprefix("[").removesuffix("]"), int(port))
    rack = value.get("rack")
    epoch = value.get("epoch", 0)
    assert isinstance(epoch, int)
    confirms_leadership = value.get("confirms_leadership") is True
    listed_protocols = value.get("listener_security_protocol_map", {})
    assert isinstance(listed_protocols, dict)
    protocols = {name: protocol for name, protocol in listed_protocols.items() if protocol != PLAINTEXT}
    return BrokerImage(
        broker_id, created or epoch, None if rack is None else str(rack), endpoints, confirms_leadership, protocols
    )


# -- commands to operations ----------------------------------------------------------------------------------------


def operations_for(
    commands: Iterable[Command],
    image: MetadataImage,
    versions: Mapping[str, int],
    *,
    controller_epoch: int,
    now_ms: int,
    notify: bool = False,
) -> list[Operation]:
    """All of `each_operation`, for a few commands."""
    return [*each_operation(commands, image, versions, controller_epoch=controller_epoch, now_ms=now_ms, notify=notify)]


def each_operation(
    commands: Iterable[Command],
    image: MetadataImage,
    versions: Mapping[str, int],
    *,
    controller_epoch: int,
    now_ms: int,
    notify: bool = False,
) -> Iterator[Operation]:
    """The operations that carry the commands out in a store whose nodes have `versions`, and whose image is `image`.

    With `notify`, the store notifies the brokers that share it of the settings that change. Operations are made one at
    a time: those of thousands of partitions take long.
    """
    topics: dict[TopicName, TopicImage] = {}
    """Those whose partitions change, as they are after the commands looked at so far."""
    for command in commands:
        match command:
            case CreateTopic(topic, configs):
                yield Create(f"{TOPICS_PATH}/{topic.name}", _topic_node(topic))
                for partition in topic.partitions:
                    if partition.partition_epoch != NOT_YET_LED:
                        path = state_path(topic.name, partition.partition)
                        yield Create(path, _state_node(partition, controller_epoch))
                path = config_path(ResourceType.TOPIC, topic.name)
                yield put(versions, path, _config_node(configs))
            case BeginDeletion(name):
                yield put(versions, f"{DELETIONS_PATH}/{name}", b"")
            case DeleteTopic(name):
                yield from _deletion(image.topics[name], versions)
            case SetPartitions(name, partitions):
                topics[name] = with_partitions(topics.get(name) or image.topics[name], partitions)
                for partition in partitions:
                    path = state_path(name, partition.partition)
                    if partition.partition_epoch != NOT_YET_LED:
                        yield put(versions, path, _state_node(partition, controller_epoch))
                    elif path in versions:
                        yield Delete(path, versions[path])
            case SetConfigs(resource_type, name, configs):
                path = config_path(resource_type, name)
                if configs or path in versions:
                    yield put(versions, path, _config_node(configs))
                    if notify:
                        yield _notification(path)
            case SetFeatures(levels):
                yield put(versions, FEATURE_PATH, _feature_node(levels))
            case RegisterBroker(broker):
                path = f"{BROKERS_PATH}/{broker.broker_id}"
                data = _broker_node(broker, now_ms)
                known = versions.get(path)
                yield Create(path, data, True) if known is None else Update(path, data, known)
            case RemoveBroker(broker_id):
                path = f"{BROKERS_PATH}/{broker_id}"
                yield Delete(path, versions[path])
            case SetController(controller_id):
                data = _json(
                    {"version": 2, "brokerid": controller_id, "timestamp": str(now_ms), "kraftControllerEpoch": -1}
                )
                yield Create(CONTROLLER_PATH, data, True)
                yield put(versions, CONTROLLER_EPOCH_PATH, str(controller_epoch).encode())
    for name, topic in topics.items():
        before = image.topics.get(name)
        if before is None or _placed(before) != _placed(topic):
            yield put(versions, f"{TOPICS_PATH}/{name}", _topic_node(topic))


def _placed(topic: TopicImage) -> list[tuple[object, ...]]:
    """What of a topic's partitions stands in the node of the topic itself."""
    return [(partition.replicas, partition.adding, partition.removing) for partition in topic.partitions]


def put(versions: Mapping[str, int], path: str, data: bytes) -> Operation:
    """Create the node, or update it if it has a version."""
    known = versions.get(path)
    return Create(path, data) if known is None else Update(path, data, known)


def _deletion(topic: TopicImage, versions: Mapping[str, int]) -> Iterator[Operation]:
    paths = [state_path(topic.name, partition.partition) for partition in topic.partitions]
    paths += [f"{TOPICS_PATH}/{topic.name}", config_path(ResourceType.TOPIC, topic.name)]
    paths.append(f"{DELETIONS_PATH}/{topic.name}")
    return (Delete(path, versions[path]) for path in paths if path in versions)


def deletions_begun(nodes: Iterable[str]) -> list[TopicName]:
    """The topics that are being deleted, as these paths say."""
    return [TopicName(path.rpartition("/")[2]) for path in nodes if path.rpartition("/")[0] == DELETIONS_PATH]


def log_directory_failure(broker_id: BrokerId) -> Operation:
    """The operation that notifies the controller of a failed log directory."""
    data = _json({"version": 1, "broker": broker_id, "event": LOG_DIRECTORY_FAILURE})
    return Create(f"{LOG_DIRECTORY_EVENTS_PATH}/log_dir_event_", data, sequential=True)


def read_log_directory_failures(nodes: Mapping[str, Node]) -> tuple[frozenset[BrokerId], list[Operation]]:
    """The brokers that such nodes name, and what takes the nodes away; what cannot be read is taken away, too."""
    brokers: set[BrokerId] = set()
    operations: list[Operation] = []
    for path, node in nodes.items():
        if path == LOG_DIRECTORY_EVENTS_PATH:
            continue
        operations.append(Delete(path, node.version))
        try:
            brokers.add(BrokerId(int(json.loads(node.data)["broker"])))
        except (ValueError, KeyError, TypeError):
            continue
    return frozenset(brokers), operations


def log_directories_path(broker_id: BrokerId) -> str:
    """Where the log directories of a broker are recorded."""
    return f"{LOG_DIRECTORIES_PATH}/{broker_id}"


def log_directories_node(generations: Mapping[str, int]) -> bytes:
    """A broker's log directories: generations by directory id."""
    return _json({"version": 1, "directories": dict(sorted(generations.items()))})


def read_log_directories(node: Node | None) -> dict[str, int]:
    """Generations by directory id; empty if nothing is recorded. Raises `MalformedNode`."""
    try:
        found = {} if node is None else json.loads(node.data)["directories"]
        return {str(directory_id): int(generation) for directory_id, generation in found.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise MalformedNode(f"the metadata below {LOG_DIRECTORIES_PATH} cannot be read: {error!r}") from error


def cluster_id_node(cluster_id: str) -> bytes:
    """Content of `/cluster/id`."""
    return _json({"version": "1", "id": cluster_id})


def read_cluster_id(node: Node) -> str:
    """The id in `/cluster/id`; raises `MalformedNode`."""
    try:
        return str(json.loads(node.data)["id"])
    except (ValueError, KeyError, TypeError) as error:
        raise MalformedNode(f"the metadata at {CLUSTER_ID_PATH} cannot be read: {error!r}") from error


def producer_id_block_node(block: ProducerIdBlock) -> bytes:
    """Content of `/latest_producer_id_block`."""
    return _json(
        {"version": 1, "broker": block.broker_id, "block_start": str(block.first), "block_end": str(block.last)}
    )


def read_producer_id_block(node: Node) -> ProducerIdBlock:
    """The block given out last; raises `MalformedNode`."""
    try:
        value = json.loads(node.data)
        return ProducerIdBlock(
            BrokerId(value["broker"]), ProducerId(int(value["block_start"])), ProducerId(int(value["block_end"]))
        )
    except (ValueError, KeyError, TypeError) as error:
        raise MalformedNode(f"the metadata at {PRODUCER_IDS_PATH} cannot be read: {error!r}") from error


def _topic_node(topic: TopicImage) -> bytes:
    return _json(
        {
            "removing_replicas": _listed((partition.partition, partition.removing) for partition in topic.partitions),
            "partitions": {str(partition.partition): list(partition.replicas) for partition in topic.partitions},
            "topic_id": uuid_to_text(topic.topic_id),
            "adding_replicas": _listed((partition.partition, partition.adding) for partition in topic.partitions),
            "version": 3,
        }
    )


def _listed(replicas: Iterable[tuple[int, tuple[BrokerId, ...]]]) -> dict[str, list[BrokerId]]:
    """Replicas by partition, of those partitions that have any."""
    return {str(partition): list(some) for partition, some in replicas if some}


def _state_node(partition: PartitionImage, controller_epoch: int) -> bytes:
    value: dict[str, object] = {
        "controller_epoch": controller_epoch,
        "leader": partition.leader,
        "version": 1,
        "leader_epoch": partition.leader_epoch,
        "isr": list(partition.isr),
    }
    if partition.last_known_leader != NO_LEADER:
        value["last_known_leader"] = partition.last_known_leader  # Ottla's own: Kafka's controller drops it
        value["leader_recovery_state"] = LEADER_RECOVERING  # which it asks for a confirmation, as Ottla's does
    if partition.departed:  # Ottla's own, like the next two
        value["departed"] = list(partition.departed)
    if partition.eligible_count:
        value["eligible"] = partition.eligible_count
    if partition.begins_anew:
        value["begins_anew"] = True
    return _json(value)


def _config_node(configs: Mapping[str, str]) -> bytes:
    return _json({"version": 1, "config": dict(configs)})


def _notification(path: str) -> Operation:
    entity = path.removeprefix(f"{CONFIG_PATH}/")
    data = _json({"version": 2, "entity_path": entity})
    # A notification of settings that Kafka 3.9 does not have would stop its brokers from reading any other.
    parent = CONFIG_CHANGES_PATH if entity.startswith(_KAFKAS_ENTITIES) else OWN_CONFIG_CHANGES_PATH
    return Create(f"{parent}/config_change_", data, sequential=True)


def read_notification(node: Node) -> str | None:
    """The path of the settings that a notification names; None for one that no Kafka since 0.9 has written."""
    try:
        value = json.loads(node.data)
        return f"{CONFIG_PATH}/{value['entity_path']}" if value["version"] == 2 else None
    except (ValueError, KeyError, TypeError):
        return None


def read_configs(path: str, node: Node | None) -> SetConfigs | None:
    """The settings at a path, none if the node is not there; None for a path of what Ottla has no settings of.

    Raises `MalformedNode`.
    """
    match path.split("/")[1:]:
        case ["config", *rest] if (resource := _config_resource(rest)) is not None:
            try:
                configs: dict[str, str] = {} if node is None else json.loads(node.data).get("config", {})
            except (ValueError, AttributeError) as error:
                raise MalformedNode(f"the metadata at {path} cannot be read: {error!r}") from error
            return SetConfigs(*resource, configs)
        case _:
            return None


def _feature_node(levels: Mapping[str, int]) -> bytes:
    """Version 2 of the node, since Kafka 3.3; status 1: features are enabled."""
    features = {feature: {"max_version_level": level} for feature, level in levels.items()}
    return _json({"version": 2, "status": 1, "features": features})


def _broker_node(broker: BrokerImage, now_ms: int) -> bytes:
    endpoints = [
        f"{name}://[{host}]:{port}" if ":" in host else f"{name}://{host}:{port}"
        for name, (host, port) in broker.endpoints.items()
    ]
    host, port = next(iter(broker.endpoints.values()), (None, -1))
    value: dict[str, object] = {
        "features": {},
        "listener_security_protocol_map": {
            name: broker.security_protocols.get(name, PLAINTEXT) for name in broker.endpoints
        },
        "endpoints": endpoints,
        "jmx_port": -1,
        "port": port,
        "host": host,
        "version": 5,
        "timestamp": str(now_ms),
    }
    if broker.epoch >= 0:  # Ottla's own: for a store that does not number what makes a node
        value["epoch"] = broker.epoch
    if broker.confirms_leadership:  # Ottla's own
        value["confirms_leadership"] = True
    if broker.rack is not None:
        value["rack"] = broker.rack
    return _json(value)


def config_path(resource_type: ResourceType, name: str) -> str:
    """Where the settings of a resource stand."""
    if resource_type is ResourceType.USER_CLIENT:
        return f"{CONFIG_PATH}/users/{name}"
    if resource_type is ResourceType.IP:
        return f"{CONFIG_PATH}/ips/{name or DEFAULT_NODE}"
    node = node_of(name) if resource_type in _SANITIZED else quote(name, safe="") or DEFAULT_NODE
    if node in (".", ".."):  # which mean something else in a path
        node = node.replace(".", "%2E")
    return f"{CONFIG_PATH}/{_CONFIG_DIRECTORIES[resource_type]}/{node}"


def _config_resource(parts: Sequence[str]) -> tuple[ResourceType, str] | None:
    """The resource whose settings stand below `/config` at this path; None if there is none."""
    match parts:
        case ["users", user, "clients", client_id]:
            return ResourceType.USER_CLIENT, f"{user}/clients/{client_id}"
        case [directory, node] if directory in _CONFIG_TYPES:
            resource_type = _CONFIG_TYPES[directory]
            if resource_type is ResourceType.IP and node != DEFAULT_NODE:
                return resource_type, node
            return resource_type, CLUSTER_DEFAULT if node == DEFAULT_NODE else unquote(node)
        case _:
            return None


def state_path(topic: TopicName, partition: int) -> str:
    return f"{TOPICS_PATH}/{topic}/partitions/{partition}/state"


def _json(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
