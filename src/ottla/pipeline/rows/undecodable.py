"""The one way in which a decoder says that a record is at fault."""


class Undecodable(Exception):
    """The record cannot be decoded. The message is the reason that the dead letter gives, for people."""
