"""Settings that other brokers of the cluster have changed, as `/config/changes` tells (Kafka's way since 0.9).

Whoever changes settings adds a numbered node there that names whose. Brokers read those numbered above what they know,
and then the settings themselves. After fifteen minutes a notification has been seen by everybody, and is removed.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from ottla.cluster.commands import SetConfigs
from ottla.cluster.store import layout
from ottla.cluster.store.base import Delete, MetadataStore, Node, Operation, StoreConflict, StoreUnavailable

log = logging.getLogger(__name__)

KEPT_SECONDS: Final = 15 * 60.0
DELETED_AT_ONCE: Final = 500


class ConfigChanges:
    """Follows `/config/changes` while it is open. Everything is called on the loop's thread.

    `changed` gets settings as they are now, those that changed and perhaps some that did not.
    """

    def __init__(self, store: MetadataStore, changed: Callable[[Sequence[SetConfigs]], None]) -> None:
        self._store = store
        self._changed = changed
        self._newest = -1
        self._first_seen: dict[str, float] = {}
        """Of each notification that is still there: when this broker saw it, in the loop's time."""
        self._wanted = asyncio.Event()
        self._following: asyncio.Task[None] | None = None
        self._end_watch: Callable[[], None] | None = None

    def start(self, known: dict[str, Node]) -> None:
        """Begin to follow: `known` are the nodes that the settings known so far were read from."""
        self._end_watch = self._store.watch(layout.CONFIG_CHANGES_PATH, self._wanted.set)
        self._note(self._notifications(known))
        self._wanted.set()  # something may have come in between
        self._following = asyncio.ensure_future(self._follow())

    async def close(self) -> None:
        """Follow no more."""
        if self._end_watch is not None:
            self._end_watch()
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait([self._following])

    async def _follow(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            try:
                await self._catch_up()
                await self._tidy()
            except (StoreUnavailable, StoreConflict) as failed:
                # When the store is there again it reports a change, whether there was one or not.
                log.info("changes of settings by other brokers have to wait: %s", failed)
            except layout.MalformedNode as malformed:
                log.error("settings that another broker changed stay as they were: %s", malformed)

    async def _catch_up(self) -> None:
        notifications = self._notifications(await self._store.read(layout.CONFIG_CHANGES_PATH))
        news = {path: node for path, node in notifications.items() if _number(path) > self._newest}
        named = dict.fromkeys(entity for node in news.values() if (entity := layout.read_notification(node)))
        settings: list[SetConfigs] = []
        for entity in named:
            found = layout.read_configs(entity, (await self._store.read(entity)).get(entity))
            if found is not None:
                settings.append(found)
        self._note(notifications)
        if settings:
            self._changed(settings)

    def _notifications(self, nodes: dict[str, Node]) -> dict[str, Node]:
        prefix = f"{layout.CONFIG_CHANGES_PATH}/"
        return {path: nodes[path] for path in sorted(nodes) if path.startswith(prefix) and _number(path) >= 0}

    def _note(self, notifications: dict[str, Node]) -> None:
        now = asyncio.get_running_loop().time()
        self._first_seen = {path: self._first_seen.get(path, now) for path in notifications}
        self._newest = max([self._newest, *map(_number, notifications)])

    async def _tidy(self) -> None:
        before = asyncio.get_running_loop().time() - KEPT_SECONDS
        old = [path for path, seen in self._first_seen.items() if seen < before][:DELETED_AT_ONCE]
        operations: list[Operation] = [Delete(path, 0) for path in old]
        if operations:
            await self._store.commit(operations)
            for path in old:
                del self._first_seen[path]


def _number(path: str) -> int:
    """The number of a notification; -1 for what is none."""
    digits = path[-10:]
    return int(digits) if digits.isascii() and digits.isdigit() else -1
