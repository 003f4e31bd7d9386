"""What the requests about streams groups have in common."""

from ottla.groups.kinds import GroupKind
from ottla.server.context import Services


def are_offered(broker: Services) -> bool:
    """Are there streams groups here? Settings and the feature `streams.version` decide."""
    return (
        GroupKind.STREAMS in broker.config.group_coordinator_rebalance_protocols
        and broker.metadata.feature("streams.version") > 0
    )
