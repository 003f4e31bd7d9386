"""Which tables are read again."""

from typing import Any

from tests.support.connect_tasks import TaskContext

from ottla.connect.connectors.capture.incremental import Incremental
from ottla.connect.connectors.mysql.catalog import Catalog
from ottla.connect.connectors.mysql.settings import MysqlSettings
from ottla.connect.connectors.mysql.signals import MysqlChunks, SignalTable


def test_a_table_that_is_excluded_since_it_was_asked_for_is_not_read_on() -> None:
    given = {"database.hostname": "h", "database.user": "u", "topic.prefix": "t", "table.exclude.list": r"db\.secrets"}
    settings = MysqlSettings(**given)  # type: ignore[arg-type]
    context: Any = TaskContext()
    incremental = Incremental(lambda: "1", {"tables": ["db.secrets"], "key": ["id"], "after": ["5"], "until": ["9"]})
    chunks = MysqlChunks(
        settings, context, Catalog(None, settings, "mariadb"), SignalTable(settings, None), incremental
    )
    chunks.read_next()
    assert incremental.tables == []
    assert context.warning == "table db.secrets is not captured any more and is not read again"
