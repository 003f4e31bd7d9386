"""Kafka's errors as sentences: what happened and what to do, without codes and internal names."""

import re
from typing import Final

from confluent_kafka import KafkaError

from ottla.admin.errors import SENTENCES
from ottla.cli.brokers.properties import unknown_property

# The client library's own errors, by name; what is in neither table keeps the text of the broker or the client.
_SENTENCES: Final = {
    "_UNKNOWN_TOPIC": "the topic does not exist",
    "_UNKNOWN_PARTITION": "the partition does not exist",
    "_AUTHENTICATION": "the broker refused the user name or password",
    "_MSG_TIMED_OUT": "it was not acknowledged in time (message.timeout.ms); the broker's log may say why",
    "_PURGE_QUEUE": "it was still waiting to be sent when the command stopped",
    "_PURGE_INFLIGHT": "it was sent, but not acknowledged before the command stopped",
    "_BAD_MSG": "the broker sent bytes that do not parse",
}
_SILENT: Final = {"_TIMED_OUT", "_TIMED_OUT_QUEUE", "_TRANSPORT", "_ALL_BROKERS_DOWN", "_WAIT_COORD"}
_UNKNOWN_PROPERTY: Final = re.compile(r'No such configuration property: "([^"]+)"')


def error_name(error: KafkaError) -> str:
    """The name of an error's code, such as `UNKNOWN_TOPIC_OR_PART`; local ones begin with an underscore."""
    return error.name()


def explain(error: object, logged_reason: str | None = None) -> str:
    """An error of Kafka or of the client library as (part of) a sentence.

    `logged_reason` is the client's last complaint, added where the error itself only reports a missing reply.
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
    known = _SENTENCES.get(name) or SENTENCES.get(error.code())
    if known:
        return known
    return text[:1].lower() + text[1:].rstrip(".") if text[1:2].islower() else text.rstrip(".")
