"""How many connections a broker takes, on all its listeners, while it runs, and what it does with those past that."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

import pytest
from tests.support.eventually import eventually
from tests.support.ottla_process import OttlaProcess
from tests.support.probe import free_port
from tests.support.quota_stories import IP, alteration
from tests.support.raw_client import ClosedError, RawConnection

from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
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
        assert broker.cpu_seconds() - before < 0.5
        assert is_answered(connection)


def waits_quietly(connection: RawConnection) -> bool:
    connection._socket.settimeout(1)
    try:
        return bool(connection._socket.recv(1)) and False
    except TimeoutError:
        return True
    finally:
        connection._socket.settimeout(20)


def slow(**properties: str) -> dict[str, str]:
    """Properties with rates over one second, in which a burst may take what one second allows."""
    return {"quota.window.num": "2", **{name.replace("_", "."): value for name, value in properties.items()}}


def seconds_to_open(bootstrap: str, count: int) -> float:
    with ExitStack() as stack:
        opened = [stack.enter_context(RawConnection(bootstrap)) for _ in range(count)]
        began = time.monotonic()
        for connection in opened:
            connection.send(ASKED, 4)
        for connection in opened:
            connection.receive(ASKED, 4)
        return time.monotonic() - began


def test_so_many_new_connections_a_second() -> None:
    with OttlaProcess(properties=slow(max_connection_creation_rate="20")) as broker:
        assert seconds_to_open(broker.bootstrap, 50) > 1.0  # 20 at once, the others at 20 a second


def test_one_listener_has_limits_of_its_own() -> None:
    properties = {
        **slow(),
        "listener.name.plaintext.max.connections": "3",
        "listener.name.inside.max.connection.creation.rate": "20",
    }
    with two_listeners(**properties) as (broker, inside), ExitStack() as stack:
        opened = [stack.enter_context(RawConnection(broker.bootstrap)) for _ in range(3)]
        assert all(map(is_answered, opened))
        assert waits(broker)
        assert seconds_to_open(inside, 40) > 0.5
        opened[0].__exit__()
        assert is_answered(stack.enter_context(RawConnection(broker.bootstrap)))


def test_connections_of_an_address_that_come_too_fast_are_closed() -> None:
    with OttlaProcess(properties=slow()) as broker:
        with RawConnection(broker.bootstrap) as setup:
            quota = alteration((((IP, "127.0.0.1"),), (("connection_creation_rate", 5.0),)))
            assert setup.ask(quota, 1).entries[0].error_code == 0
            began = time.monotonic()
            with (
                ExitStack() as stack
            ):  # all are opened before any is answered, which may take as long as one more may come
                opened = [stack.enter_context(RawConnection(broker.bootstrap)) for _ in range(20)]
                taken = [is_answered(each) for each in opened]
            assert all(taken[:5])
            assert not all(taken)
            assert time.monotonic() - began > 0.1  # the refusal was delayed
            eventually(lambda: _is_taken(broker.bootstrap))
            removal = alteration((((IP, "127.0.0.1"),), (("connection_creation_rate", None),)))
            assert setup.ask(removal, 1).entries[0].error_code == 0
        assert all(_is_taken(broker.bootstrap) for _ in range(20))


def _is_taken(bootstrap: str) -> bool:
    with RawConnection(bootstrap) as connection:
        return is_answered(connection)


def test_connections_leave_descriptors_to_the_log() -> None:
    """A process that may open 100 files: the broker refuses connections, and creates topics all the same."""
    with OttlaProcess(prefix=("sh", "-c", 'ulimit -n 100 && exec "$@"', "sh")) as broker, ExitStack() as stack:
        first = stack.enter_context(RawConnection(broker.bootstrap))
        assert is_answered(first)
        opened = [stack.enter_context(RawConnection(broker.bootstrap)) for _ in range(80)]
        for connection in opened[:20]:
            assert is_answered(connection)
        eventually(lambda: "is kept for files" in broker.log_text())
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[])
        assert first.ask(CreateTopicsRequest(topics=[topic]), 7).topics[0].error_code == 0
        assert broker.log_text().count("is kept for files") == 1
