"""What errors of the server mean to those who read a connector's status."""

from unittest.mock import MagicMock

import pymysql
import pytest

from ottla.connect.api import ConnectError, Retriable
from ottla.connect.connectors.mysql.session import check_order, code_of, explained
from ottla.connect.connectors.mysql.settings import MysqlSettings


@pytest.mark.parametrize(
    ("code", "text", "kind", "sentence"),
    [
        (1045, "Access denied", ConnectError, "check database.user and database.password"),
        (1227, "Access denied", ConnectError, "GRANT SELECT, RELOAD, REPLICATION SLAVE"),
        (1236, "Could not find first log file name", ConnectError, "delete the connector's offsets"),
        (1236, "A slave with the same server_uuid/server_id", ConnectError, "a database.server.id of its own"),
        (1236, "log event entry exceeded max_allowed_packet", ConnectError, "SET GLOBAL max_allowed_packet"),
        (1053, "Server shutdown in progress", Retriable, "Server shutdown in progress"),
        (2013, "Lost connection", Retriable, "Lost connection"),
        (1146, "Table 'a.b' doesn't exist", ConnectError, "Table 'a.b' doesn't exist"),
    ],
)
def test_errors_say_what_to_do(code: int, text: str, kind: type[ConnectError], sentence: str) -> None:
    with pytest.raises(ConnectError, match="trying: ") as raised, explained("trying"):
        raise pymysql.err.OperationalError(code, text)
    assert type(raised.value) is kind
    assert sentence in str(raised.value)
    assert code_of(raised.value) == code


def test_an_error_of_something_else_has_no_code() -> None:
    assert code_of(ConnectError("no")) == 0


def test_incremental_snapshots_are_refused_where_the_binlog_may_have_another_order_than_readers_see() -> None:
    def check(*variables: tuple[str, str]) -> None:
        connection = MagicMock()
        connection.cursor.return_value.__enter__.return_value.fetchall.return_value = variables
        check_order(connection)

    check()
    check(("binlog_order_commits", "ON"))
    with pytest.raises(ConnectError, match="SET GLOBAL binlog_order_commits = 'ON'"):
        check(("binlog_order_commits", "OFF"))


def test_readers_have_numbers_by_their_names_unless_they_are_told() -> None:
    def number(**more: str) -> int:
        given = {"database.hostname": "h", "database.user": "u", **more}
        return MysqlSettings(**given).replica_id  # type: ignore[arg-type]

    first, second = (number(**{"topic.prefix": name}) for name in "ab")
    assert len({first, second}) == 2
    assert first == number(**{"topic.prefix": "a"})
    assert number(**{"topic.prefix": "a", "database.server.id": "7"}) == 7
