"""What the requests about share groups have in common."""

from ottla.server.context import Services


def are_offered(broker: Services) -> bool:
    """Whether share groups are enabled, by the feature `share.version`."""
    return broker.metadata.feature("share.version") > 0
