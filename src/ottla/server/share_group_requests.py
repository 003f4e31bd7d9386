"""What the requests about share groups have in common."""

from ottla.groups.kinds import GroupKind
from ottla.server.context import Services


def are_offered(broker: Services) -> bool:
    """Are there share groups here? The feature `share.version` decides, or `group.coordinator.rebalance.protocols`."""
    return (
        broker.metadata.feature("share.version") > 0
        or GroupKind.SHARE in broker.config.group_coordinator_rebalance_protocols
    )
