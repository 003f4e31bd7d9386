"""What the overview shows: health, the rate of records, the groups that are behind, and the space on disks."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from ottla.admin import Cluster
from ottla.client.errors import ClientError
from ottla.console.brokers import BrokerRow, broker_rows, log_directories
from ottla.console.cluster import ClusterView, Group
from ottla.console.findings import Finding, findings
from ottla.console.plots import Plot, Sample, plot

GROUPS_ASKED: Final = 500
"""Groups whose lag is asked for; a cluster of more has its lags on the page of the groups."""
PARTITIONS_ASKED: Final = 2_000
"""Partitions whose ends are asked for, which makes the rate; a cluster of more has none."""
GROUPS_SHOWN: Final = 5
ENDS_S: Final = 5.0
"""How old a sum of ends may be."""


class GroupBehind(NamedTuple):
    """A group that has records to read."""

    group: Group
    lag: int


class Overview(NamedTuple):
    """All that the overview shows.

    `rate`: records written a second since the sample before, None until there are two, or in a cluster too large for
    it. `lag`: records that all groups together have to read; None where it was not asked for.
    """

    cluster: Cluster
    findings: list[Finding]
    brokers: list[BrokerRow]
    topics: int
    groups: int
    lag: int | None
    behind: list[GroupBehind]
    rate: float | None
    rates: Plot | None


async def overview(view: ClusterView) -> Overview:
    """The overview, as all viewers share it. Raises ClientError."""
    view.trends.follow("rate", lambda: _sample_rate(view))
    return await view.shared.get("overview", lambda: _overview(view))


async def _overview(view: ClusterView) -> Overview:
    cluster = await view.cluster()
    topics = await view.topics()
    groups = await view.groups()
    directories = await log_directories(view, cluster)
    lags = await _lags(view, groups)
    await _sample_rate(view)
    rates = rates_of(view.trends.of("rate").records.samples)
    return Overview(
        cluster,
        findings(cluster, {}, directories),
        broker_rows(cluster, directories),
        sum(not topic.is_internal for topic in topics),
        len(groups),
        None if lags is None else sum(lags.values()),
        [] if lags is None else furthest_behind(groups, lags),
        rates[-1].value if rates else None,
        plot(rates, lambda rate: f"{rate:,.0f} records/s"),
    )


async def _lags(view: ClusterView, groups: Sequence[Group]) -> dict[str, int] | None:
    if len(groups) > GROUPS_ASKED:
        return None
    try:
        return await view.group_lags(groups)
    except ClientError:  # the user may see only some of the groups; the page of each has the reason
        return None


async def _sample_rate(view: ClusterView) -> None:
    await view.shared.get("sum of ends", lambda: _sum_ends(view), ENDS_S)


async def _sum_ends(view: ClusterView) -> None:
    cluster = await view.cluster()
    if len(cluster.partitions) > PARTITIONS_ASKED:
        return
    wanted = [each for each in cluster.partitions if not each.topic.startswith("__")]
    ends = await view.dear(lambda admin: admin.list_leader_ends(cluster, wanted))
    if wanted and len(ends) == len(wanted):  # else the sum would fall, and rise again
        view.trends.of("rate").records.add(view.trends.now(), sum(ends.values()))


# -- pure --------------------------------------------------------------------------------------------------------------


def furthest_behind(groups: Sequence[Group], lags: Mapping[str, int]) -> list[GroupBehind]:
    """The groups with the largest lag, the largest first."""
    behind = [GroupBehind(group, lags[group.name]) for group in groups if lags.get(group.name)]
    return sorted(behind, key=lambda each: (-each.lag, each.group.name))[:GROUPS_SHOWN]


def rates_of(sums: Sequence[Sample]) -> list[Sample]:
    """Records a second between samples of the sum of all ends. A sum falls when a topic is deleted: that counts as
    nothing."""
    return [
        Sample(after.at, max(after.value - before.value, 0.0) / (after.at - before.at))
        for before, after in pairwise(sums)
    ]
