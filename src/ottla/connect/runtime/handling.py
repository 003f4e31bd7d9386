"""What happens to a record that cannot be used: the task fails, or the record is skipped, logged and kept elsewhere.

Source: KIP-298; `DeadLetterQueueReporter`.
"""

import logging
import traceback
from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.connect.errors import ConnectError, Retriable, of_brokers
from ottla.connect.herder.state import TaskId
from ottla.connect.records import SinkRecord
from ottla.connect.runtime.connector_config import RuntimeSettings
from ottla.connect.runtime.figures import ErrorFigures
from ottla.producers import abandon

PREFIX: Final = "__connect.errors."
_TIMEOUT_S: Final = 30.0


class Tolerance:
    """Decides by `errors.tolerance`; used by one task's thread.

    skip: what else is done with a record that is skipped (stage, class, error, record). figures: those of the task.
    """

    def __init__(
        self,
        settings: RuntimeSettings,
        log: logging.Logger,
        skip: Callable[[str, str, BaseException, SinkRecord], None] | None = None,
        figures: ErrorFigures | None = None,
    ) -> None:
        self._settings, self._log, self._skip = settings, log, skip
        self._figures = figures or ErrorFigures()
        self.skipped = 0

    def handle(self, stage: str, where: str, error: BaseException, record: object) -> None:
        """Skip the record, or raise ConnectError with the reason why the task fails."""
        place = ""
        if isinstance(record, SinkRecord):
            place = f" of {record.origin.topic}-{record.origin.partition} at offset {record.offset}"
        if self._settings.errors_log_enable:
            shown = place if self._settings.errors_log_include_messages else ""
            self._log.error("a record%s was refused at %s by %s: %s", shown, stage, where, error)
        self._figures.refused(is_skipped=self._settings.tolerant, is_logged=self._settings.errors_log_enable)
        if not self._settings.tolerant:
            raise ConnectError(
                f"a record{place} was refused ({stage.lower().replace('_', ' ')}): {error}; "
                "mend the record's writer or the connector's settings, or skip such records with errors.tolerance=all"
            ) from error
        self.skipped += 1
        if self._skip is not None and isinstance(record, SinkRecord):
            self._skip(stage, where, error, record)


class DeadLetters:
    """A topic for the records a sink skipped, as they were consumed."""

    def __init__(
        self,
        topic: str,
        replicas: int,
        client: Mapping[str, Any],
        *,
        headers: bool,
        task: TaskId,
        clean: Callable[[str], str],
        figures: ErrorFigures,
    ) -> None:
        """Make the topic, if it is not there. `clean` takes secrets out. Raises ConnectError, KafkaException."""
        self._topic, self._headers, self._task, self._clean = topic, headers, task, clean
        self._figures = figures
        admin = AdminClient(dict(client))
        if topic not in admin.list_topics(timeout=_TIMEOUT_S).topics:
            new = NewTopic(topic, num_partitions=1, replication_factor=replicas)
            try:
                admin.create_topics([new], request_timeout=_TIMEOUT_S)[topic].result(_TIMEOUT_S)
            except KafkaException as failure:
                if failure.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise of_brokers(
                        failure.args[0],
                        f"the dead-letter topic {topic} cannot be made: {failure.args[0].str()}; see "
                        "errors.deadletterqueue.topic.replication.factor",
                    ) from None
            except TimeoutError:
                raise Retriable(
                    f"the dead-letter topic {topic} cannot be made: no answer within {_TIMEOUT_S:.0f} s"
                ) from None
        self._producer = Producer({**client, "enable.idempotence": True})
        self._failure: KafkaError | None = None

    def add(self, stage: str, where: str, error: BaseException, record: SinkRecord) -> None:
        """Return when the record is in the topic: a sink may keep offsets in its target that are beyond it.

        Raises ConnectError.
        """
        headers: list[tuple[str, str | bytes | None]] = list(record.raw_headers)
        if self._headers:
            headers.extend((PREFIX + name, value) for name, value in self._context(stage, where, error, record))
        timestamp: dict[str, Any] = {} if record.timestamp is None else {"timestamp": record.timestamp}
        self._figures.dead_letters += 1
        try:
            self._producer.produce(
                self._topic,
                key=record.raw_key,
                value=record.raw_value,
                headers=headers,
                on_delivery=self._delivered,
                **timestamp,
            )
        except KafkaException as failure:
            self._figures.dead_letter_failures += 1
            raise self._refused(failure.args[0]) from None
        self.flush()

    def flush(self) -> None:
        """Return when all are in the topic. Raises ConnectError."""
        left = self._producer.flush(_TIMEOUT_S)
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise self._refused(failure)
        if left:
            raise Retriable(f"{self._sentence}: no answer within {_TIMEOUT_S:.0f} s")

    def close(self) -> None:
        """End the client."""
        abandon(self._producer)
        del self._producer  # it would look for its brokers until the collector finds what refers to it

    @property
    def _sentence(self) -> str:
        return f"records cannot be written to the dead-letter topic {self._topic}"

    def _refused(self, error: KafkaError) -> ConnectError:
        return of_brokers(error, f"{self._sentence}: {error.str()}")

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self._figures.dead_letter_failures += 1
            self._failure = error

    def _context(self, stage: str, where: str, error: BaseException, record: SinkRecord) -> list[tuple[str, bytes]]:
        kind = type(error)
        facts = {
            "topic": record.origin.topic,
            "partition": str(record.origin.partition),
            "offset": str(record.offset),
            "connector.name": self._task.connector,
            "task.id": str(self._task.task),
            "stage": stage,
            "class.name": where,
            "exception.class.name": f"{kind.__module__}.{kind.__qualname__}",
            "exception.message": self._clean(str(error)),
            "exception.stacktrace": self._clean("".join(traceback.format_exception(error))),
        }
        return [(name, text.encode()) for name, text in facts.items()]
