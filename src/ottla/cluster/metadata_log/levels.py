"""PURE. `metadata.version`, the level that decides which records a cluster's metadata log may have, and the others.

    7 3.3-IV3   8 3.4-IV0   11 3.5-IV2   13 3.6-IV1   14 3.6-IV2   15 3.7-IV0   17 3.7-IV2   23 4.0-IV1   30 4.3-IV0

are those that added records or fields; between them are levels that changed something else. Kafka 4 knows no lower
ones than 7; those above 30 are not meant for production yet.
Source: Kafka 4.3, `MetadataVersion`, `Feature` and the levels it names.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from ottla.cluster.features import METADATA_VERSION, SUPPORTED
from ottla.cluster.image import ELIGIBLE_LEADER_REPLICAS
from ottla.errors import CorruptMessage, InvalidConfig

KRAFT_VERSION: Final = "kraft.version"

_RELEASES: Final = (
    ("3.3", 3, 3), ("3.4", 0, 0), ("3.5", 0, 2), ("3.6", 0, 2), ("3.7", 0, 4), ("3.8", 0, 0), ("3.9", 0, 0),
    ("4.0", 0, 3), ("4.1", 0, 1), ("4.2", 0, 1), ("4.3", 0, 0),
)  # fmt: skip
"""Each release with its first and last inter-broker version."""
LOWEST: Final = 7
NAMES: Final[Mapping[int, str]] = MappingProxyType(
    dict(
        enumerate(
            (f"{release}-IV{version}" for release, first, last in _RELEASES for version in range(first, last + 1)),
            LOWEST,
        )
    )
)
"""Level to name, as `kafka-features` prints it: 30 is 4.3-IV0."""
HIGHEST: Final = max(NAMES)

SCRAM_SINCE: Final = 11
TRANSACTIONS_SINCE: Final = 13
"""Begin, end and abort of a transaction (KIP-868)."""
DELEGATION_TOKENS_SINCE: Final = 14
CONTROLLER_REGISTRATIONS_SINCE: Final = 15
DIRECTORIES_SINCE: Final = 17
ELIGIBLE_SINCE: Final = 23
CORDONED_SINCE: Final = 30
MIGRATION_SINCE: Final = 8
_ISR_SHRINK_BUMPS_UNTIL: Final = 12
_CHANGED_RECORDS: Final = (
    LOWEST,
    MIGRATION_SINCE,
    SCRAM_SINCE,
    _ISR_SHRINK_BUMPS_UNTIL,
    TRANSACTIONS_SINCE,
    DELEGATION_TOKENS_SINCE,
    CONTROLLER_REGISTRATIONS_SINCE,
    DIRECTORIES_SINCE,
    ELIGIBLE_SINCE,
    CORDONED_SINCE,
)
"""The levels whose records one level less cannot express."""


class UnknownMetadataVersion(CorruptMessage):
    """The metadata log is at a level of `metadata.version` that is not known here; the message has the way out."""


def check_metadata_version(level: int) -> None:
    """Raise `UnknownMetadataVersion` for a level that is not known here."""
    if level in NAMES:
        return
    known = f"levels from {LOWEST} ({NAMES[LOWEST]}) to {HIGHEST} ({NAMES[HIGHEST]}) are known here"
    if level > HIGHEST:
        raise UnknownMetadataVersion(
            f"the cluster's metadata.version is {level}, and {known}: upgrade this node, or lower the cluster's level "
            "from a node that is newer (`kafka-features.sh downgrade --metadata`)"
        )
    raise UnknownMetadataVersion(
        f"the cluster's metadata.version is {level}, and {known}: raise it with Kafka 3.9 first "
        "(`kafka-features.sh upgrade --metadata 3.9`)"
    )


def metadata_version_of(text: str) -> int:
    """The level that a release (`4.3`) or a name (`4.3-IV0`) stands for. Raises `InvalidConfig`."""
    for level in sorted(NAMES, reverse=True):
        if text in (NAMES[level], NAMES[level].partition("-")[0]):
            return level
    raise InvalidConfig(
        f"{text} is no metadata.version that is known here: it is a release from {NAMES[LOWEST]} to {NAMES[HIGHEST]}, "
        "such as 4.3 or 4.3-IV0"
    )


class RecordVersions(NamedTuple):
    """Which version of each type of record that has several a level of `metadata.version` takes."""

    register_broker: int
    partition: int
    """That of Partition and PartitionChange."""


def record_versions(level: int) -> RecordVersions:
    """Those that genuine Kafka writes at a level of `metadata.version`."""
    broker = sum(level >= since for since in (LOWEST, MIGRATION_SINCE, DIRECTORIES_SINCE, CORDONED_SINCE))
    return RecordVersions(broker, sum(level >= since for since in (DIRECTORIES_SINCE, ELIGIBLE_SINCE)))


def shrinking_bumps_leader_epoch(level: int) -> bool:
    """Whether a smaller in-sync set means a new leader epoch even without another leader."""
    return level < _ISR_SHRINK_BUMPS_UNTIL


def loses_records(level: int, lower: int) -> bool:
    """Whether records of a level cannot be expressed at a lower one."""
    return any(lower < changed <= level for changed in _CHANGED_RECORDS)


# -- features --------------------------------------------------------------------------------------------------------

RANGES: Final[Mapping[str, tuple[int, int]]] = MappingProxyType(
    {
        METADATA_VERSION: (LOWEST, HIGHEST),
        KRAFT_VERSION: (0, 1),
        ELIGIBLE_LEADER_REPLICAS: (0, 1),
        **{feature: (0, highest) for feature, highest in SUPPORTED.items()},
    }
)
"""The levels that a node supports, as it registers with them and reports them."""

_ENABLED_SINCE: Final[tuple[tuple[str, int, int], ...]] = (
    (ELIGIBLE_LEADER_REPLICAS, 1, 26),
    ("group.version", 1, 22),
    ("share.version", 1, 28),
    ("streams.version", 1, 29),
    ("transaction.version", 1, 24),
    ("transaction.version", 2, 24),
)
"""Features with their levels, and the `metadata.version` from which on a new cluster has it."""
_NEEDED: Final[Mapping[tuple[str, int], int]] = MappingProxyType({(ELIGIBLE_LEADER_REPLICAS, 1): ELIGIBLE_SINCE})
"""Feature and level, and the `metadata.version` without which it cannot be."""


def initial_features(metadata_version: int) -> dict[str, int]:
    """The levels above 0 of a new cluster, `metadata.version` first; `kraft.version` is not among them.

    Source: Kafka 4.3, `Feature.defaultLevel`.
    """
    levels = {METADATA_VERSION: metadata_version}
    return levels | {feature: level for feature, level, since in _ENABLED_SINCE if metadata_version >= since}


def missing_dependency(feature: str, level: int, levels: Mapping[str, int]) -> str | None:
    """Why a feature cannot be at a level beside those other levels, as a sentence; None if it can."""
    needed = _NEEDED.get((feature, level), 0)
    if levels.get(METADATA_VERSION, 0) >= needed:
        return None
    return (
        f"{feature}={level} needs {METADATA_VERSION} at {needed} ({NAMES[needed]}) or above, and it is at "
        f"{levels.get(METADATA_VERSION, 0)}"
    )
