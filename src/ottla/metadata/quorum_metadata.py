"""The metadata of a broker under a quorum of controllers: the quorum's log, replayed as it is committed.

    quorum node (observer) -- committed records --> ClusterState --> image --> subscribers

Nothing is changed here: requests that change metadata are forwarded to the active controller (`server/forwarding.py`).
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn

from ottla.cluster.commands import CreateTopic
from ottla.cluster.configs import ConfigChange
from ottla.cluster.controller import ElectionType, NewTopic
from ottla.cluster.features import FeatureUpdate
from ottla.cluster.image import NO_LEADER, BrokerImage, TopicImage, empty_image
from ottla.cluster.metadata_log.registrations import BrokerRegistration
from ottla.cluster.metadata_log.state import ClusterState
from ottla.config.broker import BrokerConfig
from ottla.errors import ErrorCode, OttlaError, sentence
from ottla.ids import BrokerId, ProducerId, TopicName, TopicPartition
from ottla.metadata.policies import Policies
from ottla.metadata.quorum.node import CommittedBatch, LeaderAndEpoch, OffsetAndEpoch
from ottla.metadata.view import KNOWN_WITHIN_S, NO_LIMIT, MetadataView
from ottla.slices import Steps, run_at_once

if TYPE_CHECKING:
    from ottla.metadata.quorum_acls import FollowedAcls
    from ottla.security.acls import StandardAuthorizer

log = logging.getLogger(__name__)

NOTHING = -1

CreateAtController = Callable[[Sequence[NewTopic]], Awaitable[list[OttlaError | None]]]
"""Have the controller create topics; answers in the order asked."""
AllocateProducerIds = Callable[[], Awaitable[range]]
"""Have the controller give this broker a block of producer ids."""


class DecidedElsewhere(OttlaError):
    """The active controller of the quorum decides this, and this broker has not forwarded it."""

    code = ErrorCode.NOT_CONTROLLER


def access_rules(metadata: MetadataView, authorizer: "StandardAuthorizer") -> "FollowedAcls":
    """The rules in the log of a broker's quorum, and those of its authorizer, which follow."""
    from ottla.metadata.quorum_acls import FollowedAcls  # only a broker with an authorizer pays for it

    assert isinstance(metadata, QuorumMetadata)
    rules = FollowedAcls(authorizer)
    metadata.follow_acls(rules)
    return rules


class QuorumMetadata(MetadataView):
    """What this broker knows of its cluster. A `Listener` of the quorum's log. On the loop's thread."""

    def __init__(
        self,
        config: BrokerConfig,
        cluster_id: str,
        policies: Policies | None = None,
        *,
        stop_broker: Callable[[str], None],
    ) -> None:
        """`stop_broker` is called with the reason when the log has something that cannot be understood."""
        super().__init__(config, policies)
        self._stop_broker = stop_broker
        self._image = empty_image(cluster_id)._replace(features={})
        self.state = ClusterState(cluster_id)
        """Everything in the log."""
        self.offset = NOTHING
        """The offset of the last record of which the image knows."""
        self._advanced = asyncio.Event()
        self._has_failed = False
        self._is_known = False
        self._producer_ids = range(0)
        self._stopping: frozenset[BrokerId] = frozenset()
        """The brokers in controlled shutdown: alive, they still fetch what they are in sync with, and nothing else."""
        self._acls: FollowedAcls | None = None
        self._take_tokens: Callable[[Iterable[str]], None] | None = None
        self.create_at_controller: CreateAtController | None = None
        self.allocate_producer_ids: AllocateProducerIds | None = None

    # -- the log -----------------------------------------------------------------------------------------------------

    def handle_snapshot(self, snapshot: OffsetAndEpoch, records: Iterable[bytes]) -> Steps[None]:
        """Take a snapshot in place of everything before; see `Listener`."""
        state = ClusterState(self._image.cluster_id, like=self._image)
        if (yield from self._replay(state, records)):
            old, self.state = self.state, state
            self._advance(snapshot.offset - 1, old)

    def handle_commit(self, batch: CommittedBatch) -> None:
        """Take committed records; see `Listener`."""
        if run_at_once(self._replay(self.state, batch.records)):
            self._advance(batch.last_offset)

    def handle_leader_change(self, leader: LeaderAndEpoch) -> None:
        """See `Listener`; requests for the controller look the leader up themselves."""

    def _replay(self, state: ClusterState, records: Iterable[bytes]) -> Steps[bool]:
        if self._has_failed:
            return False
        try:
            yield from state.replay_steps(records)
        except OttlaError as problem:
            self._has_failed = True
            log.error("the metadata log cannot be followed behind offset %d: %s", self.offset, problem)
            self._stop_broker(f"the metadata log cannot be followed: {sentence(problem)}")
            return False
        return True

    def _advance(self, offset: int, old: ClusterState | None = None) -> None:
        """Show what is there up to an offset; `old` is the state before one that a snapshot has begun."""
        self.offset = max(offset, self.offset)
        self._advanced.set()
        self.state.controller_id = self._any_broker()
        image = self.state.image(self.offset)
        if image is not self._image:
            registered = self.state.brokers.values()
            self._stopping = frozenset(BrokerId(each.broker_id) for each in registered if each.in_controlled_shutdown)
            self._show(image)
        if self._acls is not None:
            (self._acls.follow if old is None else self._acls.follow_anew)(self.state)
        if self._take_tokens is not None:
            tokens = self.state.take_token_changes()
            if old is not None:
                tokens |= old.tokens.keys()
            if tokens:
                self._take_tokens(tokens)

    def follow_acls(self, acls: "FollowedAcls") -> None:
        """Have access rules follow the log."""
        self._acls = acls
        acls.follow_anew(self.state)

    def follow_tokens(self, take: Callable[[Iterable[str]], None]) -> None:
        """Call `take` with the ids of delegation tokens that have changed: now with all, and after each change."""
        self._take_tokens = take
        take(self.state.tokens)

    def _any_broker(self) -> BrokerId:
        """The broker that clients are sent to with requests for the controller: any, since brokers forward them.

        This one answers, so it is alive, which none of the others is sure to be.
        """
        own = self.registration
        if own is not None and not own.fenced:
            return self.broker_id
        alive = [BrokerId(each.broker_id) for each in self.state.brokers.values() if not each.fenced]
        return random.choice(alive) if alive else NO_LEADER

    # -- what is known -----------------------------------------------------------------------------------------------

    @property
    def is_known(self) -> bool:
        return self._is_known

    async def until_offset(self, offset: int) -> None:
        """Wait until the log has been followed up to an offset."""
        while self.offset < offset:
            self._advanced.clear()
            await self._advanced.wait()

    async def until_known(self, timeout_s: float) -> bool:
        return await self.until(lambda: self._is_known, timeout_s)

    def caught_up(self) -> None:
        """The image is that of the cluster from now on."""
        if not self._is_known:
            self._is_known = True
            self._show(self._image)

    @property
    def features_epoch(self) -> int:
        """The offset of the metadata log up to which the feature levels are known, as with genuine brokers."""
        return self.offset

    @property
    def in_sync_candidates(self) -> Collection[BrokerId]:
        """See `MetadataView`. Kafka's leaders do not wait for brokers in controlled shutdown either."""
        brokers = self._image.brokers.keys()
        return brokers - self._stopping if self._stopping else brokers

    @property
    def fenced_brokers(self) -> list[BrokerImage]:
        """The brokers that are registered and fenced."""
        return [each.image() for each in self.state.brokers.values() if each.fenced]

    @property
    def registration(self) -> BrokerRegistration | None:
        """This broker's own registration, as the log has it."""
        return self.state.brokers.get(self.broker_id)

    # -- changes -----------------------------------------------------------------------------------------------------

    async def next_producer_id(self) -> ProducerId:
        assert self.allocate_producer_ids is not None
        while not self._producer_ids:
            self._producer_ids = await self.allocate_producer_ids()
        given, self._producer_ids = self._producer_ids[0], self._producer_ids[1:]
        return ProducerId(given)

    def _replicas_at_most(self) -> int:
        return NO_LIMIT

    async def create_missing(self, topics: Sequence[NewTopic]) -> list[OttlaError | None]:
        assert self.create_at_controller is not None
        answers = await self.create_at_controller(topics)
        created = [topic.name for topic, refused in zip(topics, answers, strict=True) if refused is None]
        await self.until(lambda: all(name in self._image.topics for name in created), KNOWN_WITHIN_S)
        return answers

    async def advertise(self, endpoints: Mapping[str, tuple[str, int]]) -> None:
        """Take effect with the next start, as in Kafka."""

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> list[CreateTopic | OttlaError]:
        self._refuse()

    async def delete_topics(self, names: Sequence[TopicName]) -> list[TopicImage | OttlaError]:
        self._refuse()

    async def create_partitions(
        self,
        growths: Sequence[tuple[TopicName, int, Sequence[Sequence[int]] | None]],
        *,
        validate_only: bool = False,
    ) -> list[OttlaError | None]:
        self._refuse()

    async def elect_leaders(
        self, partitions: Sequence[TopicPartition], election: ElectionType
    ) -> list[OttlaError | None]:
        self._refuse()

    async def alter_configs(
        self, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> list[OttlaError | None]:
        self._refuse()

    async def update_features(self, updates: Sequence[FeatureUpdate], *, validate_only: bool = False) -> None:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise DecidedElsewhere(f"broker {self.broker_id} decides nothing: the active controller of the quorum does")
