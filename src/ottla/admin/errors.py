"""Refusals of brokers as exceptions with sentences. PURE."""

from typing import Final

from ottla.client.errors import ClientError
from ottla.errors import ErrorCode

SENTENCES: Final[dict[int, str]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "the topic or partition does not exist",
    ErrorCode.GROUP_ID_NOT_FOUND: "the group does not exist",
    ErrorCode.NON_EMPTY_GROUP: "the group still has running members; stop them first",
    ErrorCode.MESSAGE_TOO_LARGE: (
        "it is larger than the topic's max.message.bytes or the client's message.max.bytes allows"
    ),
    ErrorCode.RECORD_LIST_TOO_LARGE: "the batch is larger than the topic's segment.bytes allows",
    ErrorCode.NOT_ENOUGH_REPLICAS: "fewer replicas are in sync than min.insync.replicas demands",
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "fewer replicas are in sync than min.insync.replicas demands",
    ErrorCode.KAFKA_STORAGE_ERROR: "the broker cannot write to or read from its disk; see the broker's log",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "this user is not allowed to do that with the topic",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "this user is not allowed to do that with the group",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "this user is not allowed to do that with the cluster",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "this user is not allowed to do that with the transactional id",
    ErrorCode.SASL_AUTHENTICATION_FAILED: "the broker refused the user name or password",
    ErrorCode.OFFSET_OUT_OF_RANGE: "the offset lies outside the log",
    ErrorCode.LEADER_NOT_AVAILABLE: "the partition has no leader at the moment",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "the partition's leader has just changed",
    ErrorCode.REQUEST_TIMED_OUT: "the broker did not finish in time",
    ErrorCode.INVALID_REPLICATION_FACTOR: "there are fewer brokers than the replication factor asks for",
    ErrorCode.CORRUPT_MESSAGE: "a record batch is corrupt: its checksum does not match",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "the transactional id does not exist",
    ErrorCode.CONCURRENT_TRANSACTIONS: "its transaction is just being ended",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "its coordinator is not available",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "its coordinator is still loading its state",
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS: "no reassignment of the partition is under way",
}
"""What happened and what to do, by error code."""


class RequestRefused(ClientError):
    """A broker answered, and refused. `code` is Kafka's error code; the text is one sentence."""

    def __init__(self, message: str, code: int = ErrorCode.UNKNOWN_SERVER_ERROR) -> None:
        super().__init__(message)
        try:
            self.code = ErrorCode(code)
        except ValueError:
            self.code = ErrorCode.UNKNOWN_SERVER_ERROR  # this version does not know the code


class NotFound(RequestRefused):
    """What was named does not exist."""


def refusal(code: int, message: str | None = None) -> str:
    """An error code of a response as (part of) a sentence, in the broker's own words if it sent any."""
    known = SENTENCES.get(code) or error_name(code).replace("_", " ").lower()
    own = (message or "").strip().rstrip(".")
    return own if own.lower() not in ("", known.lower()) else known


def error_name(code: int) -> str:
    """The name of an error code, in Kafka's words; the number of one that is not known."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"
