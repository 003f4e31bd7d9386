"""Settings that other brokers of the cluster have changed, from `/config/changes` (Kafka's way since 0.9).

A broker that changes settings adds a numbered node there with the name of the resource. Brokers read new nodes,
and then the settings themselves. After fifteen minutes every broker has seen a notification, and it is removed. For
settings that Kafka does not know there is a second directory.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from ottla.cluster.commands import SetConfigs
from ottla.metadata.notifications import Notifications
from ottla.metadata.store import layout
from ottla.metadata.store.base import MetadataStore, Node

DIRECTORIES: Final = (layout.CONFIG_CHANGES_PATH, layout.OWN_CONFIG_CHANGES_PATH)


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


class ConfigChanges(Notifications):
    """Follows the notifications while it is open. Everything is called on the loop's thread.

    `changed` gets settings as they are now, those that changed and perhaps some that did not.
    """

    def __init__(self, store: MetadataStore, changed: Callable[[Sequence[FoundSettings]], None]) -> None:
        super().__init__(store, DIRECTORIES, "settings")
        self._changed = changed

    async def take(self, news: Sequence[Node]) -> None:
        """Read the settings that have changed."""
        found = [
            await find_settings(self._store, path)
            for path in dict.fromkeys(filter(None, map(layout.read_notification, news)))
        ]
        settings = [each for each in found if each is not None]
        if settings:
            self._changed(settings)
