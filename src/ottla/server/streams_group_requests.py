"""What the requests about streams groups have in common."""

from ottla.config.broker import BrokerConfig
from ottla.groups.kinds import GroupKind
from ottla.metadata.view import MetadataView


def are_offered(config: BrokerConfig, metadata: MetadataView) -> bool:
    """Are there streams groups here? Settings and the feature `streams.version` decide."""
    return GroupKind.STREAMS in config.group_coordinator_rebalance_protocols and metadata.feature("streams.version") > 0
