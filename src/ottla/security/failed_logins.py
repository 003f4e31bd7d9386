"""How many failed logins are taken from an address, and of a user. PURE: the time is an argument.

Both are buckets of failures that empty with time. A login that has succeeded before is not counted: a script that
guesses from the address of a proxy, or at the name of a user, shuts out nobody with a login that works.
"""

import ipaddress
import math
from collections import OrderedDict
from typing import Final, NamedTuple

PER_ADDRESS: Final = 10
PER_USER: Final = 50
"""Failures that are taken at once; afterwards one in `REFILL_S`."""
REFILL_S: Final = 6.0
MOST_KEPT: Final = 10_000
_NETWORK_OF_ONE: Final = 64
"""Bits of an IPv6 network that one client may have to itself."""


class _Bucket(NamedTuple):
    failures: float
    at: float


class FailedLogins:
    """Counts them. A key that has not been seen for longest is forgotten first."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[tuple[str, str], _Bucket] = OrderedDict()

    def wait_s(self, address: str, user: str | None, now: float) -> int:
        """After how many seconds an attempt is taken; 0: now."""
        waits = (math.ceil((self._level(key, now) - most + 1) * REFILL_S) for key, most in _keys(address, user))
        return max(0, *waits)

    def note(self, address: str, user: str | None, now: float) -> None:
        """An attempt begins: it counts as failed until `forgive`, or many at once would all be taken."""
        for key, _ in _keys(address, user):
            self._buckets[key] = _Bucket(self._level(key, now) + 1, now)
            self._buckets.move_to_end(key)
        while len(self._buckets) > MOST_KEPT:
            self._buckets.popitem(last=False)

    def forgive(self, address: str, user: str | None, now: float) -> None:
        """The attempt has succeeded."""
        for key, _ in _keys(address, user):
            level = self._level(key, now) - 1
            if level > 0:
                self._buckets[key] = _Bucket(level, now)
            else:
                self._buckets.pop(key, None)

    def _level(self, key: tuple[str, str], now: float) -> float:
        bucket = self._buckets.get(key)
        return 0.0 if bucket is None else max(0.0, bucket.failures - (now - bucket.at) / REFILL_S)


def _keys(address: str, user: str | None) -> list[tuple[tuple[str, str], int]]:
    keys = [(("address", network(address)), PER_ADDRESS)]
    return keys if user is None else [*keys, (("user", user[:200]), PER_USER)]


def network(address: str) -> str:
    """What one client may have of addresses: one of IPv4, a network of IPv6."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address[:100]
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(ipaddress.ip_network((found, _NETWORK_OF_ONE), strict=False))
    return str(found)
