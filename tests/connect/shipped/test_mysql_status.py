"""What the status of a capture says when its server does not let it go on; positions stay, and other connectors run."""

from typing import Any, Final

import pytest

from ottla.testing import Broker, ConnectProcess
from tests.connect.shipped.mysql_database import Database
from tests.support.connect import values_of
from tests.support.eventually import eventually
from tests.support.mariadb import MariaDb

pytestmark = pytest.mark.soak

NUMBERS: Final = {
    "connector.class": "tests.connect.connectors.Numbers",
    "topic": "n",
    "count": "1000000",
    "pause.ms": "20",
}
CONVERTERS: Final = {
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
}


def offset(worker: ConnectProcess, name: str) -> Any:
    """Where a connector is."""
    (found,) = worker.request("GET", f"/connectors/{name}/offsets")["offsets"]
    return found["offset"]


def trace(worker: ConnectProcess, name: str) -> str:
    """What its task has failed with."""
    tasks = worker.request("GET", f"/connectors/{name}/status")["tasks"]
    return "".join(str(task["trace"]) for task in tasks if task["state"] == "FAILED")


@pytest.mark.timeout(240)
def test_a_task_fails_alone_with_a_sentence_and_its_position_stays() -> None:
    with (
        MariaDb(binlog_row_metadata="FULL") as server,
        Broker() as broker,
        ConnectProcess(broker.bootstrap) as worker,
    ):
        database = Database(server, "shop2")
        user = "reader@'127.0.0.1'"
        database.run(
            "CREATE TABLE items (id INT PRIMARY KEY)",
            "INSERT INTO items VALUES (1)",
            f"CREATE USER {user} IDENTIFIED BY 'first'",
            f"GRANT SELECT, RELOAD, REPLICATION SLAVE, BINLOG MONITOR ON *.* TO {user}",
        )
        config = {
            "connector.class": "mysql-source",
            **database.config(database_user="reader", database_password="first"),
            **CONVERTERS,
        }
        worker.put("numbers", NUMBERS)
        worker.put("items", config)
        eventually(lambda: values_of(broker.bootstrap, "shop.shop2.items", 1), timeout_s=60)
        database.run("INSERT INTO items VALUES (2)")
        eventually(lambda: values_of(broker.bootstrap, "shop.shop2.items", 2), timeout_s=60)
        eventually(lambda: "snapshot" not in offset(worker, "items"), timeout_s=30)

        database.run(f"ALTER USER {user} IDENTIFIED BY 'second'")
        worker.request("POST", "/connectors/items/restart?includeTasks=true")
        eventually(lambda: "check database.user and database.password" in trace(worker, "items"), timeout_s=60)
        before = offset(worker, "items")
        database.run(f"ALTER USER {user} IDENTIFIED BY 'first'", f"REVOKE REPLICATION SLAVE ON *.* FROM {user}")
        worker.request("POST", "/connectors/items/restart?includeTasks=true")
        eventually(lambda: "may not read the binlog: GRANT SELECT" in trace(worker, "items"), timeout_s=60)
        assert offset(worker, "items") == before
        database.run("INSERT INTO items VALUES (3)", f"GRANT REPLICATION SLAVE ON *.* TO {user}")
        worker.request("POST", "/connectors/items/restart?includeTasks=true")
        eventually(lambda: values_of(broker.bootstrap, "shop.shop2.items", 3), timeout_s=60)

        worker.request("PUT", "/connectors/items/stop")
        worker.wait("items", "STOPPED", tasks=0)
        before = offset(worker, "items")
        database.run("INSERT INTO items VALUES (4)", "FLUSH BINARY LOGS", "FLUSH BINARY LOGS")

        def is_purged() -> bool:
            with database.connection.cursor() as cursor:
                cursor.execute("SHOW MASTER STATUS")
                row = cursor.fetchone()
                assert row is not None
                cursor.execute(f"PURGE BINARY LOGS TO '{row[0]}'")
                return cursor.execute("SHOW BINARY LOGS") == 1

        eventually(is_purged)
        worker.request("PUT", "/connectors/items/resume")
        lost = "no longer has the binlog from there on"
        eventually(lambda: lost in trace(worker, "items"), timeout_s=60)
        assert offset(worker, "items") == before
        (task,) = worker.request("GET", "/connectors/numbers/status")["tasks"]
        assert task["state"] == "RUNNING"

        worker.put("items", {**config, "snapshot.mode": "when_needed"})
        eventually(lambda: values_of(broker.bootstrap, "shop.shop2.items", 7), timeout_s=60)  # all four are read again
        database.connection.close()
