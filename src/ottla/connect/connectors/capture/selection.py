"""PURE: which tables and columns are captured, and the topics they go to, by Debezium's settings."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, ClassVar, Final, Literal, Self

from pydantic import ModelWrapValidatorHandler, PrivateAttr, model_validator

from ottla.connect.api import CommaList, Settings, setting
from ottla.connect.connectors.capture.envelope import Column, TableEvents, context_headers
from ottla.connect.connectors.capture.masks import PREFIXES, Mask, Masks
from ottla.connect.patterns import compiled
from ottla.connect.schema import Schema
from ottla.connect.settings import Expressions

_NOT_IN_TOPICS: Final = re.compile(r"[^a-zA-Z0-9._-]")


SnapshotMode = Literal["initial", "initial_only", "always", "no_data", "never", "when_needed"]


class CaptureSettings(Settings):
    """Settings of the change capture of all databases, by Debezium's names."""

    open_names: ClassVar[tuple[str, ...]] = PREFIXES
    _masks: Masks = PrivateAttr(default_factory=lambda: Masks({}))

    topic_prefix: str = setting(
        "Name of this capture, unique in the cluster: topics are called prefix.schema.table.", importance="high"
    )
    snapshot_mode: SnapshotMode = setting(
        "Whether tables are read before their changes: once (initial), once without changes afterwards "
        "(initial_only), at each start "
        "(always), not at all (no_data), or when there is no way to go on (when_needed).",
        "initial",
        importance="high",
    )
    snapshot_fetch_size: int = setting("Rows fetched at once by a snapshot.", 10_240, ge=1)
    incremental_snapshot_chunk_size: int = setting("Rows read at once by a snapshot amid the changes.", 1_024, ge=1)
    skipped_operations: CommaList = setting(
        "Operations left out: c, u, d and t (truncates), with commas, or none.", default_factory=lambda: ["t"]
    )
    table_include_list: Expressions = setting(
        "Regular expressions for the full names (schema.table) of the tables to capture; empty: all.",
        default_factory=list,
        importance="high",
    )
    table_exclude_list: Expressions = setting(
        "Regular expressions for the tables not to capture; not together with table.include.list.", default_factory=list
    )
    column_include_list: Expressions = setting(
        "Regular expressions for the full names (schema.table.column) of the columns to capture; empty: all.",
        default_factory=list,
    )
    column_exclude_list: Expressions = setting(
        "Regular expressions for the columns to leave out; they stay in keys.", default_factory=list
    )
    message_key_columns: str = setting(
        "Keys in the place of primary keys: schema.table:column,column;... (without a column: no key)", default=""
    )
    decimal_handling_mode: Literal["precise", "string", "double"] = setting(
        "Decimals as Connect's Decimal (precise), as texts, or as doubles, which lose digits.", default="precise"
    )
    time_precision_mode: Literal["adaptive", "adaptive_time_microseconds", "connect"] = setting(
        "Times by the precision of their columns (adaptive), or as Connect's own types, in milliseconds (connect).",
        default="adaptive",
    )
    binary_handling_mode: Literal["bytes", "base64", "base64-url-safe", "hex"] = setting(
        "Binary columns as bytes, or as texts.", default="bytes"
    )
    tombstones_on_delete: bool = setting(
        "Whether a null follows each delete, so that compaction drops the key.", default=True
    )
    extended_headers_enabled: bool = setting(
        "Whether each record names its connector in the headers __debezium.context.*.", default=True
    )
    heartbeat_interval_ms: int = setting(
        "Milliseconds between records in the heartbeat topic; 0: none.", default=0, ge=0
    )
    heartbeat_action_query: str = setting(
        "A statement run in the database with each heartbeat, such as an update of a captured table.", default=""
    )
    topic_heartbeat_prefix: str = setting(
        "The heartbeat topic is called this, a dot and the topic prefix.", default="__debezium-heartbeat"
    )
    provide_transaction_metadata: bool = setting(
        "Whether each change carries its place in its transaction, and a topic records begins and ends.",
        default=False,
    )
    topic_transaction: str = setting(
        "The topic with the begins and ends of transactions is called the topic prefix, a dot and this.",
        default="transaction",
    )
    unavailable_value_placeholder: str = setting(
        "What stands for a value that the database did not send because it did not change.",
        default="__debezium_unavailable_value",
    )
    max_batch_size: int = setting("Records handed on at once.", default=2048, ge=1)

    @property
    def masks(self) -> Masks:
        """The hidden or truncated columns: settings whose names contain the method."""
        return self._masks

    @property
    def transaction_topic(self) -> str:
        """The name of the topic with begins and ends of transactions."""
        return f"{self.topic_prefix}.{self.topic_transaction}"

    @model_validator(mode="wrap")
    @classmethod
    def _with_masks(cls, given: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        made = handler(given)
        if isinstance(given, dict):
            made._masks = Masks(given)
        return made

    @model_validator(mode="after")
    def _one_list_of_each(self) -> "CaptureSettings":
        for kind in ("table", "column"):
            if getattr(self, f"{kind}_include_list") and getattr(self, f"{kind}_exclude_list"):
                raise ValueError(f"{kind}.include.list and {kind}.exclude.list exclude each other: set one of them")
        return self


class Selection:
    """The decisions that `CaptureSettings` mean for tables. connector: its name in the headers of records."""

    def __init__(self, settings: CaptureSettings, connector: str = "") -> None:
        self._tables = Names(settings.table_include_list, settings.table_exclude_list)
        self._columns = Names(settings.column_include_list, settings.column_exclude_list)
        self._masks = settings.masks
        self._prefix = settings.topic_prefix
        self._keys = _key_columns(settings.message_key_columns)
        self._tombstones = settings.tombstones_on_delete
        self._headers = context_headers(self._prefix, connector) if settings.extended_headers_enabled else ()

    def has_table(self, schema: str, table: str) -> bool:
        return self._tables.has(f"{schema}.{table}")

    def has_column(self, schema: str, table: str, column: str) -> bool:
        return self._columns.has(f"{schema}.{table}.{column}")

    def mask(self, schema: str, table: str, column: str, kind: Schema, length: int | None) -> Mask | None:
        """What becomes of a column's values. length: how many characters they can have, if that is limited."""
        return self._masks.of(f"{schema}.{table}.{column}", kind, length)

    def topic(self, *names: str) -> str:
        """prefix.schema.table, with an underscore for each character that topics cannot have."""
        return _NOT_IN_TOPICS.sub("_", ".".join((self._prefix, *names)))

    def key_columns(self, schema: str, table: str) -> list[str] | None:
        """The entry of `message.key.columns` for a table."""
        full = f"{schema}.{table}"
        return next((columns for pattern, columns in self._keys if pattern.fullmatch(full)), None)

    def events(
        self,
        table: tuple[str, str],
        names: Sequence[str],
        column: Callable[[int], tuple[Column, int | None]],
        key: Sequence[str],
        source: Schema,
        **more: Any,
    ) -> TableEvents:
        """The records of a table (schema and name) with columns of these names, in the order of the incoming values.

        column: makes the one with that index, and how many characters its values can have; called for those that are
        captured or in the key. source: schema of the source block. more: further arguments of `TableEvents`.
        """
        columns = []
        for index, name in enumerate(names):
            in_rows = self.has_column(*table, name)
            if in_rows or name in key:
                made, length = column(index)
                mask = self.mask(*table, name, made.schema, length)
                columns.append(replace(made, mask=mask, in_rows=in_rows))
        headers, tombstones = self._headers, self._tombstones
        return TableEvents(self.topic(*table), columns, key, source, headers=headers, tombstones=tombstones, **more)


class Names:
    """Which names a list to include, or one to exclude, means; with neither all."""

    def __init__(self, include: Iterable[str], exclude: Iterable[str]) -> None:
        self._include = [compiled(each, any_case=True) for each in include]
        self._exclude = [compiled(each, any_case=True) for each in exclude]

    def has(self, name: str) -> bool:
        """Whether a name is selected: included, or not excluded where nothing is included."""
        if self._include:
            return any(each.fullmatch(name) for each in self._include)
        return not any(each.fullmatch(name) for each in self._exclude)


def _key_columns(text: str) -> list[tuple[Any, list[str]]]:
    keys: list[tuple[Any, list[str]]] = []
    for piece in filter(None, (each.strip() for each in text.split(";"))):
        table, colon, columns = piece.rpartition(":")
        if not colon:
            raise ValueError(f"message.key.columns: {piece!r} is not of the form schema.table:column,column")
        keys.append((compiled(table, any_case=True), [each for each in map(str.strip, columns.split(",")) if each]))
    return keys


def digits(value: int) -> bytes:
    """A whole number as Java's BigInteger writes it: two's complement, big-endian, as short as can be."""
    return value.to_bytes((value + (value < 0)).bit_length() // 8 + 1, "big", signed=True)


def variable_decimal(value: Any) -> dict[str, Any]:
    """A Decimal with its own scale, as the struct VariableScaleDecimal."""
    sign, figures, exponent = value.as_tuple()
    unscaled = int(Decimal((0, figures, 0)))  # `int` of a text refuses more than 4,300 digits
    if exponent > 0:
        unscaled, exponent = unscaled * 10**exponent, 0
    return {"scale": -exponent, "value": digits(-unscaled if sign else unscaled)}
