"""Certificates that must not be accepted, in both directions: of clients at a listener, of brokers at other brokers."""

import ssl
from pathlib import Path

import pytest
from tests.support.certificates import Authority, Issued, write_certificate

from ottla.config import load
from ottla.config.tls import tls_settings
from ottla.errors import InvalidConfig
from ottla.security.contexts import client_context, server_context

KINDS = ("good", "expired", "revoked", "self-signed", "stranger's", "other host", "no list", "old list")
REFUSED_BY_BROKER = {
    "expired": "certificate has expired",
    "revoked": "certificate revoked",
    "self-signed": "self-signed certificate",
    "stranger's": "unable to get local issuer certificate|self-signed certificate",
    "no list": "unable to get certificate CRL",
    "old list": "CRL has expired",
}
REFUSED_BY_CLIENT = {**REFUSED_BY_BROKER, "other host": "Hostname mismatch"}


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority("good authority")


def stores(kind: str, authority: Authority, directory: Path) -> tuple[Path, Path]:
    """The key store of one end, and the trust store of the other."""
    store, trust = directory / "key.pem", directory / "trust.pem"
    issued: Issued | None = authority.issue("end", *(("elsewhere",) if kind == "other host" else ("there",)))
    trusted = authority
    if kind == "expired":
        issued = authority.issue("end", "there", days=-1)
    elif kind == "stranger's":
        issued = Authority("other authority").issue("end", "there")
    elif kind == "no list":
        trusted = Authority("second authority")
        issued = trusted.issue("end", "there")
    assert issued is not None
    if kind == "self-signed":
        key, certificate = write_certificate(directory)
        store.write_bytes(key.read_bytes() + certificate.read_bytes())
    else:
        issued.write_pem(store)
    revoked = authority.issue("another", "there") if kind != "revoked" else issued
    authority.write(trust)
    lists = authority.revocation_list(revoked, days=-1 if kind == "old list" else 1)
    extra = b"" if trusted is authority else trusted.write(directory / "second.pem").read_bytes()
    trust.write_bytes(trust.read_bytes() + extra + lists)
    return store, trust


def contexts(
    authority: Authority, directory: Path, server: tuple[Path, Path], client: tuple[Path, Path]
) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The key store and the trust store of each end."""

    def settings(store: Path, trust: Path) -> dict[str, str]:
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(store),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(trust),
            "ssl.client.auth": "required",
            "listeners": "SSL://localhost:1",
        }

    at_server = tls_settings(load(None, settings(*server))[0], "SSL")
    at_client = tls_settings(load(None, settings(*client))[0], "SSL")
    return server_context(at_server).context, client_context(at_client).context


def handshake(server: ssl.SSLContext, client: ssl.SSLContext) -> str:
    """Why one of both ends refuses the other; empty if none does."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server, server_hostname="there"),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    done: set[int] = set()
    for _ in range(8):
        for number, end in enumerate(ends):
            try:
                end.do_handshake()
                done.add(number)
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError as refused:
                return str(refused)
    assert done == {0, 1}
    return ""


@pytest.mark.parametrize("kind", KINDS)
def test_certificates_of_clients(kind: str, authority: Authority, tmp_path: Path) -> None:
    own = authority.issue("broker", "there").write_pem(tmp_path / "own.pem")
    shown, trust = stores(kind, authority, tmp_path)
    found = handshake(*contexts(authority, tmp_path, (own, trust), (shown, authority.write(tmp_path / "ca.pem"))))
    if kind not in REFUSED_BY_BROKER:
        assert found == ""
    else:
        assert any(reason in found for reason in REFUSED_BY_BROKER[kind].split("|")), found


@pytest.mark.parametrize("kind", KINDS)
def test_certificates_of_other_brokers(kind: str, authority: Authority, tmp_path: Path) -> None:
    own = authority.issue("client", "here").write_pem(tmp_path / "own.pem")
    shown, trust = stores(kind, authority, tmp_path)
    found = handshake(*contexts(authority, tmp_path, (shown, authority.write(tmp_path / "ca.pem")), (own, trust)))
    if kind not in REFUSED_BY_CLIENT:
        assert found == ""
    else:
        assert any(reason in found for reason in REFUSED_BY_CLIENT[kind].split("|")), found


def test_a_list_that_cannot_be_read_is_named(authority: Authority, tmp_path: Path) -> None:
    own = authority.issue("broker", "there").write_pem(tmp_path / "own.pem")
    trust = authority.write(tmp_path / "trust.pem")
    for end in (b"garbage\n-----END X509 CRL-----\n", b""):
        trust.write_bytes(authority.write(trust).read_bytes() + b"-----BEGIN X509 CRL-----\n" + end)
        with pytest.raises(InvalidConfig, match=r"trust\.pem: .* cannot be read"):
            contexts(authority, tmp_path, (own, trust), (own, trust))
