"""The errors that clients of old versions get for fenced and expired producers."""

from ottla.errors import ErrorCode


def fenced_error(error: ErrorCode, knows_fenced: bool) -> ErrorCode:
    """`error`, or INVALID_PRODUCER_EPOCH for PRODUCER_FENCED where the version does not know that yet (KIP-360)."""
    if error is ErrorCode.PRODUCER_FENCED and not knows_fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error
