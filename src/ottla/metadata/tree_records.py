"""PURE. A tree of metadata (`store.layout`) as the first records of a quorum's log: everything that it holds."""

from collections.abc import Iterable, Mapping
from uuid import uuid4

from ottla.cluster.commands import Command, CreateTopic, SetConfigs
from ottla.cluster.features import SUPPORTED
from ottla.cluster.image import NO_LEADER, NOT_YET_LED, PartitionImage, ResourceType, TopicImage
from ottla.cluster.metadata_log.framing import framed
from ottla.cluster.metadata_log.levels import HIGHEST, initial_features
from ottla.cluster.metadata_log.records import messages_for
from ottla.cluster.metadata_log.registrations import BrokerRegistration, broker_record
from ottla.cluster.metadata_log.state import ClusterState
from ottla.ids import LeaderEpoch
from ottla.metadata.store import acl_layout, layout, token_layout
from ottla.metadata.store.base import Node
from ottla.protocol.metadata_records import (
    AccessControlEntryRecord,
    DelegationTokenRecord,
    FeatureLevelRecord,
    ProducerIdsRecord,
)
from ottla.protocol.schema import Message
from ottla.security.acls import AclBinding


def records_of(nodes: Mapping[str, Node], brokers: Iterable[BrokerRegistration] = ()) -> list[bytes]:
    """`messages_of`, framed."""
    return [framed(record, HIGHEST) for record in messages_of(nodes, brokers)]


def messages_of(nodes: Mapping[str, Node], brokers: Iterable[BrokerRegistration] = ()) -> list[Message]:
    """The records of a new cluster with this metadata, in which these brokers have registered already.

    Raises `MalformedNode`, `MalformedAcls`.
    """
    image = layout.read_image(nodes)
    levels = {**initial_features(HIGHEST), **{feature: image.features.get(feature, 0) for feature in SUPPORTED}}
    found: list[Message] = [
        FeatureLevelRecord(name=feature, feature_level=level) for feature, level in levels.items() if level
    ]
    found += [broker_record(broker, HIGHEST) for broker in brokers]
    begun = ClusterState()
    for record in found:
        begun.take(record)
    going = set(layout.deletions_begun(nodes))
    commands: list[Command] = [
        CreateTopic(_led(topic), image.topic_config(name)) for name, topic in image.topics.items() if name not in going
    ]
    commands += [
        SetConfigs(kind, name, settings)
        for (kind, name), settings in image.configs.items()
        if kind is not ResourceType.TOPIC
    ]
    found += messages_for(commands, begun)
    found += _others(nodes)
    return found


def _led(topic: TopicImage) -> TopicImage:
    """The topic, any of whose replicas can lead a partition that no controller has seen to yet: it has no records."""
    if all(part.partition_epoch != NOT_YET_LED for part in topic.partitions):
        return topic
    return topic._replace(partitions=tuple(map(_begun, topic.partitions)))


def _begun(part: PartitionImage) -> PartitionImage:
    if part.partition_epoch != NOT_YET_LED:
        return part
    return part._replace(leader=NO_LEADER, leader_epoch=LeaderEpoch(0), isr=part.replicas, partition_epoch=0)


def _others(nodes: Mapping[str, Node]) -> list[Message]:
    """What the image does not have: producer ids, access rules, delegation tokens."""
    found: list[Message] = []
    for path, node in nodes.items():
        resource = acl_layout.read_acl_path(path)
        if path == layout.PRODUCER_IDS_PATH:
            block = layout.read_producer_id_block(node)
            found.append(ProducerIdsRecord(broker_id=-1, next_producer_id=block.last + 1))
        elif path.startswith(f"{token_layout.TOKENS_PATH}/"):
            token = token_layout.read_token(path, node)
            found.append(
                DelegationTokenRecord(
                    owner=token.owner,
                    requester=token.requester,
                    renewers=[*token.renewers],
                    issue_timestamp=token.issued_ms,
                    max_timestamp=token.max_ms,
                    expiration_timestamp=token.expires_ms,
                    token_id=token.token_id,
                )
            )
        elif resource is not None:
            found += [
                access_control_record(AclBinding(resource, rule)) for rule in acl_layout.read_acl_node(path, node)
            ]
    return found


def access_control_record(binding: AclBinding) -> AccessControlEntryRecord:
    """The record of an access rule, under a new id."""
    resource, rule = binding
    return AccessControlEntryRecord(
        id=uuid4(),
        resource_type=resource.type,
        resource_name=resource.name,
        pattern_type=resource.pattern,
        principal=rule.principal,
        host=rule.host,
        operation=rule.operation,
        permission_type=rule.permission,
    )
