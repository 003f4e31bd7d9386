"""Kafka's errors as sentences: what happened and what to do, without codes and internal names."""

import re
from typing import Final

from confluent_kafka import KafkaError

from ottla.cli.properties import unknown_property

# By the name of the error code; what is not here keeps the text the broker or the client gave.
_SENTENCES: Final = {
    "UNKNOWN_TOPIC_OR_PART": "the topic or partition does not exist",
    "_UNKNOWN_TOPIC": "the topic does not exist",
    "_UNKNOWN_PARTITION": "the partition does not exist",
    "GROUP_ID_NOT_FOUND": "the group does not exist",
    "NON_EMPTY_GROUP": "the group still has running members; stop them first",
    "MSG_SIZE_TOO_LARGE": "it is larger than the topic's max.message.bytes or the client's message.max.bytes allows",
    "RECORD_LIST_TOO_LARGE": "the batch is larger than the topic's segment.bytes allows",
    "NOT_ENOUGH_REPLICAS": "fewer replicas are in sync than min.insync.replicas demands",
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND": "fewer replicas are in sync than min.insync.replicas demands",
    "KAFKA_STORAGE_ERROR": "the broker cannot write to or read from its disk; see the broker's log",
    "TOPIC_AUTHORIZATION_FAILED": "this user is not allowed to do that with the topic",
    "GROUP_AUTHORIZATION_FAILED": "this user is not allowed to do that with the group",
    "CLUSTER_AUTHORIZATION_FAILED": "this user is not allowed to do that with the cluster",
    "SASL_AUTHENTICATION_FAILED": "the broker refused the user name or password",
    "_AUTHENTICATION": "the broker refused the user name or password",
    "OFFSET_OUT_OF_RANGE": "the offset lies outside the log",
    "LEADER_NOT_AVAILABLE": "the partition has no leader at the moment",
    "NOT_LEADER_FOR_PARTITION": "the partition's leader has just changed",
    "REQUEST_TIMED_OUT": "the broker did not finish in time",
    "INVALID_REPLICATION_FACTOR": "there are fewer brokers than the replication factor asks for",
    "_MSG_TIMED_OUT": "it was not acknowledged in time (message.timeout.ms); the broker's log may say why",
    "_PURGE_QUEUE": "it was still waiting to be sent when the command stopped",
    "_PURGE_INFLIGHT": "it was sent, but not acknowledged before the command stopped",
    "_BAD_MSG": "the broker sent bytes that do not parse",
    "INVALID_MSG": "a record batch is corrupt: its checksum does not match",
}
_SILENT: Final = {"_TIMED_OUT", "_TIMED_OUT_QUEUE", "_TRANSPORT", "_ALL_BROKERS_DOWN", "_WAIT_COORD"}
_UNKNOWN_PROPERTY: Final = re.compile(r'No such configuration property: "([^"]+)"')


def error_name(error: KafkaError) -> str:
    """The name of an error's code, such as `UNKNOWN_TOPIC_OR_PART`; local ones begin with an underscore."""
    return error.name()


def explain(error: object, logged_reason: str | None = None) -> str:
    """An error of Kafka or of the client library as (part of) a sentence.

    `logged_reason` is the client's last complaint, named where the error itself only says that nothing came back.
    """
    if not isinstance(error, KafkaError):
        return str(error)
    name = error_name(error)
    text = error.str() or name
    unknown = _UNKNOWN_PROPERTY.search(text)
    if unknown:
        return unknown_property(unknown[1])
    if name in _SILENT:
        if logged_reason and "Connect to" in logged_reason:
            return (
                f"the brokers cannot be reached ({logged_reason}); if the first address does answer, "
                "its advertised.listeners name one that does not"
            )
        return f"no answer in time ({logged_reason})" if logged_reason else "no answer in time"
    if name in _SENTENCES:
        return _SENTENCES[name]
    return text[:1].lower() + text[1:].rstrip(".") if text[1:2].islower() else text.rstrip(".")
