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
        """The topics whose copies are others than at the last look.

        `names`: topics of the other cluster, with the names of their copies. Raises Retriable, ConnectError.
        """
        found = topic_ids(here, list(names.values()))
        replaced = []
        for topic, name in names.items():
            now = found.get(name)
            if now is None:  # a broker that is behind may not know the topic: the next one created has another id
                continue
            if self._known.setdefault(topic, now) != now:
                replaced.append(topic)
                self._known[topic] = now
        return replaced
