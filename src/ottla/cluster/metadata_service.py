"""The cluster's metadata as a running broker uses it: the image, and the changes to it.

    request -> decision (controller, pure) -> commit (store) -> new image -> subscribers

One owner: everything runs on the loop's thread, and changes are made one after the other. What a subscriber is told is
durable.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar
from uuid import UUID, uuid4

from ottla.clock import Clock
from ottla.cluster import configs as config_rules
from ottla.cluster import controller
from ottla.cluster.adoption import find_adoptable
from ottla.cluster.commands import Command, CreateTopic, DeleteTopic, RegisterBroker, SetConfigs, SetController, apply
from ottla.cluster.configs import ConfigChange
from ottla.cluster.controller import ElectionType, NewTopic
from ottla.cluster.features import FeatureUpdate, plan_features
from ottla.cluster.image import (
    BrokerImage,
    MetadataImage,
    TopicImage,
)
from ottla.cluster.metadata_view import MetadataView
from ottla.cluster.store import layout
from ottla.cluster.store.base import Check, Create, Delete, MetadataStore, Operation, StoreConflict, StoreUnavailable
from ottla.cluster.store.layout import ProducerIdBlock
from ottla.config.broker import BrokerConfig
from ottla.errors import ApiError, ErrorCode, OttlaError
from ottla.ids import ProducerId, TopicId, TopicName, TopicPartition

log = logging.getLogger(__name__)

AskedT = TypeVar("AskedT")
CommandT = TypeVar("CommandT", bound=Command)

RESERVED_IDS: Final = frozenset((UUID(int=0), UUID(int=1)))
"""Kafka's own: the id of no topic, and that of its metadata log."""
MAX_PRODUCER_ID: Final = 2**63 - 1


class WrongCluster(OttlaError):
    """The log directories belong to another cluster than the metadata."""

    code = ErrorCode.INCONSISTENT_CLUSTER_ID


class MetadataService(MetadataView):
    """Owns the image. `start` before anything else; the endpoints it is given are what clients are told."""

    def __init__(self, store: MetadataStore, config: BrokerConfig, clock: Clock) -> None:
        super().__init__(config)
        self._store = store
        self._clock = clock
        self._versions: dict[str, int] = {}
        self._controller_epoch = 0
        self._changing = asyncio.Lock()
        self._producer_ids = range(0)
        self._started = False
        self._in_doubt = False

    # -- start and stop ----------------------------------------------------------------------------------------------

    async def start(
        self,
        endpoints: Mapping[str, tuple[str, int]],
        *,
        cluster_id: str | None = None,
        adopt_from: Sequence[Path] = (),
        new_leader_epochs: bool = False,
    ) -> None:
        """Read the metadata, register this broker, and take charge if nobody else has.

        `cluster_id` is that of the log directories, None if they are new. `adopt_from` are log directories whose
        topics are taken over if the store is new. `new_leader_epochs` gives all that this broker leads a new epoch:
        for a start after a crash that may have lost records.

        Raises `WrongCluster`, `AdoptionProblem`, `StoreUnavailable`, `StoreConflict`, `MalformedNode`.
        """
        await self._store.open()
        try:
            await self._begin(endpoints, cluster_id, adopt_from, new_leader_epochs)
        except BaseException:
            await self._store.close()
            raise
        self._started = True

    async def _begin(
        self,
        endpoints: Mapping[str, tuple[str, int]],
        cluster_id: str | None,
        adopt_from: Sequence[Path],
        new_leader_epochs: bool,
    ) -> None:
        nodes = await self._store.read("/")
        self._versions = {path: node.version for path, node in nodes.items()}
        image = layout.read_image(nodes)
        first: list[Operation] = []
        commands: list[Command] = []
        if not image.cluster_id:
            image = image._replace(cluster_id=cluster_id or layout.uuid_to_text(_new_id()))
            first.append(Create(layout.CLUSTER_ID_PATH, layout.cluster_id_node(image.cluster_id)))
            adopted = await asyncio.get_running_loop().run_in_executor(None, find_adoptable, adopt_from, self.broker_id)
            if adopted is not None:
                log.info("taking over %d topics found in the log directories", len(adopted.topics))
                commands += adopted.commands(self.broker_id)
                if adopted.next_producer_id > 0:
                    block = ProducerIdBlock(self.broker_id, ProducerId(0), ProducerId(adopted.next_producer_id - 1))
                    first.append(Create(layout.PRODUCER_IDS_PATH, layout.producer_id_block_node(block)))
        elif cluster_id is not None and cluster_id != image.cluster_id:
            raise WrongCluster(
                f"the log directories belong to cluster {cluster_id}, the metadata to cluster {image.cluster_id}"
            )
        epoch = nodes.get(layout.CONTROLLER_EPOCH_PATH)
        self._controller_epoch = int(epoch.data) if epoch is not None else 0
        broker = BrokerImage(self.broker_id, self._controller_epoch + 1, self._static_config.broker_rack, endpoints)
        commands.append(RegisterBroker(broker))
        if layout.CONTROLLER_PATH not in self._versions:
            self._controller_epoch += 1
            commands.append(SetController(self.broker_id))
        if new_leader_epochs:
            commands += controller.plan_new_epochs(image, self.broker_id)
        self._image = image
        self._config = self._effective_config(image)
        await self._commit(commands, first=first)

    async def set_endpoints(self, endpoints: Mapping[str, tuple[str, int]]) -> None:
        """Tell clients other addresses from now on (ports that became known only when they were opened)."""
        async with self._changing:
            known = self._image.brokers[self.broker_id]
            await self._commit([RegisterBroker(known._replace(endpoints=endpoints))])

    async def close(self) -> None:
        """End the session; the last image stays readable."""
        async with self._changing:
            if not self._started:
                return
            self._started = False
            await self._store.close()

    # -- topics ------------------------------------------------------------------------------------------------------

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> list[CreateTopic | OttlaError]:
        """Create topics, all that can be in one commit; answers in the order asked.

        A `CreateTopic` in the answer is what was done, or with `validate_only` would have been.
        """

        def plan(image: MetadataImage, new: NewTopic) -> CreateTopic:
            topic_id, first_broker = TopicId(_new_id()), random.randrange(1 << 30)
            return controller.plan_topic(image, self._config, new, topic_id=topic_id, first_broker=first_broker)

        return await self._change(topics, plan, validate_only=validate_only)

    async def delete_topics(self, names: Sequence[TopicName]) -> list[TopicImage | OttlaError]:
        """Delete topics, all that can be in one commit; answers what they were, in the order asked."""
        were: dict[TopicName, TopicImage] = {}

        def plan(image: MetadataImage, name: TopicName) -> DeleteTopic:
            command = controller.plan_deletion(image, self._config, name)
            were[name] = image.topics[name]
            return command

        answers = await self._change(names, plan)
        return [answer if isinstance(answer, OttlaError) else were[answer.name] for answer in answers]

    async def create_partitions(
        self,
        growths: Sequence[tuple[TopicName, int, Sequence[Sequence[int]] | None]],
        *,
        validate_only: bool = False,
    ) -> list[OttlaError | None]:
        """Grow topics, each at most once: name, new total, and replicas of the new partitions if placed."""
        answers = await self._change(
            growths, lambda image, growth: controller.plan_growth(image, *growth), validate_only=validate_only
        )
        return [answer if isinstance(answer, OttlaError) else None for answer in answers]

    async def elect_leaders(
        self, partitions: Sequence[TopicPartition], election: ElectionType
    ) -> list[OttlaError | None]:
        """Have partitions led by their preferred replica, or by any that is alive; answers in the order asked."""
        answers = await self._change(
            partitions, lambda image, partition: controller.plan_election(image, partition, election)
        )
        return [answer if isinstance(answer, OttlaError) else None for answer in answers]

    # -- settings ----------------------------------------------------------------------------------------------------

    async def alter_configs(
        self, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> list[OttlaError | None]:
        """Change settings of topics, groups and brokers, each at most once; answers in the order asked."""

        def plan(image: MetadataImage, change: ConfigChange) -> SetConfigs:
            return config_rules.plan_configs(image, self._config, change, static=self._static_config)

        answers = await self._change(changes, plan, validate_only=validate_only)
        return [answer if isinstance(answer, OttlaError) else None for answer in answers]

    # -- features ----------------------------------------------------------------------------------------------------

    async def update_features(self, updates: Sequence[FeatureUpdate], *, validate_only: bool = False) -> None:
        """Change feature levels, all or none. Raises `ApiError` INVALID_UPDATE_VERSION, `StoreUnavailable`."""
        (answer,) = await self._change([updates], plan_features, validate_only=validate_only)
        if isinstance(answer, OttlaError):
            raise answer

    # -- producer ids ------------------------------------------------------------------------------------------------

    async def next_producer_id(self) -> ProducerId:
        """A producer id that was never given out; blocks of a thousand come from the store.

        Raises `ApiError` UNKNOWN_SERVER_ERROR when there are none left, `StoreUnavailable`.
        """
        if not self._producer_ids:
            async with self._changing:
                if not self._producer_ids:  # another request may have fetched a block while this one waited
                    self._producer_ids = await self._allocate_producer_ids()
        given, self._producer_ids = self._producer_ids[0], self._producer_ids[1:]
        return ProducerId(given)

    async def _allocate_producer_ids(self) -> range:
        path = layout.PRODUCER_IDS_PATH
        node = (await self._store.read(path)).get(path)
        first = 0 if node is None else layout.read_producer_id_block(node).last + 1
        last = first + layout.PRODUCER_ID_BLOCK_SIZE - 1
        if last > MAX_PRODUCER_ID:
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "Every producer id has been given out.")
        block = ProducerIdBlock(self.broker_id, ProducerId(first), ProducerId(last))
        versions = {} if node is None else {path: node.version}
        operation = layout.put(versions, path, layout.producer_id_block_node(block))
        await self._store.commit([operation])
        self._versions[path] = versions.get(path, -1) + 1
        return range(first, last + 1)

    # -- commits -----------------------------------------------------------------------------------------------------

    async def _change(
        self,
        asked: Sequence[AskedT],
        plan: Callable[[MetadataImage, AskedT], CommandT],
        *,
        validate_only: bool = False,
    ) -> list[CommandT | OttlaError]:
        """Decide on each of several wishes, on the image that the ones before it leave, and commit all that pass."""
        async with self._changing:
            answers: list[CommandT | OttlaError] = []
            try:
                await self._catch_up()
            except StoreUnavailable as failed:
                return [failed for _ in asked]
            image = self._image
            for wish in asked:
                try:
                    command = plan(image, wish)
                except OttlaError as refused:
                    answers.append(refused)
                else:
                    image = apply(image, [command])
                    answers.append(command)
            if not validate_only:
                try:
                    await self._commit([answer for answer in answers if not isinstance(answer, OttlaError)])
                except (StoreUnavailable, StoreConflict) as failed:
                    log.error("%s", failed)
                    return [answer if isinstance(answer, OttlaError) else failed for answer in answers]
            return answers

    async def _catch_up(self) -> None:
        """Read the metadata anew if a commit failed: it may have been carried out all the same."""
        if not self._in_doubt:
            return
        nodes = await self._store.read("/")
        self._versions = {path: node.version for path, node in nodes.items()}
        self._in_doubt = False
        self._show(layout.read_image(nodes))

    async def _commit(self, commands: Sequence[Command], *, first: Sequence[Operation] = ()) -> None:
        """Make the changes durable, then visible; the caller holds `_changing`."""
        if not commands and not first:
            return
        old = self._image
        operations = [
            *first,
            *layout.operations_for(
                commands,
                old,
                self._versions,
                controller_epoch=self._controller_epoch,
                now_ms=self._clock.now_ms(),
            ),
        ]
        try:
            cancelled = await _to_its_end(self._store.commit(operations))
        except (StoreUnavailable, StoreConflict):
            self._in_doubt = True
            raise
        for operation in operations:
            if isinstance(operation, Delete):
                del self._versions[operation.path]
            elif not isinstance(operation, Check):
                self._versions[operation.path] = self._versions.get(operation.path, -1) + 1
        self._show(apply(old, commands))
        if cancelled:
            raise asyncio.CancelledError


async def _to_its_end(commit: Coroutine[None, None, None]) -> bool:
    """Wait for a commit even if the waiting task is cancelled: what is durable must not miss in the image.

    Returns whether it was cancelled meanwhile; raises what the commit raises.
    """
    task = asyncio.ensure_future(commit)
    cancelled = False
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            cancelled = True
    task.result()
    return cancelled


def _new_id() -> UUID:
    """A random id that Kafka's tools can take as an argument: not reserved, and its text does not begin with a dash."""
    while True:
        candidate = uuid4()
        if candidate not in RESERVED_IDS and not layout.uuid_to_text(candidate).startswith("-"):
            return candidate
