"""Settings that other brokers of the cluster have changed, from `/config/changes` (Kafka's way since 0.9).

A broker that changes settings adds a numbered node there with the name of the resource. Brokers read new nodes,
and then the settings themselves. After fifteen minutes every broker has seen a notification, and it is removed. For
settings that Kafka does not know there is a second directory.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from ottla.cluster.commands import SetConfigs
from ottla.metadata.store import layout
from ottla.metadata.store.base import Delete, MetadataStore, Node, Operation, StoreConflict, StoreUnavailable

log = logging.getLogger(__name__)

DIRECTORIES: Final = (layout.CONFIG_CHANGES_PATH, layout.OWN_CONFIG_CHANGES_PATH)
KEPT_S: Final = 15 * 60.0
DELETED_AT_ONCE: Final = 500


class FoundSettings(NamedTuple):
    """Settings of one resource as they stand in the store."""

    path: str
    version: int | None
    """The node's version; None if there is no node."""
    settings: SetConfigs


async def find_settings(store: MetadataStore, path: str) -> FoundSettings | None:
    """What stands at the path of a resource's settings; None for a path of what Ottla has no settings of.

    Raises `StoreUnavailable`, `MalformedNode`.
    """
    node = (await store.read(path)).get(path)
    settings = layout.read_configs(path, node)
    return None if settings is None else FoundSettings(path, None if node is None else node.version, settings)


class ConfigChanges:
    """Follows the notifications while it is open. Everything is called on the loop's thread.

    `changed` gets settings as they are now, those that changed and perhaps some that did not.
    """

    def __init__(self, store: MetadataStore, changed: Callable[[Sequence[FoundSettings]], None]) -> None:
        self._store = store
        self._changed = changed
        self._newest = dict.fromkeys(DIRECTORIES, -1)
        self._first_seen: dict[str, float] = {}
        """When this broker first saw each notification that still exists, in the loop's time."""
        self._wanted = asyncio.Event()
        self._following: asyncio.Task[None] | None = None
        self._end_watches: list[Callable[[], None]] = []

    def start(self, known: Mapping[str, Node]) -> None:
        """Begin to follow: `known` are the nodes that the settings known so far were read from."""
        self._end_watches = [self._store.watch(directory, self._wanted.set) for directory in DIRECTORIES]
        for directory in DIRECTORIES:
            self._note(directory, _notifications(directory, known))
        self._wanted.set()  # something may have come in between
        self._following = asyncio.ensure_future(self._follow())

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
                for directory in DIRECTORIES:
                    await self._catch_up(directory)
                await self._tidy()
            except (StoreUnavailable, StoreConflict) as failed:
                # When the store is there again it reports a change, whether there was one or not.
                log.info("changes of settings by other brokers have to wait: %s", failed)
            except layout.MalformedNode as malformed:
                log.error("settings that another broker changed stay as they were: %s", malformed)

    async def _catch_up(self, directory: str) -> None:
        notifications = _notifications(directory, await self._store.read(directory))
        news = [node for path, node in notifications.items() if _number(path) > self._newest[directory]]
        found = [
            await find_settings(self._store, path)
            for path in dict.fromkeys(filter(None, map(layout.read_notification, news)))
        ]
        self._note(directory, notifications)
        settings = [each for each in found if each is not None]
        if settings:
            self._changed(settings)

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
