"""What the requests about share groups have in common."""

from ottla.server.context import Services


def are_offered(broker: Services) -> bool:
    """Are there share groups here? The feature `share.version` says so."""
    return broker.metadata.feature("share.version") > 0
