"""Between a connector and a topic: converters and transforms, set up once for each task."""

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from ottla.connect.converters.base import Converter, converter
from ottla.connect.converters.headers import header_converter
from ottla.connect.errors import BadRecord, ConnectError
from ottla.connect.permissions import Permissions
from ottla.connect.records import Header, Record, SinkRecord, SourceRecord, TopicPartition
from ottla.connect.runtime.connector_config import RuntimeSettings
from ottla.connect.runtime.handling import Tolerance
from ottla.connect.schema import Schema
from ottla.connect.transforms.base import Step, steps

R = TypeVar("R", bound=Record)

_new_record: Final = SinkRecord.__new__


class Encoded(NamedTuple):
    """A record as it is produced."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, str | bytes | None]]
    timestamp: int | None
    partition: int | None


class Chain:
    """Converters and transforms of one task; used by its thread alone."""

    def __init__(self, config: Mapping[str, str], worker: Mapping[str, str], tolerance: Tolerance) -> None:
        """`worker` has the worker's settings: the converters of connectors that name none, and what may be imported.

        Raises ConfigError.
        """
        self._tolerance = tolerance
        self._key, self._key_name = _converter("key.converter", config, worker, is_key=True)
        self._value, self._value_name = _converter("value.converter", config, worker, is_key=False)
        name, settings = _chosen("header.converter", config, worker)
        self._headers, self._headers_name = header_converter(name, settings), name
        self._steps: list[Step] = steps(config, Permissions(worker))
        self._last_headers: tuple[tuple[Header, ...], str, list[tuple[str, str | bytes | None]]] | None = None

    def leave_out(self, unread: Callable[[Schema], Collection[str]]) -> None:
        """Have values made without the fields that a sink never reads, if no transform may read them."""
        if not self._steps:
            self._value.unread = unread

    def close(self) -> None:
        """Let go of what the converters hold."""
        for each in (self._key, self._value, self._headers):
            each.close()

    def encode(self, record: SourceRecord) -> Encoded | None:
        """What goes into a topic; None: a transform dropped it, or it cannot be used and is skipped."""
        changed = self._transformed(record) if self._steps else record
        if changed is None:
            return None
        topic = changed.topic
        stage, where = "KEY_CONVERTER", self._key_name
        try:
            key = self._key.to_bytes(topic, changed.key_schema, changed.key)
            stage, where = "VALUE_CONVERTER", self._value_name
            value = self._value.to_bytes(topic, changed.value_schema, changed.value)
            stage, where = "HEADER_CONVERTER", self._headers_name
            headers = self._encoded_headers(topic, changed.headers) if changed.headers else []
        except Exception as error:
            self._tolerance.handle(stage, where, _bad(error), record)
            return None
        return Encoded(topic, key, value, headers, changed.timestamp, changed.partition)

    def _encoded_headers(self, topic: str, headers: tuple[Header, ...]) -> "list[tuple[str, str | bytes | None]]":
        """Headers as they are produced; the records of a source often share one tuple."""
        known = self._last_headers
        if known is not None and known[0] is headers and known[1] == topic:
            return known[2]
        encoded: list[tuple[str, str | bytes | None]] = [
            (each.key, self._headers.to_bytes(topic, each.schema, each.value)) for each in headers
        ]
        self._last_headers = (headers, topic, encoded)
        return encoded

    def decode(
        self,
        origin: TopicPartition,
        offset: int,
        raw_key: bytes | None,
        raw_value: bytes | None,
        raw_headers: tuple[tuple[str, bytes | None], ...],
        timestamp: int | None,
    ) -> SinkRecord | None:
        """What the sink is handed of a consumed record.

        None: a transform dropped it, or it cannot be used and is skipped.
        """
        topic, partition = origin
        key_schema = key = value_schema = value = None
        headers: tuple[Header, ...] = ()
        refused: BadRecord | None = None
        stage, where = "KEY_CONVERTER", self._key_name
        try:
            key_schema, key = self._key.to_value(topic, raw_key)
            stage, where = "VALUE_CONVERTER", self._value_name
            value_schema, value = self._value.to_value(topic, raw_value)
            if raw_headers:
                stage, where = "HEADER_CONVERTER", self._headers_name
                headers = tuple([self._header(topic, name, each) for name, each in raw_headers])
        except Exception as error:
            refused = _bad(error)
        record: SinkRecord = _new_record(SinkRecord)  # thirteen keywords would take longer than a value's JSON
        record.topic = topic
        record.value = value
        record.key = key
        record.key_schema = key_schema
        record.value_schema = value_schema
        record.headers = headers
        record.timestamp = timestamp
        record.partition = partition
        record.origin = origin
        record.offset = offset
        record.raw_key = raw_key
        record.raw_value = raw_value
        record.raw_headers = raw_headers
        if refused is not None:
            self._tolerance.handle(stage, where, refused, record)
            return None
        return self._transformed(record) if self._steps else record

    def _header(self, topic: str, name: str, value: bytes | None) -> Header:
        schema, parsed = self._headers.to_value(topic, value)
        return Header(name, parsed, schema)

    def _transformed(self, record: R) -> R | None:
        changed: R | None = record
        for step in self._steps:
            try:
                changed = step(changed)
            except BadRecord as error:
                self._tolerance.handle("TRANSFORMATION", step.class_name, error, record)
                return None
            if changed is None:
                return None
        return changed


def _bad(failure: Exception) -> BadRecord:
    """What a converter raised, about one record: whatever a record has in it may be skipped like any other bad one.

    Raises what is about more than this record, such as a registry that is away.
    """
    if isinstance(failure, BadRecord):
        return failure
    if isinstance(failure, ConnectError):
        raise failure
    return BadRecord(f"{type(failure).__name__}: {failure}")


def _chosen(setting: str, config: Mapping[str, str], worker: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """The converter's class and its settings: the connector's if it names one, with no mixture of the two."""
    source = config if config.get(setting) else worker
    prefix = f"{setting}."
    return source[setting], {name.removeprefix(prefix): v for name, v in source.items() if name.startswith(prefix)}


def _converter(
    setting: str, config: Mapping[str, str], worker: Mapping[str, str], *, is_key: bool
) -> tuple[Converter, str]:
    name, settings = _chosen(setting, config, worker)
    return converter(name, settings, is_key=is_key, setting=setting), name


def check_chain(config: Mapping[str, str], worker: Mapping[str, str], settings: RuntimeSettings, log: Any) -> None:
    """Set everything up once, and throw it away. Raises ConfigError."""
    Chain(config, worker, Tolerance(settings, log)).close()
