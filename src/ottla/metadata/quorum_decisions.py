"""Decisions on the cluster's metadata by the active controller of a quorum; every other node refuses them.

The image is that of the log: it changes with every committed batch.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence

from ottla.cluster.commands import Command, SetConfigs, SetFeatures
from ottla.cluster.configs import ConfigChange, plan_configs_of_others
from ottla.cluster.controller import Registered
from ottla.cluster.departures import note_departures
from ottla.cluster.elections import Outages
from ottla.cluster.features import FeatureUpdate
from ottla.cluster.image import CLUSTER_DEFAULT, MetadataImage, ResourceType
from ottla.cluster.metadata_log.levels import KRAFT_VERSION
from ottla.cluster.metadata_log.state import ClusterState
from ottla.cluster.min_insync import check_min_insync, consequences
from ottla.cluster.quorum_features import Node, check_kraft_version, plan_quorum_features
from ottla.config.broker import BrokerConfig
from ottla.errors import InvalidConfig, OttlaError
from ottla.metadata.cluster_metadata import NotController
from ottla.metadata.decisions import AskedT, CommandT, DecidingMetadata
from ottla.metadata.policies import Policies
from ottla.metadata.quorum_keeper import NO_TERM, QuorumKeeper
from ottla.metadata.quorum_replay import QuorumReplay
from ottla.metadata.store.base import MetadataStore
from ottla.protocol.metadata_records import NoOpRecord
from ottla.protocol.primitives import MAX_STRING
from ottla.protocol.schema import Message
from ottla.slices import Slices

log = logging.getLogger(__name__)


class QuorumDecisions(DecidingMetadata):
    """The metadata of a controller's process. On the loop's thread."""

    def __init__(
        self,
        keeper: QuorumKeeper,
        replay: QuorumReplay,
        config: BrokerConfig,
        slices: Slices,
        *,
        outages: Callable[[], Outages],
        policies: Policies | None = None,
    ) -> None:
        super().__init__(keeper, config, slices, outages=outages, policies=policies)
        self._log = keeper
        self._replay = replay
        self._show(replay.image)
        replay.subscribe(self._follow)

    @property
    def store(self) -> MetadataStore:
        """There is none."""
        raise RuntimeError("the metadata of a quorum is in no store")

    async def advertise(self, endpoints: Mapping[str, tuple[str, int]]) -> None:
        """A controller's addresses are registered when it starts."""

    @property
    def state(self) -> ClusterState:
        """The state of the log."""
        return self._replay.state

    @property
    def is_active(self) -> bool:
        """Whether this node decides."""
        return self._log.epoch != NO_TERM

    @property
    def changing(self) -> asyncio.Lock:
        """Held by whatever decides, from its decision to its commit."""
        return self._changing

    def _follow(self, old: MetadataImage, new: MetadataImage) -> None:
        if new is not self._image:
            self._show(new)

    def check_active(self) -> None:
        """Raise `NotController` unless this node decides."""
        if not self.is_active:
            leader = self._replay.leader.leader_id
            known = "it is not known which one is" if leader is None else f"node {leader} is"
            raise NotController(f"node {self.broker_id} is not the active controller; {known}")

    async def confirm(self, since_s: float) -> None:
        """Return once this node certainly led the quorum after a time of its clock: something that it appended later is
        committed, a record that changes nothing if need be. Waits for the next decision's commit, but not in the queue.

        A node that others have replaced without its knowledge cannot commit. Raises `NotController`, `NotQuorumLeader`.
        """
        self.check_active()
        if self._log.led_at_s > since_s:
            return
        own = asyncio.ensure_future(self._commit_nothing(since_s))
        others = asyncio.ensure_future(self._log.until_led_after(since_s))
        try:
            await asyncio.wait((own, others), return_when=asyncio.FIRST_COMPLETED)
            if own.done():
                own.result()
        finally:
            own.cancel()
            others.cancel()

    async def _commit_nothing(self, since_s: float) -> None:
        async with self.changing:
            self.check_active()
            if self._log.led_at_s <= since_s:
                await self._log.append([NoOpRecord()])

    async def commit_records(
        self,
        records: Sequence[Message],
        commands: Sequence[Command] = (),
        *,
        outages: Outages | None = None,
        notes_departures: bool = True,
    ) -> None:
        """Commit records, and commands with them, all or none; the caller holds `changing`.

        Raises `NotQuorumLeader`: it is not known then what becomes of them.
        """
        offline = (outages or self._outages()).offline
        noted = commands
        if notes_departures:
            noted = await self._slices.run(note_departures(self._image, commands, offline, self.min_in_sync))

        async def append() -> MetadataImage:
            await self._log.append(records, noted)
            return self._replay.image

        await self._committed(append())

    async def _commit(self, commands: Sequence[Command]) -> None:
        if any(isinstance(command, SetConfigs | SetFeatures) for command in commands):
            more = consequences(self._image, commands, self._static_config.min_insync_replicas)
            await self.commit_records([], [*commands, *more], notes_departures=False)
        else:
            await super()._commit(commands)

    async def _change(
        self,
        asked: Sequence[AskedT],
        plan: Callable[[MetadataImage, AskedT], CommandT],
        *,
        validate_only: bool = False,
    ) -> list[CommandT | OttlaError]:
        try:
            self.check_active()
        except NotController as refused:
            return [refused for _ in asked]
        return await super()._change(asked, plan, validate_only=validate_only)

    def _registered(self) -> Registered:
        brokers = self._replay.state.brokers.values()
        cordoned = frozenset(
            each.broker_id for each in brokers if each.directories and set(each.directories) <= set(each.cordoned or ())
        )
        fenced = (each.broker_id for each in brokers if each.fenced and each.broker_id not in cordoned)
        return Registered(tuple(sorted(fenced)), cordoned)

    def _effective_config(self, image: MetadataImage) -> BrokerConfig:
        node = str(self._static_config.node_id)
        changes = {**image.config(ResourceType.BROKER, CLUSTER_DEFAULT), **image.config(ResourceType.BROKER, node)}
        if not changes:
            return self._static_config
        try:
            return self._static_config.with_changes(changes).for_controllers()
        except InvalidConfig as problem:
            log.error("settings that were changed at runtime are left aside: %s", problem)
            return self._static_config

    def _plan_configs(self, image: MetadataImage, change: ConfigChange) -> SetConfigs:
        if change.resource_type is ResourceType.BROKER:
            planned = plan_configs_of_others(image, change)
            check_min_insync(image, planned)
        else:
            planned = super()._plan_configs(image, change)
        for name, text in planned.configs.items():
            if len(text.encode()) > MAX_STRING:
                raise InvalidConfig(
                    f"{name}: the value would have {len(text.encode())} bytes, and a metadata record holds {MAX_STRING}"
                )
        return planned

    async def update_features(self, updates: Sequence[FeatureUpdate], *, validate_only: bool = False) -> None:
        """See `DecidingMetadata`. A level that needs one `min.insync.replicas` for all brokers brings it along; that of
        the quorum itself is raised after the others."""
        of_quorum = [update for update in updates if update.feature == KRAFT_VERSION]
        await self._raise_kraft_version(of_quorum, validate_only=True)
        others = [update for update in updates if update.feature != KRAFT_VERSION]
        if others:
            await super().update_features(others, validate_only=validate_only)
        if not validate_only:
            await self._raise_kraft_version(of_quorum, validate_only=False)

    async def _raise_kraft_version(self, updates: Sequence[FeatureUpdate], *, validate_only: bool) -> None:
        for update in updates:
            async with self.changing:
                self.check_active()
                check_kraft_version(update, self._log.kraft_version)
                if update.level != self._log.kraft_version:
                    await self._log.raise_kraft_version(update.level, validate_only=validate_only)

    def _plan_features(self, image: MetadataImage, updates: Sequence[FeatureUpdate]) -> SetFeatures:
        return plan_quorum_features(image, updates, self._nodes())

    def _nodes(self) -> Iterator[Node]:
        state = self._replay.state
        for broker in state.brokers.values():
            yield Node(f"broker {broker.broker_id}", broker.features)
        for controller in state.controllers.values():
            yield Node(f"controller {controller.controller_id}", controller.features)
