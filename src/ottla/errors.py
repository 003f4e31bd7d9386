"""Kafka's error codes, and the exceptions that carry them inside the broker.

Inside, code raises a domain exception whose text describes what happened (`NotLeader`, `UnknownTopic`).
A handler's edge answers with that exception's `code` and, where the response has room, its message: an error
is translated once.

Source: the protocol guide's table of error codes, Kafka 4.3.
"""

import re
from enum import IntEnum
from typing import Final

_ERRNO: Final = re.compile(r"\[Errno -?\d+\] ")


def sentence(error: Exception) -> str:
    """The text of the error, without the error number that Python prefixes to messages of the operating system."""
    return _ERRNO.sub("", str(error))


class ErrorCode(IntEnum):
    """Error codes as they stand on the wire (int16)."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    INVALID_REGULAR_EXPRESSION = 128
    REBOOTSTRAP_REQUIRED = 129
    STREAMS_INVALID_TOPOLOGY = 130
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131
    STREAMS_TOPOLOGY_FENCED = 132
    SHARE_SESSION_LIMIT_REACHED = 133


RETRIABLE: Final[frozenset[ErrorCode]] = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    }
)


class OttlaError(Exception):
    """Base of every error Ottla raises on purpose.

    `code` is sent to clients: that of the class, unless an instance has its own. The text is for people.
    """

    code: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR


class ApiError(OttlaError):
    """An error whose code is only known where it is raised (validation of one request's field, mostly)."""

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(message or code.name)
        self.code = code


class InvalidRequest(OttlaError):
    """A request contradicts itself or Kafka's rules."""

    code = ErrorCode.INVALID_REQUEST


class UnknownTopicOrPartition(OttlaError):
    """There is no such topic, or no such partition of it, on this broker."""

    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class UnknownTopicId(OttlaError):
    """No topic has this id."""

    code = ErrorCode.UNKNOWN_TOPIC_ID


class InvalidTopic(OttlaError):
    """The topic's name is not allowed, or the topic may not be used in this way."""

    code = ErrorCode.INVALID_TOPIC_EXCEPTION


class TopicAlreadyExists(OttlaError):
    """A topic of this name exists."""

    code = ErrorCode.TOPIC_ALREADY_EXISTS


class InvalidConfig(OttlaError):
    """A setting is unknown, or its value is not allowed."""

    code = ErrorCode.INVALID_CONFIG


class NotLeader(OttlaError):
    """This broker does not lead the partition; the client looks for the leader again."""

    code = ErrorCode.NOT_LEADER_OR_FOLLOWER


class FencedLeaderEpoch(OttlaError):
    """The client knows an older leader epoch than this broker (KIP-320)."""

    code = ErrorCode.FENCED_LEADER_EPOCH


class UnknownLeaderEpoch(OttlaError):
    """The client knows a newer leader epoch than this broker (KIP-320)."""

    code = ErrorCode.UNKNOWN_LEADER_EPOCH


class OffsetOutOfRange(OttlaError):
    """The offset is below the log start offset or past the end."""

    code = ErrorCode.OFFSET_OUT_OF_RANGE


class CorruptMessage(OttlaError):
    """Bytes are not what their checksum or their format promises."""

    code = ErrorCode.CORRUPT_MESSAGE


class RefusedRecords(OttlaError):
    """A batch is refused for its records.

    `records` are the numbers in the batch of those that are at fault, each with the reason; producers may send the
    others again (KIP-467). Empty where the batch as a whole is at fault.
    """

    def __init__(self, message: str = "", records: tuple[tuple[int, str], ...] = ()) -> None:
        super().__init__(message)
        self.records = records


class InvalidRecord(RefusedRecords):
    """A record is not valid in its topic, such as one without a key in a compacted topic."""

    code = ErrorCode.INVALID_RECORD


class InvalidTimestamp(RefusedRecords):
    """A record's timestamp is too far from the broker's clock."""

    code = ErrorCode.INVALID_TIMESTAMP


class UnsupportedForMessageFormat(OttlaError):
    """The record batch has a format that is too old for the request."""

    code = ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


class MessageTooLarge(OttlaError):
    """A batch is larger than `max.message.bytes`."""

    code = ErrorCode.MESSAGE_TOO_LARGE


class RecordListTooLarge(OttlaError):
    """Batches are larger together than a segment."""

    code = ErrorCode.RECORD_LIST_TOO_LARGE


class OutOfOrderSequence(OttlaError):
    """A batch does not continue its producer's sequence: one before it is missing."""

    code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class InvalidProducerEpoch(OttlaError):
    """A newer instance of the producer has fenced this one."""

    code = ErrorCode.INVALID_PRODUCER_EPOCH


class UnknownProducerId(OttlaError):
    """The producer's state is unknown here, or has expired."""

    code = ErrorCode.UNKNOWN_PRODUCER_ID


class InvalidTxnState(OttlaError):
    """The transaction is not in a state in which the request is allowed."""

    code = ErrorCode.INVALID_TXN_STATE


class TransactionCoordinatorFenced(OttlaError):
    """A marker has an older coordinator epoch than one before it."""

    code = ErrorCode.TRANSACTION_COORDINATOR_FENCED


class UnsupportedCompressionType(OttlaError):
    """The batch's compression is unknown, or not allowed in this version of the request."""

    code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


class InconsistentTopicId(OttlaError):
    """The topic's id is not the one that this broker's log has."""

    code = ErrorCode.INCONSISTENT_TOPIC_ID


class KafkaStorageError(OttlaError):
    """A log directory cannot be written or read just now (disk full, I/O error, taken offline)."""

    code = ErrorCode.KAFKA_STORAGE_ERROR


class NotCoordinator(OttlaError):
    """Another broker coordinates this group or transactional id."""

    code = ErrorCode.NOT_COORDINATOR


class CoordinatorLoadInProgress(OttlaError):
    """The coordinator still reads its log; the client tries again."""

    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
