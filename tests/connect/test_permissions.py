"""What a connector's configuration may not do on the worker's machine, and the worker's settings that allow it."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from ottla.connect.connectors.files.store import StoreSettings, local_paths
from ottla.connect.connectors.relational.settings import SinkSettings
from ottla.connect.connectors.relational.sink import RelationalSink
from ottla.connect.errors import ConfigError
from ottla.connect.permissions import Permissions
from ottla.connect.rest.client import RestError
from ottla.connect.runtime.plugins import check_paths
from ottla.connect.runtime.secrets import Secrets
from ottla.testing import Broker, ConnectWorker
from tests.support.connect import values_of
from tests.support.eventually import eventually

AS_INSTALLED = {"plugin.modules": "", "file.connectors.allowed.paths": "", "config.providers": ""}
MODULE = """
from pathlib import Path
Path({marker!r}).write_text("it ran")
from ottla.connect.api import Settings, Source
class Evil(Source[Settings]):
    def read(self, position):
        yield None
def transform(record):
    return record
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture(scope="module")
def closed(broker: Broker) -> Iterator[ConnectWorker]:
    with ConnectWorker(broker.bootstrap, AS_INSTALLED) as worker:
        yield worker


@pytest.fixture
def evil(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module that can be imported, and the file that says that it was."""
    marker = tmp_path / "marker"
    (tmp_path / "evil_beside.py").write_text(MODULE.format(marker=str(marker)))
    package = tmp_path / "evil_package"
    package.mkdir()
    (package / "__init__.py").write_text(MODULE.format(marker=str(marker)))
    monkeypatch.syspath_prepend(str(tmp_path))
    return marker


def refusal(worker: ConnectWorker, config: dict[str, str]) -> str:
    with pytest.raises(RestError) as refused:
        worker.request("POST", "/connectors", {"name": "stolen", "config": config})
    assert refused.value.status == 400
    assert "stolen" not in worker.request("GET", "/connectors")
    return str(refused.value)


@pytest.mark.parametrize("name", ["evil_beside.Evil", "evil_package.Evil", "evil_package.sub.Evil"])
def test_no_module_is_run_to_look_at_a_connector(closed: ConnectWorker, evil: Path, name: str) -> None:
    config = {"connector.class": name, "name": "stolen"}
    with pytest.raises(RestError, match=r"this worker may not import evil_\w+(\.sub)?: set plugin.path in its"):
        closed.request("PUT", f"/connector-plugins/{name}/config/validate", config)
    with pytest.raises(RestError, match="404"):
        closed.request("GET", f"/connector-plugins/{name}/config")
    assert "may not import" in refusal(closed, config)
    assert not evil.exists()


@pytest.mark.parametrize("kind", ["transforms", "predicates"])
def test_no_module_is_run_to_look_at_a_transform(closed: ConnectWorker, evil: Path, kind: str) -> None:
    config = {"connector.class": "http-sink", "topics": "t", "http.url": "http://127.0.0.1:1", kind: "x"}
    said = refusal(closed, {**config, f"{kind}.x.type": "evil_beside:transform"})
    assert "this worker may not import evil_beside" in said
    assert not evil.exists()


def test_modules_of_a_directory_or_of_a_name_are_connectors(evil: Path) -> None:
    for given in ({"plugin.path": str(evil.parent)}, {"plugin.modules": "evil_beside, evil_package"}):
        permissions = Permissions(given)
        assert permissions.may_import("evil_beside")
        assert permissions.may_import("evil_package.sub")
        assert not permissions.may_import("os")
        assert not permissions.may_import("evil_besides")
    assert not evil.exists()


def test_what_file_connectors_write_is_never_imported(tmp_path: Path) -> None:
    for files in (tmp_path, tmp_path / "in"):
        with pytest.raises(ConfigError, match=r"what one writes there would be run; keep modules in a directory of"):
            Permissions({"plugin.path": str(tmp_path), "file.connectors.allowed.paths": str(files)})


def file_source(path: str) -> dict[str, str]:
    return {"connector.class": "file-source", "path": path, "topic": "stolen", "format": "csv", "csv.columns": "line"}


def test_no_file_of_the_machine_goes_into_a_topic(closed: ConnectWorker, broker: Broker, tmp_path: Path) -> None:
    for path in ("/etc/passwd", "file:///etc/passwd", "local:///etc/*", "csv://::file:///etc/passwd"):
        said = refusal(closed, file_source(path))
        assert "lets no connector read or write: set file.connectors.allowed.paths in the worker's" in said
    sink = {"connector.class": "file-sink", "topics": "t", "path": str(tmp_path / "out")}
    assert "file.connectors.allowed.paths" in refusal(closed, sink)
    table = {"connector.class": "relational-sink", "topics": "t", "connection.url": f"sqlite:///{tmp_path}/evil.py"}
    assert "file.connectors.allowed.paths" in refusal(closed, table)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://h/d?sslrootcert={0}/ca.pem",
        "postgresql://h/d?sslmode=verify-full&sslkey={0}/key.pem",
        "jdbc:postgresql://h/d?sslcert={0}/cert.pem",
        "postgresql://h/d?passfile={0}/pgpass",
        "postgresql://h/d?dsn=passfile%3D{0}/pgpass",
        "mysql://h/d?read_default_file={0}/my.cnf",
        "mysql://h/d?read_default_file=/tmp&read_default_file={0}/my.cnf",
        "mariadb+pymysql://h/d?ssl_ca={0}/ca.pem",
        "mysql://h/d?ssl_key={0}/key.pem",
        "mysql://h/d?local_infile=1",
        "mssql+pyodbc:///?odbc_connect=DRIVER%3D{0}/driver.so",
        "sqlite:///file:{0}/%252e%252e/rows.db?uri=true",
        "sqlite:///{0}/rows.db?vfs=other",
    ],
)
def test_no_file_is_read_for_a_parameter_of_a_url(closed: ConnectWorker, tmp_path: Path, url: str) -> None:
    sink = {"connector.class": "relational-sink", "topics": "t", "connection.url": url.format(tmp_path)}
    assert "connection.url names" in refusal(closed, sink)


def test_parameters_of_urls_are_allowed_if_they_read_no_file_or_an_allowed_one(tmp_path: Path) -> None:
    permissions = Permissions({"file.connectors.allowed.paths": str(tmp_path)})
    for url in (
        "postgresql://h/d?sslmode=verify-full&sslrootcert=system&application_name=x&options=-csearch_path%3Ds",
        "postgresql://h/d?sslrootcert={0}/ca.pem&connect_timeout=3",
        "jdbc:postgresql://h/d?reWriteBatchedInserts=true&sslmode=require",
        "mysql://h/d?charset=utf8mb4&ssl_ca={0}/ca.pem&ssl_verify_cert=true",
        "jdbc:mysql://h/d?useSSL=false&serverTimezone=UTC",
        "sqlite:///file:{0}/rows.db?uri=true&mode=ro",
        "sqlite:///:memory:",
    ):
        settings = SinkSettings.model_validate({"connection.url": url.format(tmp_path)})
        check_paths(RelationalSink, settings, permissions)


def test_certificates_for_a_captured_database_are_allowed_files(closed: ConnectWorker) -> None:
    source = {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.hostname": "127.0.0.1",
        "database.port": "1",
        "database.user": "u",
        "database.dbname": "d",
        "topic.prefix": "t",
        "database.sslrootcert": "/etc/passwd",
    }
    assert "database.sslrootcert names /etc/passwd" in refusal(closed, source)


def test_files_in_allowed_directories_alone_are_read(broker: Broker, tmp_path: Path) -> None:
    allowed = tmp_path / "in"
    allowed.mkdir()
    (allowed / "rows.csv").write_text("one\ntwo\n")
    (allowed / "link").symlink_to("/etc")
    settings = {**AS_INSTALLED, "file.connectors.allowed.paths": f"{allowed},/nowhere", "group.id": "some-files"}
    topics = {f"{each}.storage.topic": f"{each}-of-some-files" for each in ("config", "offset", "status")}
    with ConnectWorker(broker.bootstrap, {**settings, **topics}) as worker:
        for path in (
            f"{allowed}/../rows.csv",
            f"{allowed}/*/../../x",
            f"{allowed}/link/passwd",
            f"{allowed}x/rows.csv",
        ):
            assert "file.connectors.allowed.paths" in refusal(worker, file_source(path))
        worker.put("rows", {**file_source(f"{allowed}/*.csv"), "topic": "rows"})
        assert len(eventually(lambda: values_of(broker.bootstrap, "rows", 2), timeout_s=60)) == 2


@pytest.fixture
def caller() -> Iterator[tuple[str, list[str]]]:
    """An address of somebody who would like to know something, and the requests to it."""
    seen: list[str] = []

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"[]")

        def log_message(self, *_: Any) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", seen
        server.shutdown()


def test_no_secret_goes_to_an_address_of_the_callers_choice(
    closed: ConnectWorker, caller: tuple[str, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_SECRET", "hunter22")
    file = tmp_path / "secrets.properties"
    file.write_text("key=hunter22\n")
    url, seen = caller
    for placeholder, setting in (("${env:MY_SECRET}", "env"), (f"${{file:{file}:key}}", "file")):
        config = {"connector.class": "http-source", "http.url": f"{url}/{placeholder}", "topic": "t"}
        said = refusal(closed, config)
        assert f"fills in no such values: set config.providers={setting} and config.providers.{setting}.class" in said
        assert "hunter22" not in said
    assert seen == []


def test_secrets_are_those_that_the_worker_allows(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in" / "s.properties", tmp_path / "s.properties"
    inside.parent.mkdir()
    for file in (inside, outside):
        file.write_text("key=value\n")
    package = "org.apache.kafka.common.config.provider"
    secrets = Secrets({"DB_PASSWORD": "correct", "HOME": "/root"})
    secrets.limit(
        {
            "config.providers": "env,file",
            "config.providers.env.class": f"{package}.EnvVarConfigProvider",
            "config.providers.env.param.allowlist.pattern": "DB_.*",
            "config.providers.file.class": f"{package}.FileConfigProvider",
            "config.providers.file.param.allowed.paths": str(inside.parent),
        }
    )
    assert secrets.resolve({"a": f"${{env:DB_PASSWORD}} ${{file:{inside}:key}}"}) == {"a": "correct value"}
    for refused, why in (("${env:HOME}", "allowlist.pattern"), (f"${{file:{outside}:key}}", "allowed.paths")):
        with pytest.raises(ConfigError, match=f"a asks for .* which has no value: {why} does not allow this"):
            secrets.resolve({"a": refused})


@pytest.mark.parametrize(
    "override", ["producer.override.plugin.library.paths", "admin.override.ssl.ca.location", "producer.override.a.file"]
)
def test_a_client_of_a_connector_runs_nothing_and_reads_no_other_files(closed: ConnectWorker, override: str) -> None:
    config = {"connector.class": "http-source", "http.url": "http://127.0.0.1:1", "topic": "t", override: "/tmp/x.so"}
    assert override in refusal(closed, config)


@pytest.mark.parametrize(
    "path", ["file:{}", "local:{}", "simplecache::{}", "filecache::file:{}", "file://{}", "file:{}/*.csv", "~{}"]
)
def test_no_form_of_a_path_leads_out_of_what_is_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    inside.mkdir()
    monkeypatch.chdir(inside)  # where the worker runs
    monkeypatch.setenv("HOME", str(tmp_path))
    settings = StoreSettings.model_validate({"path": path.format("/out" if path.startswith("~") else outside)})
    with pytest.raises(ConfigError, match=r"names .*, which this worker lets no connector read or write"):
        Permissions({"file.connectors.allowed.paths": str(inside)}).check_files(local_paths(settings), "path")


def test_a_server_that_may_ask_for_any_file_is_not_let_by_a_directory_in_which_the_worker_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = SinkSettings.model_validate({"connection.url": "mysql://h/d?local_infile=1", "topics": "t"})
    with pytest.raises(ConfigError, match=r"connection.url names /, which this worker lets no connector read or write"):
        check_paths(RelationalSink, settings, Permissions({"file.connectors.allowed.paths": str(tmp_path)}))
