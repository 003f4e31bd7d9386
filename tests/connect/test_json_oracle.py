"""JsonConverter writes what Kafka's writes, byte for byte."""

import base64
import datetime as dt
import struct as binary
import subprocess
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from ottla.connect.converters.json_converter import JsonConverter
from ottla.connect.schema import (
    BOOLEAN,
    BYTES,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    Schema,
    Type,
    array,
    date,
    decimal,
    map_of,
    struct,
    time,
    timestamp,
)
from tests.support.java_sources import compiled, java_command

INNER = Schema(
    Type.STRUCT, optional=True, name="db.Inner", version=2, doc="inside", fields=struct(None, x=INT64).fields
)
EVERYTHING = struct(
    "db.Everything",
    tiny=INT8,
    small=INT16.as_optional(),
    count=Schema(Type.INT32, default=5, has_default=True),
    big=INT64,
    single=FLOAT32,
    double=FLOAT64,
    flag=BOOLEAN,
    text=STRING.as_optional(),
    raw=BYTES,
    price=decimal(2),
    day=date(),
    clock=time(optional=True),
    at=timestamp(),
    tags=array(STRING),
    counts=map_of(STRING, INT64),
    pairs=map_of(INT32, STRING),
    micros=Schema(Type.INT64, name="io.debezium.time.MicroTimestamp", version=1),
    inner=INNER,
)
VALUE = {
    "tiny": -3,
    "big": 1 << 60,
    "single": 0.1,
    "double": 1e10,
    "flag": True,
    "text": 'Z\u00fcrich "\u2603" \\ / \x1f \n \U0001f600',
    "raw": b"\x00\xff",
    "price": Decimal("-12.34"),
    "day": dt.date(1970, 1, 1) + dt.timedelta(days=20_000),
    "clock": dt.time(1, 2, 3, 4000),
    "at": dt.datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=dt.UTC),
    "tags": ["a", "b"],
    "counts": {"k": 1},
    "pairs": {7: "seven"},
    "micros": 1_700_000_000_000_000,
    "inner": {"x": 1},
}
WITH, WITHOUT, NUMERIC = (
    JsonConverter(settings) for settings in ({}, {"schemas.enable": "false"}, {"decimal.format": "NUMERIC"})
)


@pytest.fixture(scope="module")
def written() -> dict[str, bytes]:
    """Name -> what Kafka's converter wrote."""
    classes = compiled(Path(__file__).with_name("JsonOracle.java"))
    done = subprocess.run(java_command(classes, "JsonOracle"), capture_output=True, text=True, check=True, timeout=60)
    lines = (line.split("\t") for line in done.stdout.splitlines())
    return {name: base64.b64decode(text) for name, text in lines}


def ours(name: str) -> Any:
    if name == "null struct":
        return WITH.to_bytes("t", INNER, None)
    if name == "plain text":
        return WITH.to_bytes("t", None, "text")
    if name.startswith("struct"):
        converter = {"struct": WITH, "struct without schema": WITHOUT, "struct with numbers": NUMERIC}[name]
        return converter.to_bytes("t", EVERYTHING, VALUE)
    kind, text = name.split(" ")
    if kind in ("double", "float"):
        (number,) = binary.unpack(">d", binary.pack(">q", int(text)))
        return WITHOUT.to_bytes("t", FLOAT64 if kind == "double" else FLOAT32, number)
    value = Decimal(text)
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int)
    return (WITHOUT if kind == "decimal" else NUMERIC).to_bytes("t", decimal(-exponent), value)


def test_json_is_kafkas_byte_for_byte(written: dict[str, bytes]) -> None:
    assert len(written) == 57
    for name, expected in written.items():
        assert ours(name) == expected, name
        if name.startswith("struct"):
            schema, value = WITH.to_value("t", WITH.to_bytes("t", EVERYTHING, VALUE))
            assert WITH.to_bytes("t", schema, value) == WITH.to_bytes("t", EVERYTHING, VALUE)
