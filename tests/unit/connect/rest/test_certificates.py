"""Certificates of the REST API are replaced on disk: its own, and those that vouch for clients."""

import asyncio
import os
import ssl
from pathlib import Path

import pytest
from tests.support.certificates import Authority

from ottla.connect.errors import ConfigError
from ottla.connect.rest.certificates import Certificates, https_settings
from ottla.connect.rest.client import trusting


def settings(directory: Path, **more: str) -> dict[str, str]:
    prefix = "listeners.https.ssl."
    return {
        f"{prefix}keystore.type": "PEM",
        f"{prefix}keystore.location": str(directory / "worker.pem"),
        f"{prefix}truststore.type": "PEM",
        f"{prefix}truststore.location": str(directory / "trusted.pem"),
        **{prefix + name.replace("_", "."): value for name, value in more.items()},
    }


async def accepts(certificates: Certificates, client: ssl.SSLContext) -> bool:
    """Whether a client gets an answer over TLS."""

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"fine")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=certificates.listening)
    async with server:
        try:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname(), ssl=client)
            said = await reader.read()
        except (ssl.SSLError, OSError):
            return False
        writer.close()
        return said == b"fine"


def put(path: Path, written: Path) -> None:
    os.replace(written, path)


def test_the_authority_of_clients_is_replaced(tmp_path: Path) -> None:
    old, new = Authority("old"), Authority("new")
    old.issue("worker").write_pem(tmp_path / "worker.pem")
    old.write(tmp_path / "trusted.pem")
    clients = {}
    for name, authority in (("old", old), ("new", new)):
        pem = authority.issue("client").write_pem(tmp_path / f"{name}.pem")
        clients[name] = trusting(str(old.write(tmp_path / "old-ca.pem")), str(pem))
    certificates = Certificates(https_settings(settings(tmp_path, client_auth="required")))

    def accepted() -> list[str]:
        return [name for name, client in clients.items() if asyncio.run(accepts(certificates, client))]

    assert accepted() == ["old"]
    assert not asyncio.run(accepts(certificates, trusting(str(tmp_path / "old-ca.pem"))))
    both = (tmp_path / "old-ca.pem").read_text() + new.write(tmp_path / "new-ca.pem").read_text()
    (tmp_path / "both.pem").write_text(both)
    put(tmp_path / "trusted.pem", tmp_path / "both.pem")
    certificates.refresh()
    assert accepted() == ["old", "new"]
    put(tmp_path / "trusted.pem", tmp_path / "new-ca.pem")
    certificates.refresh()
    assert accepted() == ["new"]


def test_a_file_that_cannot_be_used_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    authority = Authority()
    authority.issue("worker").write_pem(tmp_path / "worker.pem", "geheim")
    authority.write(tmp_path / "trusted.pem")
    with pytest.raises(ConfigError, match=r"set ssl.key.password \(with the prefix listeners.https."):
        Certificates(https_settings(settings(tmp_path)))
    certificates = Certificates(https_settings(settings(tmp_path, key_password="geheim")))
    client = trusting(str(tmp_path / "trusted.pem"))
    assert asyncio.run(accepts(certificates, client))
    (tmp_path / "worker.pem").write_text("no certificate")
    certificates.refresh()
    certificates.refresh()
    assert caplog.text.count("goes on with the certificates that it has") == 1
    assert "geheim" not in caplog.text
    assert asyncio.run(accepts(certificates, client))
