"""The errors with which a decoder rejects a record."""


class Undecodable(Exception):
    """The record cannot be decoded. The message is the reason that the dead letter gives, for people."""


class UndecodableYet(Undecodable):
    """A record whose schema the registry does not know: it may not have come there yet, if the record is new."""
