"""Key stores, trust stores and the contexts made of them: what is read, and what is refused with which sentence."""

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.support.certificates import Authority, Issued

from ottla.config import load
from ottla.config.tls import tls_settings
from ottla.errors import InvalidConfig
from ottla.security.contexts import Made, client_context, server_context


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def issued(authority: Authority) -> Issued:
    return authority.issue("broker")


def made(given: dict[str, str]) -> Made:
    config, _ = load(None, {"listeners": "SSL://localhost:1", **given})
    return server_context(tls_settings(config, "SSL"))


def accepts(context: ssl.SSLContext, authority: Authority, tmp_path: Path) -> bool:
    """Whether a client that trusts the authority connects."""
    client = ssl.create_default_context(cafile=authority.write(tmp_path / "ca.pem"))
    into_client, into_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(into_client, into_server, server_hostname="127.0.0.1"),
        context.wrap_bio(into_server, into_client, server_side=True),
    )
    open_ends = set(ends)
    for _ in range(10):
        for end in ends:
            try:
                end.do_handshake()
                open_ends.discard(end)
            except ssl.SSLWantReadError:
                continue
    return not open_ends


def test_pem_files_texts_and_pkcs12_are_read(authority: Authority, issued: Issued, tmp_path: Path) -> None:
    pem = issued.write_pem(tmp_path / "broker.pem")
    hidden = issued.write_pem(tmp_path / "hidden.pem", "pw")
    store = issued.write_pkcs12(tmp_path / "broker.p12", "pw")
    text = pem.read_text()
    for given in (
        {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(pem)},
        {"ssl.keystore.type": "pem", "ssl.keystore.location": str(hidden), "ssl.key.password": "pw"},
        {"ssl.keystore.type": "PEM", "ssl.keystore.key": text, "ssl.keystore.certificate.chain": text},
        {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": str(store), "ssl.keystore.password": "pw"},
        {"ssl.keystore.location": str(store), "ssl.keystore.password": "pw"},
    ):
        context, expires = made(given)
        assert accepts(context, authority, tmp_path)
        assert expires is not None
        assert timedelta(days=89) < expires - datetime.now(UTC) < timedelta(days=91)


def test_the_settings_of_a_listener_win(issued: Issued, tmp_path: Path) -> None:
    pem = issued.write_pem(tmp_path / "broker.pem")
    given = {
        "listeners": "ONE://localhost:1,TWO://localhost:2",
        "listener.security.protocol.map": "ONE:SSL,TWO:SSL",
        "ssl.client.auth": "required",
        "ssl.keystore.type": "PEM",
        "listener.name.two.ssl.client.auth": "none",
        "listener.name.two.ssl.keystore.location": str(pem),
    }
    config, _ = load(None, given)
    one, two = (tls_settings(config, name) for name in ("ONE", "TWO"))
    assert (one.client_auth, one.key_store.location, one.key_store.setting) == ("required", None, "ssl.keystore")
    assert (two.client_auth, two.key_store.location) == ("none", str(pem))
    assert two.key_store.setting == "listener.name.two.ssl.keystore"
    assert server_context(two)
    assert "PRIVATE" not in repr(two)


REFUSED = {
    "no key": ({}, "it needs a key and a certificate: set ssl.keystore.location or ssl.keystore.key"),
    "missing file": ({"ssl.keystore.location": "{dir}/none.p12"}, "none.p12 cannot be read: No such file"),
    "wrong password": (
        {"ssl.keystore.location": "{dir}/broker.p12", "ssl.keystore.password": "wrong"},
        "broker.p12 cannot be opened: is ssl.keystore.password the right one?",
    ),
    "jks": ({"ssl.keystore.location": "{dir}/old.jks"}, "keytool -importkeystore -srckeystore {dir}/old.jks"),
    "rubbish": ({"ssl.keystore.location": "{dir}/rubbish"}, "rubbish is no PKCS12 file"),
    "pem as pkcs12": ({"ssl.keystore.location": "{dir}/broker.pem"}, "is PEM: set ssl.keystore.type=PEM"),
    "no private key": ({"ssl.keystore.type": "PEM", "ssl.keystore.location": "{dir}/ca.pem"}, "holds no private key"),
    "no certificate": ({"ssl.keystore.type": "PEM", "ssl.keystore.location": "{dir}/key.pem"}, "holds no certificate"),
    "another's key": ({"ssl.keystore.type": "PEM", "ssl.keystore.location": "{dir}/mixed.pem"}, "is not that of the"),
    "encrypted": ({"ssl.keystore.type": "PEM", "ssl.keystore.location": "{dir}/hidden.pem"}, "set ssl.key.password"),
    "not encrypted": (
        {"ssl.keystore.type": "PEM", "ssl.keystore.location": "{dir}/broker.pem", "ssl.key.password": "hunter2"},
        "leave ssl.key.password out",
    ),
    "wrong key password": (
        {"ssl.keystore.type": "PEM", "ssl.keystore.location": "{dir}/hidden.pem", "ssl.key.password": "hunter2"},
        "is ssl.key.password the right one?",
    ),
    "store password of PEM": (
        {"ssl.keystore.type": "PEM", "ssl.keystore.location": "{dir}/broker.pem", "ssl.keystore.password": "hunter2"},
        "ssl.keystore.password is not for PEM",
    ),
    "text without its chain": ({"ssl.keystore.type": "PEM", "ssl.keystore.key": "hunter2"}, "one is missing"),
    "text that is not PEM": (
        {"ssl.keystore.key": "hunter2", "ssl.keystore.certificate.chain": "hunter2"},
        "set ssl.keystore.type=PEM",
    ),
    "text and file": (
        {"ssl.keystore.type": "PEM", "ssl.keystore.location": "{dir}/broker.pem", "ssl.keystore.key": "hunter2"},
        "exclude each other",
    ),
    "client certificates nobody vouches for": (
        {
            "ssl.client.auth": "required",
        },
        "it needs a key",
    ),
    "directory": ({"ssl.keystore.location": "{dir}"}, "cannot be read: Is a directory"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_key_store_that_cannot_be_used_is_named(
    authority: Authority, issued: Issued, tmp_path: Path, case: str
) -> None:
    pem = issued.write_pem(tmp_path / "broker.pem").read_bytes()
    issued.write_pem(tmp_path / "hidden.pem", "pw")
    issued.write_pkcs12(tmp_path / "broker.p12", "pw")
    authority.write(tmp_path / "ca.pem")
    key = pem[: pem.index(b"-----BEGIN CERTIFICATE")]
    (tmp_path / "key.pem").write_bytes(key)
    (tmp_path / "mixed.pem").write_bytes(key + (tmp_path / "ca.pem").read_bytes())
    (tmp_path / "old.jks").write_bytes(b"\xfe\xed\xfe\xed" + bytes(100))
    (tmp_path / "rubbish").write_bytes(b"rubbish" * 10)
    given, why = REFUSED[case]
    with pytest.raises(InvalidConfig) as refused:
        made({name: value.replace("{dir}", str(tmp_path)) for name, value in given.items()})
    assert str(refused.value).startswith("listener SSL: ")
    assert why.replace("{dir}", str(tmp_path)) in str(refused.value)
    assert "hunter2" not in str(refused.value)


def key_store(issued: Issued, tmp_path: Path) -> dict[str, str]:
    return {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(issued.write_pem(tmp_path / "broker.pem"))}


def test_client_certificates_need_somebody_who_vouches_for_them(
    authority: Authority, issued: Issued, tmp_path: Path
) -> None:
    given = {**key_store(issued, tmp_path), "ssl.client.auth": "required"}
    with pytest.raises(InvalidConfig, match=r"ssl\.client\.auth=required needs ssl\.truststore\.location"):
        made(given)
    trusted = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(authority.write(tmp_path / "ca.pem"))}
    assert made({**given, **trusted}).context.verify_mode is ssl.CERT_REQUIRED
    assert made({**given, **trusted, "ssl.client.auth": "requested"}).context.verify_mode is ssl.CERT_OPTIONAL
    store = {"ssl.truststore.location": str(issued.write_pkcs12(tmp_path / "trust.p12", "pw"))}
    assert made({**given, **store, "ssl.truststore.password": "pw"}).context.cert_store_stats()["x509"] == 2


@pytest.mark.parametrize(
    ("suites", "protocols", "why"),
    [
        ("TLS_RSA_WITH_AES_128_CBC_SHA", "TLSv1.2", "TLS_RSA_WITH_AES_128_CBC_SHA is not offered"),
        ("TLS_AES_256_GCM_SHA384", "TLSv1.3", "of TLS 1.3 all suites can be allowed"),
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLSv1.3", "no suite of the versions"),
    ],
)
def test_suites_that_cannot_be_had_are_refused(
    issued: Issued, tmp_path: Path, suites: str, protocols: str, why: str
) -> None:
    given = {**key_store(issued, tmp_path), "ssl.cipher.suites": suites, "ssl.enabled.protocols": protocols}
    with pytest.raises(InvalidConfig, match=why):
        made(given)


def test_versions_and_suites_are_limited(issued: Issued, tmp_path: Path) -> None:
    given = key_store(issued, tmp_path)
    both = made(given).context
    assert (both.minimum_version, both.maximum_version) == (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
    limited = made({**given, "ssl.cipher.suites": "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"}).context
    assert (limited.minimum_version, limited.maximum_version) == (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2)
    names = {cipher["name"] for cipher in limited.get_ciphers() if cipher["protocol"] == "TLSv1.2"}
    assert names == {"ECDHE-ECDSA-CHACHA20-POLY1305"}
    with pytest.raises(InvalidConfig, match=r"must be one of: TLSv1\.2, TLSv1\.3"):
        made({**given, "ssl.enabled.protocols": "TLSv1.1"})


def test_the_end_towards_other_brokers_checks_their_names_by_default(
    authority: Authority, issued: Issued, tmp_path: Path
) -> None:
    text = authority.write(tmp_path / "ca.pem").read_text()
    trusted = {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": text}
    for value, expected in (("https", True), ("", False)):
        given = {"listeners": "SSL://localhost:1", **trusted, "ssl.endpoint.identification.algorithm": value}
        context, expires = client_context(tls_settings(load(None, given)[0], "SSL"))
        assert context.check_hostname is expected
        assert context.verify_mode is ssl.CERT_REQUIRED
        assert expires is None
