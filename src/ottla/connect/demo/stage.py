"""All that runs in the demo: database, broker, worker with its two connectors, and the job on Spark."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla.connect.demo import shop
from ottla.connect.demo.errors import DemoError
from ottla.connect.demo.postgres import USER, Postgres
from ottla.connect.rest.client import RestError, ask
from ottla.processes import ChildProcess, answers, free_ports, ottla_command
from ottla.waiting import tries

if TYPE_CHECKING:
    from ottla.pipeline.progress import Figures

JOB_FILE: Final = Path(__file__).with_name("sales.py")
SOURCE, SINK, JOB = "orders", "report", "sales"
_READY_WITHIN_S: Final = 60.0
_LOOK_S: Final = 0.05
_ASK_EVERY_S: Final = 1.0
_ANSWER_S: Final = 10.0
_BROKER: Final = {"group.initial.rebalance.delay.ms": "0"}
_WORKER: Final = {
    "group.id": "demo",
    # killed processes are removed from groups soon
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "1000",
    "consumer.session.timeout.ms": "6000",
    "consumer.heartbeat.interval.ms": "1000",
    "offset.storage.partitions": "1",
    "status.storage.partitions": "1",
}
_JSON: Final = {
    f"{side}.{name}": value
    for side in ("key", "value")
    for name, value in (
        ("converter", "org.apache.kafka.connect.json.JsonConverter"),
        ("converter.schemas.enable", "false"),
    )
}
_TOPICS: Final = ("shop.public.customers", "shop.public.orders", "sales")
_PARTITIONS: Final = 2


def connectors(port: int) -> dict[str, dict[str, str]]:
    """The configurations of source and sink, of a server at this port."""
    return {
        SOURCE: {
            "connector.class": "postgres-source",
            "database.hostname": "127.0.0.1",
            "database.port": str(port),
            "database.user": USER,
            "database.dbname": shop.SHOP,
            "topic.prefix": "shop",
            "table.include.list": "public.customers,public.orders",
            "publication.autocreate.mode": "filtered",
            "decimal.handling.mode": "string",
            **_JSON,
        },
        SINK: {
            "connector.class": "relational-sink",
            "topics": "sales",
            "connection.url": f"postgresql+psycopg2://{USER}@127.0.0.1:{port}/{shop.REPORTS}",
            "table.name.format": "sales",
            "insert.mode": "upsert",
            "pk.mode": "record_key",
            "pk.fields": "id",
            "delete.enabled": "true",
            **_JSON,
        },
    }


class Stage:
    """Everything, below one directory. Every method may raise DemoError."""

    def __init__(self, directory: Path, programs: Path) -> None:
        database_port, broker_port, self._rest_port = free_ports(3)
        self.bootstrap = f"127.0.0.1:{broker_port}"
        self._broker_port = broker_port
        self._directory = directory
        self.database = Postgres(programs, directory / "postgres", database_port)
        self._broker = self._ottla(
            "the broker",
            "serve",
            overrides={
                "listeners": f"PLAINTEXT://{self.bootstrap}",
                "log.dirs": str(directory / "broker"),
                **_BROKER,
            },
        )
        worker = {
            "listeners": f"http://127.0.0.1:{self._rest_port}",
            "bootstrap.servers": self.bootstrap,
            **_WORKER,
        }
        self._worker = self._ottla("the worker", "connect", "serve", overrides=worker)
        home = directory / "spark"
        scratch = home / "tmp"
        self._pipeline = self._ottla(
            "the pipeline", "pipeline", "run", str(JOB_FILE), "--home", str(home), "--bootstrap", self.bootstrap,
            "--conf", f"spark.driver.extraJavaOptions=-Djava.io.tmpdir={scratch}",
        )  # fmt: skip
        self._scratch = scratch
        self._asked_at = 0.0
        self._progress = home / "pipelines" / JOB / "progress.jsonl"

    def _ottla(self, name: str, *arguments: str, overrides: Mapping[str, str] | None = None) -> ChildProcess:
        command = ottla_command(*arguments, overrides=overrides)
        return ChildProcess(name, command, self._directory / f"{name.removeprefix('the ')}.log")

    @property
    def children(self) -> tuple[ChildProcess, ...]:
        """In the order in which they are ended."""
        return self._pipeline, self._worker, self._broker, self.database

    # -- beginning -----------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Start all of it for the first time, with the rows of the beginning in the shop."""
        self._scratch.mkdir(parents=True)
        self._broker.start()
        self.database.create()
        self.database.start()
        self._await_broker()
        self._make_topics()
        self._pipeline.start()
        self.database.wait_until_ready()
        for database in (shop.SHOP, shop.REPORTS):
            self.database.execute("postgres", f"CREATE DATABASE {database}")
        self.database.execute(shop.SHOP, shop.SHOP_TABLES + shop.FILL)
        self.database.execute(shop.REPORTS, shop.REPORTS_TABLES)
        self._worker.start()
        self._await(self._is_healthy, self._worker)
        for name, config in connectors(self.database.port).items():
            self._put(name, config)

    def _make_topics(self) -> None:
        """As a user would before a job reads them, and so that nothing waits for anything."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient, NewTopic

        new = [NewTopic(name, _PARTITIONS, config={"retention.ms": "-1"}) for name in _TOPICS]
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        try:
            for future in admin.create_topics(new).values():
                future.result(_READY_WITHIN_S)
        except KafkaException as failure:
            raise DemoError(f"the topics cannot be made: {failure.args[0].str()}") from None

    def _await_broker(self) -> None:
        self._await(lambda: answers(self._broker_port), self._broker)

    @staticmethod
    def _await(holds: Callable[[], bool], child: ChildProcess) -> None:
        for _ in tries(_READY_WITHIN_S, every_s=_LOOK_S):
            if holds():
                return
            _check(child)
        raise DemoError(f"{child.name} does not answer; the end of {child.log}:\n{child.last_words()}")

    # -- the middle ----------------------------------------------------------------------------------------------------

    def kill(self) -> None:
        """SIGKILL to everything. Nothing is flushed, no transaction ended, no peer notified."""
        for child in self.children:
            child.kill()

    def come_back(self) -> None:
        """Start all of it again, as it would be started anyhow: what is to be done stands in its files."""
        self.database.start()
        self._broker.start()
        self._await_broker()
        self._pipeline.start()
        self._worker.start()
        self.database.wait_until_ready()

    def check(self) -> None:
        """Raise DemoError if something has ended by itself, or a connector has failed (asked once a second)."""
        for child in self.children:
            _check(child)
        if time.monotonic() - self._asked_at < _ASK_EVERY_S:
            return
        self._asked_at = time.monotonic()
        for name in (SOURCE, SINK):
            for each in self._failed(name):
                raise DemoError(f"connector {name} has failed: {each}")

    def read_by_spark(self) -> "Figures | None":
        """The figures of the job's only flow, from its last line; None before there is one."""
        from ottla.pipeline.progress import latest

        return latest(self._progress).get(JOB)

    # -- the end -------------------------------------------------------------------------------------------------------

    def close(self, *, quickly: bool) -> None:
        """End everything; `quickly`: what runs need not be finished."""
        if quickly:
            self.kill()
            return
        for child in self.children:
            child.stop()

    # -- the worker's REST API -----------------------------------------------------------------------------------------

    def _is_healthy(self) -> bool:
        try:
            self._ask("GET", "/health")
        except (OSError, RestError):  # nothing listens yet, or it reports that it is starting
            return False
        return True

    def _put(self, name: str, config: Mapping[str, str]) -> None:
        try:
            self._ask("PUT", f"/connectors/{name}/config", dict(config), within_s=_READY_WITHIN_S)
        except RestError as refused:
            raise DemoError(f"connector {name} is refused: {refused.message}") from None

    def _failed(self, name: str) -> list[str]:
        """What its tasks, or it itself, have failed with."""
        try:
            status = self._ask("GET", f"/connectors/{name}/status")
        except (
            OSError,
            RestError,
        ):  # it is starting, or has yet to plan the connector; whether it runs is known otherwise
            return []
        return [each.get("trace", "") for each in (status["connector"], *status["tasks"]) if each["state"] == "FAILED"]

    def _ask(self, method: str, path: str, body: object = None, within_s: float = _ANSWER_S) -> Any:
        return ask(f"http://127.0.0.1:{self._rest_port}", method, path, body, within_s=within_s)


def _check(child: ChildProcess) -> None:
    if (obituary := child.obituary()) is not None:
        raise DemoError(obituary)
