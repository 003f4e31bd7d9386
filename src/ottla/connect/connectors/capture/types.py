"""PURE: schemas by which Debezium's readers know what a column means. Source: Debezium 3.2, packages data and time."""

from typing import Final

from ottla.connect.schema import BYTES, FLOAT64, INT32, STRING, Field, Schema, Type


def _named(kind: Type, name: str, **parameters: str) -> Schema:
    return Schema(kind, name=name, version=1, parameters=parameters or None)


DATE: Final = _named(Type.INT32, "io.debezium.time.Date")
"""Days since 1970."""
TIME_MS: Final = _named(Type.INT32, "io.debezium.time.Time")
TIME_US: Final = _named(Type.INT64, "io.debezium.time.MicroTime")
TIMESTAMP_MS: Final = _named(Type.INT64, "io.debezium.time.Timestamp")
"""A wall clock without a zone, as if it were UTC's; milliseconds since 1970."""
TIMESTAMP_US: Final = _named(Type.INT64, "io.debezium.time.MicroTimestamp")
ZONED_TIMESTAMP: Final = _named(Type.STRING, "io.debezium.time.ZonedTimestamp")
"""ISO 8601, in UTC."""
ZONED_TIME: Final = _named(Type.STRING, "io.debezium.time.ZonedTime")
DURATION_US: Final = _named(Type.INT64, "io.debezium.time.MicroDuration")
"""Microseconds; a month has 30.4375 days."""
INTERVAL: Final = _named(Type.STRING, "io.debezium.time.Interval")
YEAR: Final = _named(Type.INT32, "io.debezium.time.Year")
JSON: Final = _named(Type.STRING, "io.debezium.data.Json")
XML: Final = _named(Type.STRING, "io.debezium.data.Xml")
UUID: Final = _named(Type.STRING, "io.debezium.data.Uuid")
LTREE: Final = _named(Type.STRING, "io.debezium.data.Ltree")

VARIABLE_DECIMAL: Final = Schema(
    Type.STRUCT,
    name="io.debezium.data.VariableScaleDecimal",
    version=1,
    doc="Variable scaled decimal",
    fields=(Field("scale", INT32), Field("value", BYTES)),
)
POINT: Final = Schema(
    Type.STRUCT,
    name="io.debezium.data.geometry.Point",
    version=1,
    doc="Geometry (POINT)",
    fields=(
        Field("x", FLOAT64),
        Field("y", FLOAT64),
        Field("wkb", BYTES.as_optional()),
        Field("srid", INT32.as_optional()),
    ),
)


def enumeration(labels: list[str]) -> Schema:
    """One of some labels."""
    return _named(Type.STRING, "io.debezium.data.Enum", allowed=",".join(labels))


def label_set(labels: list[str]) -> Schema:
    """Any of some labels, with commas in between."""
    return _named(Type.STRING, "io.debezium.data.EnumSet", allowed=",".join(labels))


def bits(length: int) -> Schema:
    """Bits in bytes, the lowest first."""
    return _named(Type.BYTES, "io.debezium.data.Bits", length=str(length))


def decimal(precision: int, scale: int) -> Schema:
    """Connect's Decimal, with the precision that Debezium adds."""
    parameters = {"scale": str(scale), "connect.decimal.precision": str(precision)}
    return Schema(Type.BYTES, name="org.apache.kafka.connect.data.Decimal", version=1, parameters=parameters)


SNAPSHOT_MARK: Final = Schema(
    Type.STRING,
    name="io.debezium.data.Enum",
    version=1,
    optional=True,
    parameters={"allowed": "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"},
    default="false",
    has_default=True,
)
TRANSACTION_BLOCK: Final = Schema(
    Type.STRUCT,
    name="event.block",
    version=1,
    optional=True,
    fields=(
        Field("id", STRING),
        Field("total_order", Schema(Type.INT64)),
        Field("data_collection_order", Schema(Type.INT64)),
    ),
)
