"""PURE. Replicas that could not be made for lack of room, or of something else that comes back, and when to try again.

    refused --> one of them is tried each second --> refused: the next one a second later
                                                 --> made: two others at once, then four, and so on

So a full disk costs about one attempt a second, however many replicas wait for it, also where little room comes back.
"""

from itertools import islice
from typing import Final, NamedTuple

from ottla.ids import PartitionId, TopicId, TopicPartition

RETRY_S: Final = 1.0


class _Refused(NamedTuple):
    topic_id: TopicId
    is_new: bool


class RefusedReplicas:
    """The refused replicas of one broker. Times are in seconds, of any clock that does not go back."""

    def __init__(self) -> None:
        self._refused: dict[TopicPartition, _Refused] = {}
        """In the order in which they are tried."""
        self._retry_at = 0.0
        self._some = 1
        """How many the last attempt was to try."""
        self._made = False
        self._refused_again = False
        """What has become of those of the last attempt."""

    @property
    def _is_promising(self) -> bool:
        return self._made and not self._refused_again

    def is_new(self, replica: TopicPartition, topic_id: TopicId) -> bool:
        """Whether it was refused, has never been made, and so may begin empty."""
        return self._refused.get(replica) == (topic_id, True)

    def refuse(self, replica: TopicPartition, topic_id: TopicId, *, is_new: bool) -> None:
        """It could not be made; all others are tried before it."""
        self._refused.pop(replica, None)
        self._refused[replica] = _Refused(topic_id, is_new)
        self._refused_again = True

    def end(self, replica: TopicPartition, *, is_made: bool = False) -> None:
        """Do not try it again: it is made, or is not to be made any longer."""
        if self._refused.pop(replica, None) is not None:
            self._made |= is_made

    def hurry(self) -> None:
        """There may be room by now: the next attempt is due at once."""
        self._retry_at = 0.0

    def take_due(self, now: float) -> list[tuple[TopicId, PartitionId]]:
        """Those to try now, by topic id and number."""
        if not self._is_promising and now < self._retry_at:
            return []
        self._retry_at = now + RETRY_S
        self._some = 2 * self._some if self._is_promising else 1
        self._made = self._refused_again = False
        due = list(islice(self._refused.items(), self._some))
        for replica, refused in due:  # those that are neither made nor refused do not hold up the others
            del self._refused[replica]
            self._refused[replica] = refused
        return [(refused.topic_id, replica.partition) for replica, refused in due]

    def wait_s(self, now: float) -> float | None:
        """How long to wait before the next attempt; None if nothing is to be tried."""
        if not self._refused:
            return None
        return 0.0 if self._is_promising else max(0.0, self._retry_at - now)
