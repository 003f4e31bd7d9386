"""What can go wrong in a connector, sorted by what the runtime does about it."""

from typing import Final

from confluent_kafka import KafkaError


class ConnectError(Exception):
    """Base of all. Raised by itself: the task fails at once and stays so until it is restarted.

    The text is one sentence for the connector's status: what happened, to what, and what to do.
    """


class ConfigError(ConnectError):
    """A setting cannot be used.

    setting: its name as users write it (`table.include.list`); None when it is about several.
    """

    def __init__(self, message: str, setting: str | None = None) -> None:
        super().__init__(message)
        self.setting = setting


class Retriable(ConnectError):
    """It may work later: the other side is unreachable, busy or in a failover.

    From a source: `read` is called again, with the position after what it yielded, after a pause that grows.
    From a sink: the same batch is written again, after a pause that grows.
    after_s: minimum delay in seconds, where the other side has given one.
    """

    def __init__(self, message: str, after_s: float = 0.0) -> None:
        super().__init__(message)
        self.after_s = after_s


class BadRecord(ConnectError):
    """One record cannot be used, now or later. `errors.tolerance` decides: to fail, or to skip it.

    record: which one, where it is one of a batch. A sink that raises this has written nothing of the batch; it is
    handed the batch again without the record.
    """

    def __init__(self, message: str, record: object = None) -> None:
        super().__init__(message)
        self.record = record


class Fenced(ConnectError):
    """Another instance of this task runs: this one must not write any more. It ends without a change of the status."""


_FOR_GOOD: Final = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TOPIC_EXCEPTION,
    KafkaError.INVALID_PARTITIONS,
    KafkaError.INVALID_REPLICATION_FACTOR,
    KafkaError.INVALID_CONFIG,
    KafkaError.POLICY_VIOLATION,
    KafkaError.UNSUPPORTED_VERSION,
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError._INVALID_ARG,  # the library's name
)


def of_brokers(error: KafkaError, sentence: str) -> ConnectError:
    """What an answer of the brokers means: most of them (a leader that changes, a time-out) pass, so try again."""
    return ConnectError(sentence) if error.code() in _FOR_GOOD else Retriable(sentence)
