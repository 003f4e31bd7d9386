"""How many connections a broker takes, on all its listeners, while it runs, and what it does with those past that."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

import pytest
from tests.support.eventually import eventually
from tests.support.ottla_process import OttlaProcess
from tests.support.probe import free_port
from tests.support.raw_client import ClosedError, RawConnection

from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

ASKED: Final = ApiVersionsRequest(client_software_name="limits", client_software_version="1")
BROKER, SET = 4, 0


@contextmanager
def two_listeners(**properties: str) -> Iterator[tuple[OttlaProcess, str]]:
    """A broker, and the address of its other listener, over which brokers would speak with each other."""
    broker = OttlaProcess()
    inside = f"127.0.0.1:{free_port()}"
    broker.properties.update(
        {
            "listeners": f"PLAINTEXT://{broker.bootstrap},INSIDE://{inside}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT",
            "inter.broker.listener.name": "INSIDE",
            **{name.replace("_", "."): value for name, value in properties.items()},
        }
    )
    with broker:
        yield broker, inside


def change(connection: RawConnection, **settings: str) -> None:
    configs = [
        AlterableConfig(name=name.replace("_", "."), config_operation=SET, value=value)
        for name, value in settings.items()
    ]
    resource = AlterConfigsResource(resource_type=BROKER, resource_name="", configs=configs)
    (done,) = connection.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1).responses
    assert done.error_code == 0, done.error_message


def is_answered(connection: RawConnection) -> bool:
    try:
        connection.ask(ASKED, 4)
    except ClosedError:
        return False
    return True


def waits(broker: OttlaProcess) -> bool:
    """Whether a new connection is not accepted, though it is not refused either."""
    with socket.create_connection((broker.host, broker.port), timeout=5) as sock:
        sock.settimeout(0.3)
        sock.sendall(b"\x00\x00\x00\x0a\x00\x12\x00\x00\x00\x00\x00\x09\xff\xff")
        try:
            return not sock.recv(4) and False
        except TimeoutError:
            return True


def test_all_listeners_count_and_the_one_between_brokers_is_spared() -> None:
    with two_listeners() as (broker, inside), ExitStack() as stack:
        opened = [stack.enter_context(RawConnection(broker.bootstrap)) for _ in range(3)]
        assert all(map(is_answered, opened))
        change(opened[-1], max_connections="3")
        eventually(lambda: waits(broker))
        between_brokers = stack.enter_context(RawConnection(inside))
        assert is_answered(between_brokers)
        assert not is_answered(opened[0])  # the one that was silent for the longest time made room
        assert is_answered(opened[1])
        late = stack.enter_context(RawConnection(broker.bootstrap))
        late.send(ASKED, 4)
        change(opened[-1], max_connections="4")
        assert late.receive(ASKED, 4).error_code == 0
        change(between_brokers, max_connections="2")
        eventually(lambda: not is_answered(opened[1]))
        assert is_answered(between_brokers)


def test_an_address_counts_on_all_listeners_and_by_its_name() -> None:
    with two_listeners(max_connections_per_ip_overrides="localhost:4") as (broker, inside), ExitStack() as stack:
        eventually(lambda: "ready" in broker.log_text())

        def is_taken(at: str) -> bool:
            return is_answered(stack.enter_context(RawConnection(at)))

        taken = [is_taken(at) for at in (broker.bootstrap, inside, broker.bootstrap, inside)]
        assert taken == [True] * 4
        assert not is_taken(broker.bootstrap)
        assert not is_taken(inside)


def test_a_host_without_an_address_stops_the_start() -> None:
    with (
        pytest.raises(Exception, match=r"max.connections.per.ip.overrides: 'nowhere.invalid' has no address"),
        OttlaProcess(properties={"max.connections.per.ip.overrides": "nowhere.invalid:1"}),
    ):
        pass


def test_never_idle() -> None:
    with (
        OttlaProcess(properties={"connections.max.idle.ms": "-1"}) as broker,
        RawConnection(broker.bootstrap) as connection,
    ):
        assert is_answered(connection)
        before = broker.cpu_seconds()
        assert waits_quietly(connection)
        assert broker.cpu_seconds() - before < 0.2
        assert is_answered(connection)


def waits_quietly(connection: RawConnection) -> bool:
    connection._socket.settimeout(1)
    try:
        return bool(connection._socket.recv(1)) and False
    except TimeoutError:
        return True
    finally:
        connection._socket.settimeout(20)


def test_so_many_new_connections_a_second() -> None:
    with OttlaProcess(properties={"max.connection.creation.rate": "20"}) as broker, ExitStack() as stack:
        import time

        opened = [stack.enter_context(RawConnection(broker.bootstrap)) for _ in range(50)]
        began = time.monotonic()
        for connection in opened:
            connection.send(ASKED, 4)
        for connection in opened:
            connection.receive(ASKED, 4)
        assert time.monotonic() - began > 1.0  # 20 at once, the others at 20 a second
