"""The active controller: reacts to events for as long as this broker is the controller.

    brokers came or went      |
    one refuses connections   |
    a broker wants to stop    |
    a leader's in-sync set    |--> plan (pure) --> commit --> requests to brokers
    topics, reassignments     |
    topics created elsewhere  |
    the clock                 |

Every commit checks the controller epoch; a commit that fails the check ends this broker's term.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any, Final

from ottla.client.sockets import Connect
from ottla.clock import Clock
from ottla.cluster.announcements import LONGEST_S, Announcements
from ottla.cluster.commands import Command
from ottla.cluster.controller_requests import (
    LACKS_ROOM,
    Sender,
    announcements,
    probe_requests,
    release_requests,
    requests_after,
    requests_to_follow,
    waiting_to_follow,
)
from ottla.cluster.departures import forget_eligible
from ottla.cluster.elections import Outages, elect_where_needed, led_by, renew_after_restarts, return_to_preferred
from ottla.cluster.image import BrokerImage, MetadataImage, Replica
from ottla.cluster.isr_changes import IsrChange
from ottla.cluster.reassignments import finish_reassignments
from ottla.config.broker import BrokerConfig
from ottla.errors import ApiError, ErrorCode, OttlaError
from ottla.ids import BrokerId, PartitionId, TopicId, TopicName, TopicPartition
from ottla.metadata.controller_channels import ControllerChannels
from ottla.metadata.leadership_lease import fence
from ottla.metadata.producer_ids import allocate_producer_ids
from ottla.metadata.service import MetadataService
from ottla.metadata.store import layout
from ottla.metadata.store.base import MetadataStore, StoreConflict
from ottla.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from ottla.tasks import Tasks

log = logging.getLogger(__name__)

RETRY_S: Final = 0.5


class ActiveController:
    """One term of this broker as controller. On the loop's thread."""

    def __init__(
        self,
        store: MetadataStore,
        config: BrokerConfig,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        connect: Connect,
        controller_epoch: int,
        deposed: Callable[[], None],
    ) -> None:
        """`deposed` is called when a commit fails since there is a controller with a later epoch."""
        self._store = store
        self._deposed = deposed
        self._config = config
        self._loop = loop
        self.controller_epoch = controller_epoch
        self.service = MetadataService(store, config, clock, outages=lambda: self._outages)
        self._outages = Outages()
        self._sender = Sender(config.node_id, controller_epoch, config.inter_broker_listener)
        self._channels = ControllerChannels(
            config.node_id,
            config.control_plane_listener,
            config.controller_socket_timeout_ms / 1000,
            loop,
            connect,
            self._answered,
            self._listens,
        )
        self._silent: frozenset[BrokerId] = frozenset()
        """Brokers whose address refuses connections."""
        self._announcements = Announcements()
        self._asked_to_follow: dict[Replica, int] = {}
        """Replicas that could not be held and were asked for once more, with the partition epoch at that time."""
        self._epoch_version = 0
        self._tasks = Tasks()
        self._settles_later = False
        self._has_ended = False

    @property
    def image(self) -> MetadataImage:
        return self.service.image

    async def begin(self, epoch_version: int) -> None:
        """Read everything, send every broker all of it, and make pending decisions.

        Raises `StoreUnavailable`, `StoreConflict`, `MalformedNode`.
        """
        self._epoch_version = epoch_version
        nodes = await self.service.begin_term(self.controller_epoch, epoch_version)
        modified = {path: node.modified for path, node in nodes.items()}
        await self.service.decide(
            lambda image: renew_after_restarts(image, lambda topic, number: modified[layout.state_path(topic, number)])
        )
        found = self.image
        # before any broker is sent a leader: each leader is announced once
        await self.service.decide(self._plan_elections)
        self._send_changes(found._replace(brokers={}), self.image)
        self.service.subscribe(self._send_changes)
        await self.settle()
        if self._config.auto_leader_rebalance_enable:
            self._spawn(self._return_leadership(), "leadership of preferred replicas")

    async def end(self) -> None:
        """Stop deciding and sending, also after what is still being decided."""
        self._has_ended = True
        self._channels.close()
        await self._tasks.close()

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Begin work of this term; none begins after it, since nobody would end it."""
        if self._has_ended:
            work.close()
        else:
            self._tasks.spawn(work, name)

    def _send_changes(self, old: MetadataImage, new: MetadataImage) -> None:
        unannounced = self._announcements.begin(old, new)
        self._channels.send(requests_after(self._sender, old, new, self._announcements.withheld), new.brokers)
        if unannounced:
            self._spawn(self._announce_in_the_end(unannounced), "announcement of changes")
        waiting = waiting_to_follow(new) if new.failed_replicas else {}
        if waiting != self._asked_to_follow:
            asked = [replica for replica, epoch in waiting.items() if self._asked_to_follow.get(replica) != epoch]
            self._asked_to_follow = waiting
            self._channels.send(requests_to_follow(self._sender, new, asked), new.brokers)
        if old.configs is not new.configs:
            self._spawn(self._settle_unless_failing(), "elections")  # an unclean election may be allowed now

    async def _announce_in_the_end(self, topics: Collection[TopicId]) -> None:
        await asyncio.sleep(LONGEST_S)
        self._announce(topics)

    def _announce(self, topics: Collection[TopicId]) -> None:
        """Have all brokers learn of new partitions, unless they have."""
        withheld = self._announcements.end(topics)
        self._channels.send(announcements(self._sender, self.image, withheld), self.image.brokers)

    # -- what follows ------------------------------------------------------------------------------------------------

    async def settle(self) -> None:
        """Elect where a leader is needed, end reassignments that are through, and deletions that were begun.

        Raises as `MetadataService.decide`.
        """
        await self.service.see_failures(self._outages.offline)
        await self.service.end_deletions()
        await self.service.decide(self._plan_elections)
        # Not in one plan: a partition may have both, and what is planned changes a node but once.
        await self.service.decide(self._plan_ends)

    def _plan_elections(self, image: MetadataImage) -> Sequence[Command]:
        going = self.service.deletions_begun
        elected = elect_where_needed(
            image,
            self._outages,
            lambda topic: self.service.log_config(topic).unclean_leader_election_enable,
            [name for name in image.topics if name not in going] if going else None,
        )
        for topic_partition, leader, in_sync in elected.unclean:
            log.warning(
                "%s: broker %d leads though it was not in sync, since none of %s is alive: what it lacks is lost",
                topic_partition,
                leader,
                list(in_sync),
            )
        return elected.changes

    def _plan_ends(self, image: MetadataImage) -> Sequence[Command]:
        ended = finish_reassignments(image, self._outages, image.topics.values())
        return [*ended, *forget_eligible(image, self.service.min_in_sync)]

    async def _settle_unless_failing(self) -> None:
        """Settle now, or, if that fails for a reason that passes, as soon as it can be done."""
        if not await self._has_settled() and not self._settles_later:
            self._settles_later = True
            self._spawn(self._settle_later(), "elections, later")

    async def _settle_later(self) -> None:
        is_settled = False
        while not is_settled:
            await asyncio.sleep(RETRY_S)
            is_settled = await self._has_settled()
        self._settles_later = False

    async def _has_settled(self) -> bool:
        """Whether there is nothing left to do, for this controller."""
        try:
            await self.settle()
        except OttlaError as problem:
            log.warning("the controller cannot decide now: %s", problem)
            return self._is_over(problem)
        return True

    def _is_over(self, problem: OttlaError) -> bool:
        over = isinstance(problem, StoreConflict) and problem.path == layout.CONTROLLER_EPOCH_PATH
        if over:
            self._deposed()
        return over

    async def see_brokers(self) -> None:
        """Read the live brokers. A broker with a new epoch was away, and is sent everything again.

        Raises as `settle`.
        """
        nodes = await self._store.read(layout.BROKERS_PATH)
        found = layout.read_image(nodes).brokers
        known = self.image.brokers
        restarted = {broker for broker in found if broker in known and known[broker].epoch != found[broker].epoch}
        gone = set(known) - set(found)
        if gone or restarted:
            log.info("brokers %s are gone", sorted(gone | restarted))
            await self._see({broker: known[broker] for broker in known if broker not in gone | restarted})
        if set(found) - set(known) or restarted:
            log.info("brokers %s have come", sorted((set(found) - set(known)) | restarted))
        await self._see(found)

    @property
    def has_others_that_make_topics(self) -> bool:
        """Whether genuine brokers are here: with ZooKeeper they make internal topics, and those that are created
        automatically, by themselves."""
        return not all(broker.confirms_leadership for broker in self.image.brokers.values())

    async def see_topics(self) -> None:
        """Look for topics that others have made. Raises as `settle`."""
        await self.service.read_anew()
        await self.settle()

    async def see_failed_directories(self) -> None:
        """Find the lost replicas of brokers with failed log directories, by sending those brokers all their replicas.

        A fenced broker needs that to resume, too. Raises as `settle`.
        """
        nodes = await self._store.read(layout.LOG_DIRECTORY_EVENTS_PATH)
        brokers, operations = layout.read_log_directory_failures(nodes)
        for broker_id in sorted(brokers):
            log.info("broker %d reports a change of its log directories, or asks what it leads", broker_id)
            self._channels.send(probe_requests(self._sender, self.image, broker_id), self.image.brokers)
        if operations:
            await self._store.commit(operations)

    async def _see(self, brokers: Mapping[BrokerId, BrokerImage]) -> None:
        if brokers == self.image.brokers:
            return
        back = {
            broker
            for broker, known in brokers.items()
            if broker not in self.image.brokers or self.image.brokers[broker].epoch != known.epoch
        }
        away = set(self.image.brokers) - set(brokers)
        elsewhere = {
            broker
            for broker, known in brokers.items()
            if broker in self.image.brokers and self.image.brokers[broker].endpoints != known.endpoints
        }
        self._silent -= back | away | elsewhere
        silent = _believed(self._silent, brokers)
        fenced = silent - self._outages.silent
        self._outages = Outages(
            self._outages.stopping - back - away,
            frozenset(replica for replica in self._outages.offline if replica[0] not in back),
            silent,
            frozenset(replica for replica in self._outages.full if replica[0] not in back | away),
        )
        await self.service.see_brokers(brokers)
        await self._fence(fenced)
        await self.settle()

    async def _return_leadership(self) -> None:
        while True:
            await asyncio.sleep(self._config.leader_imbalance_check_interval_seconds)
            try:
                await self.service.decide(self._plan_return)
            except OttlaError as problem:
                log.warning("leadership cannot be given back now: %s", problem)
                self._is_over(problem)

    def _plan_return(self, image: MetadataImage) -> Sequence[Command]:
        return return_to_preferred(image, self._outages, self._config.leader_imbalance_per_broker_percentage)

    # -- what brokers say --------------------------------------------------------------------------------------------

    def _answered(self, broker_id: BrokerId, request: LeaderAndIsrRequest, response: LeaderAndIsrResponse) -> None:
        """Replicas that a broker could not open are offline, those in a full log directory are to be replaced while
        others are in sync: others have to lead. What is led from now on is announced."""
        self._announce(self._announcements.answered(broker_id, request))
        failed = {
            (topic.topic_id, error.partition_index): error.error_code
            for topic in response.topics
            for error in topic.partition_errors
        }
        offline, full = set(self._outages.offline), set(self._outages.full)
        has_failed = False
        for topic in request.topic_states:
            for state in topic.partition_states:
                replica = (broker_id, TopicName(topic.topic_name), PartitionId(state.partition_index))
                code = failed.get((topic.topic_id, state.partition_index))
                if code == ErrorCode.KAFKA_STORAGE_ERROR:
                    offline.add(replica)
                    has_failed = True
                else:
                    offline.discard(replica)
                if code == LACKS_ROOM:
                    full.add(replica)
                elif not code:
                    full.discard(replica)
        # A replica known to have failed may have been elected all the same.
        if has_failed or offline != self._outages.offline or full != self._outages.full:
            self._outages = self._outages._replace(offline=frozenset(offline), full=frozenset(full))
            self._spawn(self._settle_unless_failing(), "elections")

    def _listens(self, broker_id: BrokerId, does: bool) -> None:
        """A broker's process has ended, so that others may lead, without waiting for the end of its session; or it is
        there after all."""
        log.info(
            "broker %d %s", broker_id, "can be reached again" if does else "has ended: its address refuses connections"
        )
        self._silent = self._silent - {broker_id} if does else self._silent | {broker_id}
        if does:  # it may not know that it is no longer fenced
            self._channels.send(probe_requests(self._sender, self.image, broker_id), self.image.brokers)
        silent = _believed(self._silent, self.image.brokers)
        if silent != self._outages.silent:
            fenced = silent - self._outages.silent
            self._outages = self._outages._replace(silent=silent)
            self._spawn(self._go_on_without(fenced), "elections without fenced brokers")

    async def _go_on_without(self, fenced: Collection[BrokerId]) -> None:
        await self._fence(fenced)
        await self._settle_unless_failing()

    async def _fence(self, brokers: Collection[BrokerId]) -> None:
        """Fence brokers before others lead their partitions.

        Should such a broker be alive after all, it learns of that first.
        """
        for broker_id in sorted(brokers):
            if broker_id not in self._outages.silent:
                continue  # it has been reached meanwhile
            try:
                await fence(self._store, broker_id, self._epoch_version)
            except OttlaError as problem:
                log.info("%s; broker %d may not know that others lead", problem, broker_id)

    def _check_broker(self, broker_id: BrokerId, epoch: int) -> None:
        known = self.image.brokers.get(broker_id)
        if known is None or epoch not in (-1, known.epoch):
            raise ApiError(ErrorCode.STALE_BROKER_EPOCH, f"broker {broker_id} is not known with epoch {epoch}")

    async def change_in_sync(
        self, broker_id: BrokerId, broker_epoch: int, changes: Sequence[IsrChange]
    ) -> list[OttlaError | None]:
        """Leaders' proposals, answered in the order given. Raises `ApiError` STALE_BROKER_EPOCH, also for a broker that
        names none: it confirms that the process leads that was elected, and not one that was started since."""
        known = self.image.brokers.get(broker_id)
        if known is None or broker_epoch != known.epoch:
            raise ApiError(ErrorCode.STALE_BROKER_EPOCH, f"broker {broker_id} is not known with epoch {broker_epoch}")
        answers = await self.service.change_in_sync(changes, self._outages)
        if any(answer is None for answer in answers) and self.service.may_settle(changes):
            await self._settle_unless_failing()
        return answers

    async def let_stop(self, broker_id: BrokerId, broker_epoch: int) -> list[TopicPartition]:
        """A broker wants to stop: move its leadership; returns the partitions without another leader.

        Raises `ApiError` STALE_BROKER_EPOCH, `StoreUnavailable`, `StoreConflict`.
        """
        self._check_broker(broker_id, broker_epoch)
        self._outages = self._outages._replace(stopping=self._outages.stopping | {broker_id})
        await self.settle()
        self._channels.send(release_requests(self._sender, self.image, broker_id), self.image.brokers)
        return [TopicPartition(topic.name, part.partition) for topic, part in led_by(self.image, broker_id)]

    async def allocate_producer_ids(self, broker_id: BrokerId, broker_epoch: int) -> layout.ProducerIdBlock:
        """A block for a broker. Raises `ApiError` STALE_BROKER_EPOCH, and what `allocate_producer_ids` does."""
        self._check_broker(broker_id, broker_epoch)
        return await allocate_producer_ids(self._store, broker_id)

    async def reassign(
        self, moves: Sequence[tuple[TopicPartition, Sequence[int] | None]], *, allow_factor_change: bool = True
    ) -> list[OttlaError | None]:
        """Begin or cancel reassignments, each partition at most once; answered in the order given."""
        answers = await self.service.reassign(moves, allow_factor_change=allow_factor_change)
        await self._settle_unless_failing()
        return answers


def _believed(silent: frozenset[BrokerId], brokers: Mapping[BrokerId, BrokerImage]) -> frozenset[BrokerId]:
    """Return the silent brokers if fewer than half of all are silent. Otherwise this broker is more likely cut off
    itself, and the sessions decide. They also decide for genuine brokers, which would not learn that they are fenced.
    """
    there = silent & brokers.keys()
    if 2 * len(there) >= len(brokers):
        return frozenset()
    return frozenset(broker_id for broker_id in there if brokers[broker_id].confirms_leadership)
