"""The metadata of a broker in a cluster: brokers and topics from the controller, and settings from the store.

    controller -- UpdateMetadata --> brokers, topics          store -- notifications --> settings, feature levels

Changes go to the controller; only settings and blocks of producer ids are written by every broker itself, as
in Kafka 3.9. The broker is registered in the store by a node that goes with its session.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from ottla.clock import Clock
from ottla.cluster.commands import CreateTopic, RegisterBroker, SetConfigs, apply
from ottla.cluster.configs import ConfigChange, plan_configs
from ottla.cluster.controller import ElectionType, NewTopic
from ottla.cluster.controller_requests import ALL_STATES, LEADER_WHEN_DELETED
from ottla.cluster.features import FeatureUpdate
from ottla.cluster.image import BrokerImage, PartitionImage, Replica, ResourceType, TopicImage
from ottla.config.broker import BrokerConfig
from ottla.errors import ApiError, ErrorCode, InvalidConfig, OttlaError
from ottla.ids import BrokerId, LeaderEpoch, PartitionId, ProducerId, TopicId, TopicName, TopicPartition, uuid_to_text
from ottla.metadata.config_changes import ConfigChanges, FoundSettings, find_settings
from ottla.metadata.freezable_store import is_frozen
from ottla.metadata.initial_users import add_initial_users
from ottla.metadata.policies import Policies, altered_configs
from ottla.metadata.producer_ids import allocate_producer_ids
from ottla.metadata.service import WrongCluster
from ottla.metadata.store import layout
from ottla.metadata.store.base import Create, MetadataStore, Node, SessionEvent, StoreConflict, StoreUnavailable
from ottla.metadata.store.migration_layout import MIGRATION_PATH
from ottla.metadata.view import KNOWN_WITHIN_S, NO_LIMIT, MetadataView
from ottla.protocol.messages.update_metadata import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from ottla.tasks import Tasks

if TYPE_CHECKING:
    from ottla.metadata.service import MetadataService

log = logging.getLogger(__name__)

REGISTRATION_POLL_S: Final = 0.2
READ_ONE_BY_ONE: Final = 100
"""Settings of that many topics; of more, all are read at once."""
LEARN_RETRY_S: Final = 1.0
SETTINGS_WITHIN_S: Final = 0.5
"""How long a follower of new partitions waits for their settings: its leader commits nothing until it fetches, and
cannot remove it from the in-sync replicas while ZooKeeper is away."""
UNKNOWN_EPOCH: Final = -1

CreateAtController = Callable[[Sequence[NewTopic]], Awaitable[list[OttlaError | None]]]
"""Have the controller create topics; answers in the order asked."""


class NotController(OttlaError):
    """Another broker is the controller; clients look it up again."""

    code = ErrorCode.NOT_CONTROLLER


class MovedAway(InvalidConfig):
    """The cluster has left ZooKeeper."""

    def __init__(self) -> None:
        super().__init__(
            "zookeeper.connect: this cluster has moved to its own controllers: name them in "
            "controller.quorum.bootstrap.servers or controller.quorum.voters, as the other nodes' settings do, and "
            "remove zookeeper.connect"
        )


class ClusterMetadata(MetadataView):
    """What this broker knows of its cluster. On the loop's thread."""

    def __init__(
        self, store: MetadataStore, config: BrokerConfig, clock: Clock, policies: Policies | None = None
    ) -> None:
        super().__init__(config, policies)
        self._store = store
        self._clock = clock
        self._endpoints: Mapping[str, tuple[str, int]] = {}
        self._producer_ids = range(0)
        self._allocating = asyncio.Lock()
        self._changes = ConfigChanges(store, self._take_settings)
        self._end_watch: Callable[[], None] | None = None
        self._tasks = Tasks()
        self._settings_known: set[TopicId] = set()
        """Topics that existed when settings were read; settings of later ones came without a notification."""
        self.broker_epoch = UNKNOWN_EPOCH
        """That of the registration in the store."""
        self._registered = asyncio.Event()
        self._is_closed = False
        self._is_known = False
        self.controller_epoch = UNKNOWN_EPOCH
        """The highest one that any request came with."""
        self.controller: MetadataService | None = None
        """Changes the metadata while this broker is the controller."""
        self.create_at_controller: CreateAtController | None = None
        """How topics are created while another one is."""

    @property
    def store(self) -> MetadataStore:
        return self._store

    # -- start and stop ----------------------------------------------------------------------------------------------

    async def open(self, cluster_id: str | None) -> str:
        """Begin a session, and read what is in the store; the cluster's id, made if this is its first broker.

        `cluster_id` is that of the log directories, None if they are new.

        Raises `WrongCluster`, `InvalidConfig`, `StoreUnavailable`, `StoreConflict`, `MalformedNode`.
        """
        await self._store.open()
        if await is_frozen(self._store):
            raise MovedAway
        found = await self._cluster_id(cluster_id)
        self._image = self._image._replace(cluster_id=found)
        await add_initial_users(self._store, self._static_config)
        self._changes.start(await self._read_settings())
        self._end_watch = self._store.watch(layout.FEATURE_PATH, self._features_changed)
        self._store.on_session(self._session_changed)
        return found

    def when_frozen(self, call: Callable[[], None]) -> None:
        """Call it once the cluster begins to leave ZooKeeper, perhaps more than once."""

        async def look() -> None:
            try:
                if await is_frozen(self._store):
                    call()
            except StoreUnavailable as problem:  # the watch comes again with the connection
                log.info("%s; whether the cluster leaves ZooKeeper is looked at later", problem)

        def changed() -> None:
            self._tasks.spawn(look(), "search for a freeze")

        self._store.watch(MIGRATION_PATH, changed)

    async def _cluster_id(self, known: str | None) -> str:
        path = layout.CLUSTER_ID_PATH
        node = (await self._store.read(path)).get(path)
        if node is None and known is None:
            proposed = uuid_to_text(uuid4())
            try:
                await self._store.commit([Create(path, layout.cluster_id_node(proposed))])
            except StoreConflict:  # another broker starts at the same time
                node = (await self._store.read(path))[path]
            else:
                return proposed
        found = None if node is None else layout.read_cluster_id(node)
        if found is None or known not in (None, found):
            raise WrongCluster(
                f"the log directories belong to cluster {known}, and zookeeper.connect leads to "
                f"{'no cluster yet' if found is None else f'cluster {found}'}: one of the two is wrong"
            )
        return found

    async def check_cluster(self) -> None:
        """Raise `WrongCluster` if the store no longer holds this cluster: its content must not be acted on then."""
        path = layout.CLUSTER_ID_PATH
        node = (await self._store.read(path)).get(path)
        found = None if node is None else layout.read_cluster_id(node)
        if found != self._image.cluster_id:
            raise WrongCluster(
                f"ZooKeeper at {self._static_config.zookeeper_connect} knows "
                f"{'no cluster' if found is None else f'cluster {found}'}, and no longer {self._image.cluster_id}: "
                "bring its data back; until then this broker serves what it knows, and nothing can be changed"
            )

    async def register(self, endpoints: Mapping[str, tuple[str, int]]) -> None:
        """Register this broker in the store, under these addresses.

        The node of a process before may still be there: it goes with its session. Raises `ApiError`
        DUPLICATE_BROKER_REGISTRATION when it does not, `StoreUnavailable`.
        """
        self._endpoints = endpoints
        rack = self._static_config.broker_rack
        protocols = self.config.security_protocols
        broker = BrokerImage(self.broker_id, UNKNOWN_EPOCH, rack, endpoints, True, protocols)
        path = f"{layout.BROKERS_PATH}/{self.broker_id}"
        deadline = self._clock.monotonic() + self._static_config.zookeeper_session_timeout_ms / 1000 * 1.5
        while True:
            operations = layout.operations_for(
                [RegisterBroker(broker)], self._image, {}, controller_epoch=0, now_ms=self._clock.now_ms()
            )
            try:
                await self._store.commit(operations)
            except StoreConflict:
                node = (await self._store.read(path)).get(path)
                if node is not None and node.is_own:
                    break  # made before, by a transaction whose answer was lost
                if self._clock.monotonic() >= deadline:
                    raise ApiError(
                        ErrorCode.DUPLICATE_BROKER_REGISTRATION,
                        f"broker {self.broker_id} is running already: give this one another node.id",
                    ) from None
                await asyncio.sleep(REGISTRATION_POLL_S)
            else:
                break
        node = (await self._store.read(path)).get(path)
        if node is not None:
            self.broker_epoch = node.created
        self._registered.set()

    async def advertise(self, endpoints: Mapping[str, tuple[str, int]]) -> None:
        """Take effect with the next registration: a broker whose node changes is one that was given up (`Standing`)."""
        self._endpoints = endpoints

    async def until_registered(self) -> None:
        """Wait for the broker epoch. Earlier requests of a controller are meant for the previous process, which may
        have had
        more on its disk: a leader that lost power must not go on in the same epoch. Without an epoch of its own, this
        broker
        could not distinguish them."""
        await self._registered.wait()

    async def register_again(self) -> None:
        """In a new session, under the same addresses. Raises as `register` and `check_cluster`."""
        await self.check_cluster()
        await self.register(self._endpoints)

    async def close(self) -> None:
        """End the session, unless that has been done; the last image stays readable."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._end_watch is not None:
            self._end_watch()
        await self._changes.close()
        await self._tasks.close()
        await self._store.close()

    def report_failed_directory(self) -> None:
        """Have the controller ask which replicas this broker has lost, however long the store is away."""
        self._tasks.spawn(self._report_failed_directory(), "report of a failed directory")

    async def _report_failed_directory(self) -> None:
        while True:
            try:
                await self._store.commit([layout.log_directory_failure(self.broker_id)])
            except OttlaError as problem:
                log.warning("reporting a failed log directory to the controller failed; retrying: %s", problem)
                await asyncio.sleep(LEARN_RETRY_S)
            else:
                return

    # -- updates from the controller ---------------------------------------------------------------------------------

    @property
    def is_known(self) -> bool:
        return self._is_known

    async def until_known(self, timeout_s: float) -> bool:
        return await self.until(lambda: self._is_known, timeout_s)

    @property
    def is_registered(self) -> bool:
        """Has this broker been registered, so that a controller may know it?"""
        return self._registered.is_set()

    def check_controller(self, controller_epoch: int, broker_epoch: int) -> None:
        """Raise `ApiError` STALE_CONTROLLER_EPOCH or STALE_BROKER_EPOCH for a request of the past (KIP-380)."""
        if controller_epoch < self.controller_epoch:
            raise ApiError(
                ErrorCode.STALE_CONTROLLER_EPOCH,
                f"controller epoch {controller_epoch} is over, {self.controller_epoch} has begun",
            )
        if broker_epoch != UNKNOWN_EPOCH and broker_epoch < self.broker_epoch:
            raise ApiError(
                ErrorCode.STALE_BROKER_EPOCH,
                f"broker epoch {broker_epoch} is over, {self.broker_epoch} has begun",
            )
        self.controller_epoch = controller_epoch

    def update(self, request: UpdateMetadataRequest) -> None:
        """Apply the controller's update: a full one, or changes."""
        brokers: dict[BrokerId, BrokerImage] = {}
        for alive in request.live_brokers:
            broker_id = BrokerId(alive.id)
            endpoints = {endpoint.listener: (endpoint.host, endpoint.port) for endpoint in alive.endpoints}
            brokers[broker_id] = BrokerImage(broker_id, UNKNOWN_EPOCH, alive.rack, endpoints)
        old = self._image
        topics = {} if request.type == ALL_STATES else dict(old.topics)
        for state in request.topic_states:
            name = TopicName(state.topic_name)
            if any(partition.leader == LEADER_WHEN_DELETED for partition in state.partition_states):
                topics.pop(name, None)
            else:
                topics[name] = _updated_topic(topics.get(name), state)
        for name, topic in topics.items():
            if old.topics.get(name) == topic:
                topics[name] = old.topics[name]  # subscribers look at what is another object
        same = topics == old.topics
        self._is_known = True
        gone = {(ResourceType.TOPIC, name) for name in old.topics.keys() - topics.keys()} & old.configs.keys()
        new_topics = {topic.topic_id: topic.name for topic in topics.values() if topic.topic_id not in old.topics_by_id}
        self._show(
            old._replace(
                controller_id=BrokerId(request.controller_id),
                brokers=old.brokers if brokers == old.brokers else brokers,
                topics=old.topics if same else topics,
                topics_by_id=old.topics_by_id if same else {topic.topic_id: topic for topic in topics.values()},
                configs={key: old.configs[key] for key in old.configs if key not in gone} if gone else old.configs,
                failed_replicas=_failed(frozenset() if request.type == ALL_STATES else old.failed_replicas, request),
            )
        )
        self._settings_known -= old.topics_by_id.keys() - self._image.topics_by_id.keys()
        if any(not self.knows_settings_of(topic_id) for topic_id in new_topics):
            self._tasks.spawn(self._learn_in_the_end(new_topics), "settings of new topics, in the end")

    # -- settings ----------------------------------------------------------------------------------------------------

    def knows_settings_of(self, topic_id: TopicId) -> bool:
        """Have the settings of this topic been read since it is there? Changes come by notifications from then on."""
        return topic_id in self._settings_known

    async def learn_settings(self, topics: Mapping[TopicId, TopicName]) -> None:
        """Read the settings of topics that are new here; those known so far do if that fails."""
        try:
            if len(topics) > READ_ONE_BY_ONE:
                await self._read_settings()
            else:
                paths = [layout.config_path(ResourceType.TOPIC, topic) for topic in topics.values()]
                found = await asyncio.gather(*(find_settings(self._store, path) for path in paths))
                self._show_settings([each.settings for each in found if each is not None])
        except OttlaError as problem:
            log.warning("settings cannot be read now: %s", problem)
        else:
            self._settings_known |= topics.keys()

    async def learn_settings_soon(self, topics: Mapping[TopicId, TopicName]) -> None:
        """Read the settings of topics, and wait for them for `SETTINGS_WITHIN_S` at most; the reading continues."""
        await asyncio.wait(
            [self._tasks.spawn(self.learn_settings(topics), "settings of new topics")], timeout=SETTINGS_WITHIN_S
        )

    async def _learn_in_the_end(self, topics: Mapping[TopicId, TopicName]) -> None:
        """However long the store is away: a replica may be moved here at any time, and defaults would lose records."""
        while True:
            missing = {
                topic_id: name
                for topic_id, name in topics.items()
                if topic_id in self._image.topics_by_id and not self.knows_settings_of(topic_id)
            }
            if not missing:
                return
            await self.learn_settings(missing)
            if not all(map(self.knows_settings_of, missing)):
                await asyncio.sleep(LEARN_RETRY_S)

    def _session_changed(self, event: SessionEvent) -> None:
        """Notifications are kept for minutes only, and this broker may have been away for longer."""
        if event is not SessionEvent.LOST:
            self._tasks.spawn(self._read_all_again(), "all settings, after a pause of the store")

    async def _read_all_again(self) -> None:
        try:
            await self._until_same_cluster()
            await self._read_settings()
            if self.controller is not None:
                await self.controller.read_anew()
        except OttlaError as problem:
            log.warning("settings cannot be read now: %s", problem)

    async def _until_same_cluster(self) -> None:
        """Settings of a store that has lost its data would let records go. Raises as `MetadataStore.read`."""
        is_same = await self._is_same_cluster()
        while not is_same:
            await asyncio.sleep(LEARN_RETRY_S)
            is_same = await self._is_same_cluster()

    async def _is_same_cluster(self) -> bool:
        """Raises as `MetadataStore.read`."""
        try:
            await self.check_cluster()
        except WrongCluster:  # reported by the callers that register
            return False
        return True

    def _features_changed(self) -> None:
        self._tasks.spawn(self._follow_features(), "changes of features")

    async def _follow_features(self) -> None:
        try:
            if not await self._is_same_cluster():
                return
            await self._read_features()
            if self.controller is not None:
                await self.controller.read_anew()
        except OttlaError as problem:
            log.warning("feature levels cannot be read now: %s", problem)

    async def _read_features(self) -> None:
        found = layout.read_image(await self._store.read(layout.FEATURE_PATH))
        self._show(self._image._replace(features=found.features, features_epoch=found.features_epoch))

    async def _read_settings(self) -> dict[str, Node]:
        """All of them, and the feature levels; the nodes they were read from."""
        topics = self._image.topics_by_id.keys()
        nodes = await self._store.read(layout.CONFIG_PATH)
        nodes |= await self._store.read(layout.OWN_CONFIG_CHANGES_PATH)
        configs = layout.read_image(nodes).configs
        if configs != self._image.configs:
            self._show(self._image._replace(configs=configs))
        self._settings_known |= topics
        await self._read_features()
        return nodes

    def _take_settings(self, found: Sequence[FoundSettings]) -> None:
        self._show_settings([each.settings for each in found])
        if self.controller is not None:
            self._tasks.spawn(self.controller.take_settings(found), "settings for the controller")

    def _show_settings(self, settings: Sequence[SetConfigs]) -> None:
        new = apply(self._image, settings)
        if new.configs is not self._image.configs:
            self._show(new)

    async def alter_configs(
        self, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> list[OttlaError | None]:
        return [await self._alter_config(change, validate_only) for change in changes]

    async def _alter_config(self, change: ConfigChange, validate_only: bool) -> OttlaError | None:
        try:
            path = layout.config_path(change.resource_type, change.name)
            found = await find_settings(self._store, path)
            assert found is not None
            image = apply(self._image, [found.settings])
            command = plan_configs(image, self._config, change, static=self._static_config)
            disallowed = await self._policies.config_refusal(change, altered_configs(image, change, command))
            if disallowed is not None or validate_only:
                return disallowed
            versions = {} if found.version is None else {path: found.version}
            operations = layout.operations_for(
                [command], image, versions, controller_epoch=0, now_ms=self._clock.now_ms(), notify=True
            )
            await self._store.commit(operations)
        except OttlaError as refused:
            return refused
        self._show_settings([command])  # the controller, too, learns of it by notification
        return None

    # -- what the controller does ------------------------------------------------------------------------------------

    def _not_controller(self) -> NotController:
        if self._image.controller_id == self.broker_id:
            return NotController(
                f"broker {self.broker_id} decides nothing now: its session with ZooKeeper is suspended or new"
            )
        return NotController(f"broker {self.broker_id} is not the controller; broker {self._image.controller_id} is")

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> list[CreateTopic | OttlaError]:
        if self.controller is None:
            return [self._not_controller() for _ in topics]
        controller = self.controller

        async def create(some: Sequence[NewTopic], validate_only: bool) -> list[CreateTopic | OttlaError]:
            return await controller.create_topics(some, validate_only=validate_only)

        answers = await self._policies.create_topics(topics, create, validate_only=validate_only)
        if not validate_only:
            made = [answer.topic for answer in answers if isinstance(answer, CreateTopic)]
            await self._until_known({topic.name: len(topic.partitions) for topic in made})
        return answers

    async def delete_topics(self, names: Sequence[TopicName]) -> list[TopicImage | OttlaError]:
        if self.controller is None:
            return [self._not_controller() for _ in names]
        return await self.controller.delete_topics(names)

    async def create_partitions(
        self,
        growths: Sequence[tuple[TopicName, int, Sequence[Sequence[int]] | None]],
        *,
        validate_only: bool = False,
    ) -> list[OttlaError | None]:
        if self.controller is None:
            return [self._not_controller() for _ in growths]
        answers = await self.controller.create_partitions(growths, validate_only=validate_only)
        if not validate_only:
            grown = {name: count for (name, count, _), refused in zip(growths, answers, strict=True) if refused is None}
            await self._until_known(grown)
        return answers

    async def elect_leaders(
        self, partitions: Sequence[TopicPartition], election: ElectionType
    ) -> list[OttlaError | None]:
        if self.controller is None:
            return [self._not_controller() for _ in partitions]
        return await self.controller.elect_leaders(partitions, election)

    async def update_features(self, updates: Sequence[FeatureUpdate], *, validate_only: bool = False) -> None:
        if self.controller is None:
            raise self._not_controller()
        await self.controller.update_features(updates, validate_only=validate_only)

    def _replicas_at_most(self) -> int:
        """The number that the settings require, as in Kafka: with fewer brokers alive, perhaps because others are still
        starting, a coordinator's topic is not created. Its replication factor could never be corrected
        automatically."""
        return NO_LIMIT

    async def create_missing(self, topics: Sequence[NewTopic]) -> list[OttlaError | None]:
        if self.controller is not None or self.create_at_controller is None:
            return await super().create_missing(topics)
        answers = await self.create_at_controller(topics)
        created = [topic.name for topic, refused in zip(topics, answers, strict=True) if refused is None]
        await self._until_known(dict.fromkeys(created, 1))
        return answers

    async def _until_known(self, counts: Mapping[TopicName, int]) -> None:
        """Wait a while for the controller to announce topics with so many partitions: clients ask for them at once."""

        def is_known() -> bool:
            topics = self._image.topics
            return all(name in topics and len(topics[name].partitions) >= count for name, count in counts.items())

        await self.until(is_known, KNOWN_WITHIN_S)

    async def next_producer_id(self) -> ProducerId:
        async with self._allocating:
            if not self._producer_ids:
                block = await allocate_producer_ids(self._store, self.broker_id)
                self._producer_ids = range(block.first, block.last + 1)
            given, self._producer_ids = self._producer_ids[0], self._producer_ids[1:]
            return ProducerId(given)


def _updated_topic(known: TopicImage | None, state: UpdateMetadataTopicState) -> TopicImage:
    """A topic with updated states of some of its partitions."""
    topic_id = TopicId(state.topic_id)
    partitions = list(known.partitions) if known is not None and known.topic_id == topic_id else []
    for partition_state in sorted(state.partition_states, key=lambda partition: partition.partition_index):
        partition = _partition(partition_state)
        if partition_state.partition_index < len(partitions):
            partitions[partition_state.partition_index] = partition
        else:
            partitions.append(partition)
    return TopicImage(TopicName(state.topic_name), topic_id, tuple(partitions))


def _failed(known: frozenset[Replica], request: UpdateMetadataRequest) -> frozenset[Replica]:
    """The replicas that are offline though their brokers are alive."""
    alive = {broker.id for broker in request.live_brokers}
    named = {
        (TopicName(topic.topic_name), PartitionId(partition.partition_index)): partition.offline_replicas
        for topic in request.topic_states
        for partition in topic.partition_states
    }
    kept = {replica for replica in known if replica[1:] not in named and replica[0] in alive}
    return frozenset(kept) | {
        (BrokerId(replica), *place) for place, offline in named.items() for replica in offline if replica in alive
    }


def _partition(partition_state: UpdateMetadataPartitionState) -> PartitionImage:
    return PartitionImage(
        PartitionId(partition_state.partition_index),
        BrokerId(partition_state.leader),
        LeaderEpoch(partition_state.leader_epoch),
        tuple(map(BrokerId, partition_state.replicas)),
        tuple(map(BrokerId, partition_state.isr)),
        partition_state.zk_version,
    )
