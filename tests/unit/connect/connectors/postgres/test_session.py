"""What a refused connection means: whether to wait, and what to do."""

import psycopg2
import pytest

from ottla.connect.api import ConnectError, Retriable
from ottla.connect.connectors.postgres.session import connect
from ottla.connect.connectors.postgres.settings import PostgresSettings

SETTINGS = PostgresSettings.model_validate(
    {"database_hostname": "db1", "database_user": "me", "database_dbname": "shop", "topic_prefix": "shop"}
)


@pytest.mark.parametrize(
    ("said", "kind", "sentence"),
    [
        ("the database system is starting up", Retriable, "db1:5432 is restarting"),
        ("the database system is shutting down", Retriable, "db1:5432 is restarting"),
        ("the database system is in recovery mode", Retriable, "db1:5432 is restarting"),
        ("the database system is not yet accepting connections", Retriable, "db1:5432 is restarting"),
        ('database "shop" does not exist', ConnectError, r"check database\.dbname"),
        ('role "me" does not exist', ConnectError, r"check database\.user"),
        ('password authentication failed for user "me"', ConnectError, r"check database\.user and database\.password"),
        ("sorry, too many clients already", Retriable, "raise max_connections"),
    ],
)
def test_refusals(monkeypatch: pytest.MonkeyPatch, said: str, kind: type[ConnectError], sentence: str) -> None:
    def refuse(**_: object) -> None:
        raise psycopg2.OperationalError(f'connection to server at "db1", port 5432 failed: FATAL:  {said}')

    monkeypatch.setattr(psycopg2, "connect", refuse)
    with pytest.raises(ConnectError, match=sentence) as caught:
        connect(SETTINGS, "test")
    assert type(caught.value) is kind
