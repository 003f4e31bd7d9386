"""The ids of the copies that a mirror writes to, by which it notices that one was deleted and created anew."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.connect.clients.identities import topic_ids

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient


class CopyIds:
    """The id of each copy at the last look, by the name of its topic in the other cluster."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def replaced(self, here: "AdminClient", names: Mapping[str, str]) -> list[str]:
        """The topics whose copies are gone, or are others than at the last look.

        `names`: topics of the other cluster, with the names of their copies. Raises Retriable, ConnectError.
        """
        found = topic_ids(here, list(names.values()))
        replaced = []
        for topic, name in names.items():
            known, now = self._known.pop(topic, None), found.get(name)
            if known is not None and now != known:
                replaced.append(topic)
            if now is not None:
                self._known[topic] = now
        return replaced
