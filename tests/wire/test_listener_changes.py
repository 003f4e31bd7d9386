"""`listeners` changed while a broker runs, as an operator does it with the AdminClient."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ConfigSource
from tests.support.cluster_in_process import ClusterInProcess
from tests.support.eventually import eventually
from tests.support.probe import free_port
from tests.support.raw_client import ClosedError, RawConnection

from ottla.broker import Broker as Engine
from ottla.client.addresses import Address
from ottla.client.blocking import Connection
from ottla.config.broker import BrokerConfig
from ottla.errors import ErrorCode
from ottla.ids import BrokerId
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.server.listener import open_sockets
from ottla.testing import Broker

BROKER = ConfigResource.Type.BROKER
ASKED = ApiVersionsRequest(client_software_name="listeners", client_software_version="1")
PROTOCOLS = "PLAINTEXT:PLAINTEXT,MORE:PLAINTEXT"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker that advertises its first listener only, so that others can be removed."""
    port = free_port()
    plain = f"PLAINTEXT://127.0.0.1:{port}"
    with Broker(directory=tmp_path, config={"listeners": plain, "advertised.listeners": plain}) as running:
        yield running


def own(broker: Broker) -> str:
    return f"PLAINTEXT://{broker.bootstrap}"


def change(bootstrap: str, *, node: str = "1", only: bool = False, **settings: str | None) -> None:
    """Set settings of a broker, delete those with None; with `only` ask whether it could be done."""
    entries = [
        ConfigEntry(
            name.replace("_", "."),
            value or "",
            incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
        )
        for name, value in settings.items()
    ]
    resource = ConfigResource(BROKER, node, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (done,) = admin.incremental_alter_configs([resource], validate_only=only, request_timeout=10).values()
    done.result(10)


def refusal(broker: Broker, **settings: Any) -> str:
    with pytest.raises(KafkaException) as refused:
        change(broker.bootstrap, **settings)
    assert refused.value.args[0].code() == ErrorCode.INVALID_REQUEST
    return str(refused.value.args[0].str())


def add(broker: Broker, port: int) -> str:
    """Add a listener MORE; its address."""
    more = f"127.0.0.1:{port}"
    change(broker.bootstrap, listeners=f"{own(broker)},MORE://{more}", listener_security_protocol_map=PROTOCOLS)
    return more


def is_open(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=2).close()
    except ConnectionRefusedError:
        return False
    return True


def shown(bootstrap: str, name: str) -> tuple[str, ConfigSource, bool]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (found,) = admin.describe_configs([ConfigResource(BROKER, "1")]).values()
    entry = found.result(10)[name]
    return entry.value, ConfigSource(entry.source), entry.is_read_only


def one_record_through(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce("orders", b"x")
    assert producer.flush(10) == 0
    with closing(
        Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    ) as consumer:
        consumer.subscribe(["orders"])
        record = consumer.poll(10)
        assert record is not None
        assert record.error() is None


def test_a_listener_is_added_used_moved_and_removed(broker: Broker) -> None:
    with RawConnection(broker.bootstrap) as untouched:
        untouched.ask(ASKED, 4)
        more = add(broker, free_port())
        assert shown(broker.bootstrap, "listeners") == (
            f"{own(broker)},MORE://{more}",
            ConfigSource.DYNAMIC_BROKER_CONFIG,
            False,
        )
        assert {str(each.port) for each in AdminClient({"bootstrap.servers": more}).list_topics().brokers.values()} == {
            more.rpartition(":")[2]
        }
        one_record_through(more)
        moved = add(broker, free_port())
        assert is_open(moved)
        eventually(lambda: not is_open(more))
        with RawConnection(moved) as removed:
            removed.ask(ASKED, 4)
            change(moved, listeners=None)  # over the listener that it removes: the answer comes all the same
            with pytest.raises(ClosedError):
                removed.ask(ASKED, 4)
        assert not is_open(moved)
        assert shown(broker.bootstrap, "listeners")[:2] == (own(broker), ConfigSource.STATIC_BROKER_CONFIG)
        untouched.ask(ASKED, 4)


def test_a_listener_that_cannot_be_opened_is_refused_and_changes_nothing(broker: Broker) -> None:
    change(broker.bootstrap, listener_security_protocol_map="PLAINTEXT:PLAINTEXT,MORE:PLAINTEXT,THIRD:PLAINTEXT")
    free = f"127.0.0.1:{free_port()}"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        for wanted, reason in (
            (f"MORE://{free},THIRD://{address}", f"listener THIRD cannot bind {address}: Address already in use"),
            ("MORE://192.0.2.1:19092", "listener MORE cannot bind 192.0.2.1:19092: Cannot assign requested address"),
            ("MORE://no.such.host.invalid:19092", "listener MORE finds no address of 'no.such.host.invalid'"),
        ):
            assert reason in refusal(broker, listeners=f"{own(broker)},{wanted}")
            assert not is_open(free)
            assert shown(broker.bootstrap, "listeners")[1] == ConfigSource.STATIC_BROKER_CONFIG
    change(broker.bootstrap, only=True, listeners=f"{own(broker)},MORE://{free}")
    assert not is_open(free)
    change(broker.bootstrap, listeners=f"{own(broker)},MORE://{free}")
    assert is_open(free)


def test_what_kafka_refuses_is_refused(broker: Broker) -> None:
    more = f"127.0.0.1:{free_port()}"
    with_more = f"{own(broker)},MORE://{more}"
    assert "listener MORE has no protocol" in refusal(broker, listeners=with_more)
    only_more: dict[str, str | None] = {"listeners": f"MORE://{more}", "listener_security_protocol_map": PROTOCOLS}
    assert "advertised.listeners: PLAINTEXT" in refusal(broker, **only_more)
    assert "cannot" in refusal(broker, advertised_listeners=own(broker)).lower()
    assert not is_open(more)
    add(broker, free_port())
    third = PROTOCOLS + ",THIRD:PLAINTEXT"
    prefixed: dict[str, str | None] = {
        "listener_security_protocol_map": third,
        "listener.name.more.sasl.kerberos.service.name": "kafka",
    }
    assert "settings of the existing listener MORE cannot be changed" in refusal(broker, **prefixed)
    changed_protocol = "PLAINTEXT:PLAINTEXT,MORE:SSL"
    assert "MORE" in refusal(broker, listener_security_protocol_map=changed_protocol)


def test_a_listener_that_is_advertised_cannot_be_removed(tmp_path: Path) -> None:
    with Broker(directory=tmp_path) as broker:  # it advertises all listeners
        port = free_port()
        add(broker, port)
        assert "MORE cannot be removed while it is advertised" in refusal(broker, listeners=own(broker))
        assert is_open(f"127.0.0.1:{port}")


def test_added_listeners_are_there_after_a_restart(broker: Broker) -> None:
    more = add(broker, free_port())
    broker.stop()
    assert not is_open(more)
    broker.start()
    one_record_through(more)
    broker.stop()
    host, _, port = more.rpartition(":")
    with socket.create_server((host, int(port))):
        broker.start()  # at the addresses of its properties, or nobody could give it another one
        change(broker.bootstrap, listeners=None)
    assert not is_open(more)
    assert shown(broker.bootstrap, "listeners")[1] == ConfigSource.STATIC_BROKER_CONFIG


def test_in_a_cluster_a_listener_is_registered_with_a_restart_and_addresses_stay() -> None:
    with ClusterInProcess(2, default_replication_factor="2") as cluster:
        plain, more = cluster.address(2), f"127.0.0.1:{free_port()}"
        to_two: dict[str, Any] = {"node": "2", "listener_security_protocol_map": PROTOCOLS}
        change(plain, **to_two, listeners=f"PLAINTEXT://127.0.0.1:0,MORE://{more}")

        def registered() -> set[str]:
            known = cluster.image(1).brokers.get(BrokerId(2))
            endpoints = {} if known is None else known.endpoints
            return {f"{name}://{host}:{port}" for name, (host, port) in endpoints.items()}

        assert is_open(more)
        assert registered() == {f"PLAINTEXT://{plain}"}
        assert cluster.brokers[2].replicas.holds_session()
        with pytest.raises(KafkaException, match="the address of PLAINTEXT, which is registered in the cluster"):
            change(plain, **to_two, listeners=f"PLAINTEXT://127.0.0.1:{free_port()},MORE://{more}")
        cluster.stop(2)
        assert not is_open(more)
        cluster.start(2)
        eventually(lambda: f"MORE://{more}" in registered())
        assert list(AdminClient({"bootstrap.servers": more}).list_topics(timeout=10).brokers) == [2]


def test_shared_sockets_are_those_of_any_broker_that_serves(tmp_path: Path) -> None:
    """As `ottla serve --cores` shares them; also at a listener that is added while the broker runs."""
    own = f"PLAINTEXT://127.0.0.1:{free_port()}"
    settings = {"listeners": own, "advertised.listeners": own, "log.dirs": str(tmp_path)}

    async def story(first: socket.socket, second: socket.socket) -> None:
        async with Engine(BrokerConfig(settings)) as broker:
            unshare = broker.share({"PLAINTEXT": [first], "MORE": [second]})
            assert await port_named_at(first.getsockname()[1]) == broker.port
            both = f"{own},MORE://127.0.0.1:{free_port()}"
            reached = f"127.0.0.1:{broker.port}"
            await asyncio.to_thread(change, reached, listeners=both, listener_security_protocol_map=PROTOCOLS)
            assert await port_named_at(second.getsockname()[1]) == broker.ports["MORE"]
            unshare()
            waiting = asyncio.create_task(port_named_at(first.getsockname()[1]))
            assert await port_named_at(broker.port) == broker.port
            assert not waiting.done()
            unshare = broker.share({"PLAINTEXT": [first]})
            assert await waiting == broker.port
            unshare()

    with ExitStack() as stack:
        shared = [stack.enter_context(each) for _ in range(2) for each in open_sockets("127.0.0.1", 0)]
        for each in shared:
            each.listen(5)
        asyncio.run(story(*shared))


async def port_named_at(port: int) -> int:
    """The port that the broker names as its own, asked at this one."""

    def ask() -> int:
        with closing(Connection(Address("127.0.0.1", port), client_id="test", timeout_s=30)) as connection:
            (only,) = connection.ask(MetadataRequest(topics=[])).brokers
            return int(only.port)

    return await asyncio.to_thread(ask)
