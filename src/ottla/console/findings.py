"""What is healthy in a cluster and what is not, in sentences, each with the next step. PURE."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple

from ottla.admin import Cluster, LogDirectory, Partition, PartitionState
from ottla.console.values import human_bytes

LEAST_FREE: Final = 0.1
"""The share of a volume below which somebody has to act."""


class Severity(Enum):
    """How much a finding matters."""

    BAD = "bad"
    WARNING = "warning"
    GOOD = "good"


class Finding(NamedTuple):
    """One sentence about the cluster."""

    severity: Severity
    text: str
    next_step: str = ""
    link: str = ""


def findings(
    cluster: Cluster,
    min_in_sync: Mapping[str, int],
    directories: Mapping[int, Sequence[LogDirectory]] = MappingProxyType({}),
) -> list[Finding]:
    """All findings, the worst first.

    min_in_sync: `min.insync.replicas` of topics, as far as it is known.
    directories: the log directories of brokers that show them.
    """
    offline = [partition for partition, state in cluster.partitions.items() if state.leader is None]
    behind = [each for each, state in cluster.partitions.items() if len(state.in_sync) < len(state.replicas)]
    refusing = [each for each, state in cluster.partitions.items() if _refuses(each, state, min_in_sync)]
    gone = {replica for state in cluster.partitions.values() for replica in state.replicas} - cluster.brokers.keys()
    found: list[Finding] = []
    if cluster.controller is None:
        found.append(
            Finding(
                Severity.BAD,
                "The cluster has no controller.",
                "An election takes seconds. If it lasts, see whether the brokers and their metadata store run.",
            )
        )
    if offline:
        found.append(
            Finding(
                Severity.BAD,
                f"{_count(offline)} without a leader can be neither read nor written.",
                f"Start the brokers that have replicas: {_numbers(gone)}." if gone else "See the logs of the brokers.",
                f"/topics?state=offline&q={offline[0].topic}",
            )
        )
    if refusing:
        found.append(
            Finding(
                Severity.BAD,
                f"{_count(refusing)} with too few replicas in sync: producers with acks=all are refused.",
                f"Start the brokers that are down: {_numbers(gone)}." if gone else "See why their followers lag.",
                "/topics?state=behind",
            )
        )
    if gone:
        found.append(
            Finding(
                Severity.WARNING,
                f"{'Brokers' if len(gone) > 1 else 'Broker'} {_numbers(gone)} should have replicas, but "
                f"{'are' if len(gone) > 1 else 'is'} not there.",
                "Start it, or move its replicas to other brokers.",
            )
        )
    elif behind:
        found.append(
            Finding(
                Severity.WARNING,
                f"{_count(behind)} with replicas that are not in sync.",
                "They catch up by themselves after a restart. If it lasts, see the disks and the network.",
                "/topics?state=behind",
            )
        )
    found += _disk_findings(directories)
    found.sort(key=lambda each: each.severity is not Severity.BAD)
    if not found:
        found.append(Finding(Severity.GOOD, "Everything is in order: all partitions have a leader and all replicas."))
    return found


def _disk_findings(directories: Mapping[int, Sequence[LogDirectory]]) -> Iterator[Finding]:
    for broker, each in ((broker, each) for broker, there in directories.items() for each in there):
        if each.problem:
            yield Finding(
                Severity.BAD,
                f"Broker {broker} does not use its log directory {each.path}: {each.problem}.",
                "Replace the disk, then start the broker again: it copies what was there from the other replicas.",
                "/cluster",
            )
        elif each.total_bytes and each.usable_bytes is not None and each.usable_bytes < LEAST_FREE * each.total_bytes:
            yield Finding(
                Severity.WARNING,
                f"Broker {broker} has {human_bytes(each.usable_bytes)} of {human_bytes(each.total_bytes)} left on the "
                f"disk of {each.path}.",
                "Shorten retention.ms or retention.bytes of large topics, trim or delete topics, or move replicas.",
                "/cluster",
            )


def _refuses(partition: Partition, state: PartitionState, min_in_sync: Mapping[str, int]) -> bool:
    needed = min(min_in_sync.get(partition.topic, 1), len(state.replicas))
    return state.leader is not None and len(state.in_sync) < needed


def _count(partitions: list[Partition]) -> str:
    return "1 partition" if len(partitions) == 1 else f"{len(partitions):,} partitions"


def _numbers(brokers: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(brokers)))
