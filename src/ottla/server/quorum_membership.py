"""A broker's part in a cluster with a quorum of controllers: it registers, follows the quorum's log, and hands over.

join    register -> follow the log up to the registration -> hold the log's partitions -> be unfenced
leave   heartbeats that ask to stop, until others lead -> stop copying -> end

No controller sends requests: each new image is compared with the one before, and this broker derives from the two what
a controller with ZooKeeper would have sent it, so that its replicas follow by the same code.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from ottla.client.errors import BrokerUnavailable
from ottla.client.sockets import Connect
from ottla.cluster.controller_requests import OwnChanges, Sender, own_changes
from ottla.cluster.image import SECURITY_PROTOCOL_CODES, BrokerImage, MetadataImage
from ottla.cluster.metadata_log.levels import CORDONED_SINCE, RANGES
from ottla.cluster.metadata_log.registrations import CONFIRMS_LEADERSHIP
from ottla.errors import ApiError, ErrorCode
from ottla.ids import BrokerId
from ottla.log.broker_epochs import UNKNOWN_EPOCH
from ottla.log.meta_properties import directory_uuid
from ottla.metadata.broker_lifecycle import BrokerLifecycle
from ottla.metadata.controller_channel import ControllerChannel, ControllerConnections
from ottla.metadata.quorum.node import QuorumNode
from ottla.metadata.quorum_metadata import QuorumMetadata
from ottla.metadata.registered_brokers import RegisteredBrokers
from ottla.protocol.api import ApiKey
from ottla.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from ottla.protocol.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener
from ottla.protocol.schema import Message
from ottla.server.cluster_member import HAND_OVER_S, ClusterMember
from ottla.server.directory_assignments import AFTER_A_MOVE_S, DirectoryAssignments
from ottla.server.forwarding import Forwarder
from ottla.tasks import supervised

if TYPE_CHECKING:
    from ottla.clock import Clock
    from ottla.config.broker import BrokerConfig
    from ottla.log.directories import LogDirectories
    from ottla.replication.manager import ReplicaManager
    from ottla.replication.partition import Partition
    from ottla.server.routing import Handler

log = logging.getLogger(__name__)

HAND_OVER_ALONE_S: Final = 1.0
"""How long it waits where no other broker is left to lead: the controllers may be gone, too."""
NO_CONTROLLER: Final = BrokerId(-1)
PRODUCER_IDS_VERSION: Final = 0
LOOK_AGAIN_S: Final = 0.5


class QuorumMembership(ClusterMember):
    """The membership of one broker. On the loop's thread."""

    coordinator = "the quorum of controllers"

    def __init__(
        self,
        node: QuorumNode,
        metadata: QuorumMetadata,
        registered_brokers: RegisteredBrokers,
        replicas: "ReplicaManager",
        config: "BrokerConfig",
        clock: "Clock",
        loop: asyncio.AbstractEventLoop,
        connect: Connect,
        connect_controller: Connect,
        directories: "LogDirectories",
        stop_broker: Callable[[str], None],
        moved_as: UUID | None,
    ) -> None:
        """`connect` reaches other brokers, and `connect_controller` the controllers, as their listeners want it;
        `stop_broker` is called with the reason when this broker cannot go on; `moved_as` is as for
        `BrokerLifecycle`."""
        self.metadata = metadata
        self._node = node
        self._directories = directories
        self._endpoints: Mapping[str, tuple[str, int]] = {}
        name = f"broker-{config.node_id}"

        def open_channel() -> ControllerChannel:
            return ControllerChannel(name, node.leader_endpoint, connect_controller, loop)

        self._beats = open_channel()
        self.controller = ControllerConnections(open_channel)
        """Where requests for the active controller go."""
        self._forwarding = ControllerConnections(open_channel)
        self._forwarder = Forwarder(self._forwarding, metadata)
        self.lifecycle = BrokerLifecycle(
            config,
            self._beats,
            loop,
            boottime=clock.boottime,
            registration=self._registration,
            registered=directories.note_broker_epoch,
            offset=lambda: metadata.offset,
            failed_directories=self._failed_directories,
            cordoned_directories=self._cordoned_directories,
            stop_broker=stop_broker,
            moved_as=moved_as,
        )
        super().__init__(
            metadata,
            registered_brokers,
            replicas,
            config,
            clock,
            loop,
            connect,
            directories,
            stop_broker,
            broker_epoch=self._epoch,
            knows_settings_of=lambda topic_id: True,
        )
        self.leadership_lease: BrokerLifecycle = self.lifecycle
        replicas.holds_session = self.lifecycle.holds
        replicas.in_sync_sets_are_shown = True
        replicas.only_in_sync_may_lead = self._only_in_sync_may_lead
        metadata.create_at_controller = self.create_at_controller
        metadata.allocate_producer_ids = self._allocate_producer_ids
        wait_s = 0.0 if moved_as is None else AFTER_A_MOVE_S
        self._assignments = DirectoryAssignments(
            metadata, replicas, directories, self.ask_controller, self._epoch, wait_s=wait_s
        )
        self._image_changed = asyncio.Event()
        self._has_followed = asyncio.Event()
        self._following: asyncio.Task[None] | None = None
        metadata.subscribe(self._see)

    @property
    def kraft_version(self) -> int:
        """See `ClusterMember`."""
        return self._node.kraft_version

    def _epoch(self) -> int:
        return self.lifecycle.broker_epoch

    # -- coming and going --------------------------------------------------------------------------------------------

    async def join(self, endpoints: Mapping[str, tuple[str, int]]) -> None:
        """Returns when the controller has unfenced this broker, or takes long to.

        Raises `ApiError` with the reason why it cannot register.
        """
        self._endpoints = endpoints
        await self.registered_brokers.read()
        await asyncio.get_running_loop().run_in_executor(
            self._replicas.threads.checkpoints, self._directories.note_incarnation, self.lifecycle.incarnation_id
        )
        await self.lifecycle.register()
        self.lifecycle.start()
        timeout_s = self._config.initial_broker_registration_timeout_ms / 1000
        try:
            async with asyncio.timeout(timeout_s):
                await self._become_part()
        except TimeoutError:
            log.warning(
                "broker %d is registered, but the controllers have not unfenced it within %.0f s; it serves what it "
                "knows until they do",
                self._config.node_id,
                timeout_s,
            )

    async def _become_part(self) -> None:
        epoch = self.lifecycle.broker_epoch
        await self.metadata.until_offset(epoch)
        await self.lifecycle.until(lambda: self.lifecycle.is_caught_up)
        self.metadata.caught_up()
        self._following = supervised(self._loop, self._follow(), "following the metadata log")
        self._image_changed.set()
        await self._has_followed.wait()
        self.lifecycle.wants_fence = False
        self.lifecycle.hurry()
        self._tasks.spawn(self._drop_out_of_sync_followers(), "checks of in-sync replicas")
        await self.lifecycle.until(lambda: not self.lifecycle.is_fenced)
        # Until the log has it, too, this broker would not name itself among the living ones.
        await self.metadata.until(lambda: self._config.node_id in self.metadata.image.brokers, HAND_OVER_S)

    async def hand_over(self) -> None:
        """Ask the controller for permission to stop, and follow its log until others lead: controlled shutdown.

        Nobody can lead in its place while no controller answers: it waits for an answer for `HAND_OVER_S` at most.
        """
        config, lifecycle = self._config, self.lifecycle
        if not config.controlled_shutdown_enable or lifecycle.broker_epoch < 0 or self._following is None:
            return
        is_alone = self.metadata.image.brokers.keys() <= {config.node_id}
        began, longest_s = self._loop.time(), HAND_OVER_ALONE_S if is_alone else self._hand_over_s()

        def may_stop() -> bool:
            """Looked at now, and whenever a controller answers."""
            limit.reschedule(min(began + longest_s, self._loop.time() + HAND_OVER_S))
            return lifecycle.may_shut_down

        lifecycle.wants_shut_down = True
        lifecycle.hurry()
        try:
            async with asyncio.timeout(None) as limit:
                await lifecycle.until(may_stop)
        except TimeoutError:
            log.warning(
                "this broker stops without having handed over all that it leads: no controller has let it stop within "
                "%.0f s",
                self._loop.time() - began,
            )
        else:
            log.info("everything that this broker led is led by others")

    async def leave(self) -> None:
        await self.lifecycle.close()
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait([self._following])
        await self._assignments.close()
        await self._close_shared()
        await self.registered_brokers.close()
        for channel in (self._beats, self.controller, self._forwarding):
            channel.close()
        self._close_peers()

    # -- what the controllers learn ----------------------------------------------------------------------------------

    def _registration(self, incarnation_id: UUID) -> BrokerRegistrationRequest:
        protocols = self.metadata.config.security_protocols
        features = {**RANGES, CONFIRMS_LEADERSHIP: (0, 1)}
        return BrokerRegistrationRequest(
            broker_id=self._config.node_id,
            cluster_id=self.metadata.image.cluster_id,
            incarnation_id=incarnation_id,
            listeners=[
                Listener(
                    name=name,
                    host=host,
                    port=port,
                    security_protocol=SECURITY_PROTOCOL_CODES[protocols.get(name, "PLAINTEXT")],
                )
                for name, (host, port) in self._endpoints.items()
            ],
            features=[
                Feature(name=name, min_supported_version=lowest, max_supported_version=highest)
                for name, (lowest, highest) in features.items()
            ],
            rack=self._config.broker_rack,
            log_dirs=[directory_uuid(directory.directory_id) for directory in self._directories.online],
            previous_broker_epoch=self._previous_epoch(),
        )

    def _previous_epoch(self) -> int:
        """The epoch in which this broker was registered last, if nothing was lost since.

        A process that ended before it noted its epoch stands in the log, and in the directories of which none was lost.
        """
        noted = self._directories.previous_broker_epoch
        known = self.metadata.state.brokers.get(self._config.node_id)
        if noted == UNKNOWN_EPOCH or known is None or not self._directories.were_had_by(known.incarnation_id):
            return noted
        return max(noted, known.epoch)

    def _failed_directories(self) -> list[UUID]:
        return [
            directory_uuid(directory.directory_id)
            for directory in self._directories.directories
            if directory.offline_reason is not None and directory.directory_id
        ]

    def _cordoned_directories(self) -> list[UUID] | None:
        if self.metadata.state.metadata_version < CORDONED_SINCE or not self.metadata.is_known:
            return None
        return [
            directory_uuid(directory.directory_id)
            for directory in self._directories.online
            if directory.path in self._directories.cordoned
        ]

    def _only_in_sync_may_lead(self, partition: "Partition") -> bool:
        """Whether the log, in the state that the leader goes by, has no eligible replica. From that state on only those
        become eligible that leave the in-sync set."""
        shown = self.metadata.image.partition(partition.topic_partition)
        return shown is not None and shown.partition_epoch == partition.partition_epoch and not shown.eligible

    def _report_failed_directory(self) -> None:
        self.lifecycle.hurry()
        self._assignments.look()  # it may be full only, or no longer
        self.roles.refused.hurry()
        self._image_changed.set()

    async def ask_controller(self, request: Message, version: int, *, timeout_s: float | None = None) -> Any:
        return await self.controller.ask(
            request, version, timeout_s=timeout_s or self._config.request_timeout_ms / 1000
        )

    def forwards(self, api_key: ApiKey, own: Callable[[], "Handler"]) -> "Handler | None":
        return self._forwarder.handler(api_key, own)

    async def _allocate_producer_ids(self) -> range:
        request = AllocateProducerIdsRequest(broker_id=self._config.node_id, broker_epoch=self._epoch())
        try:
            answer = await self.ask_controller(request, PRODUCER_IDS_VERSION)
        except BrokerUnavailable as problem:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"no producer id can be had: {problem}") from problem
        if answer.error_code:
            code = ErrorCode(answer.error_code)
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"no producer id can be had: {code.name}")
        return range(answer.producer_id_start, answer.producer_id_start + answer.producer_id_len)

    # -- the log -----------------------------------------------------------------------------------------------------

    def _see(self, old: MetadataImage, new: MetadataImage) -> None:
        if old.brokers is not new.brokers:
            self.registered_brokers.store_changed()
        if old.configs is not new.configs:
            self.lifecycle.hurry()  # directories may be cordoned by now
        if old.topics is not new.topics:
            self._image_changed.set()
        if old.features != new.features and self._has_followed.is_set():
            self._assignments.look()  # the log has no directories below some level of metadata.version

    async def _follow(self) -> None:
        """Have the replicas follow each image; changes that come meanwhile are taken together."""
        applied: MetadataImage | None = None
        reported: frozenset[BrokerId] = frozenset()
        while True:
            await self._until_there_is_something_to_do()
            image, stopping = self.metadata.image, self.metadata.stopping
            broker_id = self._config.node_id
            own = image.brokers.get(broker_id) or BrokerImage(broker_id, self._epoch(), None, {})
            sender = Sender(NO_CONTROLLER, 0, self._config.inter_broker_listener)
            changes = own_changes(
                sender,
                own,
                applied or image,
                image,
                everything=applied is None,
                lost=self._assignments.lost,
                due=self._refused_and_due(),
                is_stopping=self.lifecycle.wants_shut_down,
            )
            try:
                with self._fetchers.held() if applied is None else nullcontext():
                    await self._take(changes)
            except Exception:  # else this broker would send heartbeats for good, and lead what others lead
                log.exception("the replicas of this broker could not follow the metadata log; they try again")
                self._image_changed.set()
                await asyncio.sleep(LOOK_AGAIN_S)
                continue
            applied = image
            self._has_followed.set()
            if stopping != reported:
                reported = stopping
                self.lifecycle.hurry()  # those may not stop before the controller knows that this broker has read of it

    async def _until_there_is_something_to_do(self) -> None:
        """Until the image has changed, or a replica is due that could not be made before."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self.roles.refused.wait_s(self._loop.time()) if self._has_room() else None):
                await self._image_changed.wait()
        self._image_changed.clear()

    def _has_room(self) -> bool:
        """Whether new replicas may find room: not all log directories are known to be full."""
        return not all(directory.is_full for directory in self._directories.online)

    def _refused_and_due(self) -> Collection[tuple[UUID, int]]:
        """The replicas to try again that could not be made for lack of room."""
        return self.roles.refused.take_due(self._loop.time()) if self._has_room() else ()

    async def _take(self, changes: OwnChanges) -> None:
        """Lead and follow, then let go."""
        request, stop, partitions = changes
        if request is not None:
            self._assignments.mark_new(request)
            with self.roles.expecting(request):
                outcomes = await self.roles.take(request)
            self._assignments.note(outcomes)
        if stop is not None:
            await self.roles.stop(stop)
        self._assignments.look(partitions)
