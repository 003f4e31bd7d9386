"""Group members that are polled in turns, by one thread, until they hold what they should."""

import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import Any

from confluent_kafka import TopicPartition
from tests.compat.confluent.clients import consumer


class Member:
    """A group member that remembers every callback, in order: (`assigned` | `revoked` | `lost`, partitions)."""

    def __init__(self, bootstrap: str, group: str, topic: str, **settings: Any) -> None:
        self.events: list[tuple[str, set[int]]] = []
        self.values: list[bytes] = []
        self.client = consumer(bootstrap, group, **settings)
        self.client.subscribe(
            [topic],
            on_assign=lambda _, parts: self._note("assigned", parts),
            on_revoke=lambda _, parts: self._note("revoked", parts),
            on_lost=lambda _, parts: self._note("lost", parts),
        )

    @property
    def partitions(self) -> set[int]:
        """What it holds now."""
        return {partition.partition for partition in self.client.assignment()}

    def poll(self) -> None:
        message = self.client.poll(0.05)
        if message is not None and message.error() is None:
            self.values.append(message.value() or b"")

    def _note(self, what: str, partitions: Sequence[TopicPartition]) -> None:
        self.events.append((what, {partition.partition for partition in partitions}))


def poll_until(members: Sequence[Member], wanted: Sequence[int], timeout_s: float = 60.0) -> None:
    """Poll all until the sizes of their assignments, sorted, are `wanted`, disjoint, and stay so for a moment."""
    deadline = time.monotonic() + timeout_s
    settled_since = 0.0
    while True:
        for member in members:
            member.poll()
        sizes = sorted(len(member.partitions) for member in members)
        disjoint = sum(sizes) == len(set().union(*(member.partitions for member in members)))
        now = time.monotonic()
        if sizes != sorted(wanted) or not disjoint:
            settled_since = 0.0
            assert now < deadline, f"assignments {[m.partitions for m in members]}, wanted sizes {wanted}"
        elif not settled_since:
            settled_since = now
        elif now - settled_since > 0.7:
            return


@contextlib.contextmanager
def closing(*members: Member) -> Iterator[None]:
    """Close every member afterwards."""
    try:
        yield
    finally:
        for member in members:
            member.client.close()
