"""The cluster's metadata with its changes, on the broker that decides, where a tree of nodes keeps them.

A standalone broker always decides (`start`); in a cluster with ZooKeeper the elected controller does (`begin_term`),
and each of its commits fails once another has been elected.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ottla.clock import Clock
from ottla.cluster import controller
from ottla.cluster.commands import Command, RegisterBroker, SetController, apply
from ottla.cluster.elections import NO_OUTAGES, Outages
from ottla.cluster.image import BrokerImage
from ottla.config.broker import BrokerConfig
from ottla.errors import ErrorCode, OttlaError
from ottla.ids import ProducerId, uuid_to_text
from ottla.metadata.adoption import find_adoptable
from ottla.metadata.config_changes import FoundSettings
from ottla.metadata.decisions import DecidingMetadata, new_id
from ottla.metadata.initial_users import add_initial_users
from ottla.metadata.keeper import Found
from ottla.metadata.policies import Policies
from ottla.metadata.store import layout
from ottla.metadata.store.base import Create, MetadataStore, Node, Operation
from ottla.metadata.store.layout import ProducerIdBlock
from ottla.metadata.tree_keeper import TreeKeeper
from ottla.slices import Slices

__all__ = ["MetadataService", "WrongCluster", "new_id"]

log = logging.getLogger(__name__)

Endpoints = Mapping[str, tuple[str, int]]
"""Listener name to host and port."""


class WrongCluster(OttlaError):
    """The log directories belong to another cluster than the metadata."""

    code = ErrorCode.INCONSISTENT_CLUSTER_ID


class MetadataService(DecidingMetadata):
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
        slices = slices or Slices(clock)
        self._tree = TreeKeeper(store, clock, slices)
        super().__init__(self._tree, config, slices, outages=outages, policies=policies)
        self._store = store
        self._started = False

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
        image = (await self._tree.read()).image
        first: list[Operation] = []
        commands: list[Command] = []
        if not image.cluster_id:
            image = image._replace(cluster_id=cluster_id or uuid_to_text(new_id()))
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
        self._image = image
        self._config = self._effective_config(image)
        at = endpoints(self._config) if callable(endpoints) else endpoints
        broker = BrokerImage(
            self.broker_id,
            self._tree.controller_epoch + 1,
            self._static_config.broker_rack,
            at,
            security_protocols=self._config.security_protocols,
        )
        commands.append(RegisterBroker(broker))
        if not self._tree.has_controller:
            self._tree.controller_epoch += 1
            commands.append(SetController(self.broker_id))
        if new_leader_epochs:
            commands += controller.plan_new_epochs(image, self.broker_id)
        await self._committed(self._tree.commit(commands, image, first=first))

    async def begin_term(self, controller_epoch: int, epoch_version: int) -> Mapping[str, Node]:
        """Read everything, to decide from now on; `epoch_version` is that of the node with the controller's epoch.
        Returns what was read.

        The store is open already, and stays so at `close`. Raises `StoreUnavailable`, `MalformedNode`.
        """
        self._tree.begin_term(controller_epoch, epoch_version)
        async with self._changing:
            found, nodes = await self._tree.read_nodes()
            self._take(found)
            return nodes

    def _take(self, found: Found) -> None:
        image = found.image
        if self._tree.is_shared and self._image.brokers:
            # `see_brokers` reports live brokers, and `see_failures` their failed replicas.
            image = image._replace(brokers=self._image.brokers, failed_replicas=self._image.failed_replicas)
        super()._take(found._replace(image=image))

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
            self._tree.take_versions(found)
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
