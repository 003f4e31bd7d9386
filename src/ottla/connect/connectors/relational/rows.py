"""PURE: records as rows of a table: which columns they have, which rows are put there, which are taken away."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Final

from ottla.connect.api import BadRecord, SinkRecord
from ottla.connect.connectors.relational.columns import Convert, Target, target, target_of_value
from ottla.connect.connectors.relational.settings import SinkSettings
from ottla.connect.schema import Schema, Type

KAFKA_COLUMNS: Final = ("__connect_topic", "__connect_partition", "__connect_offset")
_KAFKA_TARGETS: Final = (Schema(Type.STRING), Schema(Type.INT32), Schema(Type.INT64))

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Shape:
    """What rows of one kind look like. `key`: the names of the key's columns, which come first."""

    names: tuple[str, ...]
    targets: tuple[Target, ...] = field(compare=False)
    key: tuple[str, ...]
    nullable: tuple[bool, ...] = field(compare=False)


@dataclass(slots=True)
class Put:
    """A row in the shape's order."""

    shape: Shape
    row: Row


@dataclass(slots=True)
class Remove:
    """The row with this key goes."""

    shape: Shape
    key: Row


class Rows:
    """Turns records into operations on a table. What it works out for a pair of schemas it keeps."""

    def __init__(self, settings: SinkSettings) -> None:
        self._settings = settings
        self._whitelist = frozenset(settings.fields_whitelist)
        self._names: dict[str, str] = {}
        self._plans: dict[tuple[int, int], tuple[Shape, Callable[[Any, Any, SinkRecord], Row], object]] = {}

    def table(self, topic: str) -> str:
        """Name of the table of a topic's records."""
        name = self._names.get(topic)
        if name is None:
            name = self._names[topic] = self._settings.table_name_format.replace("${topic}", topic)
        return name

    def operation(self, record: SinkRecord) -> Put | Remove | None:
        """What a record does; None: nothing. Raises BadRecord for one that fits no table."""
        value, schema = record.value, record.value_schema
        if _is_change(value):
            after = value["after"]
            if value["op"] in ("t", "m"):
                return None
            if after is None:
                return self._remove(record)
            value = after
            schema = schema.by_name["after"].schema if schema is not None else None
        if value is None:
            return self._remove(record)
        if not isinstance(value, dict):
            raise BadRecord(
                f"{_name(record)} has a {type(value).__name__} for a value, and a row needs a struct or an object: "
                "choose another value.converter, or the transform HoistField",
                record,
            )
        shape, make = self._plan(record, value, schema)
        return Put(shape, make(record.key, value, record))

    def _remove(self, record: SinkRecord) -> Remove:
        if not self._settings.delete_enabled:
            raise BadRecord(
                f"{_name(record)} has no value: set delete.enabled=true to delete the row of its key, "
                "or drop such records by the transform Filter",
                record,
            )
        fields = self._key_fields(record)
        shape = Shape(
            tuple(fields),
            tuple(each for each, _ in fields.values()),
            tuple(fields),
            (False,) * len(fields),
        )
        return Remove(shape, self._key_row(record, fields))

    def _plan(
        self, record: SinkRecord, value: Mapping[str, Any], schema: Schema | None
    ) -> tuple[Shape, Callable[[Any, Any, SinkRecord], Row]]:
        plan_of = (id(schema), id(record.key_schema))
        if schema is not None:
            found = self._plans.get(plan_of)
            if found is not None:
                return found[0], found[1]
        made = self._made_plan(record, value, schema)
        if schema is not None:
            self._plans[plan_of] = (*made, (schema, record.key_schema))  # keeps the ids from being used again
        return made

    def _made_plan(
        self, record: SinkRecord, value: Mapping[str, Any], schema: Schema | None
    ) -> tuple[Shape, Callable[[Any, Any, SinkRecord], Row]]:
        mode = self._settings.pk_mode
        of_value = _fields(value, schema)
        chosen = {n: t for n, t in of_value.items() if not self._whitelist or n in self._whitelist}
        if mode == "record_value":
            names = self._settings.pk_fields or list(of_value)
            missing = [name for name in names if name not in of_value]
            if missing:
                raise BadRecord(
                    f"{_name(record)} has no field '{missing[0]}' in its value, which pk.fields asks for", record
                )
            keys = {name: of_value[name] for name in names}
        elif mode == "record_key":
            keys = self._key_fields(record)
        elif mode == "kafka":
            names = self._settings.pk_fields or list(KAFKA_COLUMNS)
            keys = {name: (target(each), False) for name, each in zip(names, _KAFKA_TARGETS, strict=True)}
        else:
            keys = {}
        others = {name: each for name, each in chosen.items() if name not in keys}
        everything = keys | others
        shape = Shape(
            tuple(everything),
            tuple(each for each, _ in everything.values()),
            tuple(keys),
            tuple(nullable and name not in keys for name, (_, nullable) in everything.items()),
        )
        of_others = _picking(others)
        of_key = _picking(keys)

        def make(key: Any, fields: Mapping[str, Any], of: SinkRecord) -> Row:
            if mode == "record_value":
                head = of_key(fields)
            elif mode == "kafka":
                head = (of.origin.topic, of.origin.partition, of.offset)
            else:
                head = _whole_key(of, of_key(key) if isinstance(key, dict) else self._key_row(of, keys)) if keys else ()
            return head + of_others(fields)

        return shape, make

    def _key_fields(self, record: SinkRecord) -> dict[str, tuple[Target, bool]]:
        key, names = record.key, self._settings.pk_fields
        if key is None:
            raise BadRecord(f"{_name(record)} has no key, which pk.mode=record_key needs", record)
        if isinstance(key, dict):
            fields = _fields(key, record.key_schema)
            missing = [name for name in names if name not in fields]
            if missing:
                raise BadRecord(
                    f"{_name(record)} has no field '{missing[0]}' in its key, which pk.fields asks for", record
                )
            return {name: fields[name] for name in names or fields}
        if len(names) != 1:
            raise BadRecord(f"{_name(record)} has a key of one value: name its column in pk.fields", record)
        return {names[0]: (target(record.key_schema) if record.key_schema else target_of_value(key), False)}

    @staticmethod
    def _key_row(record: SinkRecord, fields: Mapping[str, tuple[Target, bool]]) -> Row:
        key = record.key
        if isinstance(key, dict):
            return _whole_key(record, _picking(fields)(key))
        return _whole_key(record, tuple([_converted(key, each.convert) for each, _ in fields.values()]))


@dataclass(slots=True)
class Step:
    """Rows of one shape that a database can take at once: keys whose rows go, then rows that come."""

    shape: Shape
    removed: list[Row]
    put: list[Row]


def steps(operations: Sequence[Put | Remove], *, by_key: bool) -> list[Step]:
    """Operations on one table in as few steps as leave the same rows behind.

    by_key: the last row of a key counts, as an upsert has it; otherwise all rows come, in order.
    """
    made: list[Step] = []
    run: list[Put | Remove] = []
    shape: Shape | None = None  # of the rows that come in this run; None while keys alone go
    for operation in operations:
        if isinstance(operation, Put):
            breaks = (
                operation.shape != shape if shape is not None else bool(run) and run[0].shape.key != operation.shape.key
            )
        else:
            breaks = bool(run) and operation.shape.key != (shape or run[0].shape).key
        if breaks or (not by_key and run and isinstance(operation, Put) != isinstance(run[-1], Put)):
            made.append(_step(run, by_key=by_key))
            run, shape = [], None
        if isinstance(operation, Put):
            shape = operation.shape
        run.append(operation)
    if run:
        made.append(_step(run, by_key=by_key))
    return made


def _step(run: Sequence[Put | Remove], *, by_key: bool) -> Step:
    shape = next((each.shape for each in run if isinstance(each, Put)), run[0].shape)
    if not by_key:
        removed = [each.key for each in run if isinstance(each, Remove)]
        return Step(shape, removed, [each.row for each in run if isinstance(each, Put)])
    width = len(shape.key)
    gone: dict[Row, None] = {}
    rows: dict[Row, Row] = {}
    for each in run:
        if isinstance(each, Remove):
            gone[each.key] = None
            rows.pop(each.key, None)
        else:
            rows[each.row[:width]] = each.row
    return Step(shape, list(gone), list(rows.values()))


def _picking(fields: Mapping[str, tuple[Target, bool]]) -> Callable[[Mapping[str, Any]], Row]:
    """What takes these fields out of a struct, as a database takes them: the innermost loop of the sink."""
    names = list(fields)
    converts = [(number, each.convert) for number, (each, _) in enumerate(fields.values()) if each.convert is not None]
    if len(names) < 2:
        return lambda struct: tuple([_converted(struct.get(name), each.convert) for name, (each, _) in fields.items()])
    get: Callable[[Mapping[str, Any]], Row] = itemgetter(*names)

    def pick(struct: Mapping[str, Any]) -> Row:
        try:
            found = get(struct)
        except KeyError:  # without a schema, fields may lack
            found = tuple([struct.get(name) for name in names])
        if not converts:
            return found
        row = list(found)
        for number, convert in converts:
            if row[number] is not None:
                row[number] = convert(row[number])
        return tuple(row)

    return pick


def _whole_key(record: SinkRecord, row: Row) -> Row:
    if None in row:
        raise BadRecord(f"{_name(record)} has a null in its key", record)
    return row


def _is_change(value: Any) -> bool:
    """Debezium's envelope."""
    return isinstance(value, dict) and "op" in value and "after" in value and "source" in value


def _fields(value: Mapping[str, Any], schema: Schema | None) -> dict[str, tuple[Target, bool]]:
    if schema is not None:
        return {each.name: (target(each.schema), each.schema.optional) for each in schema.fields}
    return {name: (target_of_value(each), True) for name, each in value.items() if each is not None}


def _converted(value: Any, convert: Convert | None) -> Any:
    return value if convert is None or value is None else convert(value)


def _name(record: SinkRecord) -> str:
    return f"the record at {record.origin.topic}-{record.origin.partition}, offset {record.offset},"
