"""PURE. What the records of Kafka's metadata log add up to: everything that the quorum knows, and the image of it.

    state = ClusterState(cluster_id)
    for value in records:                       # committed, in order: a snapshot's, then the log's
        state.replay(value)
    image = state.image(offset)                 # shares with the last one all that has not changed

The image has the brokers that are registered and not fenced. What it does not have is here: `brokers` (fenced ones,
incarnations, directories), `controllers`, `acls`, `tokens`, `next_producer_id`, `topics` (directories of replicas).
The records of a transaction count when it ends (KIP-868).

Source: KIP-631 and Kafka 4.3, `MetadataDelta` and `MetadataBatchLoader`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple
from uuid import UUID

from ottla.cluster.features import METADATA_VERSION
from ottla.cluster.image import (
    NO_LEADER,
    BrokerImage,
    MetadataImage,
    ResourceType,
    empty_image,
)
from ottla.cluster.metadata_log.levels import check_metadata_version
from ottla.cluster.metadata_log.registrations import (
    BrokerRegistration,
    ControllerRegistration,
    changed_broker,
    registered_broker,
    registered_controller,
)
from ottla.cluster.metadata_log.settings import (
    Resource,
    config_resource,
    mechanism_of,
    quota_resource,
    quota_text,
    scram_text,
)
from ottla.cluster.metadata_log.topics import Topics
from ottla.errors import CorruptMessage
from ottla.ids import BrokerId
from ottla.protocol import metadata_records as records
from ottla.protocol.compiled import Steps
from ottla.protocol.errors import MalformedMessage, UnsupportedVersion
from ottla.protocol.metadata_records import decode_record
from ottla.protocol.schema import Message


class UnknownRecord(CorruptMessage):
    """A record of a type or version that only a newer Kafka writes; the message has the way out."""


class AclPattern(NamedTuple):
    """The resources that access rules stand for; type and pattern by Kafka's numbers."""

    resource_type: int
    name: str
    pattern_type: int


RECORDS_A_STEP: Final = 20
"""They take some 0.2 ms."""


class ClusterState:
    """Everything that the records say. It has no thread of its own."""

    def __init__(self, cluster_id: str = "", like: MetadataImage | None = None) -> None:
        """`like`: an earlier image, whose objects are used again where nothing has changed since (after a snapshot)."""
        self._image = empty_image(cluster_id)._replace(features={})
        self._like = like
        self.topics: Final = Topics({} if like is None else like.topics)
        self.brokers: Final[dict[int, BrokerRegistration]] = {}
        """Registered ones, fenced ones among them."""
        self.former_incarnations: Final[dict[int, UUID]] = {}
        """The processes of brokers that had registered before the ones in `brokers`; snapshots do not name them."""
        self.controllers: Final[dict[int, ControllerRegistration]] = {}
        self.configs: Final[dict[Resource, Mapping[str, str]]] = {}
        self.foreign: Final[dict[tuple[object, ...], Message]] = {}
        """The records of settings and quotas of kinds that Ottla does not have: kept for snapshots."""
        self.features: dict[str, int] = {}
        """Finalized levels above 0, `metadata.version` among them."""
        self.acls: Final[dict[AclPattern, dict[UUID, records.AccessControlEntryRecord]]] = {}
        self.acl_patterns: Final[dict[UUID, AclPattern]] = {}
        """Where the rule with an id is in `acls`."""
        self.tokens: Final[dict[str, records.DelegationTokenRecord]] = {}
        """Delegation tokens, by id."""
        self.next_producer_id: int | None = None
        """The first producer id that no broker has been given; None if none has been given."""
        self.controller_id = NO_LEADER
        """The controller in the image: no record names it."""
        self._pending: list[Message] | None = None
        """The records of the transaction that has not ended."""
        self._own_configs: dict[Resource, dict[str, str]] = {}
        """Those of `configs` that are in no image yet, so that they may change in place."""
        self._take: Final = self._takers()
        self._changed_acls: set[AclPattern] = set()
        self._changed_tokens: set[str] = set()
        self._brokers_changed = self._directories_changed = self._configs_changed = self._features_changed = False

    # -- records -----------------------------------------------------------------------------------------------------

    def replay(self, value: bytes) -> Message:
        """Take one record, as framed in the log; returns it.

        Raises `CorruptMessage`, as `UnknownRecord` for one that only a newer version knows, or
        `UnknownMetadataVersion`. The state is of no use then: the node has to stop.
        """
        try:
            record, _ = decode_record(value)
        except UnsupportedVersion as error:
            raise UnknownRecord(
                f"{error}: a newer version wrote it, so this node has to be upgraded before it can join"
            ) from error
        except MalformedMessage as error:
            raise CorruptMessage(f"the metadata log has a damaged record: {error}") from error
        self.take(record)
        return record

    def replay_all(self, values: Iterable[bytes]) -> None:
        """`replay` each of them."""
        for _ in self.replay_steps(values):
            pass

    def replay_steps(self, values: Iterable[bytes]) -> Steps[None]:
        """As `replay_all`, in steps."""
        for count, value in enumerate(values, 1):
            self.replay(value)
            if not count % RECORDS_A_STEP:
                yield

    def take(self, record: Message) -> None:
        """Take a decoded record. Raises as `replay`."""
        kind = type(record)
        if kind is records.BeginTransactionRecord:
            if self._pending is not None:
                raise CorruptMessage("a transaction of the metadata log begins before the one before has ended")
            self._pending = []
        elif kind in (records.EndTransactionRecord, records.AbortTransactionRecord):
            pending, self._pending = self._pending, None
            if pending is None:
                raise CorruptMessage("a transaction of the metadata log ends that never began")
            if kind is records.EndTransactionRecord:
                for each in pending:
                    self._take[type(each)](each)
        elif self._pending is not None:
            self._pending.append(record)
        else:
            self._take[kind](record)

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction has begun and not ended: a controller aborts one from before its term."""
        return self._pending is not None

    def _register(self, record: records.RegisterBrokerRecord) -> None:
        broker, known = registered_broker(record), self.brokers.get(record.broker_id)
        if known is not None and known.incarnation_id != broker.incarnation_id:
            self.former_incarnations[broker.broker_id] = known.incarnation_id
        self._put_broker(broker)

    def _unregister(self, record: records.UnregisterBrokerRecord) -> None:
        self._broker(record.broker_id, record.broker_epoch)
        del self.brokers[record.broker_id]
        self.former_incarnations.pop(record.broker_id, None)
        self._brokers_changed = self._directories_changed = True

    def _change_registration(self, record: records.BrokerRegistrationChangeRecord) -> None:
        self._put_broker(changed_broker(self._broker(record.broker_id, record.broker_epoch), record))

    def _fence(self, record: records.FenceBrokerRecord) -> None:
        self._put_broker(self._broker(record.id, record.epoch)._replace(fenced=True))

    def _unfence(self, record: records.UnfenceBrokerRecord) -> None:
        self._put_broker(self._broker(record.id, record.epoch)._replace(fenced=False))

    def _put_broker(self, broker: BrokerRegistration) -> None:
        before = self.brokers.get(broker.broker_id)
        self.brokers[broker.broker_id] = broker
        self._brokers_changed = True
        if before is None or before.directories != broker.directories:
            self._directories_changed = True

    def _broker(self, broker_id: int, epoch: int) -> BrokerRegistration:
        broker = self.brokers.get(broker_id)
        if broker is None:
            raise CorruptMessage(f"the registration of broker {broker_id} changes, and there is none")
        if broker.epoch != epoch:
            raise CorruptMessage(f"broker {broker_id} changes in epoch {epoch}, and has registered in {broker.epoch}")
        return broker

    def _register_controller(self, record: records.RegisterControllerRecord) -> None:
        self.controllers[record.controller_id] = registered_controller(record)

    def _remove_topic(self, record: records.RemoveTopicRecord) -> None:
        name = self.topics.remove(record)
        resource = ResourceType.TOPIC, str(name)
        if self.configs.pop(resource, None) is not None:
            self._own_configs.pop(resource, None)
            self._configs_changed = True

    def _config(self, record: records.ConfigRecord) -> None:
        resource = config_resource(record)
        if resource is not None:
            self._set(resource, record.name, record.value)
        else:
            self._keep((record.resource_type, record.resource_name, record.name), record, gone=record.value is None)

    def _quota(self, record: records.ClientQuotaRecord) -> None:
        resource = quota_resource(record.entity)
        if resource is not None:
            self._set(resource, record.key, None if record.remove else quota_text(record))
        else:
            parts = sorted((part.entity_type, part.entity_name or "") for part in record.entity)
            self._keep((*parts, record.key), record, gone=record.remove)

    def _keep(self, what: tuple[object, ...], record: Message, *, gone: bool) -> None:
        self.foreign.pop(what, None)
        if not gone:
            self.foreign[what] = record

    def _scram(self, record: records.UserScramCredentialRecord) -> None:
        self._set((ResourceType.USER, record.name), mechanism_of(record.mechanism), scram_text(record))

    def _remove_scram(self, record: records.RemoveUserScramCredentialRecord) -> None:
        self._set((ResourceType.USER, record.name), mechanism_of(record.mechanism), None)

    def _set(self, resource: Resource, key: str, value: str | None) -> None:
        known = self.configs.get(resource, {})
        if known.get(key) == value:
            return
        self._configs_changed = True
        own = self._own_configs.get(resource)
        if own is None:
            self.configs[resource] = self._own_configs[resource] = own = dict(known)
        if value is not None:
            own[key] = value
            return
        del own[key]
        if not own:
            del self.configs[resource], self._own_configs[resource]

    def _feature(self, record: records.FeatureLevelRecord) -> None:
        if record.name == METADATA_VERSION:
            check_metadata_version(record.feature_level)
        if self.features.get(record.name, 0) == record.feature_level:
            return
        self.features = {name: level for name, level in self.features.items() if name != record.name}
        if record.feature_level:
            self.features[record.name] = record.feature_level
        self._features_changed = True

    def _producer_ids(self, record: records.ProducerIdsRecord) -> None:
        self.next_producer_id = record.next_producer_id

    def _acl(self, record: records.AccessControlEntryRecord) -> None:
        pattern = AclPattern(record.resource_type, record.resource_name, record.pattern_type)
        self._forget_acl(record.id)
        self.acl_patterns[record.id] = pattern
        self.acls.setdefault(pattern, {})[record.id] = record
        self._changed_acls.add(pattern)

    def _remove_acl(self, record: records.RemoveAccessControlEntryRecord) -> None:
        if not self._forget_acl(record.id):
            raise CorruptMessage(f"the access rule {record.id} is removed, and there is none")

    def _forget_acl(self, acl_id: UUID) -> bool:
        pattern = self.acl_patterns.pop(acl_id, None)
        if pattern is None:
            return False
        rules = self.acls[pattern]
        del rules[acl_id]
        if not rules:
            del self.acls[pattern]
        self._changed_acls.add(pattern)
        return True

    def _token(self, record: records.DelegationTokenRecord) -> None:
        self.tokens[record.token_id] = record
        self._changed_tokens.add(record.token_id)

    def _remove_token(self, record: records.RemoveDelegationTokenRecord) -> None:
        if self.tokens.pop(record.token_id, None) is not None:
            self._changed_tokens.add(record.token_id)

    def _nothing(self, record: Message) -> None:
        """Records that change nothing: of the log itself, and of a move from ZooKeeper, which Kafka 4 ignores, too."""

    def _takers(self) -> Mapping[type[Message], Callable[[Any], None]]:
        return {
            records.RegisterBrokerRecord: self._register,
            records.UnregisterBrokerRecord: self._unregister,
            records.TopicRecord: self.topics.create,
            records.PartitionRecord: self.topics.create_partition,
            records.ConfigRecord: self._config,
            records.PartitionChangeRecord: self.topics.change_partition,
            records.FenceBrokerRecord: self._fence,
            records.UnfenceBrokerRecord: self._unfence,
            records.RemoveTopicRecord: self._remove_topic,
            records.DelegationTokenRecord: self._token,
            records.UserScramCredentialRecord: self._scram,
            records.FeatureLevelRecord: self._feature,
            records.ClientQuotaRecord: self._quota,
            records.ProducerIdsRecord: self._producer_ids,
            records.BrokerRegistrationChangeRecord: self._change_registration,
            records.AccessControlEntryRecord: self._acl,
            records.RemoveAccessControlEntryRecord: self._remove_acl,
            records.NoOpRecord: self._nothing,
            records.ZkMigrationStateRecord: self._nothing,
            records.RemoveUserScramCredentialRecord: self._remove_scram,
            records.RemoveDelegationTokenRecord: self._remove_token,
            records.RegisterControllerRecord: self._register_controller,
            records.ClearElrRecord: self.topics.clear_eligible,
        }

    # -- what has changed --------------------------------------------------------------------------------------------

    def take_acl_changes(self) -> set[AclPattern]:
        """The patterns whose rules have changed since the last call; a pattern without rules is not in `acls`."""
        changes, self._changed_acls = self._changed_acls, set()
        return changes

    def take_token_changes(self) -> set[str]:
        """Ids of the delegation tokens that have changed since the last call; one that is gone is not in `tokens`."""
        changes, self._changed_tokens = self._changed_tokens, set()
        return changes

    # -- the image ---------------------------------------------------------------------------------------------------

    @property
    def metadata_version(self) -> int:
        """The level of `metadata.version`; 0 as long as no record has set it."""
        return self.features.get(METADATA_VERSION, 0)

    def image(self, offset: int | None = None) -> MetadataImage:
        """The image; what has not changed since the last one is the same object, the whole of it included.

        `offset` is that of the last record; where a feature level has changed it becomes the epoch of the features,
        which is counted without it. Raises `CorruptMessage` if partitions of a topic are missing.
        """
        before = self._image
        changes: dict[str, Any] = {}
        if self.topics.have_changed or self._directories_changed:
            failed = self.topics.failed_replicas(self.brokers, anew=self._directories_changed)
            if failed != (before.failed_replicas, before.full_replicas):
                changes["failed_replicas"], changes["full_replicas"] = failed
        if self.topics.have_changed:
            changes["topics"], changes["topics_by_id"] = self.topics.images()
        if self._brokers_changed:
            changes["brokers"] = self._living()
        if self._configs_changed:
            changes["configs"] = self._shared_configs()
        if self._features_changed:
            changes["features"] = self.features
            changes["features_epoch"] = before.features_epoch + 1 if offset is None else offset
        if self.controller_id != before.controller_id:
            changes["controller_id"] = self.controller_id
        self._brokers_changed = self._directories_changed = self._configs_changed = self._features_changed = False
        self.topics.seen()
        self._like = None
        if changes:
            self._image = before._replace(**changes)
        return self._image

    def _living(self) -> Mapping[BrokerId, BrokerImage]:
        known = self._image.brokers if self._like is None else self._like.brokers
        living = {broker.broker_id: broker.image() for broker in self.brokers.values() if not broker.fenced}
        for broker_id, image in living.items():
            if known.get(broker_id) == image:
                living[broker_id] = known[broker_id]
        return known if known == living else living

    def _shared_configs(self) -> Mapping[Resource, Mapping[str, str]]:
        known: Mapping[Resource, Mapping[str, str]] = {} if self._like is None else self._like.configs
        for resource, own in self._own_configs.items() if known else ():
            if known.get(resource) == own:
                self.configs[resource] = known[resource]
        self._own_configs.clear()
        return known if known == self.configs else dict(self.configs)
