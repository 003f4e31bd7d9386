"""Certificates for development: a broker that shows them, a client that uses them, and nothing that is overwritten."""

import asyncio
import ssl
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ottla.broker import Broker
from ottla.cli.cert.commands import command
from ottla.cli.terminal.exits import CommandFailed


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command, ["dev", *arguments])


def test_what_is_printed_starts_a_broker_that_the_client_may_use(tmp_path: Path) -> None:
    done = run("--dir", str(tmp_path), "--host", "broker.example", "--host", "10.1.2.3", "--client", "alice")
    assert done.exit_code == 0, done.output
    server, librdkafka, java = done.output.split("\n\n")
    client = dict(line.split("=") for line in librdkafka.splitlines()[1:])
    assert "ssl.truststore.location" in java
    properties = tmp_path / "server.properties"
    properties.write_text(server)

    async def connect() -> None:
        overrides = {"listeners": "SSL://127.0.0.1:0", "log.dirs": str(tmp_path / "data")}
        async with Broker.configured(properties, overrides) as broker:
            context = ssl.create_default_context(cafile=client["ssl.ca.location"])
            context.load_cert_chain(client["ssl.certificate.location"], client["ssl.key.location"])
            for name in ("localhost", "127.0.0.1", "broker.example", "10.1.2.3"):
                _, writer = await asyncio.open_connection(
                    "127.0.0.1", broker.ports["SSL"], ssl=context, server_hostname=name
                )
                writer.close()
            with pytest.raises(ssl.SSLCertVerificationError):
                await asyncio.open_connection("127.0.0.1", broker.ports["SSL"], ssl=context, server_hostname="other")

    asyncio.run(connect())
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.glob("*.pem")}
    assert modes == {"ca.pem": 0o644, "ca-key.pem": 0o600, "broker.pem": 0o600, "client.pem": 0o600}


def test_files_that_are_there_stay_unless_that_is_wanted(tmp_path: Path) -> None:
    (tmp_path / "broker.pem").write_text("mine")
    refused = run("--dir", str(tmp_path))
    assert isinstance(refused.exception, CommandFailed)
    assert "broker.pem is there already; give another --dir, or --force" in str(refused.exception)
    assert [path.name for path in tmp_path.iterdir()] == ["broker.pem"]
    assert run("--dir", str(tmp_path), "--force").exit_code == 0
    assert "BEGIN CERTIFICATE" in (tmp_path / "broker.pem").read_text()


def test_a_name_that_cannot_stand_in_a_certificate_is_refused(tmp_path: Path) -> None:
    refused = run("--dir", str(tmp_path / "new"), "--host", "żółw")
    assert "a name cannot stand in a certificate" in str(refused.exception)
    assert not (tmp_path / "new").exists()


def test_a_broker_with_logins(tmp_path: Path) -> None:
    done = run("--logins", "--dir", str(tmp_path), "--host", "kafka.example").output
    server, admin = (tmp_path / name for name in ("server.properties", "admin.properties"))
    assert f"ottla serve {server}" in done
    for path in (server, admin):
        assert path.stat().st_mode & 0o777 == 0o600
    text = server.read_text()
    assert "listeners=SASL_SSL://:9093\nadvertised.listeners=SASL_SSL://kafka.example:9093\n" in text
    (password,) = [line.split("=", 1)[1] for line in admin.read_text().splitlines() if "password" in line]
    assert f"name=admin,password={password}]" in text
    assert password not in done
