"""What a share group has been given, and will be given again, partition by partition."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from ottla.admin import Deliveries, Partition, ShareProgress, UnsupportedRequest
from ottla.client.errors import ClientError
from ottla.console.cluster import ClusterView

MOST_PARTITIONS: Final = 500
"""Whose deliveries are asked for; the lag of all is known."""
_KEPT_S: Final = 4.0
_AVAILABLE: Final = "available"
_ACKNOWLEDGED: Final = "acknowledged"
_ARCHIVED: Final = "archived"


class Row(NamedTuple):
    """A partition of a share group, in records. `again`: delivered before, and to be delivered again; `most_often`:
    how often the one of them that was delivered most; `first_again`: the offset of the first of them."""

    partition: Partition
    start: int | None
    lag: int | None
    readers: int
    again: int
    most_often: int
    first_again: int | None
    acknowledged: int
    """Done beyond the start offset, before which everything is done."""
    archived: int
    """Rejected, or delivered too often, beyond the start offset."""


class Shared(NamedTuple):
    """The partitions of a share group; `problem`: why deliveries are not known."""

    rows: list[Row]
    deliveries: Mapping[Partition, Sequence[Deliveries]]
    problem: str = ""

    @property
    def again(self) -> int:
        """Records that were delivered, and will be again."""
        return sum(each.again for each in self.rows)


async def share_rows(view: ClusterView, name: str) -> Shared:
    """The partitions of a share group with their deliveries. Raises ClientError."""
    return await view.shared.get(("deliveries", name), lambda: _share_rows(view, name), _KEPT_S)


async def _share_rows(view: ClusterView, name: str) -> Shared:
    group = await view.quick(lambda admin: admin.describe_share_group(name))
    progress = await view.quick(lambda admin: admin.list_share_group_offsets(name))
    readers = {each: group.readers(each) for each in progress}
    asked = sorted(progress)[:MOST_PARTITIONS]
    try:
        deliveries = await view.dear(lambda admin: admin.list_share_deliveries(name, asked))
    except UnsupportedRequest:
        return Shared(rows(progress, {}, readers), {}, "These brokers do not show what was delivered.")
    except ClientError as refused:
        return Shared(rows(progress, {}, readers), {}, f"What was delivered is not known: {refused}.")
    return Shared(rows(progress, deliveries, readers), deliveries)


def again(kept: Iterable[Deliveries]) -> list[Deliveries]:
    """What was delivered, and will be again. PURE."""
    return [each for each in kept if each.fate == _AVAILABLE and each.count]


def rows(
    progress: Mapping[Partition, ShareProgress],
    deliveries: Mapping[Partition, Sequence[Deliveries]],
    readers: Mapping[Partition, int],
) -> list[Row]:
    """A row for each partition. PURE."""
    found = []
    for partition, each in sorted(progress.items()):
        known = [kept for kept in deliveries.get(partition, ()) if kept.last_offset >= (each.start or 0)]
        waiting = again(known)
        found.append(
            Row(
                partition,
                each.start,
                each.lag,
                readers.get(partition, 0),
                _records(waiting),
                max((kept.count for kept in waiting), default=0),
                min((kept.first_offset for kept in waiting), default=None),
                _records(kept for kept in known if kept.fate == _ACKNOWLEDGED),
                _records(kept for kept in known if kept.fate == _ARCHIVED),
            )
        )
    return found


def _records(kept: Iterable[Deliveries]) -> int:
    return sum(each.last_offset - each.first_offset + 1 for each in kept)
