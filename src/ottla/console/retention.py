"""Why a record is still there, and when it will go: from a topic's settings, and the record's place. PURE.

Brokers delete whole segments: all records of one are past `retention.ms`, or so much was written after it that
`retention.bytes` is there without it. Clients cannot see segments. How large one is, and when it was closed, is
estimated from the partition's size and the records' times; `segment.ms` and `segment.bytes` bound it.

Compaction keeps the latest record of each key; it never looks at the segment that is being written to.

Source: Kafka's documentation of topic settings; its `UnifiedLog.deleteOldSegments` and `LogCleanerManager`.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, NamedTuple

from ottla.console.values import human_bytes

CHECK_MS: Final = 300_000
"""Brokers look every five minutes (`log.retention.check.interval.ms`), unless they are set otherwise."""
_DAY_MS: Final = 86_400_000
_NEVER: Final = 2**62
_DEFAULTS: Final[Mapping[str, int]] = {
    "retention.ms": 7 * _DAY_MS,
    "retention.bytes": -1,
    "segment.ms": 7 * _DAY_MS,
    "segment.bytes": 1 << 30,
    "min.compaction.lag.ms": 0,
    "max.compaction.lag.ms": _NEVER,
    "delete.retention.ms": _DAY_MS,
}


class Place(NamedTuple):
    """Where a record is, and what is around it."""

    offset: int
    timestamp_ms: int
    first: int
    """The first offset of the partition."""
    end: int
    size_bytes: int | None
    """The partition's size on its leader."""
    newest_ms: int | None
    """The largest timestamp of the partition."""
    has_key: bool = True
    is_tombstone: bool = False


class Stay(NamedTuple):
    """Two sentences."""

    why: str
    when: str


def stay(settings: Mapping[str, str], place: Place, now_ms: int) -> Stay:
    """Why a record is still there, and when it will go."""
    policy = {each.strip() for each in settings.get("cleanup.policy", "delete").split(",")}
    numbers = {name: _number(settings.get(name), default) for name, default in _DEFAULTS.items()}
    deleted = _deleted(numbers, place, now_ms)
    if "compact" not in policy:
        return deleted
    compacted = _compacted(numbers, place, now_ms)
    if "delete" not in policy:
        return compacted
    return Stay(f"{compacted.why} {deleted.why}", f"{compacted.when} In any case: {deleted.when}")


def _number(text: str | None, default: int) -> int:
    try:
        return default if text is None else int(text)
    except ValueError:
        return default


# -- deletion --------------------------------------------------------------------------------------------------------


class _Bound(NamedTuple):
    """What follows from one limit."""

    why: str
    when: str
    about_ms: float
    """When the record goes by it, as far as that is known."""


def _deleted(numbers: Mapping[str, int], place: Place, now_ms: int) -> Stay:
    bounds = []
    if numbers["retention.ms"] >= 0:
        bounds.append(_by_time(numbers, place, now_ms))
    if numbers["retention.bytes"] >= 0:
        bounds.append(_by_size(numbers, place, now_ms))
    if not bounds:
        return Stay(
            "This topic deletes nothing: neither retention.ms nor retention.bytes limits it.",
            "It stays until somebody deletes the records up to it, or the topic.",
        )
    first = min(bounds, key=lambda bound: bound.about_ms)
    return Stay(" ".join(bound.why for bound in bounds), first.when)


def _by_time(numbers: Mapping[str, int], place: Place, now_ms: int) -> _Bound:
    kept_ms = numbers["retention.ms"]
    earliest = place.timestamp_ms + kept_ms
    latest = earliest + _segment_ms(numbers, place) + CHECK_MS
    if place.timestamp_ms > now_ms:
        why = (
            f"Its timestamp is {duration(place.timestamp_ms - now_ms)} in the future, and retention.ms counts from it."
        )
    elif now_ms < earliest:
        why = (
            f"It is {duration(now_ms - place.timestamp_ms)} old, and retention.ms keeps records for "
            f"{duration(kept_ms)}."
        )
    else:
        why = (
            f"It is {duration(now_ms - place.timestamp_ms)} old, past the {duration(kept_ms)} of retention.ms; but "
            "records go by whole segments, and its segment may have newer ones."
        )
    if now_ms < earliest:
        when = (
            f"It goes after {moment(earliest)}, with the newest record of its segment: by {moment(latest)}, as "
            "estimated from segment.ms, segment.bytes and the rate of writes."
        )
    elif now_ms < latest:
        when = f"It goes by {moment(latest)}, as estimated from segment.ms, segment.bytes and the rate of writes."
    else:
        when = (
            f"It should have gone by {moment(latest)}: look at the log of the partition's leader, which may be unable "
            "to delete, or may look more rarely than every five minutes."
        )
    return _Bound(why, when, max(earliest, now_ms))


def _segment_ms(numbers: Mapping[str, int], place: Place) -> int:
    """How long after a record its segment may get newer ones: until `segment.ms`, or until `segment.bytes` is full."""
    rate = _bytes_per_ms(place)
    full_ms = numbers["segment.bytes"] / rate if rate else _NEVER
    return int(min(numbers["segment.ms"], full_ms))


def _by_size(numbers: Mapping[str, int], place: Place, now_ms: int) -> _Bound:
    kept = numbers["retention.bytes"]
    after = _bytes_after(place)
    if after is None:
        return _Bound(
            f"retention.bytes keeps {human_bytes(kept)} of each partition.",
            f"It goes when {human_bytes(kept)} have been written after its segment; the partition's size is unknown.",
            _NEVER,
        )
    why = f"About {human_bytes(after)} have been written after it, and retention.bytes keeps {human_bytes(kept)}."
    missing = kept - after
    if missing <= 0:
        when = (
            "It goes when its whole segment is not needed for retention.bytes: with the next checks of the broker, or "
            f"when the segment of at most {human_bytes(numbers['segment.bytes'])} has been closed."
        )
        return _Bound(why, when, now_ms)
    rate = _bytes_per_ms(place)
    if not rate:
        return _Bound(why, f"It goes after about {human_bytes(missing)} more; nothing has come after it yet.", _NEVER)
    about = now_ms + missing / rate
    return _Bound(why, f"It goes after about {human_bytes(missing)} more, at the present rate {moment(about)}.", about)


def _bytes_after(place: Place) -> float | None:
    """As if all records of the partition had one size."""
    if place.size_bytes is None or place.end <= place.first:
        return None
    return place.size_bytes / (place.end - place.first) * (place.end - place.offset - 1)


def _bytes_per_ms(place: Place) -> float:
    """The rate of writes since the record; 0 where it is unknown."""
    after = _bytes_after(place)
    if not after or place.newest_ms is None or place.newest_ms <= place.timestamp_ms:
        return 0.0
    return after / (place.newest_ms - place.timestamp_ms)


# -- compaction ------------------------------------------------------------------------------------------------------


def _compacted(numbers: Mapping[str, int], place: Place, now_ms: int) -> Stay:
    if not place.has_key:
        return Stay(
            "This topic is compacted, and the record has no key: it was written before the topic was.",
            "It goes when its segment is compacted.",
        )
    lag_ms = numbers["min.compaction.lag.ms"]
    if place.is_tombstone:
        return Stay(
            "It is a tombstone: it has consumers learn that its key was deleted.",
            f"It goes {duration(numbers['delete.retention.ms'])} (delete.retention.ms) after compaction has removed "
            "what was there before it.",
        )
    why = "Compaction keeps the latest record of each key, and others for a while."
    held_until = place.timestamp_ms + lag_ms
    if lag_ms > 0 and now_ms < held_until:
        return Stay(
            f"{why} min.compaction.lag.ms keeps it in any case until {moment(held_until)}.",
            "It goes in a compaction after that, if its key has a later record; otherwise it stays.",
        )
    most_ms = numbers["max.compaction.lag.ms"]
    soon = f", at most {duration(most_ms)} (max.compaction.lag.ms) after it was written" if most_ms < _NEVER else ""
    return Stay(
        why,
        "If its key has a later record, it goes in a compaction after the segment that is written to has been "
        f"closed{soon}; otherwise it stays until its key gets one.",
    )


# -- words -----------------------------------------------------------------------------------------------------------


def duration(length_ms: float) -> str:
    """`3 days`, `1 hour`, `250 ms`: rounded down to one unit."""
    for unit, size in (("day", _DAY_MS), ("hour", 3_600_000), ("minute", 60_000), ("second", 1_000)):
        if length_ms >= size:
            number = int(length_ms // size)
            return f"{number:,} {unit}{'s' if number > 1 else ''}"
    return f"{int(length_ms)} ms"


def moment(at_ms: float) -> str:
    """`2026-01-01 00:00 UTC`; or that it is too far away for a calendar."""
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (ValueError, OverflowError, OSError):
        return "a time that no calendar has"
