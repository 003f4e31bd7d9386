"""Errors of the metadata quorum."""

from ottla.errors import ErrorCode, OttlaError


class NotLeader(OttlaError):
    """This replica does not lead the metadata quorum in the epoch of the append. Nothing was appended."""

    code = ErrorCode.NOT_CONTROLLER
