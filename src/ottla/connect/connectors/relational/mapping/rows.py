"""PURE: records as rows of a table: which columns they have, which rows are put there, which are taken away."""

from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any, Final

from ottla.connect import schema as connect
from ottla.connect.api import BadRecord, SinkRecord
from ottla.connect.connectors.relational.mapping.columns import UNKNOWN, Target, target, target_of_value
from ottla.connect.connectors.relational.settings import SinkSettings
from ottla.connect.connectors.relational.steps import Row, Shape, Step, Steps
from ottla.connect.schema import Schema, Type

KAFKA_COLUMNS: Final = ("__connect_topic", "__connect_partition", "__connect_offset")
_KAFKA_TARGETS: Final = (Schema(Type.STRING), Schema(Type.INT32), Schema(Type.INT64))
_SENT_AS: Final[Mapping[Type, type]] = {Type.STRING: str, Type.BYTES: bytes, Type.ARRAY: list}
_NO_ROWS: Final = frozenset(("t", "m"))
"""Operations of change events that are about no row: a truncation, a message."""
_OPERATIONS: Final = frozenset(("c", "u", "d", "r", *_NO_ROWS))
_READ: Final = ("op", "after")
"""Fields of a change event with a schema of which rows are made."""
_MISFITS: Final = (ValueError, TypeError, ArithmeticError, LookupError)
"""What the conversion of a value raises that is beyond what it should be."""

Fields = Mapping[str, tuple[Target, bool]]
"""Known columns: their targets, and whether they may be null."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """How records with a pair of schemas become rows (of the record, and of the struct that has the columns).

    of_change: whether the value is Debezium's envelope. kept: the schemas, so that their ids are not used again.
    lacks: whether a placeholder stands for a value of a change event that was not sent.
    """

    shape: Shape
    row: Callable[[SinkRecord, Mapping[str, Any]], Row]
    of_change: bool
    kept: object
    lacks: Callable[[Mapping[str, Any]], bool] = lambda _: False


class Rows:
    """Turns records into what is to be done to tables. What it works out for a pair of schemas it keeps."""

    def __init__(self, settings: SinkSettings) -> None:
        self._settings = settings
        self._whitelist = frozenset(settings.fields_whitelist)
        self._by_key = settings.insert_mode != "insert"
        self._names: dict[str, str] = {}
        self._plans: dict[tuple[int, int], _Plan] = {}
        self._plans_without: dict[tuple[int, int, tuple[str, ...]], _Plan] = {}
        self._removals: dict[int, _Plan] = {}
        placeholder = settings.unavailable_value_placeholder
        self._not_sent: Mapping[type, tuple[Any, ...]] = {
            str: (placeholder, f'{{"{placeholder}":"{placeholder}"}}'),  # the latter in a hstore
            bytes: (placeholder.encode(),),
            list: ([placeholder], [placeholder.encode()], list(placeholder.encode())),
        }

    def table(self, topic: str) -> str:
        """Name of the table of a topic's records."""
        name = self._names.get(topic)
        if name is None:
            name = self._names[topic] = self._settings.table_name_format.replace("${topic}", topic)
        return name

    def work(
        self,
        batch: Sequence[SinkRecord],
        reject: Callable[[SinkRecord, BadRecord], None],
        loose: Container[str] = (),
    ) -> list[tuple[str, Step]]:
        """Steps to do, by table; `reject` is called with records that fit no table.

        loose: tables whose keys may be the same though their values are not.
        """
        tables: dict[str, Steps] = {}
        topic, steps = "", Steps(by_key=self._by_key)
        for record in batch:
            if record.topic != topic:
                topic = record.topic
                name = self.table(topic)
                if name not in tables:
                    tables[name] = Steps(by_key=self._by_key and name not in loose)
                steps = tables[name]
            try:
                self._add(record, steps)
            except BadRecord as reason:
                reject(record, reason)
        return [(name, step) for name, each in tables.items() for step in each.finish()]

    def _add(self, record: SinkRecord, steps: Steps) -> None:
        value, schema = record.value, record.value_schema
        plan = self._plans.get((id(schema), id(record.key_schema))) if schema is not None else None
        unknown: tuple[str, ...] = ()
        if value is not None and (plan.of_change if plan is not None else _is_change(value, schema)):
            op, value = value.get("op"), value.get("after")
            if op not in _OPERATIONS:
                raise BadRecord(
                    f"{_name(record)} is a change event whose op is {op!r:.100}, which no change has", record
                )
            if op in _NO_ROWS:
                return
            if op != "r" and value is not None and (plan is None or plan.lacks(value)):
                unknown = self._unknown(value)
            if plan is None and schema is not None:
                schema = schema.by_name["after"].schema
        if value is None:
            plan = self._removal(record)
            try:
                key = plan.row(record, record.key)
            except _MISFITS as wrong:
                raise _misfit(record, wrong) from wrong
            steps.remove(plan.shape, key)
            return
        if unknown:
            plan = self._plan_without(record, value, unknown)
        elif plan is None:
            plan = self._plan(record, value, schema)
        try:
            row = plan.row(record, value)
        except _MISFITS as wrong:
            raise _misfit(record, wrong) from wrong
        steps.put(plan.shape, row)

    def _plan(self, record: SinkRecord, value: Any, schema: Schema | None) -> _Plan:
        """The plan of a value's struct and its schema, which in a change event are within the record's."""
        if not isinstance(value, dict):
            raise BadRecord(
                f"{_name(record)} has a {type(value).__name__} for a value, and a row needs a struct or an object: "
                "choose another value.converter, or the transform HoistField",
                record,
            )
        shape, row = self._made(record, value, schema)
        kept = (record.value_schema, record.key_schema)
        of_change = schema is not record.value_schema
        plan = _Plan(shape, row, of_change, kept)
        if of_change and schema is not None:
            plan = replace(plan, lacks=self._lacks(schema))
        if schema is not None:
            self._plans[(id(record.value_schema), id(record.key_schema))] = plan
        return plan

    def _lacks(self, schema: Schema) -> Callable[[Mapping[str, Any]], bool]:
        """Looks for placeholders in the fields that may have one: of every change event it is asked."""
        sent_as = {
            each.name: _SENT_AS[each.schema.type]
            for each in schema.fields
            if each.schema.type in _SENT_AS and each.schema.name != connect.DECIMAL
        }
        names, kinds = list(sent_as), set(sent_as.values())
        placeholders = [each for kind, those in self._not_sent.items() if kind in kinds for each in those]
        get: Callable[[Mapping[str, Any]], Row] = itemgetter(*names) if len(names) > 1 else _few(names)

        def lacks(after: Mapping[str, Any]) -> bool:
            try:
                values = get(after)
            except KeyError:  # of a transform, which may have left a field out
                values = tuple(after.values())
            for each in placeholders:  # noqa: SIM110 # a generator would take as long as the rest
                if each in values:
                    return True
            return False

        return lacks

    def _unknown(self, after: Mapping[str, Any]) -> tuple[str, ...]:
        """Fields whose values did not change and were not sent (PostgreSQL's, of columns in TOAST)."""
        not_sent = self._not_sent
        return tuple([name for name, each in after.items() if each in not_sent.get(each.__class__, ())])

    def _plan_without(self, record: SinkRecord, after: Mapping[str, Any], unknown: tuple[str, ...]) -> _Plan:
        """The plan of a change event without these fields."""
        schema = record.value_schema
        known_by = (id(schema), id(record.key_schema), unknown)
        plan = self._plans_without.get(known_by) if schema is not None else None
        if plan is None:
            of_after = schema.by_name["after"].schema if schema is not None else None
            plan = _Plan(*self._made(record, after, of_after, unknown), True, (schema, record.key_schema))
            if schema is not None:
                self._plans_without[known_by] = plan
        return plan

    def _made(
        self, record: SinkRecord, value: Mapping[str, Any], schema: Schema | None, unknown: Sequence[str] = ()
    ) -> tuple[Shape, Callable[[SinkRecord, Mapping[str, Any]], Row]]:
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
            keys: Fields = {name: of_value[name] for name in names}
        elif mode == "record_key":
            keys = self._key_fields(record)
        elif mode == "kafka":
            names = self._settings.pk_fields or list(KAFKA_COLUMNS)
            keys = {name: (target(each), False) for name, each in zip(names, _KAFKA_TARGETS, strict=True)}
        else:
            keys = {}
        others = {name: each for name, each in chosen.items() if name not in keys}
        shape = _shape(keys, others)
        if unknown:
            others = {name: each for name, each in others.items() if name not in unknown}
            shape = _shape(keys, others, shape)
        of_others = _picking(others)
        of_key = _picking(keys)
        if mode == "record_value":
            return shape, lambda record, value: _whole_key(record, of_key(value)) + of_others(value)
        if mode == "record_key":
            if len(keys) == 1 and next(iter(keys.values()))[0].convert is None:
                return shape, _under_one_column(next(iter(keys)), others)
            of_whole_key = _of_key(keys)
            return shape, lambda record, value: of_whole_key(record, record.key) + of_others(value)
        if mode == "kafka":
            return shape, lambda record, value: (*record.origin, record.offset, *of_others(value))
        return shape, lambda _, value: of_others(value)

    def _removal(self, record: SinkRecord) -> _Plan:
        if not self._settings.delete_enabled:
            raise BadRecord(
                f"{_name(record)} has no value: set delete.enabled=true to delete the row of its key, "
                "or drop such records by the transform Filter",
                record,
            )
        schema = record.key_schema
        plan = self._removals.get(id(schema)) if schema is not None and record.key is not None else None
        if plan is None:
            fields = self._key_fields(record)
            plan = _Plan(_shape(fields, {}), _of_key(fields), False, schema)
            if schema is not None:
                self._removals[id(schema)] = plan
        return plan

    def _key_fields(self, record: SinkRecord) -> Fields:
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


def _shape(keys: Fields, others: Fields, whole: Shape | None = None) -> Shape:
    everything = {**keys, **others}
    return Shape(
        tuple(everything),
        tuple([each for each, _ in everything.values()]),
        tuple(keys),
        tuple([nullable and name not in keys for name, (_, nullable) in everything.items()]),
        whole,
        tuple([name for name, (each, _) in everything.items() if each is UNKNOWN]),
    )


def _under_one_column(name: str, others: Fields) -> Callable[[SinkRecord, Mapping[str, Any]], Row]:
    """What makes rows whose key is one column of the record's key: most are, and this takes half the time."""
    of_others = _picking(others)

    def row(record: SinkRecord, value: Mapping[str, Any]) -> Row:
        key = record.key
        if key.__class__ is dict:
            key = key.get(name)
        if key is None:
            raise BadRecord(f"{_name(record)} has a null in its key", record)
        return (key, *of_others(value))

    return row


def _of_key(fields: Fields) -> Callable[[SinkRecord, Any], Row]:
    """What makes a row's key of a record's key."""
    pick = _picking(fields)
    names = list(fields)

    def of_key(record: SinkRecord, key: Any) -> Row:
        if isinstance(key, dict):
            return _whole_key(record, pick(key))
        if len(names) > 1:
            raise BadRecord(f"{_name(record)} has a key of one value, and others have {', '.join(names)}", record)
        return _whole_key(record, pick({names[0]: key}))

    return of_key


def _picking(fields: Fields) -> Callable[[Mapping[str, Any]], Row]:
    """What takes these fields out of a struct, as a database takes them: the innermost loop of the sink."""
    names = list(fields)
    converts = [(number, each.convert) for number, (each, _) in enumerate(fields.values()) if each.convert is not None]
    get: Callable[[Mapping[str, Any]], Row] = itemgetter(*names) if len(names) > 1 else _few(names)

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


def _few(names: Sequence[str]) -> Callable[[Mapping[str, Any]], Row]:
    """`itemgetter` makes no tuple of one, nor of none."""
    if not names:
        return lambda _: ()
    (name,) = names
    return lambda struct: (struct[name],)


def _whole_key(record: SinkRecord, row: Row) -> Row:
    if None in row:
        raise BadRecord(f"{_name(record)} has a null in its key", record)
    return row


def unread(schema: Schema) -> Collection[str]:
    """Fields of a change event of which no row is made; none of another value."""
    return [each.name for each in schema.fields if each.name not in _READ] if _is_change(None, schema) else ()


def _is_change(value: Any, schema: Schema | None) -> bool:
    """Whether this is Debezium's envelope: others may have an op and a source, too."""
    if schema is not None:
        names = schema.by_name
        if not ("op" in names and "after" in names and "source" in names):
            return False
        after, origin = names["after"].schema, names["source"].schema
        structs = after.type is Type.STRUCT and origin.type is Type.STRUCT
        return structs and "connector" in origin.by_name and names["op"].schema.type is Type.STRING
    if not isinstance(value, dict) or "after" not in value:
        return False
    op, source = value.get("op"), value.get("source")
    return isinstance(op, str) and op in _OPERATIONS and isinstance(source, dict) and "connector" in source


def _fields(value: Mapping[str, Any], schema: Schema | None) -> Fields:
    if schema is not None:
        return {each.name: (target(each.schema), each.schema.optional) for each in schema.fields}
    return {name: (target_of_value(each), True) for name, each in value.items()}


def _misfit(record: SinkRecord, wrong: Exception) -> BadRecord:
    return BadRecord(f"{_name(record)} does not fit its table: {wrong}", record)


def _name(record: SinkRecord) -> str:
    return f"the record at {record.origin.topic}-{record.origin.partition}, offset {record.offset},"
