"""A table of MariaDB read again amid its changes, while worker and server are killed: each row, and each once."""

import json
import random
import threading
import time
from collections import Counter
from types import TracebackType
from typing import Any, Final

import pymysql
import pytest

from ottla.testing import Broker, ConnectProcess
from tests.support.connect import values_of
from tests.support.eventually import eventually
from tests.support.mariadb import PASSWORD, USER, MariaDb

pytestmark = pytest.mark.soak

_ROWS: Final = 4_000
_KILLS: Final = 10
_DURABLE: Final = {"innodb_flush_log_at_trx_commit": "1", "sync_binlog": "1"}
_CONFIG: Final = {
    "connector.class": "io.debezium.connector.mysql.MySqlConnector",
    "database.hostname": "127.0.0.1",
    "database.user": USER,
    "database.password": PASSWORD,
    "database.include.list": "shop",
    "topic.prefix": "shop",
    "snapshot.mode": "no_data",
    "signal.data.collection": "shop.signals",
    "incremental.snapshot.chunk.size": "50",
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
    "tombstones.on.delete": "false",
}


class Load:
    """Changes rows as long as the block runs, each time with a number of its own.

    certain: numbers of changes that were committed. perhaps: of those whose commit nobody answered.
    """

    def __init__(self, server: MariaDb) -> None:
        self._server = server
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.certain: set[int] = set()
        self.perhaps: set[int] = set()

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        dice = random.Random(7)
        number = 0
        connection: Any = None
        while not self._stop.wait(0.004):
            number += 1
            key = dice.randrange(_ROWS + 500)
            try:
                connection = connection or self._server.connect()
                with connection.cursor() as cursor:
                    if dice.random() < 0.2:
                        cursor.execute("DELETE FROM items WHERE id = %s", (key,))
                    else:
                        self.perhaps.add(number)
                        cursor.execute(
                            "INSERT INTO items VALUES (%s, %s) ON DUPLICATE KEY UPDATE n = %s", (key, number, number)
                        )
                        self.perhaps.discard(number)
                        self.certain.add(number)
            except (pymysql.err.OperationalError, pymysql.err.InterfaceError):  # the server is being started again
                connection = None


@pytest.mark.timeout(600)
def test_a_table_read_again_amid_kills_is_the_same_in_the_topic() -> None:
    dice = random.Random(11)
    killed: Counter[str] = Counter()
    with (
        MariaDb(binlog_row_metadata="FULL", **_DURABLE) as server,
        Broker() as broker,
        ConnectProcess(broker.bootstrap) as worker,
    ):
        run(
            server,
            "CREATE TABLE items (id INT PRIMARY KEY, n INT NOT NULL)",
            f"INSERT INTO items SELECT seq, 0 FROM seq_0_to_{_ROWS - 1}",
            "CREATE TABLE signals (id VARCHAR(42) PRIMARY KEY, type VARCHAR(32) NOT NULL, data VARCHAR(2048))",
        )
        worker.put("items", {**_CONFIG, "database.port": str(server.port)})
        worker.wait("items", "RUNNING")
        with Load(server) as load:
            eventually(lambda: "pos" in position(worker), timeout_s=60)
            run(
                server,
                """INSERT INTO signals VALUES ('1', 'execute-snapshot', '{"data-collections": ["shop.items"]}')""",
            )
            for _ in range(_KILLS):
                time.sleep(dice.uniform(0.3, 2))
                victim = dice.choice(["worker", "database"])
                killed[victim] += 1
                (worker if victim == "worker" else server).kill()
                (worker if victim == "worker" else server).start()
            eventually(lambda: "incremental" not in position(worker), timeout_s=180)
        table: dict[int, int] = dict(run(server, "SELECT id, n FROM items"))
        events = eventually(lambda: caught_up(broker, table), timeout_s=120)
        assert [each["state"] for each in worker.request("GET", "/connectors/items/status")["tasks"]] == ["RUNNING"]
    read = Counter(each["after"]["id"] for each in events if each["op"] == "r")
    assert set(read.values()) == {1}, "a row is read once for a signal, whatever was killed"
    changes = Counter(each["after"]["n"] for each in events if each["op"] in "cu")
    assert set(changes.values()) == {1}, "no change comes twice"
    assert load.certain <= set(changes), "no change is lost"
    assert set(changes) <= load.certain | load.perhaps
    print(f"killed and the same: {dict(killed)}, {len(read)} rows read again amid {len(changes)} changes")


def caught_up(broker: Broker, table: dict[int, int]) -> list[dict[str, Any]]:
    """The events of the topic, if they rebuild the table."""
    events = [json.loads(value) for value in values_of(broker.bootstrap, "shop.shop.items", 1)]
    copy: dict[int, int] = {}
    for each in events:
        if each["after"] is None:
            copy.pop(each["before"]["id"], None)
        else:
            copy[each["after"]["id"]] = each["after"]["n"]
    return events if copy == table else []


def position(worker: ConnectProcess) -> dict[str, Any]:
    """Where the connector is, by its offsets; as if amid a snapshot where it is nowhere yet."""
    offsets = worker.request("GET", "/connectors/items/offsets")["offsets"]
    return offsets[0]["offset"] if offsets else {"incremental": None}


def run(server: MariaDb, *statements: str) -> list[tuple[Any, ...]]:
    with server.connect() as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        return list(cursor.fetchall())
