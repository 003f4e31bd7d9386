"""A follower's incremental fetch session at its leader (KIP-227)."""

from collections.abc import Mapping
from typing import Final

from ottla.ids import TopicId
from ottla.protocol.messages.fetch import FetchPartition, ForgottenTopic

NO_SESSION: Final = 0
FIRST_EPOCH: Final = 0
LAST_EPOCH: Final = 2**31 - 1

Key = tuple[TopicId, int]
"""A partition, as fetches name it."""


class FollowerSession:
    """What one leader knows from the fetches of its follower, so that only changes are sent. On the loop's thread."""

    __slots__ = ("_dropped", "_told", "epoch", "session_id")

    def __init__(self) -> None:
        self.session_id = NO_SESSION
        self.epoch = FIRST_EPOCH
        self._told: dict[Key, FetchPartition] = {}
        self._dropped: list[Key] = []

    @property
    def told(self) -> Mapping[Key, FetchPartition]:
        """The last request for each partition in the session. A new session starts with an empty mapping."""
        return self._told

    def tell(self, key: Key, partition: FetchPartition) -> None:
        """Include this partition in the next request."""
        self._told[key] = partition

    def drop(self, key: Key) -> None:
        """Remove a partition from the session with the next request, unless it is added again before."""
        if self._told.pop(key, None) is not None:
            self._dropped.append(key)

    def forgotten(self) -> list[ForgottenTopic]:
        """What the next request has the leader forget."""
        topics: dict[TopicId, ForgottenTopic] = {}
        for topic_id, partition in self._dropped:
            if (topic_id, partition) not in self._told:
                topics.setdefault(topic_id, ForgottenTopic(topic_id=topic_id, partitions=[])).partitions.append(
                    partition
                )
        self._dropped.clear()
        return list(topics.values())

    def answered(self, session_id: int) -> None:
        """The leader keeps the session, or has no room for one."""
        if session_id == NO_SESSION:
            self.forget()
        else:
            self.session_id = session_id
            self.epoch = 1 if self.epoch == LAST_EPOCH else self.epoch + 1

    def reset(self) -> None:
        """Say everything with the next fetch. It names the session that it replaces, or the leader would keep both."""
        self.epoch = FIRST_EPOCH
        self._told, self._dropped = {}, []

    def forget(self) -> None:
        """The leader knows nothing of it: say everything, too."""
        self.session_id = NO_SESSION
        self.reset()
