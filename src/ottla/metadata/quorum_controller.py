"""The active controller of a quorum: what this node does while it leads the metadata log.

    leads, all earlier records replayed ──▶ a term: bootstrap or repair the log, then decide
    registrations, heartbeats, the clock    |
    leaders' in-sync sets, directories      |──▶ plan (pure) ──▶ records ──▶ committed ──▶ image
    requests of administrators              |
    another leader, or none  ──▶ the term is over: every request is answered with NOT_CONTROLLER

Brokers follow the log; the controller sends them nothing. Decisions are made one after the other, each on the image
that the one before left. Heartbeats that change nothing wait for none of them, unless it is not certain that this node
still leads. Source: KIP-631, KIP-595; Kafka 4.3, `QuorumController`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final

from ottla.clock import Clock
from ottla.cluster.broker_registrations import (
    changed_directories,
    check_epoch,
    fencing,
    plan_controller,
    plan_registration,
    stopping,
)
from ottla.cluster.broker_sessions import BrokerSessions, Heartbeat, Standing, doubt_ms
from ottla.cluster.commands import Command
from ottla.cluster.departures import forget_eligible, without_unclean
from ottla.cluster.elections import Outages, elect_where_needed, may_hand_over, return_to_preferred
from ottla.cluster.image import NO_LEADER, MetadataImage
from ottla.cluster.isr_changes import IsrChange
from ottla.cluster.metadata_log.levels import CONTROLLER_REGISTRATIONS_SINCE, CORDONED_SINCE, DIRECTORIES_SINCE
from ottla.cluster.metadata_log.registrations import BrokerRegistration, registered_broker
from ottla.cluster.reassignments import finish_reassignments
from ottla.cluster.replica_directories import plan_assignments
from ottla.config.broker import BrokerConfig
from ottla.errors import ApiError, ErrorCode, OttlaError
from ottla.ids import BrokerId, TopicPartition
from ottla.metadata.policies import Policies
from ottla.metadata.quorum.node import LeaderAndEpoch, NotQuorumLeader, QuorumNode
from ottla.metadata.quorum_bootstrap import records_of_new_term
from ottla.metadata.quorum_decisions import QuorumDecisions
from ottla.metadata.quorum_keeper import NO_TERM, QuorumKeeper
from ottla.metadata.quorum_replay import QuorumReplay
from ottla.metadata.store.layout import ProducerIdBlock
from ottla.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
from ottla.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from ottla.protocol.messages.broker_registration import BrokerRegistrationRequest
from ottla.protocol.messages.controller_registration import ControllerRegistrationRequest
from ottla.protocol.metadata_records import BrokerRegistrationChangeRecord, UnregisterBrokerRecord
from ottla.protocol.schema import Message
from ottla.slices import Slices
from ottla.tasks import Tasks

log = logging.getLogger(__name__)

FENCING_POLL_S: Final = 1.0
"""Longest time between two looks for stale brokers; a shorter session is looked at four times."""
SETTLE_EVERY_S: Final = 300.0
"""As `unclean.leader.election.interval.ms` of Kafka: looks for partitions that could have a leader."""


TakeOver = Callable[[int], Awaitable[Sequence[Message]]]
"""Takes metadata over that is kept elsewhere, in the epoch of this node's term: its records, once no other node changes
it."""


class QuorumController:
    """This node's part as a controller. On the loop's thread; `close` ends it."""

    def __init__(
        self,
        node: QuorumNode,
        replay: QuorumReplay,
        config: BrokerConfig,
        clock: Clock,
        *,
        bootstrap: Sequence[bytes] = (),
        take_over: TakeOver | None = None,
        policies: Policies | None = None,
    ) -> None:
        """`bootstrap`: framed records that a new cluster begins with, `metadata.version` among them; `take_over` gives
        them where they are still elsewhere."""
        self._node = node
        self._replay = replay
        self._config = config
        self._now = clock.boottime
        self._bootstrap = tuple(bootstrap)
        self._take_over = take_over
        self._slices = Slices(clock)
        self._keeper = QuorumKeeper(node, replay, self._slices, self._now)
        self.decisions = QuorumDecisions(
            self._keeper, replay, config, self._slices, outages=lambda: self.outages, policies=policies
        )
        self.session_timeout_s = config.broker_session_timeout_ms / 1000
        self._doubt_s = doubt_ms(config) / 1000
        self.sessions = BrokerSessions(self.session_timeout_s)
        """The brokers' sessions of this term, if there is one."""
        self.ended: set[BrokerId] = set()
        """Brokers that are fenced since their processes have ended."""
        self._term: Tasks | None = None
        self._settles_soon = False
        self._tasks = Tasks()

    def start(self) -> None:
        """Take terms from now on. The replay is registered with the node afterwards."""
        self._replay.on_leader(self._leader_changed)

    async def close(self) -> None:
        """End the term, if there is one."""
        self._end_term()
        await self._tasks.close()

    @property
    def image(self) -> MetadataImage:
        """The metadata as last committed."""
        return self._replay.image

    @property
    def is_active(self) -> bool:
        """Whether this node is the active controller."""
        return self.decisions.is_active

    @property
    def outages(self) -> Outages:
        """Brokers in controlled shutdown, and replicas in failed or full directories."""
        return self._outages(self._stopping())

    def _outages(self, stopping: frozenset[BrokerId]) -> Outages:
        full = self.image.full_replicas
        return Outages(stopping, self.image.failed_replicas - full, full=full)

    def _stopping(self) -> frozenset[BrokerId]:
        brokers = self._replay.state.brokers.values()
        return frozenset(each.broker_id for each in brokers if each.in_controlled_shutdown and not each.fenced)

    # -- terms -------------------------------------------------------------------------------------------------------

    def _leader_changed(self, leader: LeaderAndEpoch) -> None:
        self._end_term()
        if leader.leader_id == self._node.node_id:
            term = self._term = Tasks()
            term.spawn(
                self._guarded(lambda: self._begin(term, leader.epoch), leader.epoch), "beginning of a controller's term"
            )

    def _end_term(self) -> None:
        term, self._term = self._term, None
        if term is None:
            return
        if self._keeper.epoch != NO_TERM:
            log.info("node %d is not the active controller any longer", self._node.node_id)
        self._keeper.epoch = NO_TERM
        self._tasks.spawn(term.close(), "end of a controller's term")

    async def _guarded(self, work: Callable[[], Coroutine[Any, Any, None]], epoch: int) -> None:
        """Give up the term if its work fails, so that another controller takes over."""
        try:
            await work()
        except NotQuorumLeader as over:
            log.info("the term of epoch %d is over: %s", epoch, over)
        except OttlaError as problem:
            log.error("the controller cannot go on, and resigns: %s", problem)
            self._node.resign(epoch)
        except Exception:
            log.exception("the controller cannot go on, and resigns")
            self._node.resign(epoch)

    async def _begin(self, term: Tasks, epoch: int) -> None:
        taken_over = await self._taken_over(epoch)
        async with self.decisions.changing:
            if self._term is not term:
                return  # another leader has been elected meanwhile
            first, level = taken_over or records_of_new_term(
                self._replay.state,
                self._bootstrap,
                is_new=self._replay.offset < 0,
                min_insync=self._config.min_insync_replicas,
            )
            self._keeper.begin_term(epoch)
            if first:
                await self._keeper.append(first, level=level)
            brokers = self._replay.state.brokers.values()
            known = ((each.broker_id, each.fenced, each.in_controlled_shutdown) for each in brokers)
            self.sessions.begin(known, self._now(), self._keeper.next_offset)
            self.ended.clear()
            self._settles_soon = False
        log.info("node %d is the active controller in epoch %d", self._node.node_id, epoch)
        await self.settle()
        for work, name in (
            (self._fence_stale, "fencing of brokers"),
            (self._settle_by_the_clock, "elections by the clock"),
            (self._show_progress, "records that change nothing"),
            (self._return_leadership, "leadership of preferred replicas"),
        ):
            term.spawn(self._guarded(work, epoch), name)

    async def _taken_over(self, epoch: int) -> tuple[list[Message], int | None] | None:
        """The first records of the log, if they are elsewhere still. No other node appends meanwhile.

        They are made in a thread: with many partitions that takes longer than voters wait for their leader.
        """
        if self._take_over is None or self._replay.state.metadata_version:
            return None
        records = await self._take_over(epoch)
        make = partial(records_of_new_term, is_new=True, min_insync=self._config.min_insync_replicas)
        return await asyncio.get_running_loop().run_in_executor(None, make, self._replay.state, records)

    # -- what follows ------------------------------------------------------------------------------------------------

    async def settle(self) -> None:
        """Elect where a leader is needed, and end reassignments that are through. Raises `NotQuorumLeader`."""
        await self.decisions.decide(lambda image: self._elected(image, self.outages))
        # Not in one plan: a partition may have both, and its epoch grows with each.
        await self.decisions.decide(self._plan_ends)

    def _settle_soon(self) -> None:
        """Settle in the background; what comes until that begins is settled together."""
        term, epoch = self._term, self._keeper.epoch
        if term is not None and epoch != NO_TERM and not self._settles_soon:
            self._settles_soon = True
            term.spawn(self._guarded(self._settle_together, epoch), "elections")

    async def _settle_together(self) -> None:
        async with self.decisions.changing:  # whatever is being decided now is settled, too
            self._settles_soon = False
        await self.settle()

    def _elected(self, image: MetadataImage, outages: Outages) -> Sequence[Command]:
        elected = elect_where_needed(
            image, outages, lambda topic: self.decisions.log_config(topic).unclean_leader_election_enable
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
        ended = finish_reassignments(image, self.outages, image.topics.values())
        return [*ended, *forget_eligible(image, self.decisions.min_in_sync)]

    async def _settle_by_the_clock(self) -> None:
        while True:
            await asyncio.sleep(SETTLE_EVERY_S)
            await self.settle()

    async def _return_leadership(self) -> None:
        while True:
            await asyncio.sleep(self.decisions.config.leader_imbalance_check_interval_seconds)
            if self.decisions.config.auto_leader_rebalance_enable:
                await self.decisions.decide(self._plan_return)

    def _plan_return(self, image: MetadataImage) -> Sequence[Command]:
        return return_to_preferred(image, self.outages, self.decisions.config.leader_imbalance_per_broker_percentage)

    async def _show_progress(self) -> None:
        """Append a record when nothing else is, so that followers and brokers see the log advance."""
        idle_s = self._config.metadata_max_idle_interval_ms / 1000
        while idle_s > 0:
            await asyncio.sleep(idle_s)
            await self.decisions.confirm(self._now() - idle_s)

    async def _fence_stale(self) -> None:
        poll_s = min(FENCING_POLL_S, self.session_timeout_s / 4)
        while True:
            asleep = self._now()
            deadline = self.sessions.next_deadline()
            await asyncio.sleep(poll_s if deadline is None else min(poll_s, max(0.01, deadline - asleep)))
            if self._now() - asleep > 2 * poll_s:
                # This process was held up, and brokers' heartbeats wait to be read.
                await asyncio.sleep(poll_s)
            for broker_id in self.sessions.stale(self._now()):
                await self._fence(broker_id)

    async def _fence(self, broker_id: BrokerId) -> None:
        async with self.decisions.changing:
            if self.sessions.is_valid(broker_id, self._now()):
                return  # its heartbeat came while another decision was made
            # Before the commit: the answer to a heartbeat that comes meanwhile must not let its broker lead on.
            self.sessions.fence(broker_id)
            broker = self._replay.state.brokers.get(broker_id)
            if broker is not None and not broker.fenced:
                log.info("broker %d is fenced: no heartbeat has come for %.1f s", broker_id, self.session_timeout_s)
                await self._commit_without(broker, [fencing(broker, fenced=True)])
        await self.settle()

    async def fence_ended(self, broker_id: BrokerId, epoch: int) -> None:
        """Fence a broker whose process has ended, unless half of the brokers were to be fenced so.

        Then this node is more likely cut off itself, and the sessions decide.
        """
        if not self.is_active or 2 * (len(self.ended) + 1) >= len(self.image.brokers) + len(self.ended):
            return
        try:
            async with self.decisions.changing:
                self.decisions.check_active()
                broker = self._replay.state.brokers.get(broker_id)
                if broker is None or broker.fenced or broker.epoch != epoch:
                    return
                log.info("broker %d is fenced: its process has ended", broker_id)
                self.sessions.fence(broker_id)
                await self._commit_without(broker, [fencing(broker, fenced=True)])
                self.ended.add(broker_id)
        except OttlaError as problem:
            log.info("broker %d, whose process has ended, is not fenced here: %s", broker_id, problem)
            return
        self._settle_soon()

    async def _commit_without(self, broker: BrokerRegistration, records: Sequence[Message]) -> None:
        """Commit records after which a broker leads nothing; the caller holds `changing`."""
        outages = self._outages(self._stopping() - {broker.broker_id})
        alive = {key: image for key, image in self.image.brokers.items() if key != broker.broker_id}
        await self._commit_brokers(records, self.image._replace(brokers=alive), outages)

    async def _commit_brokers(self, records: Sequence[Message], after: MetadataImage, outages: Outages) -> None:
        """Commit changes of registrations, with the elections that follow from them."""
        await self.decisions.commit_records(records, self._elected(after, outages), outages=outages)

    # -- brokers -----------------------------------------------------------------------------------------------------

    def _broker(self, broker_id: int, epoch: int) -> BrokerRegistration:
        """Raises `NotController`, `ApiError` STALE_BROKER_EPOCH."""
        self.decisions.check_active()
        return check_epoch(self._replay.state.brokers, broker_id, epoch)

    async def register_broker(self, request: BrokerRegistrationRequest) -> int:
        """Register a broker; returns its epoch. Raises as `plan_registration`, `NotController`, `NotQuorumLeader`."""
        broker_id = BrokerId(request.broker_id)
        async with self.decisions.changing:
            self.decisions.check_active()
            state = self._replay.state
            known = state.brokers.get(broker_id)
            record = plan_registration(
                self.image.cluster_id,
                state.brokers,
                state.features,
                request,
                is_alive=self.sessions.is_valid(broker_id, self._now()),
                epoch=self._keeper.next_offset,
            )
            is_other = known is None or known.incarnation_id != request.incarnation_id
            if is_other and (known is None or request.previous_broker_epoch != known.epoch):
                if known is not None and not known.fenced:  # to leave the in-sync sets may make it eligible
                    await self._commit_without(known, [fencing(known, fenced=True)])
                unclean = without_unclean(self.image, broker_id, state.topics.lost_by(registered_broker(record)))
                await self.decisions.commit_records([], unclean, notes_departures=False)
                record.broker_epoch = self._keeper.next_offset
            if known is not None and is_other:
                await self._commit_without(known, [record])
            else:
                await self.decisions.commit_records([record])
            self.sessions.register(broker_id, self._now(), is_fenced=record.fenced)
            self.ended.discard(broker_id)
        log.info("broker %d is registered in epoch %d", broker_id, record.broker_epoch)
        return record.broker_epoch

    async def heartbeat(self, request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
        """Take a heartbeat. Raises `NotController`, `ApiError` STALE_BROKER_EPOCH, `NotQuorumLeader`."""
        await self.decisions.confirm(self._now() - self._doubt_s)
        broker = self._broker(request.broker_id, request.broker_epoch)
        change = self._changed_directories(broker, request)
        now, after = self._standing(broker, request)
        if now is not after or change is not None:
            async with self.decisions.changing:
                broker = self._broker(request.broker_id, request.broker_epoch)
                after = await self._change_standing(broker, request)
            if change is not None or after.is_fenced:
                self._settle_soon()
        self.sessions.touch(broker.broker_id, _heartbeat(request), self._now(), is_fenced=after.is_fenced)
        return BrokerHeartbeatResponse(
            is_caught_up=request.current_metadata_offset >= broker.epoch,
            is_fenced=after.is_fenced,
            should_shut_down=after is Standing.SHUTDOWN_NOW,
        )

    def _standing(self, broker: BrokerRegistration, request: BrokerHeartbeatRequest) -> tuple[Standing, Standing]:
        return self.sessions.after(
            broker.broker_id,
            _heartbeat(request),
            broker.epoch,
            lambda: may_hand_over(self.image, self.outages, broker.broker_id),
        )

    def _changed_directories(
        self, broker: BrokerRegistration, request: BrokerHeartbeatRequest
    ) -> BrokerRegistrationChangeRecord | None:
        level = self._replay.state.metadata_version
        return changed_directories(
            broker,
            request.offline_log_dirs if level >= DIRECTORIES_SINCE else (),
            request.cordoned_log_dirs if level >= CORDONED_SINCE else None,
        )

    async def _change_standing(self, broker: BrokerRegistration, request: BrokerHeartbeatRequest) -> Standing:
        """Commit what a heartbeat changes, if it still does; the caller holds `changing`."""
        broker_id = broker.broker_id
        change = self._changed_directories(broker, request)
        if change is not None:
            if change.log_dirs:
                log.warning("broker %d has lost log directories; it has %d left", broker_id, len(change.log_dirs))
            await self.decisions.commit_records([change])
            broker = self._replay.state.brokers[broker_id]
        now, after = self._standing(broker, request)
        if now is after:
            return after
        if after.is_fenced:
            if not broker.fenced:
                log.info("broker %d is fenced%s", broker_id, " and stops" if after is Standing.SHUTDOWN_NOW else "")
                await self._commit_without(broker, [fencing(broker, fenced=True)])
            self.sessions.fence(broker_id)
        elif after is Standing.UNFENCED:
            log.info("broker %d is unfenced", broker_id)
            unfenced = broker._replace(fenced=False)
            alive = self.image._replace(brokers={**self.image.brokers, broker_id: unfenced.image()})
            await self._commit_brokers([fencing(broker, fenced=False)], alive, self.outages)
            self.ended.discard(broker_id)
        else:
            log.info("broker %d is in controlled shutdown", broker_id)
            outages = self._outages(self._stopping() | {broker_id})
            records = [] if broker.in_controlled_shutdown else [stopping(broker)]
            await self._commit_brokers(records, self.image, outages)
            self.sessions.begin_shutdown(broker_id, self._replay.offset)
        return after

    async def unregister_broker(self, broker_id: int) -> None:
        """Forget a broker. Raises `ApiError` BROKER_ID_NOT_REGISTERED, `NotController`, `NotQuorumLeader`."""
        async with self.decisions.changing:
            self.decisions.check_active()
            broker = self._replay.state.brokers.get(broker_id)
            if broker is None:
                raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {broker_id} is not currently registered")
            record = UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=broker.epoch)
            await self._commit_without(broker, [record])
            self.sessions.remove(BrokerId(broker_id))
            self.ended.discard(BrokerId(broker_id))
        self._settle_soon()

    async def register_controller(self, request: ControllerRegistrationRequest) -> None:
        """Register a controller. Raises as `plan_controller`, `NotController`, `NotQuorumLeader`."""
        async with self.decisions.changing:
            self.decisions.check_active()
            state = self._replay.state
            if state.metadata_version < CONTROLLER_REGISTRATIONS_SINCE:
                raise ApiError(
                    ErrorCode.UNSUPPORTED_VERSION,
                    "The current MetadataVersion is too old to support controller registrations.",
                )
            await self.decisions.commit_records([plan_controller(state.controllers, state.features, request)])

    async def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> ProducerIdBlock:
        """A block for a broker. Raises `ApiError` STALE_BROKER_EPOCH, and what the keeper does."""
        async with self.decisions.changing:
            broker = self._broker(broker_id, broker_epoch)
            return await self._keeper.allocate_producer_ids(broker.broker_id)

    # -- replicas ----------------------------------------------------------------------------------------------------

    async def change_in_sync(
        self, broker_id: BrokerId, broker_epoch: int, changes: Sequence[IsrChange]
    ) -> list[OttlaError | None]:
        """Change in-sync replicas as a leader proposes, each partition at most once; answered in the order given.

        Raises `NotController`, `ApiError` STALE_BROKER_EPOCH.
        """
        self._broker(broker_id, broker_epoch)
        answers = await self.decisions.change_in_sync(changes, self.outages)
        if any(answer is None for answer in answers) and self.decisions.may_settle(changes):
            self._settle_soon()
        return answers

    async def assign_directories(self, request: AssignReplicasToDirsRequest) -> AssignReplicasToDirsResponse:
        """Note which directories hold replicas. Raises `NotController`, `ApiError` STALE_BROKER_EPOCH."""
        async with self.decisions.changing:
            broker = self._broker(request.broker_id, request.broker_epoch)
            records, response = await self._slices.run(plan_assignments(self._replay.state.topics.states, request))
            await self.decisions.commit_records(records)
        topics = self._replay.state.topics.states
        if records and (
            any(not broker.is_online(directory.id) for directory in request.directories)
            or any(topics[each.topic_id].partitions[each.partition_id].image.leader == NO_LEADER for each in records)
        ):
            self._settle_soon()
        return response

    async def reassign(
        self, moves: Sequence[tuple[TopicPartition, Sequence[int] | None]], *, allow_factor_change: bool = True
    ) -> list[OttlaError | None]:
        """Begin or cancel reassignments, each partition at most once; answered in the order given."""
        answers = await self.decisions.reassign(moves, allow_factor_change=allow_factor_change)
        if any(answer is None for answer in answers):
            self._settle_soon()
        return answers


def _heartbeat(request: BrokerHeartbeatRequest) -> Heartbeat:
    return Heartbeat(request.current_metadata_offset, request.want_fence, request.want_shut_down)
