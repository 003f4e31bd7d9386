"""What an action will lose or move, computed before it is done, in sentences. PURE."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from ottla.client.moving import Move
from ottla.client.partition import Partition
from ottla.console.cluster import LagRow, PartitionRow
from ottla.console.values import human_bytes

NEVER: Final = -1
"""A retention without a limit."""


class Trim(NamedTuple):
    """The records of a partition before an offset."""

    partition: int
    first: int
    end: int
    to: int
    size_bytes: int | None
    """The size of all records of the partition."""

    @property
    def records(self) -> int:
        """Offsets that are lost; some of them may have no record."""
        return self.to - self.first

    @property
    def lost_bytes(self) -> int | None:
        """About so many bytes are lost: as if all records were equally large."""
        if self.size_bytes is None:
            return None
        return 0 if self.end == self.first else round(self.size_bytes * self.records / (self.end - self.first))


def trims(rows: Iterable[PartitionRow], targets: Mapping[int, int]) -> list[Trim]:
    """What trimming to these offsets loses, by partition; one without a leader, or without a loss, is left out."""
    found = []
    for row in rows:
        if row.first is None or row.end is None or row.number not in targets:
            continue
        to = min(max(targets[row.number], row.first), row.end)
        if to > row.first:
            found.append(Trim(row.number, row.first, row.end, to, row.size_bytes))
    return found


def whole(rows: Iterable[PartitionRow]) -> list[Trim]:
    """All records of a topic, as what its deletion loses."""
    listed = list(rows)
    return trims(listed, {row.number: row.end for row in listed if row.end is not None})


def loss(lost: Iterable[Trim]) -> str:
    """`1,200 records (about 3.4 MB)`."""
    listed = list(lost)
    records = counted(sum(each.records for each in listed), "record")
    sizes = [each.lost_bytes for each in listed]
    known = sum(size for size in sizes if size is not None)
    return f"{records} (about {human_bytes(known)})" if known else records


def counted(number: int, thing: str) -> str:
    """`1 record`, `2 records`."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


class Lag(NamedTuple):
    """How a seek changes what a group has still to read; None: unknown before."""

    before: int | None
    after: int


def lag_change(moves: Iterable[Move], lags: Iterable[LagRow]) -> Lag:
    """The lag in the partitions that are moved, before and after."""
    known = {row.partition: row.lag for row in lags}
    listed = list(moves)
    before = [known.get(each.partition) for each in listed]
    total = sum(each for each in before if each is not None)
    return Lag(None if all(each is None for each in before) else total, sum(each.end - each.to for each in listed))


def format_offsets(offsets: Mapping[Partition, int]) -> str:
    """Offsets by partition as one field of a form: what was previewed is what is done."""
    return ",".join(f"{partition.topic}:{partition.partition}:{offset}" for partition, offset in offsets.items())


def parse_offsets(text: str) -> dict[Partition, int]:
    """The offsets of `format_offsets`, at least one. Raises ValueError."""
    found = {}
    for part in text.split(","):
        topic, number, offset = part.rsplit(":", 2)
        if not topic or int(number) < 0 or int(offset) < 0:
            raise ValueError(f"{part!r} is no offset of a partition")
        found[Partition(topic, int(number))] = int(offset)
    return found


# -- settings --------------------------------------------------------------------------------------------------------

LOSING: Final = {
    "retention.ms": "records that are older are deleted, a segment at a time",
    "retention.bytes": "the oldest records of a partition that is larger are deleted, a segment at a time",
    "cleanup.policy": "with compact, older records of a key are deleted; with delete, records beyond the retention",
    "unclean.leader.election.enable": "with true, a replica that is not in sync may lead, and acknowledged records be "
    "lost",
    "remote.storage.enable": "without it, what is in remote storage alone is no longer read, or is deleted there",
    "remote.log.delete.on.disable": "with true, what is in remote storage is deleted when that is turned off",
    "min.insync.replicas": "with fewer, a record may be acknowledged while one broker has it, and be lost with it",
}
"""Settings by which records can be lost, with how."""


def keeps_less(name: str, before: str, value: str | None) -> bool:
    """Whether another value may lose records. None is the default, which is not known here."""
    if name not in LOSING or value == before:
        return False
    if name == "unclean.leader.election.enable":
        return value is None or value.lower() != "false"
    if name == "cleanup.policy" or value is None:
        return True
    try:
        old, new = int(before), int(value)
    except ValueError:
        return True
    if name == "min.insync.replicas":
        return new < old
    return new >= 0 and (old == NEVER or new < old)


def beyond_size(rows: Iterable[PartitionRow], retention_bytes: int) -> int:
    """Bytes by which partitions are larger than that."""
    return sum(max((row.size_bytes or 0) - retention_bytes, 0) for row in rows)


def older(rows: Iterable[PartitionRow], kept_from: Mapping[int, int]) -> list[Trim]:
    """Records before the first one that is young enough, by partition; -1 where none is."""
    listed = list(rows)
    targets = {
        row.number: row.end if kept_from[row.number] < 0 else kept_from[row.number]
        for row in listed
        if row.number in kept_from and row.end is not None
    }
    return trims(listed, targets)
