"""What can go wrong between Spark and a topic, said so that a person can act on it."""


class SourceError(Exception):
    """A topic could not be read or written."""


class OptionError(SourceError, ValueError):
    """An option is missing, unknown or has a value that cannot be used."""


class UnknownTopicError(SourceError):
    """A topic that was asked for is not there."""


class UnreachableError(SourceError):
    """No broker answers."""


class NotReadyError(SourceError):
    """Brokers answer, but nobody can say it at the moment: a partition has no leader, or a new one."""


class DataLossError(SourceError):
    """Records that the query has yet to read are no longer in the log."""
