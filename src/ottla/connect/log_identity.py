"""PURE: what an offset is a place in: the cluster and the topic, by their ids.

A name and a number say too little. A topic that is deleted and made again, or another cluster with a connector of the
same name, has other records at the same offsets; a sink would skip or repeat them without a word.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from ottla.connect.errors import ConnectError
from ottla.connect.records import TopicPartition


@dataclass(frozen=True, slots=True)
class LogIdentity:
    """The ids of a cluster and of a topic in it; None: not known, as with brokers that are older than Kafka 2.8."""

    cluster_id: str | None = None
    topic_id: str | None = None

    @property
    def metadata(self) -> str:
        """The text that a group keeps beside a committed offset."""
        known = {"cluster_id": self.cluster_id, "topic_id": self.topic_id}
        return json.dumps({name: value for name, value in known.items() if value is not None})

    @classmethod
    def of_metadata(cls, text: str | None) -> Self:
        """Decode such a text; text of other writers has no meaning."""
        try:
            found = json.loads(text or "")
        except ValueError:
            return cls()
        if not isinstance(found, Mapping):
            return cls()
        return cls(_text(found.get("cluster_id")), _text(found.get("topic_id")))


class KeptOffset(int):
    """An offset that a target keeps, with the identity of the log that it is a place in."""

    log: LogIdentity

    def __new__(cls, offset: int, log: LogIdentity) -> Self:
        made = super().__new__(cls, offset)
        made.log = log
        return made


def check_same_log(place: TopicPartition, offset: int, kept: LogIdentity, now: LogIdentity, where: str) -> None:
    """Raises ConnectError if an offset was kept for another log than the one that has the name now.

    An offset without an identity, from before there was one or set by hand, is taken as it is.
    where: the system that keeps it.
    """
    name = f"{place.topic}-{place.partition}"
    choices = (
        "to write all that is in the topic now, stop the connector, delete its offset of this partition (PATCH or "
        "DELETE /connectors/NAME/offsets) and resume it; to go on from a place that you know to be right, set the "
        "offset to it in the same way"
    )
    if _differ(kept.cluster_id, now.cluster_id):
        raise ConnectError(
            f"{where} has offset {offset} of {name} in cluster {kept.cluster_id}, and this is cluster "
            f"{now.cluster_id}, whose records before that offset would be skipped: if a connector of this name runs on "
            f"the other cluster too, give one of them another name; if the cluster was replaced, {choices}; or connect "
            "the worker to the cluster that it was, and restart the connector"
        )
    if _differ(kept.topic_id, now.topic_id):
        raise ConnectError(
            f"topic {place.topic} was deleted and made again since {where} got offset {offset} of {name} (its id was "
            f"{kept.topic_id} and is {now.topic_id}), and new records before that offset would be skipped: {choices}; "
            "or restore the topic that it was, and restart the connector"
        )


def _differ(kept: str | None, now: str | None) -> bool:
    return kept is not None and now is not None and kept != now


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
