"""ZooKeeper over TLS, with logins and ACLs: what is protected from which client, and that nothing fails open."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from kazoo.security import ACL
from tests.contract.test_metadata_store import store_of
from tests.support.certificates import Authority
from tests.support.eventually import eventually
from tests.support.kerberos import Realm, key_line
from tests.support.secure_zookeeper import LINE, SecureZooKeeper

from ottla.errors import InvalidConfig
from ottla.metadata.store.base import Create, StoreUnavailable
from ottla.metadata.store.zookeeper import ZooKeeperStore
from ottla.metadata.store.zookeeper_wire import Client


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def server(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureZooKeeper]:
    with SecureZooKeeper(tmp_path_factory.mktemp("zookeeper"), authority) as started:
        yield started


def settings_of(server: SecureZooKeeper, **changed: str) -> dict[str, str]:
    """Below a path of its own; empty settings are left out."""
    given = server.settings() | {"zookeeper.connect": f"{server.secure_connect}/{uuid4()}"}
    given |= {f"zookeeper.{name.replace('_', '.')}": value for name, value in changed.items()}
    return {name: value for name, value in given.items() if value}


def acls_of(settings: dict[str, str], *paths: str) -> list[list[ACL]]:
    """The ACLs of nodes that a store of these settings has made, whole paths below its root."""

    async def made() -> list[list[ACL]]:
        store = store_of(settings)
        await store.open()
        try:
            await store.commit([Create(path, b"x") for path in paths if path.count("/") > 2])
            client = store._session._client
            assert isinstance(client, Client)
            root = "/" + settings["zookeeper.connect"].partition("/")[2]
            return [(await asyncio.to_thread(client.get_acls, root + path))[0] for path in paths]
        finally:
            await store.close()

    return asyncio.run(made())


def problem_of(store: ZooKeeperStore) -> str:
    """Why it does not open, if that is found out in a moment; nothing if it opens."""

    async def open_it() -> str:
        try:
            await store.open()
        except StoreUnavailable as refused:
            return str(refused)
        await store.close()
        return ""

    store._connection_timeout_s = 1.5
    return asyncio.run(open_it())


def test_nodes_belong_to_brokers_and_secrets_are_for_them_alone(server: SecureZooKeeper) -> None:
    paths = (
        "",
        "/brokers",
        "/brokers/topics/t",
        "/config/users/alice",
        "/config/brokers/1",
        "/delegation_token/tokens/x",
    )
    found = acls_of(settings_of(server), *paths, "/consumers")
    mine, all_may_read = ACL(31, ("sasl", "broker")), ACL(1, ("world", "anyone"))
    shown = [[ACL(acl.perms, tuple(acl.id)) for acl in each] for each in found]
    assert shown[:3] == [[mine, all_may_read]] * 3
    assert shown[3:6] == [[mine]] * 3
    assert shown[6] == [ACL(31, ("world", "anyone"))]


def test_without_the_setting_nodes_are_open(server: SecureZooKeeper) -> None:
    (found,) = acls_of(settings_of(server, set_acl="false"), "/brokers/topics/t")
    assert [(acl.perms, tuple(acl.id)) for acl in found] == [(31, ("world", "anyone"))]


def test_a_certificate_can_be_the_login(server: SecureZooKeeper, authority: Authority, tmp_path: Path) -> None:
    store = authority.issue("broker-1").write_pem(tmp_path / "broker.pem")
    settings = settings_of(server, sasl_jaas_config="", ssl_keystore_location=str(store))
    (found,) = acls_of(settings, "/config/users/alice")
    assert [(acl.perms, tuple(acl.id)) for acl in found] == [(31, ("x509", "CN=broker-1"))]


def test_a_wrong_password_opens_nothing(server: SecureZooKeeper) -> None:
    settings = settings_of(server, sasl_jaas_config=LINE.replace('"secret"', '"guessed"'))

    def refused() -> str | None:
        problem = problem_of(store_of(settings))
        return problem if "login" in problem else None

    problem = eventually(refused)
    assert "guessed" not in problem


def test_a_server_that_nobody_vouches_for_gets_no_login(server: SecureZooKeeper, tmp_path: Path) -> None:
    stranger = Authority("stranger").write(tmp_path / "stranger.pem")
    settings = settings_of(server, ssl_truststore_location=str(stranger))
    eventually(lambda: "certificate verify failed" in problem_of(store_of(settings)))


def test_a_server_of_another_name_gets_no_login(server: SecureZooKeeper) -> None:
    elsewhere = {"zookeeper.connect": f"127.0.0.1:{server.secure_port}"}
    eventually(lambda: "IP address mismatch" in problem_of(store_of(settings_of(server) | elsewhere)))
    unchecked = settings_of(server) | {"zookeeper.ssl.endpoint.identification.algorithm": ""}
    eventually(lambda: not problem_of(store_of(unchecked | elsewhere)))


def test_tls_is_not_given_up_where_the_server_has_none(server: SecureZooKeeper) -> None:
    settings = settings_of(server) | {"zookeeper.connect": server.connect}
    assert problem_of(store_of(settings))


def test_acls_need_somebody_who_is_known(server: SecureZooKeeper) -> None:
    with pytest.raises(InvalidConfig, match=r"zookeeper\.set\.acl needs a login at ZooKeeper"):
        store_of(settings_of(server, sasl_jaas_config=""))


@pytest.mark.soak
def test_brokers_log_in_by_kerberos(authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Realm(tmp_path) as realm:
        for name, value in realm.environment.items():
            monkeypatch.setenv(name, value)
        line = key_line(realm.add("kafka/host"), "kafka/host")
        with SecureZooKeeper(tmp_path, authority, realm=realm) as server:
            (found,) = acls_of(settings_of(server, sasl_jaas_config=line), "/config/users/alice")
            assert [(acl.perms, tuple(acl.id)) for acl in found] == [(31, ("sasl", "kafka"))]


def test_without_a_login_there_is_no_session(server: SecureZooKeeper) -> None:
    assert problem_of(store_of({"zookeeper.connect": server.connect}))
