"""What is kept of clients' metrics is bounded, whatever clients do. Answers are compared with Kafka's in
tests/compat/genuine/test_same_telemetry.py."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID, uuid4

import pytest

from ottla.cluster.image import ResourceType, empty_image
from ottla.errors import ApiError, ErrorCode
from ottla.replication.manager import ReplicaManager
from ottla.server import telemetry as module
from ottla.server import telemetry_clients
from ottla.server.client_metrics import ClientSeries
from ottla.server.telemetry import MAX_CLIENT_ID_LENGTH, Client, Report, Telemetry
from ottla.server.telemetry_clients import client_of

NOW_MS = 1_700_000_000_000


def client(number: int, connection: int = 1) -> Client:
    return Client(UUID(int=number + 2), "c", "s", "1", "127.0.0.1", 1, connection)


def new() -> Telemetry:
    return Telemetry(1000, new_id=uuid4)


def report(number: int, size: int) -> Report:
    return Report(client(number), NOW_MS, 1, False, 0, b"m" * size)


def kept(telemetry: Telemetry) -> list[int]:
    return [each.client.instance_id.int - 2 for each in telemetry.reports()]


def test_pushes_are_kept_within_bounds_the_newest_of_each_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_REPORT_BYTES", 100)
    monkeypatch.setattr(module, "MAX_REPORTS", 4)
    telemetry = new()
    for number in range(3):
        telemetry.keep(report(number, 30))
    telemetry.keep(report(0, 35))  # the newest, and the last to go
    assert kept(telemetry) == [1, 2, 0]
    telemetry.keep(report(3, 10))
    assert kept(telemetry) == [2, 0, 3]
    for number in range(4, 8):
        telemetry.keep(report(number, 1))
    assert kept(telemetry) == [4, 5, 6, 7]
    telemetry.keep(report(9, 1000))
    assert kept(telemetry) == [9], "a push that is taken is kept"
    telemetry.keep(report(10, 1))
    assert kept(telemetry) == [10]
    assert telemetry._report_bytes == 1


def test_clients_that_only_ask_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_INSTANCES", 10)
    telemetry = new()
    for number in range(50):
        telemetry.subscribe(client(number), NOW_MS)
    assert len(telemetry._instances) == 10
    assert len(telemetry._by_connection) == 1, "a connection is one client's, the last one's"
    telemetry.subscribe(client(99, 2), NOW_MS + 24 * 3_600_000)
    assert [each.int for each in telemetry._instances] == [101]
    telemetry.disconnected(2)
    assert not telemetry._instances
    telemetry.note_software(7, "n" * 10_000, "1")
    assert len(telemetry.software(7)[0] or "") == module.MAX_SOFTWARE_LENGTH
    telemetry.disconnected(7)
    assert telemetry.software(7) == (None, None)


def test_a_push_outlives_its_connection() -> None:
    telemetry = new()
    telemetry.keep(report(1, 3))
    telemetry.disconnected(1)
    assert kept(telemetry) == [1]


def test_the_clock_may_jump_back() -> None:
    telemetry = new()
    telemetry.subscribe(client(1), NOW_MS)
    with pytest.raises(ApiError) as refused:
        telemetry.subscribe(client(1), NOW_MS - 5)
    assert refused.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED


def test_a_subscription_that_cannot_be_read_asks_for_nothing() -> None:
    telemetry = new()
    empty = empty_image("c")
    broken = {(ResourceType.CLIENT_METRICS, "b"): {"interval.ms": "x"}}
    fine = {(ResourceType.CLIENT_METRICS, "f"): {"metrics": "a."}}
    telemetry.follow(empty, empty._replace(configs={**broken, **fine}))
    assert telemetry.subscribe(client(1), NOW_MS).metrics == ("a.",)


def test_of_a_clients_id_a_limited_part_is_remembered() -> None:
    telemetry = new()
    connection: Any = SimpleNamespace(
        connection_id=1,
        client_id="c" * 32_000,
        client_host="127.0.0.1",
        client_port=1,
    )
    assert client_of(telemetry, UUID(int=5), connection).client_id == "c" * MAX_CLIENT_ID_LENGTH
    connection.client_id = None
    assert client_of(telemetry, UUID(int=5), connection).client_id is None


def test_only_subscriptions_that_have_changed_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    subscription = cast(Any, module).subscription

    def counted(configs: Any) -> Any:
        read.append(cast("str", configs["metrics"]))
        return subscription(configs)

    monkeypatch.setattr(module, "subscription", counted)
    telemetry = new()
    nothing = empty_image("")
    ours = {(ResourceType.CLIENT_METRICS, name): {"metrics": name} for name in ("a", "b", "c")}
    before = nothing._replace(configs=ours)
    telemetry.follow(nothing, before)
    after = before._replace(
        configs={
            (ResourceType.TOPIC, "t"): {"retention.ms": "1"},
            (ResourceType.CLIENT_METRICS, "a"): {"metrics": "a"},
            (ResourceType.CLIENT_METRICS, "b"): {"metrics": "z"},
        }
    )
    telemetry.follow(before, after)
    assert read == ["a", "b", "c", "z"]
    assert telemetry.subscribe(client(1), NOW_MS).metrics == ("a", "z")
    telemetry.follow(after, after._replace(configs=ours))
    assert telemetry.subscribe(client(2), NOW_MS).metrics == ("a", "b", "c")


def test_a_client_to_which_very_many_metrics_apply_is_asked_for_all() -> None:
    telemetry, nothing = new(), empty_image("")
    many = {
        (ResourceType.CLIENT_METRICS, f"s{number}"): {"metrics": ",".join(f"m{number}.{at}" for at in range(1_000))}
        for number in range(3)
    }
    telemetry.follow(nothing, nothing._replace(configs=many))
    assert telemetry.subscribe(client(1), NOW_MS).metrics == ("*",)


def test_there_is_room_for_so_many_subscriptions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SUBSCRIPTIONS", 3)
    telemetry, nothing = new(), empty_image("")
    ours = {(ResourceType.CLIENT_METRICS, name): {"metrics": name} for name in ("a", "b")}
    telemetry.follow(nothing, nothing._replace(configs=ours))
    telemetry.check_room({"a", "b", "c"})
    with pytest.raises(ApiError) as refused:
        telemetry.check_room({"c", "d"})
    assert refused.value.code is ErrorCode.POLICY_VIOLATION


def test_the_time_on_the_loop_counts_like_that_of_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter((0.0, 0.25, 1.0, 1.9))
    monkeypatch.setattr(telemetry_clients, "thread_time", lambda: next(times))
    telemetry = new()
    telemetry.series = ClientSeries(0.0)

    async def push() -> None:
        loop = asyncio.get_running_loop()
        checkers = cast(ReplicaManager, SimpleNamespace(record_checkers=None))
        await telemetry_clients.show(loop, checkers, telemetry, report(0, 1), b"", lambda: 0.0)

    asyncio.run(push())
    assert not telemetry.series.budget.has_some(0.0)
