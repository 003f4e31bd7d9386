"""The uniform assignor: loads as even as subscriptions allow, and nothing moved without need. PURE.

1. Every member keeps its partitions, where it is still subscribed to the topic.
2. Free partitions go to the least loaded members: first, as far as that keeps loads even, to members in a rack with a
   replica of the partition.
3. While of the subscribers of a topic one has two more than another, one of its partitions moves there.

Topics with the same subscribers are dealt with together, as a pool. With one pool (all members are subscribed to the
same) loads differ by one at most; with pools that overlap, step 3 is repeated until it finds nothing, or
`MAX_ROUNDS` times.

Kafka 4.3's assignor of this name balances and sticks alike, but looks at no racks.
"""

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple, TypeAlias

from ottla.groups.consumer.assignors import AssignmentProblem
from ottla.groups.consumer.events import Partitions
from ottla.ids import MemberId, TopicId

MAX_ROUNDS: Final = 16

_Partition: TypeAlias = tuple[TopicId, int]
_NOBODY: Final = -1


class _Pool(NamedTuple):
    """Topics that have the same subscribers; members by their number."""

    subscribers: Sequence[int]
    topics: Sequence[TopicId]


class UniformAssignment:
    """One assignment being worked out."""

    def __init__(self, problem: AssignmentProblem) -> None:
        self._problem = problem
        self._members: list[MemberId] = sorted(problem.subscribers)
        self._racks = [problem.subscribers[member].rack_id for member in self._members]
        self._loads = [0] * len(self._members)
        self._changed: set[int] = set()
        """Members whose assignment changes."""
        self._owners: dict[TopicId, list[int]] = {
            topic_id: [_NOBODY] * topic.partition_count for topic_id, topic in problem.topics.items()
        }
        self._pools = self._make_pools()
        members_have_racks = any(rack is not None for rack in self._racks)
        self._rack_aware = members_have_racks and any(any(topic.racks) for topic in problem.topics.values())

    def solve(self) -> Mapping[MemberId, Partitions]:
        """The assignment of every member: as even as the subscriptions allow, with few moves."""
        self._keep()
        for pool in self._pools:
            self._assign_the_rest(pool)
        for _ in range(MAX_ROUNDS):
            moved = [self._balance(pool) for pool in self._pools]
            if not any(moved) or len(self._pools) == 1:
                break
        return self._result()

    def _make_pools(self) -> list[_Pool]:
        """Those with most partitions for each subscriber first, then those that fewer are subscribed to."""
        subscribers: dict[TopicId, list[int]] = {}
        for number, member in enumerate(self._members):
            for topic_id in self._problem.subscribers[member].topics:
                subscribers.setdefault(topic_id, []).append(number)
        pools: dict[tuple[int, ...], list[TopicId]] = {}
        for topic_id in sorted(subscribers):
            pools.setdefault(tuple(subscribers[topic_id]), []).append(topic_id)

        def partitions_each(pool: _Pool) -> float:
            return sum(len(self._owners[topic_id]) for topic_id in pool.topics) / len(pool.subscribers)

        made = [_Pool(numbers, topics) for numbers, topics in pools.items()]
        return sorted(made, key=lambda pool: (-partitions_each(pool), len(pool.subscribers), pool.topics[0]))

    # --- 1 ---

    def _keep(self) -> None:
        for number, member in enumerate(self._members):
            subscriber = self._problem.subscribers[member]
            kept = 0
            for topic_id, partitions in subscriber.target.items():
                if topic_id not in subscriber.topics:
                    self._changed.add(number)
                    continue
                owners = self._owners[topic_id]
                for partition in partitions:
                    if partition < len(owners) and owners[partition] == _NOBODY:
                        owners[partition] = number
                        kept += 1
                    else:
                        self._changed.add(number)
            self._loads[number] = kept

    # --- 2 ---

    def _assign_the_rest(self, pool: _Pool) -> None:
        free = [
            (topic_id, partition)
            for topic_id in pool.topics
            for partition, owner in enumerate(self._owners[topic_id])
            if owner == _NOBODY
        ]
        if free and self._rack_aware:
            free = self._assign_within_racks(pool, free)
        if not free:
            return
        by_load = [(self._loads[number], number) for number in pool.subscribers]
        heapify(by_load)
        for partition in free:
            load, number = heappop(by_load)
            self._give(partition, number)
            heappush(by_load, (load + 1, number))

    def _assign_within_racks(self, pool: _Pool, free: list[_Partition]) -> list[_Partition]:
        """Returns the partitions that would give any member more than the others will have."""
        level = (sum(self._loads[number] for number in pool.subscribers) + len(free)) // len(pool.subscribers)
        by_rack: dict[str, list[tuple[int, int]]] = {}
        for number in pool.subscribers:
            rack = self._racks[number]
            if rack is not None and self._loads[number] < level:
                by_rack.setdefault(rack, []).append((self._loads[number], number))
        for members in by_rack.values():
            heapify(members)
        left: list[_Partition] = []
        for partition in free:
            candidates = [heap for rack in self._racks_of(partition) if (heap := by_rack.get(rack))]
            if not candidates:
                left.append(partition)
                continue
            nearby = min(candidates, key=lambda heap: heap[0])
            load, number = heappop(nearby)
            self._give(partition, number)
            if load + 1 < level:
                heappush(nearby, (load + 1, number))
        return left

    # --- 3 ---

    def _balance(self, pool: _Pool) -> bool:
        """Move partitions of the pool from the most to the least loaded members; False: nothing to move."""
        loads = self._loads
        least = [(loads[number], number) for number in pool.subscribers]
        if max(least)[0] - min(least)[0] <= 1:
            return False
        owned: dict[int, list[_Partition]] = {}
        for topic_id in pool.topics:
            for index, owner in enumerate(self._owners[topic_id]):
                owned.setdefault(owner, []).append((topic_id, index))
        most = [(-loads[number], -number) for number in owned]
        heapify(least)
        heapify(most)
        moved = False
        while most:
            giver = -most[0][1]
            taker = least[0][1]
            if least[0][0] != loads[taker]:  # it has given since
                heappop(least)
                heappush(least, (loads[taker], taker))
                continue
            if loads[giver] - loads[taker] <= 1:
                break
            partition = self._take_from(owned[giver], giver, taker)
            self._changed.add(giver)
            loads[giver] -= 1
            self._give(partition, taker)
            owned.setdefault(taker, []).append(partition)
            heappop(most)
            if owned[giver]:
                heappush(most, (-loads[giver], -giver))
            heappop(least)
            heappush(least, (loads[taker], taker))
            moved = True
        return moved

    def _take_from(self, partitions: list[_Partition], giver: int, taker: int) -> _Partition:
        """The partition that is nearer to the one than to the other, the last of them if all are alike."""
        if not self._rack_aware:
            return partitions.pop()
        from_rack, to_rack = self._racks[giver], self._racks[taker]
        best, best_gain = len(partitions) - 1, -2
        for place in range(len(partitions) - 1, -1, -1):
            racks = self._racks_of(partitions[place])
            gain = (to_rack in racks) - (from_rack in racks)
            if gain > best_gain:
                best, best_gain = place, gain
        return partitions.pop(best)

    # --- small things ---

    def _racks_of(self, partition: _Partition) -> tuple[str, ...]:
        return self._problem.topics[partition[0]].racks[partition[1]]

    def _give(self, partition: _Partition, number: int) -> None:
        self._owners[partition[0]][partition[1]] = number
        self._loads[number] += 1
        self._changed.add(number)

    def _result(self) -> Mapping[MemberId, Partitions]:
        """A member with an unchanged assignment gets the very same object, which costs neither memory nor a
        comparison."""
        sets: dict[int, dict[TopicId, set[int]]] = {number: {} for number in self._changed}
        if sets:
            for topic_id, owners in self._owners.items():
                for partition, number in enumerate(owners):
                    if number in sets:
                        sets[number].setdefault(topic_id, set()).add(partition)
        result: dict[MemberId, Partitions] = {}
        for number, member in enumerate(self._members):
            target = self._problem.subscribers[member].target
            partitions = sets.get(number, target)
            if partitions == target:
                result[member] = target
            else:
                result[member] = {topic_id: frozenset(indexes) for topic_id, indexes in partitions.items()}
        return result
