"""The errors between Spark and a topic, worded so that a person can act on them. PURE."""

from typing import Final

from ottla.errors import ErrorCode


class SourceError(Exception):
    """A topic could not be read or written."""


class OptionError(SourceError, ValueError):
    """An option is missing, unknown or has a value that cannot be used."""


class UnknownTopicError(SourceError):
    """A topic that was asked for is not there."""


class UnreachableError(SourceError):
    """No broker answers."""

    reason = ""
    """What became of the last attempt."""


class NotReadyError(SourceError):
    """Brokers answer, but the answer is not available at the moment: a partition has no leader, or a new one."""


class DataLossError(SourceError):
    """Records that the query has yet to read are no longer in the log."""


_NOT_READY: Final = frozenset(
    (
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    )
)
_SAID: Final[dict[int, str]] = {
    ErrorCode.LEADER_NOT_AVAILABLE: "it has no leader",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "its leader is another broker now",
    ErrorCode.KAFKA_STORAGE_ERROR: "the disk of its leader has failed",
    ErrorCode.OFFSET_NOT_AVAILABLE: "its leader is new and does not know its end yet",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "this client has no right to ask about it",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "no topic can have that name",
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: "its records are too old to have timestamps",
}


def name_of(code: int) -> str:
    """A broker's error code, as the protocol names it."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


def refusal(code: int, subject: str, servers: str) -> SourceError:
    """The error for a broker's refusal concerning a topic or a partition, the `subject`."""
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return UnknownTopicError(f"{subject} does not exist on the brokers at {servers}; create it first")
    name = name_of(code)
    said = _SAID.get(code, name.replace("_", " ").lower())
    return (NotReadyError if code in _NOT_READY else SourceError)(f"{subject} at {servers}: {said} ({name})")


def unreachable(servers: str, subject: str, reason: object) -> UnreachableError:
    """No broker answered about the `subject`."""
    error = UnreachableError(f"no broker at {servers} answers, asked about {subject} ({reason})")
    error.reason = str(reason)
    return error
