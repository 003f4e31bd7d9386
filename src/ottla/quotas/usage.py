"""How much of their quotas clients use: one meter for each entity that has used something lately, and no more of them
than can be afforded, since clients invent their ids.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from hashlib import sha256
from typing import Final, NamedTuple

from ottla.quotas.entities import Entity
from ottla.quotas.limits import Limit
from ottla.quotas.rates import TokenBucket

MOST_METERS: Final = 10_000
"""For each kind of quota; then the one that was not used for the longest time goes."""
LONGEST_NAME: Final = 200
"""Characters of a name that are kept; of longer ones a digest takes the place of the rest."""
EXPIRED_AT_ONCE: Final = 2


class Meters:
    """Meters by key, the last used ones last. One that is idle is dropped, since it is as good as new."""

    __slots__ = ("_idle_after_ms", "_meters", "_most", "_new")

    def __init__(self, new: Callable[[], TokenBucket], idle_after_ms: float, most: int = MOST_METERS) -> None:
        self._new = new
        self._idle_after_ms = idle_after_ms
        self._most = most
        self._meters: OrderedDict[Hashable, tuple[TokenBucket, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._meters)

    def of(self, key: Hashable, limit_per_s: float, now_ms: float) -> TokenBucket:
        """The meter of a key, which is used now, within this limit."""
        meters = self._meters
        known = meters.get(key)
        if known is None:
            self._expire(now_ms)
            meter = self._new()
        else:
            meter = known[0]
            meters.move_to_end(key)
        meter.limit = limit_per_s
        meters[key] = meter, now_ms
        return meter

    def _expire(self, now_ms: float) -> None:
        meters = self._meters
        for _ in range(EXPIRED_AT_ONCE):
            if not meters:
                return
            oldest = next(iter(meters))
            meter, used_ms = meters[oldest]
            is_idle = now_ms - used_ms >= self._idle_after_ms
            if is_idle and meter.excess_ms(now_ms) > 0 and len(meters) < self._most:
                meters.move_to_end(oldest)  # its user has to wait still
            elif is_idle or len(meters) >= self._most:
                del meters[oldest]
            else:
                return

    def in_use(self, now_ms: float) -> list[tuple[Hashable, TokenBucket]]:
        """The meters that are not idle, or whose users have to wait, by key."""
        since = now_ms - self._idle_after_ms
        return [
            (key, meter)
            for key, (meter, used_ms) in self._meters.items()
            if used_ms > since or meter.excess_ms(now_ms) > 0
        ]


def key_of(limit: Limit) -> Entity:
    """The user of a quota, in a form that takes little memory."""
    user, client_id, _ = limit.used_by
    return Entity(_shortened(user), _shortened(client_id))


def _shortened(name: str | None) -> str | None:
    if name is None or len(name) <= LONGEST_NAME:
        return name
    return f"{name[:LONGEST_NAME]}...{sha256(name.encode(errors='surrogatepass')).hexdigest()[:16]}"


class Used(NamedTuple):
    """How much of a quota is used now."""

    kind: str
    entity: Entity
    limit_per_s: float
    used_per_s: float
    throttled_ms: int
    """How long a request would be throttled that uses nothing more."""
