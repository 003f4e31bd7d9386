"""What a scrape gathers of the groups that a broker coordinates: their number, committed offsets and lag."""

from collections import Counter
from typing import TYPE_CHECKING, Final

from ottla.errors import OttlaError
from ottla.groups.events import FetchOffsets
from ottla.server.metrics import catalog

if TYPE_CHECKING:
    from ottla.groups.events import GroupListing, OffsetsFetched
    from ottla.metrics.families import Measurements
    from ottla.server.context import Services
    from ottla.server.metrics.gathering import Limits
    from ottla.slices import Steps

SHARE: Final = "share"
PER_STEP: Final = 64
LONGEST_NAME: Final = 255
"""Characters; groups with longer names are left out, since each of their series would repeat up to 32 KB."""
MOST_SERIES: Final = 50_000
"""Committed offsets that are shown; groups beyond are left out. A client with the right to commit can add to them."""


async def gather_groups(services: "Services", limits: "Limits", to: "Measurements") -> None:
    """All groups by state; the offsets of at most `limits.groups` of them."""
    listings = sorted(await services.groups.list_groups())
    to.add(catalog.GROUPS, len(listings))
    for (kind, state), count in Counter((each.group_type, each.state) for each in listings).items():
        to.add(catalog.GROUPS_BY_STATE, count, kind, state)
    # A share group's positions are not committed offsets: its share partitions have them.
    with_offsets = [each for each in listings if each.group_type != SHARE]
    shown = 0
    committed = to.of(catalog.COMMITTED)
    named = [each for each in with_offsets if len(each.group_id) <= LONGEST_NAME]
    for listing in named[: limits.groups]:
        if len(committed.samples) > MOST_SERIES:
            break
        shown += 1
        await services.slices.pause()
        try:
            fetched = await services.groups.fetch_offsets(FetchOffsets(listing.group_id, None))
        except OttlaError:
            continue  # its coordinator has just moved
        await services.slices.run(_offsets(services, listing, fetched, to))
    to.add(catalog.LEFT_OUT, len(with_offsets) - shown, "groups")
    for group in [each for each in services.share_partitions.groups() if len(each) <= LONGEST_NAME][: limits.groups]:
        await services.slices.pause()
        figures = services.share_partitions.figures(group)
        to.add(catalog.SHARE_IN_FLIGHT, figures.in_flight, group)
        to.add(catalog.SHARE_DELIVERED, figures.delivered, group)
        to.add(catalog.SHARE_REDELIVERED, figures.redelivered, group)


def _offsets(
    services: "Services", listing: "GroupListing", fetched: "OffsetsFetched", to: "Measurements"
) -> "Steps[None]":
    find = services.replicas.find
    group = str(listing.group_id)
    committed, lags = to.of(catalog.COMMITTED), to.of(catalog.LAG)
    for topic, offsets in fetched.topics:
        if topic not in services.metadata.image.topics:
            continue  # deleted
        for number, found in enumerate(offsets):
            if number % PER_STEP == 0:
                yield
            if found.offset < 0:
                continue
            label = str(found.partition)
            committed.add(found.offset, group, topic, label)
            partition = find(topic, found.partition)
            if partition is not None:
                lags.add(max(partition.log.high_watermark - found.offset, 0), group, topic, label)
