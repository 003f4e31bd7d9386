"""API keys, and the message classes behind them, imported when first asked for."""

from __future__ import annotations

import sys
from enum import IntEnum
from importlib import import_module
from typing import Final, cast

from ottla.protocol.errors import UnsupportedVersion
from ottla.protocol.schema import Message


class ApiKey(IntEnum):
    """The APIs whose messages are declared here."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92

    # Ottla's own, far from where Kafka counts
    DESCRIBE_GROUP_HISTORY = 20_000
    DESCRIBE_TELEMETRY = 20_001
    DESCRIBE_QUOTA_USAGE = 20_002


_requests: Final[dict[int, type[Message]]] = {}
_responses: Final[dict[int, type[Message]]] = {}


def request_class(api_key: int) -> type[Message]:
    """The request of an API. Raises `UnsupportedVersion` for an API that is not declared."""
    found = _requests.get(api_key)
    if found is None:
        found = _requests[api_key] = _message_class(api_key, "Request")
    return found


def response_class(api_key: int) -> type[Message]:
    """The response of an API. Raises `UnsupportedVersion` for an API that is not declared."""
    found = _responses.get(api_key)
    if found is None:
        found = _responses[api_key] = _message_class(api_key, "Response")
    return found


def _message_class(api_key: int, suffix: str) -> type[Message]:
    try:
        name = ApiKey(api_key).name
    except ValueError:
        raise UnsupportedVersion(f"unknown API {api_key}") from None
    # LIST_OFFSETS is in messages/list_offsets.py, as ListOffsetsRequest and ListOffsetsResponse.
    module = f"ottla.protocol.messages.{name.lower()}"
    if module not in sys.modules:
        import_module(module)
    return cast("type[Message]", getattr(sys.modules[module], name.title().replace("_", "") + suffix))


def api_name(key: int) -> str:
    """An API's name as Kafka's metrics have it: `OffsetCommit`."""
    return ApiKey(key).name.title().replace("_", "")


def request_header_version(api_key: int, version: int) -> int:
    """2 in flexible versions, else 1; the oldest ControlledShutdown has version 0, without a client id."""
    if version >= request_class(api_key).FLEXIBLE_SINCE:
        return 2
    return 0 if api_key == ApiKey.CONTROLLED_SHUTDOWN and version == 0 else 1


def response_header_version(api_key: int, version: int) -> int:
    """1 (with tagged fields) in flexible versions, else 0; always 0 for ApiVersions.

    A client sends ApiVersions before it knows what the broker speaks, and must be able to read the answer to a
    version that the broker does not know (KIP-511).
    """
    if api_key == ApiKey.API_VERSIONS:
        return 0
    return 1 if version >= response_class(api_key).FLEXIBLE_SINCE else 0
