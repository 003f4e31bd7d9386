"""PURE: changes of rows as records in Debezium's envelope.

    key    {primary key}
    value  {before, after, source{..., lsn or binlog position}, transaction, op: c|u|d|r|t, ts_ms, ts_us, ts_ns}

After a delete comes a tombstone (a null under the same key). A change of the primary key is a delete of the old key and
the creation of the new one. Source: Debezium 3.2, `io.debezium.data.Envelope`, `RelationalChangeRecordEmitter`.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from ottla.connect.api import BadRecord, ConnectError, Header, SourceRecord
from ottla.connect.connectors.capture.masks import Mask
from ottla.connect.connectors.capture.types import SNAPSHOT_MARK, TRANSACTION_BLOCK
from ottla.connect.schema import INT64, STRING, Field, Schema, Type

VERSION: Final = "3.2.0.Final"
"""The version of Debezium whose envelope this is; consumers read it."""

Row: TypeAlias = dict[str, Any]
SourceBlock: TypeAlias = dict[str, Any]

_MISFITS: Final = (ValueError, TypeError, ArithmeticError, AttributeError)
"""What the conversion of a value raises that is not what its column should have."""
CREATE: Final = "c"
READ: Final = "r"


@dataclass(frozen=True, slots=True)
class Column:
    """A column as its table's records have it.

    index: among the incoming values. convert: turns the database's value into the schema's.
    when_unchanged: replaces a value that the database did not send. when_missing: replaces an unknown value in
    a column without nulls (the columns outside a deleted row's identity). mask: hides values in rows, though
    not in keys. in_rows: False for a column that is only in keys.
    """

    name: str
    index: int
    schema: Schema
    convert: Callable[[Any], Any]
    when_unchanged: Any = None
    when_missing: Any = None
    mask: Mask | None = None
    in_rows: bool = True


def source_schema(connector: str, *own: tuple[str, Schema]) -> Schema:
    """Schema of the block with the source of a change: Debezium's common fields, then the connector's own."""
    common = (
        ("version", STRING),
        ("connector", STRING),
        ("name", STRING),
        ("ts_ms", INT64),
        ("snapshot", SNAPSHOT_MARK),
        ("db", STRING),
        ("sequence", STRING.as_optional()),
        ("ts_us", INT64.as_optional()),
        ("ts_ns", INT64.as_optional()),
    )
    fields = tuple(Field(name, schema) for name, schema in (*common, *own))
    return Schema(Type.STRUCT, name=f"io.debezium.connector.{connector}.Source", version=1, fields=fields)


def source_block(connector: str, server: str, at_us: int, db: str, **own: Any) -> SourceBlock:
    """Where a change comes from: Debezium's common fields, then the connector's own. at_us: when it was made."""
    return {
        "version": VERSION,
        "connector": connector,
        "name": server,
        "ts_ms": at_us // 1000,
        "snapshot": "false",
        "db": db,
        "sequence": None,
        "ts_us": at_us,
        "ts_ns": at_us * 1000,
        **own,
    }


_Conversion: TypeAlias = tuple[str, int, Callable[[Any], Any] | None, Any, Any]
"""Name, index, what converts (None: nothing has to), what a null becomes, and what stands for a value not sent."""


def _conversion(column: Column) -> _Conversion:
    convert = None if column.convert is str else column.convert
    null = column.when_missing
    if column.schema.optional:
        null = None
    elif column.schema.has_default:
        null = column.schema.default
    return column.name, column.index, convert, null, column.when_unchanged


def _masked(column: Column) -> tuple[Field, _Conversion]:
    """A column as it is in rows."""
    mask, plain = column.mask, _conversion(column)
    if mask is None:
        return Field(column.name, column.schema), plain
    change, convert, (_, _, _, null, not_sent) = mask.change, column.convert, plain
    parameters = {**(column.schema.parameters or {}), **mask.parameters}
    conversion = column.name, column.index, lambda value: change(convert(value)), change(null), change(not_sent)
    return Field(column.name, replace(column.schema, parameters=parameters)), conversion


class TableEvents:
    """Makes the records of one table, with one definition of its columns.

    topic: the topic of the records. key: names of the columns of the key; () for a table without one. key_in_identity:
    whether old rows have the whole key. unchanged: the object that marks values which the database did not send.
    headers: of
    every record. takes_nulls: whether a null in a column without nulls makes the column nullable: the change
    is older than the catalog's definition. Otherwise it becomes `when_missing`.
    """

    def __init__(
        self,
        topic: str,
        columns: Sequence[Column],
        key: Sequence[str],
        source: Schema,
        *,
        unchanged: object,
        key_in_identity: bool = True,
        tombstones: bool = True,
        headers: tuple[Header, ...] = (),
        takes_nulls: bool = False,
    ) -> None:
        self.topic = topic
        self._unchanged = unchanged
        self._key_in_identity = key_in_identity
        self._tombstones = tombstones
        self._headers = headers
        self._source = source
        self._takes_nulls = takes_nulls
        self._have(columns, key)

    def _have(self, columns: Sequence[Column], key: Sequence[str]) -> None:
        topic = self.topic
        self._columns = columns
        self._required = [each for each in columns if not each.schema.optional] if self._takes_nulls else []
        by_name = {each.name: each for each in columns}
        self.key = tuple(by_name[name] for name in key if name in by_name)
        in_rows = [_masked(each) for each in columns if each.in_rows]
        self._converts = [conversion for _, conversion in in_rows]
        self._key_converts = [_conversion(each) for each in self.key]
        fields = tuple(field for field, _ in in_rows)
        row = Schema(Type.STRUCT, name=f"{topic}.Value", optional=True, fields=fields)
        of_key = tuple(Field(each.name, each.schema) for each in self.key)
        self.key_schema = Schema(Type.STRUCT, name=f"{topic}.Key", fields=of_key) if of_key else None
        self.value_schema = Schema(
            Type.STRUCT,
            name=f"{topic}.Envelope",
            version=2,
            fields=(
                Field("before", row),
                Field("after", row),
                Field("source", self._source),
                Field("transaction", TRANSACTION_BLOCK),
                Field("op", STRING),
                Field("ts_ms", INT64.as_optional()),
                Field("ts_us", INT64.as_optional()),
                Field("ts_ns", INT64.as_optional()),
            ),
        )

    def _take_nulls(self, values: Sequence[Any]) -> None:
        """Have every column that is null in a whole row be one that may be."""
        if not self._required or None not in values:
            return
        nulls = {each.name for each in self._required if values[each.index] is None}
        if nulls:
            columns = [
                replace(each, schema=each.schema.as_optional()) if each.name in nulls else each
                for each in self._columns
            ]
            self._have(columns, [each.name for each in self.key])

    def row(self, values: Sequence[Any]) -> Row:
        """The columns that are captured. Raises BadRecord for a value that cannot be read."""
        return self._struct(self._converts, values)

    def key_of(self, values: Sequence[Any]) -> Row | None:
        """The key's columns, or None for a table without a key."""
        return self._struct(self._key_converts, values) if self._key_converts else None

    def created(self, values: Sequence[Any], source: SourceBlock, now_ns: int, op: str = CREATE) -> SourceRecord:
        """A row that is new (or read by a snapshot: `op` r)."""
        self._take_nulls(values)
        return self._record(self.key_of(values), None, self.row(values), source, op, now_ns)

    def updated(
        self, old: Sequence[Any] | None, old_is_whole: bool, new: Sequence[Any], source: SourceBlock, now_ns: int
    ) -> list[SourceRecord]:
        """A row that changed; `old` as in the database's log: absent, the identity alone, or whole."""
        if old is not None:
            new = self._filled(new, old)
            if old_is_whole:
                self._take_nulls(old)
        self._take_nulls(new)
        key = self.key_of(new)
        before = None
        if old is not None:
            if old_is_whole:
                before = self.row(old)
            before_key = self.key_of(old) if old_is_whole or self._key_in_identity else key
            if key != before_key:
                gone = self._record(before_key, self.row(old), None, source, "d", now_ns)
                gone.headers = (Header("__debezium.newkey", key, self.key_schema), *self._headers)
                come = self._record(key, None, self.row(new), source, CREATE, now_ns)
                come.headers = (Header("__debezium.oldkey", before_key, self.key_schema), *self._headers)
                return [gone, *self._tombstone(before_key, gone.headers), come]
        return [self._record(key, before, self.row(new), source, "u", now_ns)]

    def deleted(
        self, old: Sequence[Any], source: SourceBlock, now_ns: int, *, old_is_whole: bool = False
    ) -> list[SourceRecord]:
        """A row that is gone, and its tombstone."""
        if old_is_whole:
            self._take_nulls(old)
        key = self.key_of(old) if self._key_in_identity else None
        return [self._record(key, self.row(old), None, source, "d", now_ns), *self._tombstone(key, self._headers)]

    def truncated(self, source: SourceBlock, now_ns: int) -> SourceRecord:
        """All rows are gone: an event without key, before and after."""
        return self._record(None, None, None, source, "t", now_ns)

    def _tombstone(self, key: Row | None, headers: tuple[Header, ...]) -> list[SourceRecord]:
        if not self._tombstones or key is None:
            return []
        return [SourceRecord(topic=self.topic, key=key, key_schema=self.key_schema, value=None, headers=headers)]

    def _record(
        self, key: Row | None, before: Row | None, after: Row | None, source: SourceBlock, op: str, now_ns: int
    ) -> SourceRecord:
        value = {
            "before": before,
            "after": after,
            "source": source,
            "transaction": None,
            "op": op,
            "ts_ms": now_ns // 1_000_000,
            "ts_us": now_ns // 1_000,
            "ts_ns": now_ns,
        }
        schema = self.key_schema if key is not None else None
        return SourceRecord(
            topic=self.topic,
            key=key,
            key_schema=schema,
            value=value,
            value_schema=self.value_schema,
            headers=self._headers,
        )

    def _struct(self, conversions: Sequence[_Conversion], values: Sequence[Any]) -> Row:
        unchanged = self._unchanged
        try:
            return {
                name: null
                if (value := values[index]) is None
                else not_sent
                if value is unchanged
                else value
                if convert is None
                else convert(value)
                for name, index, convert, null, not_sent in conversions
            }
        except _MISFITS as error:
            raise self._unreadable(conversions, values, error) from error
        except ConnectError as error:  # with the remedy, and without the place
            column = self._failing(conversions, values)
            raise BadRecord(f"column {column} of the rows for {self.topic}: {error}") from error

    def _unreadable(self, conversions: Sequence[_Conversion], values: Sequence[Any], error: Exception) -> BadRecord:
        column = self._failing(conversions, values)
        return BadRecord(
            f"column {column} of the rows for {self.topic} has a value that cannot be read ({error}): "
            "leave the column out by column.exclude.list"
        )

    def _failing(self, conversions: Sequence[_Conversion], values: Sequence[Any]) -> str:
        """The column whose value cannot be converted."""
        return next((name for name, index, convert, *_ in conversions if self._fails(convert, values[index])), "?")

    def _fails(self, convert: Callable[[Any], Any] | None, value: Any) -> bool:
        if convert is None or value is None or value is self._unchanged:
            return False
        try:
            convert(value)
        except (*_MISFITS, ConnectError):
            return True
        return False

    def _filled(self, new: Sequence[Any], old: Sequence[Any]) -> Sequence[Any]:
        """What the database did not send because it is unchanged stands in the old row, if that has the column.

        An identity alone has nulls for all other columns, and never a null where something was stored out of line.
        """
        unchanged = self._unchanged
        if not any(value is unchanged for value in new):
            return new
        return [
            before if value is unchanged and before is not None else value
            for value, before in zip(new, old, strict=True)
        ]


def kept(records: list[SourceRecord], skipped: Collection[str]) -> list[SourceRecord]:
    """The records of a change whose operations are not left out; a tombstone goes with its delete.

    An update has them by what it has become: one of the key is a delete and a creation.
    """
    return [each for each in records if (each.value["op"] if each.value is not None else "d") not in skipped]


HEARTBEAT_KEY: Final = Schema(
    Type.STRUCT, name="io.debezium.connector.common.ServerNameKey", version=1, fields=(Field("serverName", STRING),)
)
HEARTBEAT_VALUE: Final = Schema(
    Type.STRUCT, name="io.debezium.connector.common.Heartbeat", version=1, fields=(Field("ts_ms", INT64),)
)


def context_headers(server: str, connector: str) -> tuple[Header, ...]:
    """Debezium's headers about the connector (`extended.headers.enabled`)."""
    facts = (("connectorLogicalName", server), ("taskId", "0"), ("connectorName", connector))
    return tuple(Header(f"__debezium.context.{name}", text, STRING) for name, text in facts)


def changed_at(record: SourceRecord) -> int | None:
    """When the change of an envelope was made, in milliseconds since 1970; None: the record has none (a tombstone, a
    heartbeat, a record about a transaction)."""
    value = record.value
    source = value.get("source") if isinstance(value, Mapping) else None
    return source.get("ts_ms") if isinstance(source, Mapping) else None


def heartbeat(topic: str, server: str, now_ms: int, position: Mapping[str, Any]) -> SourceRecord:
    """A heartbeat record, which moves the connector's position while no captured table changes."""
    return SourceRecord(
        topic=topic,
        key={"serverName": server},
        key_schema=HEARTBEAT_KEY,
        value={"ts_ms": now_ms},
        value_schema=HEARTBEAT_VALUE,
        position=position,
        partition=0,
    )
