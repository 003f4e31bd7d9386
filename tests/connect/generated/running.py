"""Plans carried out: a database, a broker and a worker, each of which can be killed, and what the topics have then."""

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Protocol, Self, cast

import psycopg2
import pymysql
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from ottla.testing import ConnectProcess
from tests.connect.generated.kinds import KINDS, Database
from tests.connect.generated.plan import MARKER, Form, Kill, Plan, Statement, Wait
from tests.connect.generated.rebuild import Event, Key, Row, differences, rebuild
from tests.support.eventually import eventually
from tests.support.mariadb import PASSWORD, MariaDb
from tests.support.mariadb import USER as MARIADB_USER
from tests.support.ottla_process import OttlaProcess
from tests.support.postgres import USER, Postgres

SETTINGS: Final = {
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "key.converter.schemas.enable": "false",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
    "value.converter.replace.null.with.default": "false",
    "decimal.handling.mode": "string",
    "binary.handling.mode": "hex",
}
_CATCH_UP_S: Final = 90.0
_QUIET_S: Final = 5.0
"""Without a record, until a reader takes a broker for one that does not answer: how long everything takes depends on
the plan and on the machine.
"""


class Reader:
    """Reads what was committed to topics of one partition, from their begin, as it comes."""

    def __init__(self, bootstrap: str) -> None:
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": "reads-without-a-group",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "enable.metrics.push": False,
            "log_level": 0,
            "reconnect.backoff.max.ms": 200,
            "topic.metadata.refresh.interval.ms": 1000,
        }
        self._consumer = Consumer(settings)
        self._at: dict[str, int] = {}
        self.messages: dict[str, list[Any]] = {}

    def read(self, topics: Sequence[str]) -> None:
        """Add to `messages` everything that topics have got; less if the broker does not answer."""
        try:
            known = self._consumer.list_topics(timeout=5).topics
        except KafkaException:
            return
        left = {each for each in topics if each in known}
        self._consumer.assign([TopicPartition(each, 0, self._at.get(each, 0)) for each in left])
        deadline = time.monotonic() + _QUIET_S
        while left and time.monotonic() < deadline:
            message = self._consumer.poll(0.1)
            if message is None:
                continue
            deadline = time.monotonic() + _QUIET_S
            error = message.error()
            if error is None:
                topic, offset = cast(str, message.topic()), cast(int, message.offset())
                self.messages.setdefault(topic, []).append(message)
                self._at[topic] = offset + 1
            elif error.code() == KafkaError._PARTITION_EOF:
                left.discard(message.topic())

    def close(self) -> None:
        """Let go of the broker."""
        self._consumer.close()


class Server(Protocol):
    """A database server."""

    kind: Database

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

    def kill(self) -> None:
        """End all of it by SIGKILL and start it again."""

    def connect(self, database: str) -> Any:
        """A session in autocommit."""

    def config(self, database: str) -> dict[str, str]:
        """The configuration of a connector that captures a database."""

    def table(self, database: str, name: str) -> str:
        """A table's name in its topic's."""


class PostgresServer:
    kind: Database = "postgres"

    def __init__(self) -> None:
        self._server = Postgres(wal_level="logical", max_replication_slots="20", max_wal_senders="20")

    def __enter__(self) -> Self:
        self._server.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.__exit__(kind, error, trace)

    def kill(self) -> None:
        self._server.kill()

    def connect(self, database: str) -> Any:
        connection = psycopg2.connect(host="127.0.0.1", port=self._server.port, user=USER, dbname=database)
        connection.autocommit = True
        return connection

    @contextmanager
    def database(self, name: str) -> Iterator[None]:
        with closing(self.connect("postgres")) as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {name}")
        yield
        with closing(self.connect("postgres")) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active")

    def config(self, database: str) -> dict[str, str]:
        return {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "database.hostname": "127.0.0.1",
            "database.port": str(self._server.port),
            "database.user": USER,
            "database.dbname": database,
            "slot.name": f"{database}_slot",
            "topic.prefix": database,
        }

    def table(self, database: str, name: str) -> str:
        return f"{database}.public.{name}"


class MariaDbServer:
    kind: Database = "mariadb"

    def __init__(self) -> None:
        # a crash of the process loses nothing that was committed, and no statement waits for another session
        self._server = MariaDb(
            binlog_row_metadata="FULL",
            innodb_flush_log_at_trx_commit="2",
            transaction_isolation="READ-COMMITTED",
            innodb_lock_wait_timeout="0",
            lock_wait_timeout="10",
        )

    def __enter__(self) -> Self:
        self._server.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.__exit__(kind, error, trace)

    def kill(self) -> None:
        self._server.kill()
        self._server.start()

    def connect(self, database: str) -> Any:
        return self._server.connect(database)

    @contextmanager
    def database(self, name: str) -> Iterator[None]:
        with closing(self.connect("shop")) as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {name}")
        yield

    def config(self, database: str) -> dict[str, str]:
        return {
            "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
            "database.hostname": "127.0.0.1",
            "database.port": str(self._server.port),
            "database.user": MARIADB_USER,
            "database.password": PASSWORD,
            "database.include.list": database,
            "topic.prefix": database,
        }

    def table(self, database: str, name: str) -> str:
        return f"{database}.{database}.{name}"


@dataclass
class Stand:
    """What plans are carried out on, one after the other."""

    server: Any
    broker: OttlaProcess
    worker: ConnectProcess


@contextmanager
def stand(kind: Database) -> Iterator[Stand]:
    """Started."""
    with (
        PostgresServer() if kind == "postgres" else MariaDbServer() as server,
        OttlaProcess() as broker,
        ConnectProcess(broker.bootstrap) as worker,
    ):
        yield Stand(server, broker, worker)


@dataclass
class Outcome:
    """topics: events by the tables' names. real: the tables' rows at the end, by lineage."""

    plan: Plan
    topics: dict[str, list[Event]]
    real: dict[int, dict[Key, Row]]
    killed: list[str]
    failed_statements: int

    def __str__(self) -> str:
        killed = ", ".join(f"{count} x {victim}" for victim, count in sorted(Counter(self.killed).items()))
        return (
            f"{sum(map(len, self.topics.values()))} events of {len(self.plan.forms)} forms, killed {killed}, "
            f"{self.failed_statements} statements refused"
        )

    def problems(self) -> list[str]:
        """What is wrong with the events."""
        return problems_of(self.plan, self.topics, self.real)


def problems_of(plan: Plan, topics: Mapping[str, list[Event]], real: Mapping[int, Mapping[Key, Row]]) -> list[str]:
    """A sentence for each event that cannot be, and for each row that is not as in its table."""
    rebuilt = rebuild(plan.database, plan.forms, topics)
    unlike = [
        each
        for form in plan.tables
        for each in differences(form.name, rebuilt.tables[form.lineage], real[form.lineage])
    ]
    return rebuilt.problems + unlike


def carry_out(plan: Plan, where: Stand) -> Outcome:
    """Make a connector, do what the plan says, and return what is in topics and tables then."""
    name = f"s{plan.seed}"
    with where.server.database(name):
        run = _Run(plan, where, name)
        try:
            return run.outcome()
        finally:
            run.end()


class Sessions:
    """Those of a plan with a database, each opened when it is used. failed: how many statements were refused."""

    def __init__(self, server: Any, database: str) -> None:
        self._server = server
        self._database = database
        self._open: dict[int, Any] = {}
        self.failed = 0

    def do(self, step: Statement) -> None:
        """Have the server do a statement. One of PostgreSQL does not fail: it would end its transaction."""
        may_fail = step.may_fail and self._server.kind == "mariadb"
        try:
            self.ask(step.session, step.sql)
        except pymysql.err.MySQLError:
            if not may_fail:
                raise
            self.failed += 1

    def ask(self, session: int, sql: str) -> list[tuple[Any, ...]]:
        """The rows that a statement gives."""
        if session not in self._open:
            self._open[session] = self._server.connect(self._database)
        with self._open[session].cursor() as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall()) if cursor.description else []

    def forget(self) -> None:
        """The server has ended them all."""
        self._open.clear()

    def close(self) -> None:
        """End them all."""
        for each in self._open.values():
            each.close()


class _Run:
    def __init__(self, plan: Plan, where: Stand, name: str) -> None:
        self._plan = plan
        self._stand = where
        self._name = name
        self._sessions = Sessions(where.server, name)
        self._reader = Reader(where.broker.bootstrap)
        self._markers = 0
        self._killed: list[str] = []
        self._restart: threading.Thread | None = None

    def outcome(self) -> Outcome:
        worker, server = self._stand.worker, self._stand.server
        for step in self._plan.before:
            self._do(step)
        worker.put("captures", server.config(self._name) | SETTINGS)
        worker.wait("captures", "RUNNING")
        self._catch_up()
        for step in self._plan.steps:
            self._do(step)
        self._catch_up()
        real = {form.lineage: self._rows(form) for form in self._plan.tables}
        topics = self._topics()
        deadline = time.monotonic() + 10  # the marker's partition may be ahead of others
        while problems_of(self._plan, topics, real) and time.monotonic() < deadline:
            topics = self._topics()
        return Outcome(self._plan, topics, real, self._killed, self._sessions.failed)

    def end(self) -> None:
        """Let go of the connector, for the next plan."""
        self._restarted()
        self._stand.worker.request("DELETE", "/connectors/captures")
        self._reader.close()
        self._sessions.close()

    def _do(self, step: Statement | Kill | Wait) -> None:
        if isinstance(step, Wait):
            self._catch_up()
        elif isinstance(step, Kill):
            time.sleep(step.pause_s)
            self._kill(step)
        else:
            self._sessions.do(step)

    def _kill(self, step: Kill) -> None:
        self._restarted()
        self._killed.append(step.victim)
        if step.victim == "database":
            self._stand.server.kill()
            self._sessions.forget()
        else:
            process = self._stand.worker if step.victim == "worker" else self._stand.broker
            process.kill()
            self._restart = threading.Thread(target=process.start)
            self._restart.start()

    def _restarted(self) -> None:
        if self._restart is not None:
            self._restart.join()
            self._restart = None

    def _catch_up(self) -> None:
        """Wait until the connector has handed on a row that is written now."""
        self._restarted()
        self._markers += 1
        marker = self._markers
        self._sessions.ask(-1, f"INSERT INTO {MARKER} VALUES ({marker})")
        eventually(lambda: self._has_come(marker), timeout_s=_CATCH_UP_S)

    def _has_come(self, marker: int) -> bool:
        topic = self._topic(MARKER)
        self._reader.read([topic])
        if any(json.loads(each.key()) == {"id": marker} for each in self._reader.messages.get(topic, ())):
            return True
        status = self._stand.worker.request("GET", "/connectors/captures/status")
        failed = [each["trace"] for each in status["tasks"] if each["state"] == "FAILED"]
        if failed:
            raise RuntimeError(f"the connector has failed: {failed[0]}")
        return False

    def _topic(self, table: str) -> str:
        return str(self._stand.server.table(self._name, table))

    def _topics(self) -> dict[str, list[Event]]:
        names = {self._topic(form.name): form.name for form in self._plan.forms}
        self._reader.read(list(names))
        return {name: [_event(each) for each in self._reader.messages.get(topic, ())] for topic, name in names.items()}

    def _rows(self, form: Form) -> dict[Key, Row]:
        kinds = KINDS[self._plan.database]
        columns = ", ".join(kinds[each.kind].select.format(c=each.name) for each in form.columns)
        rows = [
            {column.number: value for column, value in zip(form.columns, row, strict=True)}
            for row in self._sessions.ask(-1, f"SELECT {columns} FROM {form.name}")
        ]
        return {tuple(row[number] for number in form.key): row for row in rows}


def _event(message: Any) -> Event:
    headers = dict(message.headers() or ())
    old_key = headers.get("__debezium.oldkey")
    return Event(
        json.loads(message.key()),
        json.loads(message.value()) if message.value() is not None else None,
        json.loads(old_key) if old_key is not None else None,
    )
