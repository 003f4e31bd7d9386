"""The cluster's metadata with its changes, on the broker that decides: the image, and the commands that change it.

    request -> decision (controller, pure) -> commit (store) -> new image -> subscribers

One owner: everything runs on the loop's thread, and changes are made one after the other. Subscribers see only durable
changes. A standalone broker always decides (`start`); in a cluster the elected controller does (`begin_term`),
and each of its commits fails once another has been elected.
"""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar
from uuid import UUID, uuid4

from ottla.clock import Clock
from ottla.cluster import configs as config_rules
from ottla.cluster import controller
from ottla.cluster.commands import (
    Command,
    CreateTopic,
    DeleteTopic,
    Draft,
    RegisterBroker,
    SetConfigs,
    SetController,
    SetFeatures,
    SetPartitions,
    apply,
)
from ottla.cluster.commit_parts import PARTITIONS_PER_COMMIT, in_parts, whole_in_parts
from ottla.cluster.configs import ConfigChange
from ottla.cluster.controller import ElectionType, NewTopic, TakenNames
from ottla.cluster.departures import note_departures
from ottla.cluster.elections import NO_OUTAGES, Outages, plan_election
from ottla.cluster.features import ONLY_LEVELS, FeatureUpdate, plan_features
from ottla.cluster.image import (
    BrokerImage,
    MetadataImage,
    Replica,
    TopicImage,
)
from ottla.cluster.isr_changes import IsrChange, plan_isr_change
from ottla.cluster.reassignments import plan_reassignment
from ottla.config.broker import BrokerConfig
from ottla.errors import ErrorCode, OttlaError
from ottla.ids import BrokerId, ProducerId, TopicId, TopicName, TopicPartition
from ottla.metadata.adoption import find_adoptable
from ottla.metadata.config_changes import FoundSettings
from ottla.metadata.initial_users import add_initial_users
from ottla.metadata.policies import Policies, altered_configs, changed_meanwhile
from ottla.metadata.producer_ids import allocate_producer_ids
from ottla.metadata.store import layout
from ottla.metadata.store.base import (
    Check,
    Create,
    Delete,
    MetadataStore,
    Node,
    Operation,
    StoreConflict,
    StoreUnavailable,
    TransactionTooLarge,
)
from ottla.metadata.store.layout import ProducerIdBlock
from ottla.metadata.view import MetadataView
from ottla.slices import Slices

log = logging.getLogger(__name__)

Endpoints = Mapping[str, tuple[str, int]]
"""Listener name to host and port."""
AskedT = TypeVar("AskedT")
CommandT = TypeVar("CommandT", bound=Command)

RESERVED_IDS: Final = frozenset((UUID(int=0), UUID(int=1)))
"""Kafka's own: the id of no topic, and that of its metadata log."""


class WrongCluster(OttlaError):
    """The log directories belong to another cluster than the metadata."""

    code = ErrorCode.INCONSISTENT_CLUSTER_ID


class MetadataService(MetadataView):
    """Owns the image. Call `start` first; it gets the endpoints that are advertised to clients."""

    def __init__(
        self,
        store: MetadataStore,
        config: BrokerConfig,
        clock: Clock,
        *,
        outages: Callable[[], Outages] = lambda: NO_OUTAGES,
        policies: Policies | None = None,
        slices: Slices | None = None,
    ) -> None:
        """`outages`: which living brokers and replicas are unfit to lead, as its owner knows."""
        super().__init__(config, policies)
        self._outages = outages
        self._store = store
        self._clock = clock
        self._slices = slices or Slices(clock)
        self._versions: dict[str, int] = {}
        self._controller_epoch = 0
        self._changing = asyncio.Lock()
        self._producer_ids = range(0)
        self._started = False
        self._image_is_stale = False
        self.deletions_begun: list[TopicName] = []
        """Topics that another controller, or a commit that failed, has not deleted to the end."""
        self._guard: list[Operation] = []
        """Conditions of every commit."""

    @property
    def store(self) -> MetadataStore:
        return self._store

    # -- start and stop ----------------------------------------------------------------------------------------------

    async def start(
        self,
        endpoints: Endpoints | Callable[[BrokerConfig], Endpoints],
        *,
        cluster_id: str | None = None,
        adopt_from: Sequence[Path] = (),
        new_leader_epochs: bool = False,
    ) -> None:
        """Read the metadata, register this broker, and become the controller if there is none.

        `endpoints` are the addresses to register, or open the listeners of the settings that hold and return them.
        `cluster_id` is that of the log directories, None if they are new. `adopt_from` are log directories whose
        topics are taken over if the store is new. `new_leader_epochs` gives all that this broker leads a new epoch:
        for a start after a crash that may have lost records.

        Raises `WrongCluster`, `AdoptionProblem`, `StoreUnavailable`, `StoreConflict`, `MalformedNode`.
        """
        await self._store.open()
        try:
            await add_initial_users(self._store, self._static_config)
            await self._begin(endpoints, cluster_id, adopt_from, new_leader_epochs)
        except BaseException:
            await self._store.close()
            raise
        self._started = True

    async def _begin(
        self,
        endpoints: Endpoints | Callable[[BrokerConfig], Endpoints],
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
            image = image._replace(cluster_id=cluster_id or layout.uuid_to_text(new_id()))
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
        self._image = image
        self._config = self._effective_config(image)
        at = endpoints(self._config) if callable(endpoints) else endpoints
        broker = BrokerImage(
            self.broker_id,
            self._controller_epoch + 1,
            self._static_config.broker_rack,
            at,
            security_protocols=self._config.security_protocols,
        )
        commands.append(RegisterBroker(broker))
        if layout.CONTROLLER_PATH not in self._versions:
            self._controller_epoch += 1
            commands.append(SetController(self.broker_id))
        if new_leader_epochs:
            commands += controller.plan_new_epochs(image, self.broker_id)
        await self._commit(commands, first=first)

    async def begin_term(self, controller_epoch: int, epoch_version: int) -> Mapping[str, Node]:
        """Read everything, to decide from now on; `epoch_version` is that of the node with the controller's epoch.
        Returns what was read.

        The store is open already, and stays so at `close`. Raises `StoreUnavailable`, `MalformedNode`.
        """
        self._controller_epoch = controller_epoch
        self._guard = [Check(layout.CONTROLLER_EPOCH_PATH, epoch_version)]
        async with self._changing:
            return await self._read_everything()

    async def decide(self, plan: Callable[[MetadataImage], Sequence[Command]]) -> None:
        """Commit the commands that `plan` derives from the image, in parts if there are many. After a conflicting
        change the
        store is read, and `plan` runs once more.

        Raises `StoreUnavailable`, `StoreConflict` when this broker is no longer the controller.
        """
        async with self._changing:
            await self._catch_up()
            try:
                await self._commit_in_parts(plan(self._image))
            except StoreConflict as conflict:
                if conflict.path == layout.CONTROLLER_EPOCH_PATH:
                    raise
                await self._catch_up()
                await self._commit_in_parts(plan(self._image))

    async def _commit_in_parts(self, commands: Sequence[Command]) -> None:
        for part in in_parts(commands, self._image):
            await self._commit([piece.command for piece in part])

    async def _commit_each(self, commands: Sequence[Command]) -> dict[int, OttlaError]:
        """Commit as many of several requests' commands as possible; returns the failed ones, with the error.

        A standalone broker never splits a command: after a crash no broker would finish it.
        """
        failed: dict[int, OttlaError] = {}
        queue = deque((in_parts if self._guard else whole_in_parts)(commands, self._image))
        while queue:
            part = [piece for piece in queue.popleft() if piece.number not in failed]
            try:
                await self._commit([piece.command for piece in part])
            except TransactionTooLarge as refused:  # nothing has changed: one by one, most may be small enough
                if len(part) == 1:
                    failed[part[0].number] = refused
                else:
                    queue.extendleft([piece] for piece in reversed(part))
            except (StoreUnavailable, StoreConflict) as problem:
                log.error("committing a metadata change failed: %s", problem)
                return failed | {piece.number: problem for later in (part, *queue) for piece in later}
        return failed

    async def see_brokers(self, brokers: Mapping[BrokerId, BrokerImage]) -> None:
        """These are alive: what their own nodes say, which this broker does not write."""
        async with self._changing:
            self._show(self._image._replace(brokers=brokers))

    async def see_failures(self, replicas: frozenset[Replica]) -> None:
        """Set the replicas that are in failed log directories, as reported by their brokers."""
        async with self._changing:
            if replicas != self._image.failed_replicas:
                self._show(self._image._replace(failed_replicas=replicas))

    async def change_in_sync(self, changes: Sequence[IsrChange], outages: Outages) -> list[OttlaError | None]:
        """Change in-sync replicas as their leaders propose, each partition at most once; in the order given."""
        answers: list[OttlaError | None] = []
        for start in range(0, len(changes), PARTITIONS_PER_COMMIT):
            some = changes[start : start + PARTITIONS_PER_COMMIT]
            done = await self._change(some, lambda image, change: plan_isr_change(image, outages, change))
            answers += [answer if isinstance(answer, OttlaError) else None for answer in done]
        return answers

    async def reassign(
        self, moves: Sequence[tuple[TopicPartition, Sequence[int] | None]], *, allow_factor_change: bool
    ) -> list[OttlaError | None]:
        """Begin or cancel reassignments, each partition at most once; in the order given."""

        def plan(image: MetadataImage, move: tuple[TopicPartition, Sequence[int] | None]) -> SetPartitions:
            return plan_reassignment(image, *move, allow_replication_factor_change=allow_factor_change)

        answers = await self._change(moves, plan)
        return [answer if isinstance(answer, OttlaError) else None for answer in answers]

    async def read_anew(self) -> None:
        """Something has been changed by others. Raises `StoreUnavailable`, `MalformedNode`."""
        async with self._changing:
            self._image_is_stale = True
            await self._catch_up()

    async def take_settings(self, found: Sequence[FoundSettings]) -> None:
        """Others have changed these settings."""
        async with self._changing:
            if self._image_is_stale:
                return  # everything is read before anything is decided
            for path, version, _ in found:
                if version is None:
                    self._versions.pop(path, None)
                else:
                    self._versions[path] = version
            new = apply(self._image, [each.settings for each in found])
            if new.configs is not self._image.configs:
                self._show(new)

    async def advertise(self, endpoints: Endpoints) -> None:
        async with self._changing:
            known = self._image.brokers[self.broker_id]
            known = known._replace(endpoints=endpoints, security_protocols=self._config.security_protocols)
            await self._commit([RegisterBroker(known)])

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

        async def create(some: Sequence[NewTopic], validate_only: bool) -> list[CreateTopic | OttlaError]:
            taken = TakenNames()

            def plan(image: MetadataImage, new: NewTopic) -> CreateTopic:
                topic_id, first_broker = TopicId(new_id()), random.randrange(1 << 30)
                return controller.plan_topic(
                    image, self._config, new, topic_id=topic_id, first_broker=first_broker, taken=taken
                )

            return await self._change(some, plan, validate_only=validate_only)

        answers = await self._policies.create_topics(topics, create, validate_only=validate_only)
        await self.until_followed()
        return answers

    async def delete_topics(self, names: Sequence[TopicName]) -> list[TopicImage | OttlaError]:
        """Delete topics, all that can be in one commit; answers what they were, in the order asked."""
        were: dict[TopicName, TopicImage] = {}

        def plan(image: MetadataImage, name: TopicName) -> DeleteTopic:
            command = controller.plan_deletion(image, self._config, name)
            were[name] = image.topics[name]
            return command

        answers = await self._change(names, plan)
        await self.until_followed()
        return [answer if isinstance(answer, OttlaError) else were[answer.name] for answer in answers]

    async def end_deletions(self) -> None:
        """Delete the topics whose deletion has begun. Raises `StoreUnavailable`, `StoreConflict`."""
        async with self._changing:
            await self._catch_up()
            names, self.deletions_begun = self.deletions_begun, []
            for name in names:
                if name in self._image.topics:
                    log.info("topic %s, whose deletion was begun, is deleted to the end", name)
                    await self._commit_in_parts([DeleteTopic(name)])

    async def create_partitions(
        self,
        growths: Sequence[tuple[TopicName, int, Sequence[Sequence[int]] | None]],
        *,
        validate_only: bool = False,
    ) -> list[OttlaError | None]:
        """Grow topics, each at most once: name, new total, and replicas of the new partitions if placed."""
        answers = await self._change(
            growths,
            lambda image, growth: controller.plan_growth(image, self._config, *growth),
            validate_only=validate_only,
        )
        await self.until_followed()
        return [answer if isinstance(answer, OttlaError) else None for answer in answers]

    async def elect_leaders(
        self, partitions: Sequence[TopicPartition], election: ElectionType
    ) -> list[OttlaError | None]:
        """Have partitions led by their preferred replica, or by any that is alive; answers in the order asked."""
        answers = await self._change(
            partitions, lambda image, partition: plan_election(image, self._outages(), partition, election)
        )
        return [answer if isinstance(answer, OttlaError) else None for answer in answers]

    # -- settings ----------------------------------------------------------------------------------------------------

    async def alter_configs(
        self, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> list[OttlaError | None]:
        """Change settings of topics, groups and brokers, each at most once; answers in the order asked."""

        def plan(image: MetadataImage, change: ConfigChange) -> SetConfigs:
            return config_rules.plan_configs(image, self._config, change, static=self._static_config)

        if self._policies.of_configs:
            return await self._alter_allowed(changes, plan, validate_only)
        answers = await self._change(changes, plan, validate_only=validate_only)
        return [answer if isinstance(answer, OttlaError) else None for answer in answers]

    async def _alter_allowed(
        self,
        changes: Sequence[ConfigChange],
        plan: Callable[[MetadataImage, ConfigChange], SetConfigs],
        validate_only: bool,
    ) -> list[OttlaError | None]:
        """Ask the policy between two plans, since others may change settings while it thinks."""
        planned = await self._change(changes, plan, validate_only=True)
        seen = {
            at: altered_configs(self._image, changes[at], command)
            for at, command in enumerate(planned)
            if not isinstance(command, OttlaError)
        }
        answers: list[OttlaError | None] = [known if isinstance(known, OttlaError) else None for known in planned]
        for at, altered in seen.items():
            answers[at] = await self._policies.config_refusal(changes[at], altered)
        if validate_only:
            return answers

        def plan_again(image: MetadataImage, at: int) -> SetConfigs:
            command = plan(image, changes[at])
            if altered_configs(image, changes[at], command) != seen[at]:
                raise changed_meanwhile(changes[at])
            return command

        allowed = [at for at, refused in enumerate(answers) if refused is None]
        for at, answer in zip(allowed, await self._change(allowed, plan_again), strict=True):
            answers[at] = answer if isinstance(answer, OttlaError) else None
        return answers

    # -- features ----------------------------------------------------------------------------------------------------

    async def update_features(self, updates: Sequence[FeatureUpdate], *, validate_only: bool = False) -> None:
        """Change feature levels, all or none. Raises `ApiError` INVALID_UPDATE_VERSION, `StoreUnavailable`."""
        only_levels = {} if self._guard else ONLY_LEVELS

        def plan(image: MetadataImage, updates: Sequence[FeatureUpdate]) -> SetFeatures:
            return plan_features(image, updates, only_levels=only_levels)

        (answer,) = await self._change([updates], plan, validate_only=validate_only)
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
        block = await allocate_producer_ids(self._store, self.broker_id)
        self._versions.pop(layout.PRODUCER_IDS_PATH, None)
        return range(block.first, block.last + 1)

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
            agreed: list[tuple[int, CommandT]] = []
            try:
                await self._catch_up()
            except StoreUnavailable as failed:
                return [failed for _ in asked]
            draft = Draft(self._image)
            for wish in asked:
                await self._slices.pause()
                try:
                    command = plan(draft.image, wish)
                except OttlaError as refused:
                    answers.append(refused.with_traceback(None))  # which holds frames: many are dear to drop
                else:
                    draft.apply(command)
                    agreed.append((len(answers), command))
                    answers.append(command)
            if not validate_only:
                refusals = await self._commit_each([command for _, command in agreed])
                for number, problem in refusals.items():
                    answers[agreed[number][0]] = problem
            return answers

    async def _catch_up(self) -> None:
        """Read the metadata anew if a commit failed: it may have been carried out all the same."""
        if self._image_is_stale:
            await self._read_everything()

    async def _read_everything(self) -> Mapping[str, Node]:
        nodes = await self._store.read("/")
        self._versions = {path: node.version for path, node in nodes.items()}
        self._image_is_stale = False
        found = layout.read_image(nodes)
        self.deletions_begun = [name for name in layout.deletions_begun(nodes) if name in found.topics]
        if self._guard and self._image.brokers:
            # `see_brokers` reports live brokers, and `see_failures` their failed replicas.
            found = found._replace(brokers=self._image.brokers, failed_replicas=self._image.failed_replicas)
        self._show(found)
        return nodes

    async def _commit(self, commands: Sequence[Command], *, first: Sequence[Operation] = ()) -> None:
        """Make the changes durable, then visible; the caller holds `_changing`."""
        if not commands and not first:
            return
        old = self._image
        if self._guard:  # others hold replicas, too
            commands = note_departures(old, commands, self._outages().offline, self.min_in_sync)
        operations = [*self._guard, *first]
        for operation in layout.each_operation(
            commands,
            old,
            self._versions,
            controller_epoch=self._controller_epoch,
            now_ms=self._clock.now_ms(),
        ):
            operations.append(operation)
            await self._slices.pause()
        try:
            cancelled = await _to_its_end(self._store.commit(operations))
        except (StoreUnavailable, StoreConflict, asyncio.CancelledError):
            self._image_is_stale = True
            raise
        for operation in operations:
            if isinstance(operation, Delete):
                del self._versions[operation.path]
            elif not isinstance(operation, Check):
                self._versions[operation.path] = self._versions.get(operation.path, -1) + 1
        self._show(apply(old, commands))
        if cancelled:
            raise asyncio.CancelledError

    def min_in_sync(self, topic: TopicName) -> int:
        """A topic's `min.insync.replicas`."""
        return self.log_config(topic).min_insync_replicas


async def _to_its_end(commit: Coroutine[None, None, None]) -> bool:
    """Wait for a commit even if the waiting task is cancelled: what is durable must not miss in the image.

    Returns whether it was cancelled meanwhile; raises what the commit raises, or `CancelledError` if it fails after the
    waiting task was cancelled: that one must end, and not take the failure for something to be tried again.
    """
    task = asyncio.ensure_future(commit)
    cancelled = False
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            cancelled = True
    problem = task.exception()
    if problem is not None:
        if cancelled:
            raise asyncio.CancelledError from problem
        raise problem
    return cancelled


def new_id() -> UUID:
    """A random id that Kafka's tools can take as an argument: not reserved, and its text does not begin with a dash."""
    while True:
        candidate = uuid4()
        if candidate not in RESERVED_IDS and not layout.uuid_to_text(candidate).startswith("-"):
            return candidate
