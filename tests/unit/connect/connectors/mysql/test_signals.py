"""Which tables are read again."""

from typing import Any, Final

from tests.support.connect_tasks import TaskContext

from ottla.connect.connectors.capture.incremental import Incremental
from ottla.connect.connectors.mysql.catalog import Catalog
from ottla.connect.connectors.mysql.decoding.keys import KeyColumn
from ottla.connect.connectors.mysql.settings import MysqlSettings
from ottla.connect.connectors.mysql.signals import MysqlChunks, SignalTable


def read_next(catalog: type[Catalog], **more: str) -> str:
    """Read a chunk of table db.secrets, and return what is wrong with it."""
    given = {"database.hostname": "h", "database.user": "u", "topic.prefix": "t", **more}
    settings = MysqlSettings(**given)  # type: ignore[arg-type]
    context: Any = TaskContext()
    incremental = Incremental(lambda: "1", {"tables": ["db.secrets"], "key": ["id"], "after": ["5"], "until": ["9"]})
    MysqlChunks(
        settings, context, catalog(None, settings, "mariadb"), SignalTable(settings, None), incremental
    ).read_next()
    assert incremental.tables == []
    assert context.warning is not None
    return str(context.warning)


def test_a_table_that_is_excluded_since_it_was_asked_for_is_not_read_on() -> None:
    warning = read_next(Catalog, **{"table.exclude.list": r"db\.secrets"})
    assert warning == "table db.secrets is not captured any more and is not read again"


def test_a_table_that_is_dropped_while_it_is_looked_at_is_not_said_to_lack_a_key() -> None:
    class Dropped(Catalog):
        """Has the columns of a table that is dropped before anything else is asked."""

        answers: Final = [["id"], []]

        def selected(self, database: str, table: str) -> tuple[list[str], str]:
            return self.answers.pop(0), ""

        def primary_key(self, database: str, table: str) -> list[KeyColumn]:
            return []

    assert read_next(Dropped) == "table db.secrets is not there and is not read again"
