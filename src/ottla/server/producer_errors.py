"""What clients of old versions are told about producers that are out."""

from ottla.errors import ErrorCode


def told_fenced(error: ErrorCode, knows_fenced: bool) -> ErrorCode:
    """`error`, or INVALID_PRODUCER_EPOCH for PRODUCER_FENCED where the version does not know that yet (KIP-360)."""
    if error is ErrorCode.PRODUCER_FENCED and not knows_fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error
