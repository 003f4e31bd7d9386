"""Elects the controller: the first broker to create `/controller`; the others watch it, and race when it goes.

The epoch is incremented in the same transaction, so that a former controller is fenced: its commits
by the store, its requests by the brokers.

Beside genuine brokers the controller also watches topics, since those brokers create some in ZooKeeper themselves.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

from ottla.client.sockets import Connect
from ottla.clock import Clock
from ottla.cluster.commands import SetController
from ottla.config.broker import BrokerConfig
from ottla.errors import OttlaError
from ottla.metadata.active_controller import ActiveController
from ottla.metadata.cluster_metadata import ClusterMetadata
from ottla.metadata.freezable_store import is_frozen
from ottla.metadata.store import layout
from ottla.metadata.store.base import (
    Check,
    Delete,
    MetadataStore,
    Node,
    SessionEvent,
    StoreConflict,
    StoreUnavailable,
    Update,
)
from ottla.tasks import supervised

log = logging.getLogger(__name__)

RETRY_S: Final = 0.2
COMPLAIN_EVERY_S: Final = 60.0
RELEASE_S: Final = 1.0
"""How long a controller that stops waits for ZooKeeper to delete its node."""


class ClusterController:
    """This broker's part in that. One task does everything, in order; watches and sessions only wake it."""

    def __init__(
        self,
        store: MetadataStore,
        metadata: ClusterMetadata,
        config: BrokerConfig,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        connect: Connect,
    ) -> None:
        self._store = store
        self._metadata = metadata
        self._config = config
        self._clock = clock
        self._loop = loop
        self._connect = connect
        self._woken = asyncio.Event()
        self._is_registered = True
        self._has_session = True
        self._session_was_suspended = False
        """The session has been lost since it was looked at last; it may have been resumed meanwhile."""
        self._topics_are_stale = False
        """They have changed since they were looked at last, by whomever."""
        self._end_topics_watch: Callable[[], None] | None = None
        self._cancel_watches: list[Callable[[], None]] = []
        self._task: asyncio.Task[None] | None = None
        self._complaint = "", 0.0
        """The last logged complaint, and when it may be repeated."""
        self.active_controller: ActiveController | None = None
        """While this broker is the controller."""

    def start(self) -> None:
        """Take part in the race; the broker is registered already."""
        self._store.on_session(self._session_changed)
        self._cancel_watches = [
            self._store.watch(path, self._woken.set)
            for path in (layout.CONTROLLER_PATH, layout.BROKERS_PATH, layout.LOG_DIRECTORY_EVENTS_PATH)
        ]
        self._woken.set()
        self._task = supervised(self._loop, self._run(), "controller")

    async def close(self) -> None:
        """Withdraw, and let other brokers race at once: they need not wait for the end of the session."""
        for cancel in self._cancel_watches:
            cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        was_controller = self.active_controller is not None
        await self._resign()
        if was_controller:
            await self._release()

    async def _release(self) -> None:
        """Delete `/controller`, if it is still this broker's."""
        path = layout.CONTROLLER_PATH
        try:
            async with asyncio.timeout(RELEASE_S):
                node = (await self._store.read(path)).get(path)
                if node is not None and node.is_own:
                    await self._store.commit([Delete(path, node.version)])
        except TimeoutError:
            log.info("ZooKeeper does not answer; %s goes with the session", path)
        except OttlaError as problem:
            log.info("%s; %s goes with the session", problem, path)

    def _session_changed(self, event: SessionEvent) -> None:
        self._has_session = event is not SessionEvent.LOST
        if event is SessionEvent.BEGUN:
            self._is_registered = False
        if event is SessionEvent.LOST:
            self._session_was_suspended = True
            self._metadata.controller = None  # at once: another may be elected in this moment
        self._woken.set()

    def _topics_changed(self) -> None:
        self._topics_are_stale = True
        self._woken.set()

    async def _run(self) -> None:
        while True:
            await self._woken.wait()
            self._woken.clear()
            try:
                await self._look()
            except (StoreUnavailable, StoreConflict) as problem:
                log.info("%s; it will be looked at again", problem)
                await self._resign()
                await asyncio.sleep(RETRY_S)
                self._woken.set()
            except OttlaError as problem:
                self._complain(str(problem))
                await self._resign()
                await asyncio.sleep(RETRY_S)
                self._woken.set()
            except Exception:  # a defect; but a broker that does not look any more could never be controller again
                log.exception("the controller failed, and will begin anew")
                await self._resign()
                await asyncio.sleep(RETRY_S)
                self._woken.set()

    def _complain(self, problem: str) -> None:
        """Once a minute, not for every attempt."""
        said, again_at = self._complaint
        if problem != said or self._loop.time() >= again_at:
            log.error("becoming the controller failed; retrying: %s", problem)
            self._complaint = problem, self._loop.time() + COMPLAIN_EVERY_S

    async def _look(self) -> None:
        """See what is the case, and do what follows from it."""
        if not self._has_session:
            await self._resign()
            return
        if self._session_was_suspended:
            self._session_was_suspended = False
            await self._resign()
        if not self._is_registered:
            await self._resign()
            await self._metadata.register_again()
            self._is_registered = True
        nodes = await self._store.read(layout.CONTROLLER_PATH)
        nodes |= await self._store.read(layout.CONTROLLER_EPOCH_PATH)
        if await is_frozen(self._store):  # read after the epoch: a freeze that comes later fails what is done with it
            await self._resign()
            return
        holder = layout.read_image(nodes).controller_id
        if holder == self._config.node_id:
            # The session was suspended and has been resumed: this broker has been the controller all the time.
            if self.active_controller is None:
                await self._begin_another_term(nodes)
        elif layout.CONTROLLER_PATH in nodes:
            await self._resign()
            return
        else:
            await self._resign()
            if not await self._win(nodes):
                return
        if self.active_controller is not None:
            await self.active_controller.see_brokers()
            await self.active_controller.see_failed_directories()
            await self._look_after_topics(self.active_controller)

    async def _look_after_topics(self, active_controller: ActiveController) -> None:
        """A watch of topics also fires for every change of a partition's state, by any broker, so it is used only where
        needed."""
        if not active_controller.has_others_that_make_topics:
            self._leave_topics_alone()
            return
        if self._end_topics_watch is None:
            self._end_topics_watch = self._store.watch(layout.TOPICS_PATH, self._topics_changed)
            self._topics_are_stale = True  # one may have been made since they were read
        if self._topics_are_stale:
            self._topics_are_stale = False
            await active_controller.see_topics()

    def _leave_topics_alone(self) -> None:
        if self._end_topics_watch is not None:
            self._end_topics_watch()
            self._end_topics_watch = None

    async def _win(self, nodes: Mapping[str, Node]) -> bool:
        """Try to be the first."""
        known = nodes.get(layout.CONTROLLER_EPOCH_PATH)
        epoch = 1 if known is None else int(known.data) + 1
        versions = {path: node.version for path, node in nodes.items()}
        operations = layout.operations_for(
            [SetController(self._config.node_id)],
            self._metadata.image,
            versions,
            controller_epoch=epoch,
            now_ms=self._clock.now_ms(),
        )
        try:
            await self._store.commit(operations)
        except StoreConflict:
            self._woken.set()  # another was quicker, or has gone again already
            return False
        await self._begin_term(epoch, 0 if known is None else known.version + 1)
        return True

    async def _begin_another_term(self, nodes: Mapping[str, Node]) -> None:
        """Take over in a new epoch: a broker may still be processing requests of the previous term, and must not apply
        them after those of this one."""
        holder, known = nodes[layout.CONTROLLER_PATH], nodes[layout.CONTROLLER_EPOCH_PATH]
        epoch = int(known.data) + 1
        await self._store.commit(
            [
                Check(layout.CONTROLLER_PATH, holder.version),
                Update(layout.CONTROLLER_EPOCH_PATH, str(epoch).encode(), known.version),
            ]
        )
        await self._begin_term(epoch, known.version + 1)

    async def _begin_term(self, epoch: int, epoch_version: int) -> None:
        log.info("broker %d is the controller, in epoch %d", self._config.node_id, epoch)
        self.active_controller = ActiveController(
            self._store, self._config, self._clock, self._loop, self._connect, epoch, self._woken.set
        )
        await self.active_controller.begin(epoch_version)
        if not self._session_was_suspended:  # else it is taken again as soon as this is looked at
            self._metadata.controller = self.active_controller.service

    async def _resign(self) -> None:
        self._metadata.controller = None
        self._leave_topics_alone()
        active_controller, self.active_controller = self.active_controller, None
        if active_controller is not None:
            log.info("broker %d is not the controller any more", self._config.node_id)
            await active_controller.end()
