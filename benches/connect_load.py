"""Databases under load for the benchmarks of connectors, and what a consumer sees of it."""

import re
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final, Self

import psycopg2
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from tests.support.postgres import USER, Postgres

from benches.generators import LoadFailedError

TOPIC: Final = "shop.public.orders"
RECORDS_PER_TEN: Final = 11
"""Ten changes give eleven records: one of them is a delete, which leaves a tombstone too."""

_TABLE: Final = """
    CREATE TABLE orders (
        id bigint PRIMARY KEY, customer int NOT NULL, status text NOT NULL, amount numeric(10,2) NOT NULL,
        note text, placed timestamptz NOT NULL, changed timestamp)
"""
_ROWS: Final = """
    INSERT INTO orders SELECT n, n % 1000, 'paid', (n % 100000) / 100.0, 'a note about order number ' || n,
        now(), localtimestamp FROM generate_series({first}, {last}) n
"""
_TEN_CHANGES: Final = (
    _ROWS.format(first="{first}", last="{first} + 4") + ";"
    "UPDATE orders SET status = 'sent', changed = localtimestamp WHERE id BETWEEN {first} AND {first} + 3;"
    "DELETE FROM orders WHERE id = {first} + 4"
)
_QUIET_S: Final = 120.0
_COMMITTED_US: Final = re.compile(rb'"ts_us":(\d+)')


class Shop:
    """The captured database: a table of orders of seven columns."""

    def __init__(self, server: Postgres) -> None:
        self.server = server
        self._next = 1
        self._connection: Any = psycopg2.connect(host="127.0.0.1", port=server.port, user=USER, dbname="postgres")
        self._connection.autocommit = True
        self._run(_TABLE)

    def config(self) -> dict[str, str]:
        """A connector that captures it, by Debezium's names."""
        return {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "database.hostname": "127.0.0.1",
            "database.port": str(self.server.port),
            "database.user": USER,
            "database.password": "unused",
            "database.dbname": "postgres",
            "topic.prefix": "shop",
            "plugin.name": "pgoutput",
            "table.include.list": "public.orders",
        }

    def fill(self, rows: int) -> None:
        """Add rows, in one transaction."""
        self._run(_ROWS.format(first=self._next, last=self._next + rows - 1))
        self._next += rows

    def change(self, changes: int) -> None:
        """Make changes as fast as the server can by itself, in transactions of ten: 5 inserts, 4 updates, a delete."""
        last = self._next + changes // 10 * 5
        body = _TEN_CHANGES.format(first="at_id")
        self._run(
            f"DO $$ DECLARE at_id bigint := {self._next}; BEGIN WHILE at_id < {last} LOOP {body}; COMMIT; "
            "at_id := at_id + 5; END LOOP; END $$"
        )
        self._next = last

    def ten_changes(self) -> None:
        """One such transaction."""
        self._run(_TEN_CHANGES.format(first=self._next))
        self._next += 5

    def close(self) -> None:
        """Let go of the connection."""
        self._connection.close()

    def _run(self, statement: str) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute(statement)


class Steady:
    """Ten changes at a time, so many a second, each when it is due, as long as the block runs."""

    def __init__(self, shop: Shop, changes_per_s: int) -> None:
        self._shop, self._every_s = shop, 10 / changes_per_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.late_s = 0.0
        """By how much the load itself was late at worst."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        due = time.monotonic()
        while not self._over.wait(max(0.0, due - time.monotonic())):
            self._shop.ten_changes()
            due += self._every_s
            self.late_s = max(self.late_s, time.monotonic() - due)


class Reader:
    """Reads the committed records of a topic's only partition."""

    def __init__(self, bootstrap: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "unused",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "queued.max.messages.kbytes": 32_768,
            }
        )
        self._consumer.assign([TopicPartition(TOPIC, 0, 0)])

    def read(self, records: int) -> tuple[float, float, float]:
        """When the first and the last of so many records came (`time.perf_counter()`), and records a second between.

        Raises:
            LoadFailedError: nothing for two minutes.
        """
        first = last = time.perf_counter()
        seen = in_first = 0
        while seen < records:
            messages = [each for each in self._consumer.consume(10_000, 0.05) if _good(each)]
            now = time.perf_counter()
            if messages:
                if not seen:
                    first, in_first = now, len(messages)
                seen, last = seen + len(messages), now
            elif now - last > _QUIET_S:
                raise LoadFailedError(f"only {seen} of {records} records have come to {TOPIC}")
        return first, last, (seen - in_first) / (last - first) if last > first else 0.0

    def first(self) -> float:
        """When the first record came."""
        deadline = time.perf_counter() + _QUIET_S
        while time.perf_counter() < deadline:
            message = self._consumer.poll(1.0)
            if message is not None and _good(message):
                return time.perf_counter()
        raise LoadFailedError(f"no record has come to {TOPIC}")

    def lags_ms(self, seconds: float) -> list[float]:
        """Milliseconds from each record's commit in the database to its arrival, for the records of so many seconds."""
        lags = []
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            message = self._consumer.poll(0.1)
            if message is None or not _good(message):
                continue
            now = time.time()
            committed = _COMMITTED_US.search(message.value() or b"")
            if committed is not None:  # no tombstone
                lags.append(now * 1000 - int(committed[1]) / 1000)
        return lags

    def drain(self, quiet_s: float) -> None:
        """Read until nothing has come for so long."""
        while self._consumer.consume(10_000, quiet_s):
            pass

    def close(self) -> None:
        """Let go of the brokers."""
        self._consumer.close()


def warm_up(bootstrap: str) -> None:
    """Have a broker make its topics for groups and transactions, as one that is in use has them."""
    Producer({"bootstrap.servers": bootstrap, "transactional.id": "warm-up"}).init_transactions(_QUIET_S)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "warm-up"})
    consumer.committed([TopicPartition(TOPIC, 0)], timeout=_QUIET_S)
    consumer.close()


@contextmanager
def reading(bootstrap: str) -> Iterator[Reader]:
    """A reader for a while."""
    reader = Reader(bootstrap)
    try:
        yield reader
    finally:
        reader.close()


def percentile(values: list[float], share: float) -> float:
    """The value below which a share (0.99, say) of them lies."""
    return statistics.quantiles(values, n=1000)[int(share * 1000) - 1]


def _good(message: Any) -> bool:
    error = message.error()
    if error is not None and error.code() != KafkaError._PARTITION_EOF:
        raise LoadFailedError(f"{TOPIC} cannot be read: {error}")
    return error is None
