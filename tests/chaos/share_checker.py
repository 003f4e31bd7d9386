"""PURE: what members of a share group were given contradicts what a share group promises, faults or not.

A record is in one member's hands at a time, as long as its lock lasts; what is confirmed as finished does not come
again; nothing acknowledged to a producer is left out; of two records with one key the later one is given out when the
earlier one is finished (`share.delivery.order=key`). Locks and delivery counts of records in hand live in the leader's
memory, as in Kafka: around a fault they may begin anew, and only what is written down is judged there.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from typing import Final

from tests.support.share_workers import Handled

LOCK_SHARE: Final = 3
"""A member may take up a record only some time after it was locked for it: within this part of the lock's time another
one must not have it."""

Place = tuple[int, int]
"""Partition and offset."""


class ShareKind(Enum):
    """What can be wrong."""

    LEFT_OUT = "left out"
    """Acknowledged to its producer, and never given to anybody, or never finished."""
    GIVEN_AGAIN = "given again after it was finished"
    TWO_HANDS = "in two hands at once"
    DELIVERY_COUNT = "wrong delivery count"
    KEY_ORDER = "keys out of order"


@dataclass(frozen=True, slots=True)
class ShareAnomaly:
    """One contradiction, in a sentence."""

    kind: ShareKind
    text: str


@dataclass(frozen=True, slots=True)
class Shared:
    """What happened in a run; times are nanoseconds of one clock."""

    sent: Mapping[Place, str]
    """The keys of the records that were acknowledged to their producer."""
    handled: Iterable[Handled]
    confirmed: Mapping[Place, int]
    """When a member is known to have received the answer that the record is finished."""
    start_offsets: Mapping[int, int]
    """Below it everything in a partition is finished, as the group's coordinator says in the end."""
    lock_ns: int
    delivery_limit: int
    faults: list[tuple[int, int]] = field(default_factory=list)
    """From when to when something was broken, members included."""
    late: frozenset[Handled] = frozenset()
    """What members took up after they had been held up: see `taken_late`."""

    def is_quiet(self, start: int, end: int) -> bool:
        """Whether nothing was broken in between."""
        return not any(began <= end and ended >= start for began, ended in self.faults)


def taken_late(handled: Iterable[Handled], lock_ns: int, at_once: int) -> Iterator[Handled]:
    """What the members of one process may have received before they were held up for longer than locks last.

    A call that no broker answers keeps Java's client for a minute, and then it hands out what it had fetched before,
    locked or not: at most `at_once`, the records of a poll and of the fetch behind it.
    """
    free_at: dict[int, int] = {}
    left: dict[int, int] = defaultdict(int)
    for one in handled:
        if one.began_ns - free_at.get(one.member, one.began_ns) > lock_ns:
            left[one.member] = at_once
        free_at[one.member] = one.ended_ns
        if left[one.member]:
            left[one.member] -= 1
            yield one


def check_shared(shared: Shared) -> list[ShareAnomaly]:
    """All anomalies; none is what a sound broker gives."""
    by_place: dict[Place, list[Handled]] = defaultdict(list)
    for one in shared.handled:
        by_place[one.partition, one.offset].append(one)
    for ones in by_place.values():
        ones.sort(key=lambda one: one.began_ns)
    checks = (_left_out, _given_again, _two_hands, _delivery_counts, _key_order)
    return [anomaly for check in checks for anomaly in check(shared, by_place)]


Deliveries = Mapping[Place, list[Handled]]


def _left_out(shared: Shared, by_place: Deliveries) -> Iterator[ShareAnomaly]:
    """A record that a member has accepted may be finished without its knowledge; only the coordinator can say that."""
    for place in shared.sent.keys() - shared.confirmed.keys():
        ones = by_place.get(place, ())
        highest = max((one.delivery_count for one in ones), default=0)
        was_accepted = any(one.outcome != "release" for one in ones)
        is_finished = place[1] < shared.start_offsets.get(place[0], 0)
        if highest < shared.delivery_limit and not (was_accepted and is_finished):
            how = "was skipped" if is_finished else "is not finished"
            yield ShareAnomaly(ShareKind.LEFT_OUT, f"{place} {how}; it was given out {highest} times at most")


def _given_again(shared: Shared, by_place: Deliveries) -> Iterator[ShareAnomaly]:
    for place, at in shared.confirmed.items():
        for one in by_place.get(place, ()):
            if one.began_ns > at and one not in shared.late:
                yield ShareAnomaly(
                    ShareKind.GIVEN_AGAIN,
                    f"{place} was finished, and {(one.began_ns - at) / 1e9:.3f} s later given to member {one.member}",
                )


def _pairs(shared: Shared, by_place: Deliveries) -> Iterator[tuple[Place, Handled, Handled]]:
    for place, ones in by_place.items():
        for first, second in pairwise(one for one in ones if one not in shared.late):
            yield place, first, second


def _two_hands(shared: Shared, by_place: Deliveries) -> Iterator[ShareAnomaly]:
    for place, first, second in _pairs(shared, by_place):
        if first.outcome == "release" and second.began_ns >= first.ended_ns:
            continue
        gap = second.began_ns - first.began_ns
        if gap < shared.lock_ns // LOCK_SHARE and shared.is_quiet(first.began_ns - shared.lock_ns, second.began_ns):
            yield ShareAnomaly(
                ShareKind.TWO_HANDS,
                f"{place} was given to member {second.member} {gap / 1e9:.3f} s after member {first.member} took it up",
            )


def _delivery_counts(shared: Shared, by_place: Deliveries) -> Iterator[ShareAnomaly]:
    for place, ones in by_place.items():
        for one in ones:
            if not 1 <= one.delivery_count <= shared.delivery_limit:
                yield ShareAnomaly(ShareKind.DELIVERY_COUNT, f"{place} was delivered for time {one.delivery_count}")
    for place, first, second in _pairs(shared, by_place):
        quiet = shared.is_quiet(first.began_ns - shared.lock_ns, second.began_ns)
        if quiet and second.delivery_count <= first.delivery_count:
            yield ShareAnomaly(
                ShareKind.DELIVERY_COUNT,
                f"{place} was delivered for time {first.delivery_count}, and then for time {second.delivery_count}",
            )


def _key_order(shared: Shared, by_place: Deliveries) -> Iterator[ShareAnomaly]:
    """A record is given out when one member at least is through with each earlier one of its key."""
    finished: dict[Place, int] = {
        place: min((one.ended_ns for one in ones if one.outcome != "release"), default=-1)
        for place, ones in by_place.items()
    }
    by_key: dict[tuple[int, str], list[Place]] = defaultdict(list)
    for place, ones in by_place.items():
        by_key[place[0], ones[0].key].append(place)
    for (_, key), places in by_key.items():
        places.sort()
        for earlier, later in pairwise(places):
            began, through = by_place[later][0].began_ns, finished[earlier]
            if through < 0 or began < through:
                yield ShareAnomaly(
                    ShareKind.KEY_ORDER, f"{later} with the key {key} was given out before {earlier} was finished"
                )
