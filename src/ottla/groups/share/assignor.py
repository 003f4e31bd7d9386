"""The assignor `simple` of share groups: assigns partitions, the same one to several members if need be. PURE.

    every partition has a member, and every member gets one as long as there are any:
    1  each member one partition, found by a hash of its id, so that members spread without knowing of each other
    2  what members have, they keep, as long as that is not too much
    3  what is left is dealt out

Source: KIP-932, and the SimpleAssignor of Kafka 4.3. Orders that Kafka leaves to its hash tables are fixed here, so
that one input has one output.
"""

import zlib
from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.groups.consumer.events import NO_PARTITIONS, Partitions
from ottla.ids import MemberId, TopicId

SIMPLE: Final = "simple"


class _Partition(NamedTuple):
    topic_id: TopicId
    number: int


def assign(
    subscriptions: Mapping[MemberId, frozenset[TopicId]],
    assignable: Partitions,
    current: Mapping[MemberId, Partitions],
) -> dict[MemberId, Partitions]:
    """What each subscriber is to have. `assignable`: the partitions that may be given away, by topic."""
    members = sorted(subscriptions)
    wanted: dict[frozenset[TopicId], list[_Partition]] = {}
    for topics in subscriptions.values():
        if topics not in wanted:
            wanted[topics] = [
                _Partition(topic, index) for topic in sorted(topics) for index in sorted(assignable.get(topic, ()))
            ]
    given: dict[MemberId, set[_Partition]] = {member: set() for member in members}
    hashed: set[_Partition] = set()
    for member in members:
        targets = wanted[subscriptions[member]]
        if targets:
            target = targets[zlib.crc32(member.encode()) % len(targets)]
            given[member].add(target)
            hashed.add(target)
    if len(wanted) == 1:
        _fill_evenly(members, next(iter(wanted.values())), given, hashed, current)
    else:
        _fill_by_topic(subscriptions, {member: wanted[subscriptions[member]] for member in members}, given, current)
    return {member: _by_topic(partitions) for member, partitions in given.items()}


def _fill_evenly(
    members: list[MemberId],
    targets: list[_Partition],
    given: dict[MemberId, set[_Partition]],
    hashed: set[_Partition],
    current: Mapping[MemberId, Partitions],
) -> None:
    """All members have the same subscription: no member gets much more than a fair share."""
    if not targets:
        return
    fair_share = -(-len(targets) // len(members))
    valid = set(targets)
    taken = set(hashed)
    for member in members:
        for partition in _partitions(current.get(member, NO_PARTITIONS)):
            if partition in valid and partition not in hashed and len(given[member]) < fair_share:
                given[member].add(partition)
                taken.add(partition)
    takers = list(members)
    turn = 0
    for partition in targets:
        if partition in taken:
            continue
        turn %= len(takers)
        # One more than the fair share is still taken: the hash may have given several members one partition.
        while len(given[takers[turn]]) > fair_share:
            del takers[turn]
            turn %= len(takers)
        given[takers[turn]].add(partition)
        turn += 1


def _fill_by_topic(
    subscriptions: Mapping[MemberId, frozenset[TopicId]],
    wanted: Mapping[MemberId, list[_Partition]],
    given: dict[MemberId, set[_Partition]],
    current: Mapping[MemberId, Partitions],
) -> None:
    """Members subscribe to different topics: each topic is dealt out among its own subscribers."""
    hashed = {partition for partitions in given.values() for partition in partitions}
    valid = {partition for partitions in wanted.values() for partition in partitions}
    held: set[_Partition] = set()
    for member, partitions in wanted.items():
        targets = set(partitions)
        for partition in _partitions(current.get(member, NO_PARTITIONS)):
            if partition in targets:
                held.add(partition)
                if partition not in hashed:
                    given[member].add(partition)
    subscribers: dict[TopicId, list[MemberId]] = {}
    for member in wanted:
        for topic_id in subscriptions[member]:
            subscribers.setdefault(topic_id, []).append(member)
    turns: dict[TopicId, int] = {}
    for partition in sorted(valid - hashed - held):
        takers = subscribers[partition.topic_id]
        turn = turns.get(partition.topic_id, 0)
        given[takers[turn % len(takers)]].add(partition)
        turns[partition.topic_id] = turn + 1


def _partitions(partitions: Partitions) -> list[_Partition]:
    return [_Partition(topic, index) for topic in sorted(partitions) for index in sorted(partitions[topic])]


def _by_topic(partitions: set[_Partition]) -> Partitions:
    topics: dict[TopicId, set[int]] = {}
    for topic_id, index in sorted(partitions):
        topics.setdefault(topic_id, set()).add(index)
    return {topic_id: frozenset(indexes) for topic_id, indexes in topics.items()}
