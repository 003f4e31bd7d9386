"""Topics of rows for the benchmarks of sinks, as Connect's JsonConverter and Debezium write them, and what a database
has of them."""

import base64
import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import psycopg2
from confluent_kafka import Producer
from tests.support.connect_process import WorkerProcess
from tests.support.ottla_process import OttlaProcess
from tests.support.postgres import USER, Postgres

from benches.generators import LoadFailedError

_QUIET_S: Final = 120.0
_TIMEOUT_S: Final = 300.0
_PLACED_US: Final = 1_760_000_000_000_000
_DECIMAL: Final = {
    "type": "bytes",
    "optional": False,
    "name": "org.apache.kafka.connect.data.Decimal",
    "version": 1,
    "parameters": {"scale": "2", "connect.decimal.precision": "10"},
}

Field = dict[str, Any]


def _field(name: str, kind: str, semantics: str | None = None, *, optional: bool = False) -> Field:
    named = {} if semantics is None else {"name": semantics, "version": 1}
    return {"type": kind, "optional": optional, **named, "field": name}


_KEY: Final = [_field("id", "int64")]
_PLAIN: Final = [
    *_KEY,
    _field("customer", "int32"),
    _field("status", "string"),
    _field("amount", "double"),
    _field("note", "string", optional=True),
    _field("placed", "int64", "org.apache.kafka.connect.data.Timestamp"),
    _field("changed", "int64", "org.apache.kafka.connect.data.Timestamp", optional=True),
]
_CAPTURED: Final = [
    *_KEY,
    _field("customer", "int32"),
    _field("status", "string"),
    {**_DECIMAL, "field": "amount"},
    _field("note", "string", optional=True),
    _field("placed", "string", "io.debezium.time.ZonedTimestamp"),
    _field("changed", "int64", "io.debezium.time.MicroTimestamp", optional=True),
]
_SOURCE: Final = [
    *[_field(name, "string") for name in ("version", "connector", "name")],
    _field("ts_ms", "int64"),
    _field("snapshot", "string", optional=True),
    _field("db", "string"),
    _field("sequence", "string", optional=True),
    *[_field(name, "int64", optional=True) for name in ("ts_us", "ts_ns")],
    *[_field(name, "string") for name in ("schema", "table")],
    *[_field(name, "int64", optional=True) for name in ("txId", "lsn", "xmin")],
]


def plain_rows(records: int, keys: int) -> Iterator[tuple[int, str, str]]:
    """Number of the key, key and value of rows of seven columns with their schemas, under keys that come again."""
    key_head, head = _head("orders.Key", _KEY), _head("orders.Value", _PLAIN)
    for number in range(records):
        key = number % keys
        changed = "null" if number < keys else str(_PLACED_US // 1000 + number)
        row = (
            f'{{"id":{key},"customer":{key % 1000},"status":"paid","amount":{key % 10**5 / 100},'
            f'"note":"a note about order number {number}","placed":{_PLACED_US // 1000 + key},"changed":{changed}}}'
        )
        yield key, f'{key_head}{{"id":{key}}}}}', f"{head}{row}}}"


def change_events(records: int, keys: int) -> Iterator[tuple[int, str, str]]:
    """The same of a captured table: Debezium's envelope, with a Decimal and Debezium's times."""
    row: Field = {"type": "struct", "fields": _CAPTURED, "optional": True, "name": "shop.public.orders.Value"}
    transaction = [_field("id", "string"), _field("total_order", "int64"), _field("data_collection_order", "int64")]
    fields = [
        {**row, "field": "before"},
        {**row, "field": "after"},
        {"type": "struct", "fields": _SOURCE, "optional": False, "name": "s.Source", "version": 1, "field": "source"},
        {"type": "struct", "fields": transaction, "optional": True, "name": "event.block", "field": "transaction"},
        _field("op", "string"),
        *[_field(name, "int64", optional=True) for name in ("ts_ms", "ts_us", "ts_ns")],
    ]
    key_head, head = _head("shop.public.orders.Key", _KEY), _head("shop.public.orders.Envelope", fields)
    placed = time.strftime("%Y-%m-%dT%H:%M:%S.123456Z", time.gmtime(_PLACED_US // 10**6))
    for number in range(records):
        key, at = number % keys, _PLACED_US + number
        unscaled = key % 10**5
        amount = base64.b64encode(unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big")).decode()
        changed = "null" if number < keys else str(at)
        after = (
            f'{{"id":{key},"customer":{key % 1000},"status":"paid","amount":"{amount}",'
            f'"note":"a note about order number {number}","placed":"{placed}","changed":{changed}}}'
        )
        source = (
            f'{{"version":"3.2.4.Final","connector":"postgresql","name":"shop","ts_ms":{at // 1000},'
            f'"snapshot":"false","db":"postgres","sequence":"[\\"{at}\\",\\"{at}\\"]","ts_us":{at},"ts_ns":{at}000,'
            f'"schema":"public","table":"orders","txId":{number},"lsn":{at},"xmin":null}}'
        )
        event = (
            f'{{"before":null,"after":{after},"source":{source},"transaction":null,'
            f'"op":"{"c" if number < keys else "u"}","ts_ms":{at // 1000},"ts_us":{at},"ts_ns":{at}000}}'
        )
        yield key, f'{key_head}{{"id":{key}}}}}', f"{head}{event}}}"


def _head(name: str, fields: list[Field]) -> str:
    schema = {"type": "struct", "fields": fields, "optional": False, "name": name}
    return f'{{"schema":{json.dumps(schema, separators=(",", ":"))},"payload":'


Rows = Callable[[int, int], Iterator[tuple[int, str, str]]]


def fill_topic(bootstrap: str, topic: str, rows: Iterator[tuple[int, str, str]], partitions: int) -> None:
    """Produce them, each key into a partition of its own choice.

    Raises:
        LoadFailedError: not all were acknowledged.
    """
    settings = {"bootstrap.servers": bootstrap, "linger.ms": 50, "queue.buffering.max.kbytes": 65_536}
    producer = Producer(settings)
    for number, key, value in rows:
        while True:
            try:
                producer.produce(topic, value, key, number % partitions)
                break
            except BufferError:
                producer.poll(0.01)
    if producer.flush(_QUIET_S):
        raise LoadFailedError(f"the records of {topic} were not acknowledged")


def written(server: Postgres, broker: OttlaProcess, workers: Sequence[WorkerProcess], records: int) -> dict[str, float]:
    """Wait until so many records are committed; from the first hundredth on: records a second, and the processor time
    of each process for a record.

    Raises:
        LoadFailedError: not within five minutes.
    """

    def cpu() -> tuple[float, ...]:
        return sum(each.cpu_seconds() for each in workers), server.cpu_seconds(), broker.cpu_seconds()

    began, at_begin, before = 0.0, 0, cpu()
    deadline = time.monotonic() + _TIMEOUT_S
    connection = psycopg2.connect(host="127.0.0.1", port=server.port, user=USER, dbname="postgres")
    connection.autocommit = True
    try:
        with connection.cursor() as cursor:
            while time.monotonic() < deadline:
                done, now = _committed(cursor), time.perf_counter()
                if not began and done > records // 100:
                    began, at_begin, before = now, done, cpu()
                if done >= records:
                    count = records - at_begin
                    spent = [(after - early) / count * 1e6 for after, early in zip(cpu(), before, strict=True)]
                    return {
                        "upserts_per_s": count / (now - began),
                        "cpu_us_per_record": spent[0],
                        "database_us_per_record": spent[1],
                        "broker_us_per_record": spent[2],
                    }
                time.sleep(0.02)
    finally:
        connection.close()
    raise LoadFailedError(f"not all of {records} records were written within {_TIMEOUT_S:.0f} s")


def _committed(cursor: Any) -> int:
    """The sum of the offsets that the sink keeps beside the rows."""
    cursor.execute("SELECT to_regclass('ottla_offsets') IS NOT NULL")
    if cursor.fetchone() != (True,):
        return 0
    cursor.execute("SELECT coalesce(sum(next_offset), 0)::bigint FROM ottla_offsets")
    (found,) = cursor.fetchone()
    return int(found)
