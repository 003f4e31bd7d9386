"""Decisions on the cluster's metadata, by the node that decides, and their commits to a keeper of metadata.

    request -> decision (controller, pure) -> commit (keeper) -> new image -> subscribers

One owner: everything runs on the loop's thread, and changes are made one after the other. Subscribers see only durable
changes.
"""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Final, TypeVar
from uuid import UUID, uuid4

from ottla.cluster import configs as config_rules
from ottla.cluster import controller
from ottla.cluster.commands import Command, CreateTopic, DeleteTopic, Draft, SetConfigs, SetFeatures, SetPartitions
from ottla.cluster.commit_parts import PARTITIONS_PER_COMMIT
from ottla.cluster.configs import ConfigChange
from ottla.cluster.controller import NOTHING_REGISTERED, ElectionType, NewTopic, Registered, TakenNames
from ottla.cluster.departures import note_departures
from ottla.cluster.elections import NO_OUTAGES, Outages, plan_election
from ottla.cluster.features import FeatureUpdate, plan_features
from ottla.cluster.image import BrokerImage, MetadataImage, Replica, TopicImage
from ottla.cluster.isr_changes import IsrChange, plan_isr_change
from ottla.cluster.reassignments import plan_reassignment
from ottla.config.broker import BrokerConfig
from ottla.errors import OttlaError
from ottla.ids import BrokerId, ProducerId, TopicId, TopicName, TopicPartition, uuid_to_text
from ottla.metadata.keeper import Found, MetadataKeeper
from ottla.metadata.policies import Policies, altered_configs, changed_meanwhile
from ottla.metadata.store import layout
from ottla.metadata.store.base import StoreConflict, StoreUnavailable, TransactionTooLarge
from ottla.metadata.view import MetadataView
from ottla.slices import Slices

log = logging.getLogger(__name__)

AskedT = TypeVar("AskedT")
CommandT = TypeVar("CommandT", bound=Command)
ResultT = TypeVar("ResultT")

RESERVED_IDS: Final = frozenset((UUID(int=0), UUID(int=1)))
"""Kafka's own: the id of no topic, and that of its metadata log."""


class DecidingMetadata(MetadataView):
    """Owns the image, decides on its changes, and has a keeper make them durable. On the loop's thread."""

    def __init__(
        self,
        keeper: MetadataKeeper,
        config: BrokerConfig,
        slices: Slices,
        *,
        outages: Callable[[], Outages] = lambda: NO_OUTAGES,
        policies: Policies | None = None,
    ) -> None:
        """`outages`: which living brokers and replicas are unfit to lead, as its owner knows."""
        super().__init__(config, policies)
        self._keeper = keeper
        self._outages = outages
        self._slices = slices
        self._changing = asyncio.Lock()
        self._producer_ids = range(0)
        self._image_is_stale = False
        self.deletions_begun: list[TopicName] = []
        """Topics that another controller, or a commit that failed, has not deleted to the end."""

    async def decide(self, plan: Callable[[MetadataImage], Sequence[Command]]) -> None:
        """Commit the commands that `plan` derives from the image, in parts if there are many. After a conflicting
        change the store is read, and `plan` runs once more.

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
        for part in self._keeper.in_parts(commands, self._image):
            await self._commit([piece.command for piece in part])

    async def _commit_each(self, commands: Sequence[Command]) -> dict[int, OttlaError]:
        """Commit as many of several requests' commands as possible; returns the failed ones, with the error."""
        failed: dict[int, OttlaError] = {}
        queue = deque(self._keeper.in_parts(commands, self._image))
        while queue:
            part = [piece for piece in queue.popleft() if piece.number not in failed]
            try:
                await self._commit([piece.command for piece in part])
            except TransactionTooLarge as refused:  # nothing has changed: one by one, most may be small enough
                if len(part) == 1:
                    failed[part[0].number] = refused
                else:
                    queue.extendleft([piece] for piece in reversed(part))
            except OttlaError as problem:
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

    def may_settle(self, changes: Sequence[IsrChange]) -> bool:
        """Whether changes of in-sync sets may end a reassignment, or relieve a leader that is going."""
        outages = self._outages()
        touched = [self._image.topics_by_id.get(topic_id) for topic_id in {change.topic_id for change in changes}]
        return any(
            part.is_reassigned or outages.is_going(part.leader, topic.name, part.partition)
            for topic in touched
            if topic is not None
            for part in topic.partitions
        )

    async def reassign(
        self, moves: Sequence[tuple[TopicPartition, Sequence[int] | None]], *, allow_factor_change: bool
    ) -> list[OttlaError | None]:
        """Begin or cancel reassignments, each partition at most once; in the order given."""

        def plan(image: MetadataImage, move: tuple[TopicPartition, Sequence[int] | None]) -> SetPartitions:
            return plan_reassignment(image, *move, allow_replication_factor_change=allow_factor_change)

        answers = await self._change(moves, plan)
        return [answer if isinstance(answer, OttlaError) else None for answer in answers]

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
                    image,
                    self._config,
                    new,
                    topic_id=topic_id,
                    first_broker=first_broker,
                    taken=taken,
                    registered=self._registered(),
                )

            return await self._change(some, plan, validate_only=validate_only)

        answers = await self._policies.create_topics(topics, create, validate_only=validate_only)
        await self.until_followed()
        return answers

    def _registered(self) -> Registered:
        """What is known of registered brokers beside the image."""
        return NOTHING_REGISTERED

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
            lambda image, growth: controller.plan_growth(image, self._config, *growth, self._registered()),
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

        plan = self._plan_configs
        if self._policies.of_configs:
            return await self._alter_allowed(changes, plan, validate_only)
        answers = await self._change(changes, plan, validate_only=validate_only)
        return [answer if isinstance(answer, OttlaError) else None for answer in answers]

    def _plan_configs(self, image: MetadataImage, change: ConfigChange) -> SetConfigs:
        return config_rules.plan_configs(image, self._config, change, static=self._static_config)

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

        (answer,) = await self._change([updates], self._plan_features, validate_only=validate_only)
        if isinstance(answer, OttlaError):
            raise answer

    def _plan_features(self, image: MetadataImage, updates: Sequence[FeatureUpdate]) -> SetFeatures:
        return plan_features(image, updates, only_levels=self._keeper.only_levels)

    # -- producer ids ------------------------------------------------------------------------------------------------

    async def next_producer_id(self) -> ProducerId:
        """A producer id that was never given out; blocks of a thousand come from the keeper.

        Raises `ApiError` UNKNOWN_SERVER_ERROR when there are none left, `StoreUnavailable`.
        """
        if not self._producer_ids:
            async with self._changing:
                if not self._producer_ids:  # another request may have fetched a block while this one waited
                    block = await self._keeper.allocate_producer_ids(self.broker_id)
                    self._producer_ids = range(block.first, block.last + 1)
        given, self._producer_ids = self._producer_ids[0], self._producer_ids[1:]
        return ProducerId(given)

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
            self._take(await self._keeper.read())

    def _take(self, found: Found) -> None:
        """Go on from what was read."""
        self._image_is_stale = False
        self.deletions_begun = found.deletions_begun
        if found.image is not self._image:
            self._show(found.image)

    async def _commit(self, commands: Sequence[Command]) -> None:
        """Make the changes durable, then visible; the caller holds `_changing`."""
        if not commands:
            return
        old = self._image
        if self._keeper.is_shared:  # others hold replicas, too
            commands = await self._slices.run(note_departures(old, commands, self._outages().offline, self.min_in_sync))
        await self._committed(self._keeper.commit(commands, old))

    async def _committed(self, commit: Coroutine[None, None, MetadataImage]) -> None:
        """Show the image that a commit leaves; the caller holds `_changing`."""
        try:
            new, cancelled = await _to_its_end(commit)
        except TransactionTooLarge:  # nothing has changed
            raise
        except (OttlaError, asyncio.CancelledError):
            self._image_is_stale = True
            raise
        if new is not self._image:
            self._show(new)
        if cancelled:
            raise asyncio.CancelledError

    def min_in_sync(self, topic: TopicName) -> int:
        """A topic's `min.insync.replicas`."""
        return self.log_config(topic).min_insync_replicas


async def _to_its_end(commit: Coroutine[None, None, ResultT]) -> tuple[ResultT, bool]:
    """Wait for a commit even if the waiting task is cancelled: what is durable must not miss in the image.

    Returns its result, and whether the task was cancelled meanwhile. Raises what the commit raises, or
    `CancelledError` if it fails after the waiting task was cancelled: that one must end, and not take the failure for
    something to be tried again.
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
    return task.result(), cancelled


def new_id() -> UUID:
    """A random id that Kafka's tools can take as an argument: not reserved, and its text does not begin with a dash."""
    while True:
        candidate = uuid4()
        if candidate not in RESERVED_IDS and not uuid_to_text(candidate).startswith("-"):
            return candidate
