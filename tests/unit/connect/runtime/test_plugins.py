"""Finding a connector's class: quick, since a worker that starts waits for it."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from ottla.connect.api import Settings, Sink
from ottla.connect.errors import ConfigError
from ottla.connect.runtime import plugins
from ottla.connect.runtime.plugins import connector_class, dotted

_OF_POSTGRES = "ottla.connect.connectors.postgres.source.PostgresSource"
_ONE = """
import sys
from ottla.connect.runtime.plugins import connector_class
connector_class(sys.argv[1])
print(*(name for name in ("psycopg2", "sqlalchemy", "pymysqlreplication", "pyarrow", "fsspec") if name in sys.modules))
"""


@pytest.mark.parametrize(
    "name",
    ["postgres-source", _OF_POSTGRES, "PostgresSource", "io.debezium.connector.postgresql.PostgresConnector"],
)
def test_a_connector_has_several_names(name: str) -> None:
    assert dotted(connector_class(name)) == _OF_POSTGRES


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("io.confluent.connect.jdbc.JdbcSinkConnector", "RelationalSink"),
        ("io.debezium.connector.mariadb.MariaDbConnector", "MysqlSource"),
        ("org.apache.kafka.connect.mirror.MirrorSourceConnector", "MirrorSource"),
    ],
)
def test_an_alias_that_is_unlike_its_connector_is_found(name: str, found: str) -> None:
    assert connector_class(name).__name__ == found


def test_an_unknown_one_is_refused_with_its_neighbour() -> None:
    with pytest.raises(ConfigError, match="did you mean 'postgres-source'"):
        connector_class("postgres-sourc")


def test_only_the_libraries_of_the_connector_that_is_meant_are_imported() -> None:
    program = [sys.executable, "-c", _ONE, "io.debezium.connector.postgresql.PostgresConnector"]
    imported = subprocess.run(program, capture_output=True, text=True, check=True).stdout.split()
    assert imported == ["psycopg2"]


def test_one_that_failed_to_load_is_tried_again_unless_a_library_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[str] = []
    failure: list[Exception] = [SystemError("AST constructor recursion depth mismatch"), ImportError("no such library")]

    class Broken:
        value = "somewhere:Broken"

        def load(self) -> None:
            tries.append(self.value)
            raise failure[min(len(tries), 2) - 1]

    monkeypatch.setattr(plugins, "_points", lambda: {"broken": Broken()})
    monkeypatch.setattr(plugins, "_LOADED", {})
    for _ in range(4):
        assert plugins.installed() == {}
    assert len(tries) == 2


def test_one_that_cannot_be_loaded_is_no_unknown_one(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        value = "somewhere:Broken"

        def load(self) -> None:
            raise ImportError("no such library")

    monkeypatch.setattr(plugins, "_points", lambda: {"broken": Broken()})
    monkeypatch.setattr(plugins, "_LOADED", {})
    with pytest.raises(
        ConfigError, match=r"connector broken \(somewhere:Broken\) cannot be loaded; see the worker's log"
    ):
        connector_class("broken")


def test_a_connector_has_the_version_of_the_package_that_registers_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Registered(Sink[Settings]):
        """A sink in a package whose name differs from its module's."""

    package = SimpleNamespace(version="3.2")
    point = SimpleNamespace(value=f"{Registered.__module__}:{Registered.__qualname__}", dist=package)
    monkeypatch.setattr(plugins, "_points", lambda: {"registered": point})
    assert plugins.version_of(Registered) == "3.2"
