"""A relational sink, and the records of one topic for it."""

from decimal import Decimal
from typing import Any

from sqlalchemy import Engine

from ottla.connect import schema as connect
from ottla.connect.api import TopicPartition
from ottla.connect.connectors.relational.sink import RelationalSink
from ottla.connect.schema import Schema, struct
from tests.connect.shipped.databases import rows
from tests.support.connect_tasks import opened, sink_record

ITEMS = TopicPartition("items", 0)
KEY = struct("items.Key", id=connect.INT32)
VALUE = struct(
    "items.Value", id=connect.INT32, name=connect.STRING.as_optional(), price=connect.decimal(2, optional=True)
)
SOURCE = struct("s", optional=True, connector=connect.STRING)
DAY_US = 86_400_000_000
UPSERT = {"insert.mode": "upsert", "pk.mode": "record_key", "auto.create": "true", "delete.enabled": "true"}


def sink(engine: Engine, context: Any = None, **settings: str) -> Any:
    url = engine.url.render_as_string(hide_password=False)
    given = {name.replace("_", "."): value for name, value in settings.items()}
    made = opened(RelationalSink, {"connection.url": url} | given, ITEMS, context=context)
    made.positions([ITEMS])
    return made


def item(offset: int, key: int, name: str | None = None, price: str | None = None) -> Any:
    value = {"id": key, "name": name, "price": None if price is None else Decimal(price)}
    return sink_record("items", offset, value, key={"id": key}, key_schema=KEY, value_schema=VALUE)


def gone(offset: int, key: int) -> Any:
    return sink_record("items", offset, None, key={"id": key}, key_schema=KEY)


def upserting(engine: Engine, context: Any = None, **more: str) -> Any:
    settings = {name.replace(".", "_"): value for name, value in UPSERT.items()}
    return sink(engine, context, **settings | more)


def items(engine: Engine) -> list[tuple[Any, ...]]:
    return rows(engine, "SELECT id, name, price FROM items ORDER BY id")


def kind(name: str, of: connect.Type) -> Schema:
    return Schema(of, name=f"io.debezium.time.{name}", optional=True)
