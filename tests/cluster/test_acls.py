"""One set of rules and users for a cluster of genuine Kafka 3.9 and Ottla, over TLS with logins."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from ottla.client.addresses import Address
from ottla.client.blocking import Connection
from ottla.client.security import security_of
from ottla.errors import ErrorCode
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.support.certificates import Authority
from tests.support.eventually import eventually
from tests.support.mixed_cluster import KAFKA, OTTLA, SECOND_OTTLA, check_nothing_lost
from tests.support.secure_zookeeper import SecureZooKeeper
from tests.support.secured_cluster import USERS, SecuredCluster
from tests.support.steady_producer import ONE_IN_FLIGHT, SteadyProducer

SCRAM = ScramMechanism.SCRAM_SHA_512
ANY_RULE = AclBindingFilter(
    ResourceType.ANY,
    None,  # type: ignore[arg-type]
    ResourcePatternType.ANY,
    None,  # type: ignore[arg-type]
    None,  # type: ignore[arg-type]
    AclOperation.ANY,
    AclPermissionType.ANY,
)
PATTERNS = (ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    """Ottla first: it makes the brokers' user."""
    directory = tmp_path_factory.mktemp("secured")
    with SecureZooKeeper(directory, Authority("zookeepers")) as zookeeper:
        mixed = SecuredCluster(zookeeper, "mixed", directory, ottlas=2)
        with mixed.brokers[OTTLA], mixed.brokers[SECOND_OTTLA], mixed.brokers[KAFKA]:
            yield mixed


def binding(topic: str, pattern: ResourcePatternType) -> AclBinding:
    name = topic if pattern is ResourcePatternType.LITERAL else topic[:-1]
    return AclBinding(
        ResourceType.TOPIC, name, pattern, "User:alice", "*", AclOperation.DESCRIBE, AclPermissionType.ALLOW
    )


def filter_of(rule: AclBinding) -> AclBindingFilter:
    return AclBindingFilter(
        rule.restype,
        rule.name,
        rule.resource_pattern_type,
        rule.principal,
        rule.host,
        rule.operation,
        rule.permission_type,
    )


@contextmanager
def connections(cluster: SecuredCluster) -> Iterator[dict[int, Connection]]:
    """One of alice to each broker: a client library would ask any of the brokers that it has heard of."""
    with ExitStack() as stack:
        opened = {}
        for number, address in cluster.addresses.items():
            login = {name: str(value) for name, value in cluster.login(number, "alice", USERS["alice"]).items()}
            host, _, port = address.rpartition(":")
            connection = Connection(
                Address(host, int(port)), client_id="alice", timeout_s=10, security=security_of(login)
            )
            opened[number] = stack.enter_context(connection)
        yield opened


def sees(connection: Connection, topic: str) -> bool:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    (found,) = connection.ask(request).topics
    assert found.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return bool(found.error_code == ErrorCode.NONE)


def hides(connection: Connection, topic: str) -> bool:
    return not sees(connection, topic)


@pytest.mark.timeout(300)
def test_rules_are_one_set(cluster: SecuredCluster) -> None:
    """Brokers log in to each other by SCRAM over TLS, and replicate both ways."""
    cluster.create("orders", [[KAFKA, OTTLA, SECOND_OTTLA], [OTTLA, KAFKA, SECOND_OTTLA]])
    cluster.until_in_sync("orders", KAFKA, OTTLA, SECOND_OTTLA)
    login = cluster.login(None, "admin", USERS["admin"]) | {"enable.idempotence": True}
    with SteadyProducer("", "orders", **login) as producer:
        producer.until_acknowledged(200)
    check_nothing_lost(cluster, "orders", producer)
    slowest_s = 0.0
    with connections(cluster) as clients:
        for changing in (OTTLA, KAFKA):
            admin = AdminClient(cluster.login(changing, "admin", USERS["admin"]))
            for pattern in PATTERNS:
                right = binding("orders", pattern)
                seen = [number for number, client in clients.items() if sees(client, "orders")]
                assert not seen, f"before broker {changing} allows it by {pattern.name}"
                for created in admin.create_acls([right]).values():
                    created.result(20)
                for client in clients.values():
                    eventually(partial(sees, client, "orders"))
                for removed in admin.delete_acls([filter_of(right)]).values():
                    assert removed.result(20) == [right]
                acknowledged = time.monotonic()
                for number in (OTTLA, SECOND_OTTLA, KAFKA):
                    eventually(partial(hides, clients[number], "orders"), interval_s=0.005)
                slowest_s = max(slowest_s, time.monotonic() - acknowledged)
    print(f"removed rules took effect on every broker within {slowest_s * 1000:.0f} ms")
    assert slowest_s < 8, "soon, and not when something is read again for another reason"


@pytest.mark.timeout(300)
def test_users_are_one_set(cluster: SecuredCluster) -> None:
    slowest_s = 0.0
    with ThreadPoolExecutor(len(cluster.brokers)) as threads:
        for changing in (OTTLA, KAFKA):
            admin = AdminClient(cluster.login(changing, "admin", USERS["admin"]))
            change = UserScramCredentialUpsertion("carol", ScramCredentialInfo(SCRAM, 4096), b"first")
            admin.alter_user_scram_credentials([change])["carol"].result(20)
            for number in cluster.brokers:
                eventually(partial(logs_in, cluster, number, "carol", "first"))
            admin.alter_user_scram_credentials([UserScramCredentialDeletion("carol", SCRAM)])["carol"].result(20)
            acknowledged = time.monotonic()
            refused = threads.map(lambda number: first_refused_login(cluster, number), cluster.brokers)
            slowest_s = max(slowest_s, *(began - acknowledged for began in refused))
    print(f"logins of removed users that began after {slowest_s * 1000:.0f} ms were refused by every broker")
    assert slowest_s < 8, "soon, and not when something is read again for another reason"


def first_refused_login(cluster: SecuredCluster, number: int) -> float:
    """When carol's first login began that is refused."""
    while True:
        began = time.monotonic()
        if not logs_in(cluster, number, "carol", "first"):
            return began


class Changes:
    """Users and rules that are changed without a pause, and what is known of each: acknowledged changes alone."""

    def __init__(self, cluster: SecuredCluster) -> None:
        self._settings = cluster.login(None, "admin", USERS["admin"])
        self._admin = AdminClient(self._settings)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.users: dict[str, set[bool]] = {}
        """Whether each exists: two answers where nobody knows."""
        self.rules: dict[str, set[bool]] = {}
        self.acknowledged = self.unknown = 0

    def __enter__(self) -> "Changes":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        for number in count():
            if self._stopping.is_set():
                return
            self._change(f"user-{number}", is_removed=number % 2 == 0)

    def _change(self, name: str, *, is_removed: bool) -> None:
        upsertion = UserScramCredentialUpsertion(name, ScramCredentialInfo(SCRAM, 4096), name.encode())
        self._do(
            self.users,
            name,
            True,
            lambda: self._admin.alter_user_scram_credentials([upsertion], request_timeout=8)[name],
        )
        rule = binding(f"{name}x", ResourcePatternType.LITERAL)
        self._do(self.rules, rule.name, True, lambda: self._admin.create_acls([rule], request_timeout=8)[rule])
        if is_removed:
            deletion = UserScramCredentialDeletion(name, SCRAM)
            self._do(
                self.users,
                name,
                False,
                lambda: self._admin.alter_user_scram_credentials([deletion], request_timeout=8)[name],
            )
            wanted = filter_of(rule)
            self._do(self.rules, rule.name, False, lambda: self._admin.delete_acls([wanted], request_timeout=8)[wanted])

    def _do(self, known: dict[str, set[bool]], name: str, exists: bool, change: Callable[[], Any]) -> None:
        try:
            change().result(30)
        except KafkaException:
            self.unknown += 1
            known.setdefault(name, {False}).add(exists)
            self._admin = AdminClient(self._settings)  # the old one may wait a minute for a controller that is gone
        else:
            self.acknowledged += 1
            known[name] = {exists}


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_no_change_is_lost_or_half_applied_when_brokers_are_killed(cluster: SecuredCluster) -> None:
    cluster.create("steady", [[KAFKA, OTTLA], [OTTLA, KAFKA]])
    with (
        SteadyProducer("", "steady", **cluster.login(None, "admin", USERS["admin"]), **ONE_IN_FLIGHT) as producer,
        Changes(cluster) as changes,
    ):
        for victim in (OTTLA, KAFKA, OTTLA, KAFKA):
            before = changes.acknowledged
            eventually(lambda before=before: changes.acknowledged > before + 20, timeout_s=60)
            cluster.brokers[victim].kill()
            before = changes.acknowledged
            eventually(lambda before=before: changes.acknowledged > before + 20, timeout_s=60)
            cluster.brokers[victim].start()
            cluster.until_in_sync("steady", KAFKA, OTTLA)
    check_nothing_lost(cluster, "steady", producer)
    print(f"{changes.acknowledged} changes acknowledged, {changes.unknown} not")
    for number in cluster.brokers:
        eventually(partial(has_all, cluster, number, changes), timeout_s=30, interval_s=0.5)
    kept = [name for name, exists in changes.users.items() if exists == {True}]
    for number in cluster.brokers:
        assert all(logs_in(cluster, number, name, name) for name in kept[-3:])


def has_all(cluster: SecuredCluster, number: int, changes: Changes) -> bool:
    """Whether a broker has what was acknowledged, and nothing that was removed."""
    admin = AdminClient(cluster.login(number, "admin", USERS["admin"]))
    rules = {rule.name for rule in admin.describe_acls(ANY_RULE).result(20)}
    if not all((name in rules) in exists for name, exists in changes.rules.items()):
        return False
    described: Any = admin.describe_user_scram_credentials(list(changes.users))
    for name, exists in changes.users.items():
        try:
            credentials = described[name].result(20).scram_credential_infos
            assert [(info.mechanism, info.iterations) for info in credentials] == [(SCRAM, 4096)]
            found = True
        except KafkaException as absent:
            if absent.args[0].code() != KafkaError.RESOURCE_NOT_FOUND:
                raise
            found = False
        if found not in exists:
            return False
    return True


def logs_in(cluster: SecuredCluster, number: int, user: str, password: str) -> bool:
    """Whether a user can log in to a broker."""
    refused: list[KafkaError] = []
    client = AdminClient(cluster.login(number, user, password, "SCRAM-SHA-512") | {"error_cb": refused.append})
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            return bool(client.list_topics(timeout=0.2).brokers)
        except KafkaException:
            client.poll(0)
            if any(error.code() == KafkaError._AUTHENTICATION for error in refused):
                return False
    raise AssertionError(f"broker {number} neither accepts nor refuses a login: {refused}")
