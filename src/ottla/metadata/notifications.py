"""Numbered nodes by which one broker notifies the others of a change in the store (Kafka's way since 0.9).

A broker that changes something adds a node. Brokers read new nodes, and then what these name. After fifteen minutes
every broker has seen a notification, and it is removed.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ottla.metadata.store.base import Delete, MetadataStore, Node, Operation, StoreConflict, StoreUnavailable
from ottla.metadata.store.layout import MalformedNode

log = logging.getLogger(__name__)

KEPT_S: Final = 15 * 60.0
DELETED_AT_ONCE: Final = 500


class Notifications(ABC):
    """Follows the notifications in some directories while it is open. Everything is called on the loop's thread."""

    def __init__(self, store: MetadataStore, directories: Sequence[str], subject: str) -> None:
        """`subject`: what changes, in the plural, as the log calls it."""
        self._store = store
        self._directories = directories
        self._subject = subject
        self._newest = dict.fromkeys(directories, -1)
        self._first_seen: dict[str, float] = {}
        """When this broker first saw each notification that still exists, in the loop's time."""
        self._wanted = asyncio.Event()
        self._following: asyncio.Task[None] | None = None
        self._end_watches: list[Callable[[], None]] = []

    def start(self, known: Mapping[str, Node]) -> None:
        """Begin to follow: `known` are the nodes that all known so far was read from."""
        self._end_watches = [self._store.watch(directory, self._wanted.set) for directory in self._directories]
        for directory in self._directories:
            self._note(directory, _notifications(directory, known))
        self._wanted.set()  # something may have come in between
        self._following = asyncio.ensure_future(self._follow())

    @abstractmethod
    async def take(self, news: Sequence[Node]) -> None:
        """Act on notifications that are new; called again with them if that fails.

        Raises `StoreUnavailable`, `MalformedNode`.
        """

    async def close(self) -> None:
        """Stop following changes."""
        for end in self._end_watches:
            end()
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait([self._following])

    async def _follow(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            try:
                for directory in self._directories:
                    await self._catch_up(directory)
                await self._tidy()
            except (StoreUnavailable, StoreConflict) as failed:
                # When the store is there again it reports a change, whether there was one or not.
                log.info("changes of %s by other brokers have to wait: %s", self._subject, failed)
            except MalformedNode as malformed:
                log.error("%s that another broker changed stay as they were: %s", self._subject, malformed)

    async def _catch_up(self, directory: str) -> None:
        notifications = _notifications(directory, await self._store.read(directory))
        news = [node for path, node in notifications.items() if _number(path) > self._newest[directory]]
        await self.take(news)
        self._note(directory, notifications)

    def _note(self, directory: str, notifications: Mapping[str, Node]) -> None:
        now = asyncio.get_running_loop().time()
        elsewhere = {path: at for path, at in self._first_seen.items() if not path.startswith(f"{directory}/")}
        self._first_seen = elsewhere | {path: self._first_seen.get(path, now) for path in notifications}
        self._newest[directory] = max([self._newest[directory], *map(_number, notifications)])

    async def _tidy(self) -> None:
        before = asyncio.get_running_loop().time() - KEPT_S
        old = [path for path, seen in self._first_seen.items() if seen < before][:DELETED_AT_ONCE]
        operations: list[Operation] = [Delete(path, 0) for path in old]
        if operations:
            await self._store.commit(operations)
            for path in old:
                del self._first_seen[path]


def _notifications(directory: str, nodes: Mapping[str, Node]) -> dict[str, Node]:
    prefix = f"{directory}/"
    return {path: nodes[path] for path in sorted(nodes) if path.startswith(prefix) and _number(path) >= 0}


def _number(path: str) -> int:
    """The number of a notification; -1 for what is none."""
    digits = path[-10:]
    return int(digits) if digits.isascii() and digits.isdigit() else -1
