"""A broker leaves ZooKeeper and goes on under the quorum, in its process: one part of it ends, and the next begins.

    on ZooKeeper ── the log has the metadata ──▶ part closed ──▶ part under the quorum
                                                 └─ heartbeats in its name ─┘

The quorum has the broker registered, unfenced, before it comes. With thousands of partitions the new part takes longer
to begin than a session lasts, so that heartbeats are sent meanwhile.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING
from uuid import UUID

from ottla.client.errors import ClientError
from ottla.errors import OttlaError, sentence
from ottla.metadata.cluster_metadata import MovedAway
from ottla.metadata.controller_channel import ControllerChannel
from ottla.metadata.freezable_store import MetadataFrozen
from ottla.metadata.quorum.node import QuorumNode
from ottla.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from ottla.server.migration import LONGEST_PAUSE_S, Migration
from ottla.tasks import Tasks, supervised

if TYPE_CHECKING:
    from ottla.client.sockets import Connect
    from ottla.config.broker import BrokerConfig
    from ottla.log.directories import LogDirectories
    from ottla.metadata.view import MetadataView

log = logging.getLogger(__name__)

Begin = Callable[["BrokerConfig", UUID | None], Awaitable[AsyncExitStack]]
"""Starts a broker with these settings, as the incarnation that is registered already; returns what stops it."""


class MigrationSwitch:
    """The broker of a process that moves. On the loop's thread."""

    def __init__(
        self,
        migration: Migration,
        node: QuorumNode,
        connect: "Connect",
        config: "BrokerConfig",
        begin: Begin,
        failed: Callable[[str], None],
    ) -> None:
        """`config` has the settings of both, `connect` reaches controllers; `failed` gets the reason when the broker
        cannot go on."""
        self._migration = migration
        self._node = node
        self._connect = connect
        self._config = config
        self._begin = begin
        self._failed = failed
        self._part = AsyncExitStack()
        self._tasks = Tasks()
        self.is_under_way = False
        """Whether the broker stops only to go on in a moment."""

    async def start(self, metadata: "Callable[[], MetadataView]", directories: "LogDirectories") -> None:
        """Start the broker where its metadata is. `metadata` is the running part's. Raises as the broker's start."""
        self._migration.follow(self._node)
        if not self._migration.has_begun:
            try:
                self._part = await self._begin(self._config.on_zookeeper(), None)
            except (MovedAway, MetadataFrozen):  # just now
                self._migration.has_begun = True
            else:
                self._migration.announce(self._node, metadata(), directories)
        if self._migration.has_begun:
            log.info("the metadata in ZooKeeper is frozen: this broker waits for it in the log of the quorum")
            await self._migration.until_moved()
            self._part = await self._begin(self._config.under_quorum(), None)
        self._tasks.spawn(self._move(directories), "move from ZooKeeper")

    async def close(self) -> None:
        """Stop the broker."""
        await self._tasks.close()
        await self._part.aclose()

    async def _move(self, directories: "LogDirectories") -> None:
        try:
            await self._migration.until_moved()
            if not self._migration.has_begun:
                log.info("the metadata of this cluster is in the log of its quorum: this broker leaves ZooKeeper")
                await self._switch(directories)
        except (OttlaError, OSError) as problem:
            self._failed(f"the broker cannot go on under the quorum: {sentence(problem)}")
        except Exception as defect:  # the broker has ended, or is about to: nobody else would see that
            log.exception("the broker cannot go on under the quorum")
            self._failed(f"the broker cannot go on under the quorum: {defect!r}")
        else:
            await self._leave()

    async def _leave(self) -> None:
        """Leave ZooKeeper for good. The broker serves without it: what fails is tried again."""
        while True:
            try:
                await self._migration.leave()
            except Exception:
                log.exception("this node has moved, and cannot leave ZooKeeper yet; that is tried again")
                await asyncio.sleep(LONGEST_PAUSE_S)
            else:
                return

    async def _switch(self, directories: "LogDirectories") -> None:
        loop = asyncio.get_running_loop()
        name = f"broker-{self._config.node_id}"
        channel = ControllerChannel(name, self._node.leader_endpoint, self._connect, loop)
        beating = supervised(loop, self._beat(channel), "heartbeats during the move")
        try:
            self.is_under_way = directories.wants_to_stay_open = True
            await self._part.aclose()
            self.is_under_way = False
            moved_as: UUID | None = self._migration.incarnation_id
            if not (directories.stayed_open or directories.were_clean):
                log.warning("not everything was on the disk when this broker left ZooKeeper: it counts as restarted")
                moved_as = None
                beating.cancel()  # while that incarnation is alive, no other may register
            self._part = await self._begin(self._config.under_quorum(), moved_as)
        finally:
            directories.wants_to_stay_open = False
            beating.cancel()
            await asyncio.wait([beating])
            channel.close()

    async def _beat(self, channel: ControllerChannel) -> None:
        """Send heartbeats for as long as a broker may take to register."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._config.initial_broker_registration_timeout_ms / 1000
        while loop.time() < deadline:
            request = BrokerHeartbeatRequest(
                broker_id=self._config.node_id,
                broker_epoch=self._migration.broker_epoch,
                current_metadata_offset=max(0, (self._node.high_watermark or 0) - 1),
                want_fence=False,
                want_shut_down=False,
            )
            try:
                await channel.ask(request, timeout_s=self._config.broker_session_timeout_ms / 1000)
            except (ClientError, OttlaError) as problem:
                log.info("a heartbeat during the move was not answered: %s", problem)
            await asyncio.sleep(self._config.broker_heartbeat_interval_ms / 1000)
