"""URLs of databases, as users of JDBC write them."""

import gc
import os
from pathlib import Path

import pytest
from tests.support.connect_tasks import TaskContext

from ottla.connect.api import ConfigError
from ottla.connect.connectors.relational import database
from ottla.connect.connectors.relational.settings import SinkSettings, SourceSettings
from ottla.connect.connectors.relational.sink import RelationalSink
from ottla.connect.connectors.relational.source import RelationalSource


@pytest.mark.parametrize(
    ("url", "driver", "query"),
    [
        ("jdbc:postgresql://h/db?user=u&password=p&reWriteBatchedInserts=true&sslmode=require", "psycopg2",
         {"sslmode": "require"}),
        ("jdbc:postgresql://h/db?ssl=true&currentSchema=s", "psycopg2",
         {"sslmode": "verify-full", "options": "-csearch_path=s"}),
        ("jdbc:mysql://h:3306/db?useSSL=false&serverTimezone=UTC", "pymysql", {}),
        ("jdbc:sqlite:rows.db", "pysqlite", {}),
    ],
)  # fmt: skip
def test_urls_of_jdbc_are_understood(url: str, driver: str, query: dict[str, str]) -> None:
    settings = SinkSettings.model_validate({"connection.url": url})
    made = database.engine(settings)
    assert (made.dialect.driver, dict(made.url.query)) == (driver, query)
    assert made.url.password == ("p" if "password" in url else None)
    assert database.describe(settings).startswith(("postgresql+psycopg2://", "mysql+pymysql://", "sqlite:///rows.db"))


def test_an_encrypted_connection_of_jdbc_is_not_made_without_encryption() -> None:
    settings = SinkSettings.model_validate({"connection.url": "jdbc:mysql://h/db?sslMode=VERIFY_CA"})
    with pytest.raises(
        ConfigError, match=r"asks for sslMode=VERIFY_CA, which is JDBC's alone: write it as SQLAlchemy's"
    ):
        database.engine(settings)


def test_a_look_at_a_database_leaves_no_connection(tmp_path: Path) -> None:
    """One that is left to the collector warns of it, wherever that finds it."""
    file = tmp_path / "rows.db"
    url = {"connection.url": f"sqlite:///{file}"}
    gc.disable()
    try:
        RelationalSink.check(SinkSettings.model_validate(url), TaskContext())
        source = SourceSettings.model_validate({**url, "topic.prefix": "t-", "mode": "bulk", "table.whitelist": "none"})
        for look in (RelationalSource.check, lambda *given: RelationalSource.tasks(given[0], 1, given[1])):
            with pytest.raises(ConfigError, match="there is no table none"):
                look(source, TaskContext())
        descriptors = [f"/proc/self/fd/{each}" for each in os.listdir("/proc/self/fd")]
        assert [each for each in descriptors if os.path.realpath(each) == str(file)] == []
    finally:
        gc.enable()
