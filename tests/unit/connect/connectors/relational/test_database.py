"""URLs of databases, as users of JDBC write them."""

import pytest

from ottla.connect.api import ConfigError
from ottla.connect.connectors.relational import database
from ottla.connect.connectors.relational.settings import SinkSettings


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
