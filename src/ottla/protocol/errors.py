"""What can go wrong between bytes and messages."""


class ProtocolError(Exception):
    """Base of every error raised by `ottla.protocol`."""


class MalformedMessage(ProtocolError):
    """The bytes do not match the declaration: truncated, wrong lengths, invalid UTF-8, a forbidden null."""


class UnsupportedVersion(ProtocolError):
    """The message has no such version, or the API is not known here."""


class UnencodableMessage(ProtocolError):
    """A value does not fit its field, or is set although the version cannot carry it."""
