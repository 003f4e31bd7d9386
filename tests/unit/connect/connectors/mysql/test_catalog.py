"""Which databases and tables are captured."""

import pytest

from ottla.connect.connectors.mysql.catalog import Catalog
from ottla.connect.connectors.mysql.settings import MysqlSettings

GIVEN = {"database.hostname": "h", "database.user": "u", "topic.prefix": "t"}


def catalog(**more: str) -> Catalog:
    settings = MysqlSettings(**GIVEN, **{name.replace("_", "."): value for name, value in more.items()})  # type: ignore[arg-type]
    return Catalog(None, settings, "mariadb")


def test_databases_are_chosen_by_expressions_for_whole_names() -> None:
    some = catalog(database_include_list=r"shop_\d+, archive")
    assert [some.has(name, "items") for name in ("shop_1", "Shop_22", "archive", "shop_x", "archived")] == [
        True,
        True,
        True,
        False,
        False,
    ]
    assert [catalog().has(name, "items") for name in ("shop", "mysql")] == [True, False]
    assert not catalog(database_include_list=".*").has("mysql", "user")
    with pytest.raises(ValueError, match="is no regular expression"):
        catalog(database_include_list="(")
