"""The metadata of a broker in a cluster: what the controller says of brokers and topics, and settings in the store.

    controller -- UpdateMetadata --> brokers, topics          store -- watches --> settings, feature levels

Who wants something changed asks the controller; only settings and blocks of producer ids any broker writes itself, as
in Kafka 3.9. The broker is registered in the store by a node that goes with its session.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from ottla.clock import Clock
from ottla.cluster.commands import CreateTopic, RegisterBroker, SetConfigs
from ottla.cluster.configs import ConfigChange, plan_configs
from ottla.cluster.controller import ElectionType, NewTopic
from ottla.cluster.controller_requests import ALL_STATES, LEADER_WHEN_DELETED
from ottla.cluster.features import FeatureUpdate
from ottla.cluster.image import BrokerImage, MetadataImage, PartitionImage, ResourceType, TopicImage
from ottla.cluster.metadata_view import MetadataView
from ottla.cluster.producer_ids import allocate_producer_ids
from ottla.cluster.store import layout
from ottla.cluster.store.base import Create, Delete, MetadataStore, Node, Operation, StoreConflict
from ottla.config.broker import BrokerConfig
from ottla.errors import ApiError, ErrorCode, OttlaError
from ottla.ids import BrokerId, LeaderEpoch, PartitionId, ProducerId, TopicId, TopicName, TopicPartition
from ottla.protocol.messages.update_metadata import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

if TYPE_CHECKING:
    from ottla.cluster.metadata_service import MetadataService

log = logging.getLogger(__name__)

REGISTRATION_POLL_S: Final = 0.2
KEPT_NOTIFICATIONS: Final = 100
"""Of changed settings: others read them within moments."""
KNOWN_WITHIN_S: Final = 5.0
UNKNOWN_EPOCH: Final = -1

CreateAtController = Callable[[Sequence[NewTopic]], Awaitable[list[OttlaError | None]]]
"""Have the controller create topics; answers in the order asked."""


class NotController(OttlaError):
    """Another broker decides; clients look again who does."""

    code = ErrorCode.NOT_CONTROLLER


class ClusterMetadata(MetadataView):
    """What this broker knows of its cluster. On the loop's thread."""

    def __init__(self, store: MetadataStore, config: BrokerConfig, clock: Clock) -> None:
        super().__init__(config)
        self._store = store
        self._clock = clock
        self._endpoints: Mapping[str, tuple[str, int]] = {}
        self._producer_ids = range(0)
        self._allocating = asyncio.Lock()
        self._reading: asyncio.Task[None] | None = None
        self._read_again = False
        self._cancel_watches: list[Callable[[], None]] = []
        self.broker_epoch = UNKNOWN_EPOCH
        """That of the registration in the store."""
        self.controller_epoch = UNKNOWN_EPOCH
        """The highest one that any request came with."""
        self.controller: MetadataService | None = None
        """While this broker is the controller: who changes the metadata."""
        self.create_at_controller: CreateAtController | None = None
        """How topics are created while another one is."""

    # -- start and stop ----------------------------------------------------------------------------------------------

    async def open(self, cluster_id: str | None) -> str:
        """Begin a session, and read what is in the store; the cluster's id, made if this is its first broker.

        `cluster_id` is that of the log directories, None if they are new. Raises `StoreUnavailable`, `MalformedNode`.
        """
        await self._store.open()
        found = await self._cluster_id(cluster_id or layout.uuid_to_text(uuid4()))
        self._image = self._image._replace(cluster_id=found)
        await self._read_settings()
        self._cancel_watches = [
            self._store.watch(layout.CONFIG_PATH, self._settings_changed),
            self._store.watch(layout.FEATURE_PATH, self._settings_changed),
        ]
        return found

    async def _cluster_id(self, proposed: str) -> str:
        path = layout.CLUSTER_ID_PATH
        node = (await self._store.read(path)).get(path)
        if node is None:
            try:
                await self._store.commit([Create(path, layout.cluster_id_node(proposed))])
            except StoreConflict:  # another broker starts at the same time
                node = (await self._store.read(path))[path]
            else:
                return proposed
        return layout.read_cluster_id(node)

    async def register(self, endpoints: Mapping[str, tuple[str, int]]) -> None:
        """Let everybody know that this broker is there, under these addresses.

        The node of a process before may still be there: it goes with its session. Raises `ApiError`
        DUPLICATE_BROKER_REGISTRATION when it does not, `StoreUnavailable`.
        """
        self._endpoints = endpoints
        broker = BrokerImage(self.broker_id, 0, self._static_config.broker_rack, endpoints)
        deadline = self._clock.monotonic() + self._static_config.zookeeper_session_timeout_ms / 1000 * 1.5
        while True:
            operations = layout.operations_for(
                [RegisterBroker(broker)], self._image, {}, controller_epoch=0, now_ms=self._clock.now_ms()
            )
            try:
                await self._store.commit(operations)
            except StoreConflict:
                if self._clock.monotonic() >= deadline:
                    raise ApiError(
                        ErrorCode.DUPLICATE_BROKER_REGISTRATION,
                        f"broker {self.broker_id} is running already: give this one another node.id",
                    ) from None
                await asyncio.sleep(REGISTRATION_POLL_S)
            else:
                break
        path = f"{layout.BROKERS_PATH}/{self.broker_id}"
        node = (await self._store.read(path)).get(path)
        if node is not None:
            self.broker_epoch = node.created

    async def register_again(self) -> None:
        """In a new session, under the same addresses. Raises as `register`."""
        await self.register(self._endpoints)

    async def close(self) -> None:
        """End the session; the last image stays readable."""
        for cancel in self._cancel_watches:
            cancel()
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])
        await self._store.close()

    # -- what the controller says ------------------------------------------------------------------------------------

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
        """Take over what the controller says; all of it at once, or what has changed."""
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
                topics[name] = _told(topics.get(name), state)
        for name, topic in topics.items():
            if old.topics.get(name) == topic:
                topics[name] = old.topics[name]  # subscribers look at what is another object
        same = topics == old.topics
        self._show(
            old._replace(
                controller_id=BrokerId(request.controller_id),
                brokers=old.brokers if brokers == old.brokers else brokers,
                topics=old.topics if same else topics,
                topics_by_id=old.topics_by_id if same else {topic.topic_id: topic for topic in topics.values()},
            )
        )

    # -- settings ----------------------------------------------------------------------------------------------------

    async def learn_settings(self) -> None:
        """Read the settings now, for topics that are just being created; those of before do if that fails."""
        try:
            await self._read_settings()
        except OttlaError as problem:
            log.warning("settings cannot be read now: %s", problem)

    def _settings_changed(self) -> None:
        self._read_again = True
        if self._reading is None or self._reading.done():
            self._reading = asyncio.get_running_loop().create_task(self._follow_settings())

    async def _follow_settings(self) -> None:
        while self._read_again:
            self._read_again = False
            await self.learn_settings()
            if self.controller is not None:
                try:
                    await self.controller.read_anew()
                except OttlaError as problem:
                    log.warning("the controller cannot read changed settings now: %s", problem)

    async def _read_settings(self) -> None:
        nodes = await self._store.read(layout.CONFIG_PATH)
        nodes |= await self._store.read(layout.FEATURE_PATH)
        found = layout.read_image(nodes)
        old = self._image
        new = old._replace(
            configs=old.configs if found.configs == old.configs else found.configs,
            features=found.features,
            features_epoch=found.features_epoch,
        )
        if new != old:
            self._show(new)

    async def alter_configs(
        self, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> list[OttlaError | None]:
        return [await self._alter_config(change, validate_only) for change in changes]

    async def _alter_config(self, change: ConfigChange, validate_only: bool) -> OttlaError | None:
        try:
            nodes = await self._store.read(layout.CONFIG_PATH)
            image = self._image._replace(configs=layout.read_image(nodes).configs)
            command = plan_configs(image, self._config, change, static=self._static_config)
            if validate_only:
                return None
            await self._store.commit(self._config_operations(command, image, nodes))
            await self._read_settings()
        except OttlaError as refused:
            return refused
        return None

    def _config_operations(
        self, command: SetConfigs, image: MetadataImage, nodes: Mapping[str, Node]
    ) -> list[Operation]:
        """The change, and the notification that Kafka's brokers read; old notifications go."""
        versions = {path: node.version for path, node in nodes.items()}
        operations = layout.operations_for([command], image, versions, controller_epoch=0, now_ms=self._clock.now_ms())
        if command.resource_type is not ResourceType.GROUP:
            operations.append(layout.config_notification(command.resource_type, command.name))
        told = sorted(path for path in nodes if path.startswith(layout.CONFIG_NOTIFICATIONS_PATH + "/"))
        operations += [Delete(path, nodes[path].version) for path in told[:-KEPT_NOTIFICATIONS]]
        return operations

    # -- what the controller does ------------------------------------------------------------------------------------

    def _not_controller(self) -> NotController:
        return NotController(f"broker {self.broker_id} is not the controller; broker {self._image.controller_id} is")

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> list[CreateTopic | OttlaError]:
        if self.controller is None:
            return [self._not_controller() for _ in topics]
        answers = await self.controller.create_topics(topics, validate_only=validate_only)
        if not validate_only:
            await self._until_known([answer.topic.name for answer in answers if isinstance(answer, CreateTopic)])
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
        return await self.controller.create_partitions(growths, validate_only=validate_only)

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

    async def _create_missing(self, topics: Sequence[NewTopic]) -> list[OttlaError | None]:
        if self.controller is not None or self.create_at_controller is None:
            return await super()._create_missing(topics)
        answers = await self.create_at_controller(topics)
        created = [topic.name for topic, refused in zip(topics, answers, strict=True) if refused is None]
        await self._until_known(created)
        return answers

    async def _until_known(self, names: Sequence[TopicName]) -> None:
        """Wait a while for the controller to tell this broker of new topics: clients ask for them at once."""

        def is_known() -> bool:
            return all(name in self._image.topics for name in names)

        await self.until(is_known, KNOWN_WITHIN_S)

    async def until(self, is_so: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until something is true of the image; False if it is not after all this time."""
        if is_so():
            return True
        changed = asyncio.Event()
        unsubscribe = self.subscribe(lambda old, new: changed.set())
        try:
            async with asyncio.timeout(timeout_s):
                while not is_so():
                    await changed.wait()
                    changed.clear()
        except TimeoutError:
            return False
        finally:
            unsubscribe()
        return True

    async def next_producer_id(self) -> ProducerId:
        async with self._allocating:
            if not self._producer_ids:
                block = await allocate_producer_ids(self._store, self.broker_id)
                self._producer_ids = range(block.first, block.last + 1)
            given, self._producer_ids = self._producer_ids[0], self._producer_ids[1:]
            return ProducerId(given)


def _told(known: TopicImage | None, state: UpdateMetadataTopicState) -> TopicImage:
    """A topic as it was known, with what is said of some of its partitions."""
    topic_id = TopicId(state.topic_id)
    partitions = list(known.partitions) if known is not None and known.topic_id == topic_id else []
    for told in sorted(state.partition_states, key=lambda partition: partition.partition_index):
        partition = _partition(told)
        if told.partition_index < len(partitions):
            partitions[told.partition_index] = partition
        else:
            partitions.append(partition)
    return TopicImage(TopicName(state.topic_name), topic_id, tuple(partitions))


def _partition(told: UpdateMetadataPartitionState) -> PartitionImage:
    return PartitionImage(
        PartitionId(told.partition_index),
        BrokerId(told.leader),
        LeaderEpoch(told.leader_epoch),
        tuple(map(BrokerId, told.replicas)),
        tuple(map(BrokerId, told.isr)),
        told.zk_version,
    )
