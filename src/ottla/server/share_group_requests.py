"""What the requests about share groups have in common."""

from ottla.metadata.view import MetadataView


def are_offered(metadata: MetadataView) -> bool:
    """Whether share groups are enabled, by the feature `share.version`."""
    return metadata.feature("share.version") > 0
