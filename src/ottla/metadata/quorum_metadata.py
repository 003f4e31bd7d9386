"""The metadata of a broker under a quorum of controllers: the quorum's log, replayed as it is committed.

    quorum node -- committed records --> QuorumReplay --> image --> subscribers

Nothing is changed here: requests that change metadata are forwarded to the active controller (`server/forwarding.py`).
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn

from ottla.cluster.commands import CreateTopic
from ottla.cluster.configs import ConfigChange
from ottla.cluster.controller import ElectionType, NewTopic
from ottla.cluster.features import FeatureUpdate
from ottla.cluster.image import NO_LEADER, BrokerImage, MetadataImage, TopicImage
from ottla.cluster.metadata_log.registrations import BrokerRegistration
from ottla.cluster.metadata_log.state import ClusterState
from ottla.config.broker import BrokerConfig
from ottla.errors import ErrorCode, OttlaError
from ottla.ids import BrokerId, ProducerId, TopicName, TopicPartition
from ottla.metadata.policies import Policies
from ottla.metadata.quorum_replay import Advance, QuorumReplay
from ottla.metadata.view import KNOWN_WITHIN_S, NO_LIMIT, MetadataView

if TYPE_CHECKING:
    from ottla.metadata.quorum_acls import FollowedAcls
    from ottla.security.acls import StandardAuthorizer

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
    """What this broker knows of its cluster, as its process replays the quorum's log. On the loop's thread."""

    def __init__(self, config: BrokerConfig, replay: QuorumReplay, policies: Policies | None = None) -> None:
        """`replay` may have been going on for some time, for the controller of this process."""
        super().__init__(config, policies)
        self._replay = replay
        self._advanced = asyncio.Event()
        self._is_known = False
        self._producer_ids = range(0)
        self.stopping: frozenset[BrokerId] = frozenset()
        """The brokers in controlled shutdown: alive, they still fetch what they are in sync with, and nothing else."""
        self._take_tokens: Callable[[Iterable[str]], None] | None = None
        self.create_at_controller: CreateAtController | None = None
        self.allocate_producer_ids: AllocateProducerIds | None = None
        self._follow(self._image, replay.image)
        replay.subscribe(self._follow)
        replay.on_advance(self._see_advance)

    # -- the log -----------------------------------------------------------------------------------------------------

    @property
    def state(self) -> ClusterState:
        """Everything in the log."""
        return self._replay.state

    @property
    def offset(self) -> int:
        """The offset of the last record of which the image knows; -1 before the first."""
        return self._replay.offset

    def _see_advance(self, advance: Advance) -> None:
        self._advanced.set()
        if self._take_tokens is not None and advance.tokens:
            self._take_tokens(advance.tokens)

    def _follow(self, old: MetadataImage, new: MetadataImage) -> None:
        """Show the image of the log, unless only the quorum's leader is another: clients are sent to any broker."""
        if old.controller_id != new.controller_id and old._replace(controller_id=new.controller_id) == new:
            return
        registered = self.state.brokers.values()
        self.stopping = frozenset(BrokerId(each.broker_id) for each in registered if each.in_controlled_shutdown)
        self._show(new._replace(controller_id=self._any_broker()))

    def follow_acls(self, acls: "FollowedAcls") -> None:
        """Have access rules follow the log."""
        acls.follow_anew(self.state)
        self._replay.on_advance(acls.follow)

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
        return brokers - self.stopping if self.stopping else brokers

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
