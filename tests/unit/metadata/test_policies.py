"""Policies refuse in doubt, and nothing waits for them longer than it may."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest
from tests.support.policies import documented, install

from ottla.broker import Broker
from ottla.clock import SystemClock
from ottla.cluster.configs import ConfigChange, ConfigEdit, ConfigOperation
from ottla.cluster.controller import NewTopic
from ottla.cluster.image import ResourceType
from ottla.config import load
from ottla.config.properties import parse_properties
from ottla.errors import ErrorCode, InvalidConfig, OttlaError
from ottla.ids import TopicName
from ottla.metadata.policies import Policies, PolicyThread, open_policies
from ottla.metadata.service import MetadataService
from ottla.metadata.store.embedded import EmbeddedStore
from ottla.policies import ConfigRequest, PolicyViolation, TopicRequest

TIMEOUT_S = 0.2


class Policy:
    """Does with a request what the test says."""

    def __init__(self, validate: Callable[[object], None]) -> None:
        self.validate = validate
        self.closed = False

    def configure(self, settings: object) -> None:
        pass

    def close(self) -> None:
        self.closed = True


def thread_of(validate: Callable[[object], None]) -> PolicyThread[object]:
    return PolicyThread("create.topic.policy.class.name", "p", Policy(validate), timeout_s=TIMEOUT_S)


async def code_of(policy: PolicyThread[object]) -> ErrorCode | None:
    refused = await policy.refusal("anything")
    return None if refused is None else refused.code


@pytest.mark.parametrize(
    ("raised", "code"),
    [
        (PolicyViolation("no"), ErrorCode.POLICY_VIOLATION),
        (ValueError("a secret"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (SystemExit(1), ErrorCode.UNKNOWN_SERVER_ERROR),
        (KeyboardInterrupt(), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_whatever_is_raised_refuses(raised: BaseException, code: ErrorCode) -> None:
    def validate(request: object) -> None:
        raise raised

    async def scenario() -> None:
        policy = thread_of(validate)
        for _ in range(2):  # the thread lives on
            refused = await policy.refusal("anything")
            assert refused is not None
            assert refused.code is code
            assert ("secret" in str(refused)) is False
        await policy.close()

    asyncio.run(scenario())


def test_a_policy_that_hangs_refuses_and_later_requests_wait_no_longer() -> None:
    let_go = threading.Event()

    async def scenario() -> None:
        policy = thread_of(cast(Any, lambda request: let_go.wait() and None))
        started = time.monotonic()
        codes = await asyncio.gather(*(code_of(policy) for _ in range(50)))
        took = time.monotonic() - started
        assert set(codes) == {ErrorCode.POLICY_VIOLATION}
        assert took < 25 * TIMEOUT_S, "each request has waited for its own"
        let_go.set()
        while await code_of(policy) is not None:
            await asyncio.sleep(0.01)
        await policy.close()

    asyncio.run(scenario())


def test_a_request_that_is_given_up_does_not_refuse_the_next() -> None:
    async def scenario() -> None:
        policy = thread_of(lambda request: time.sleep(TIMEOUT_S / 4))
        first = asyncio.ensure_future(code_of(policy))
        await asyncio.sleep(TIMEOUT_S / 20)
        first.cancel()
        assert await code_of(policy) is None
        await policy.close()

    asyncio.run(scenario())


def with_service(directory: Path, policies: Policies, scenario: Callable[[MetadataService], Awaitable[None]]) -> None:
    async def run() -> None:
        config, _ = load(None, {})
        service = MetadataService(EmbeddedStore(directory / "metadata.db"), config, SystemClock(), policies=policies)
        await service.start({"PLAINTEXT": ("127.0.0.1", 9092)})
        try:
            await scenario(service)
        finally:
            await service.close()
            await policies.close()

    asyncio.run(run())


def appended(policy: str) -> ConfigChange:
    edit = ConfigEdit("cleanup.policy", ConfigOperation.APPEND, policy)
    return ConfigChange(ResourceType.TOPIC, "t", [edit])


def test_what_was_changed_while_the_policy_looked_is_not_changed_unseen(tmp_path: Path) -> None:
    thinking, let_go = threading.Event(), threading.Event()
    seen: list[dict[str, str | None]] = []

    def validate(request: object) -> None:
        assert isinstance(request, ConfigRequest)
        seen.append(dict(request.configs))
        if len(seen) == 1:
            thinking.set()
            let_go.wait()

    async def scenario(service: MetadataService) -> None:
        await service.create_topics([NewTopic(TopicName("t"), 1, 1)])
        first = asyncio.ensure_future(service.alter_configs([appended("compact")]))
        while not thinking.is_set():
            await asyncio.sleep(0.01)
        quicker = ConfigChange(ResourceType.TOPIC, "t", [ConfigEdit("cleanup.policy", ConfigOperation.SET, "")])
        service._policies = Policies()
        assert await service.alter_configs([quicker]) == [None]
        let_go.set()
        (refused,) = await first
        assert isinstance(refused, OttlaError)
        assert refused.code is ErrorCode.REQUEST_TIMED_OUT
        assert service.image.topic_config(TopicName("t")) == {"cleanup.policy": ""}

    policies = Policies(configs=PolicyThread("alter.config.policy.class.name", "p", Policy(validate)))
    with_service(tmp_path, policies, scenario)
    assert seen == [{"cleanup.policy": "delete,compact"}]


def test_metadata_goes_on_while_a_policy_thinks(tmp_path: Path) -> None:
    thinking, let_go = threading.Event(), threading.Event()

    def validate(request: object) -> None:
        assert isinstance(request, TopicRequest)
        if request.topic == "slow":
            thinking.set()
            let_go.wait()

    async def scenario(service: MetadataService) -> None:
        await service.create_topics([NewTopic(TopicName("t"), 1, 1)])
        slow = asyncio.ensure_future(service.create_topics([NewTopic(TopicName("slow"), 1, 1)]))
        while not thinking.is_set():
            await asyncio.sleep(0.01)
        assert await service.create_partitions([(TopicName("t"), 2, None)]) == [None]
        assert TopicName("slow") not in service.image.topics
        let_go.set()
        await slow
        assert TopicName("slow") in service.image.topics

    policies = Policies(topics=PolicyThread("create.topic.policy.class.name", "p", Policy(validate)))
    with_service(tmp_path, policies, scenario)


def test_the_documented_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(install(tmp_path)))
    config, warnings = load(None, parse_properties(documented("properties")))
    assert [warning.partition(":")[0] for warning in warnings] == ["house.teams"]

    async def scenario() -> None:
        policies = await open_policies(config)
        denied = TopicRequest("others.x", 1, 1, None, {})
        assert policies._topics is not None
        assert policies._configs is not None
        assert str(await policies._topics.refusal(denied)) == "Topic others.x must begin with one of orders, billing"
        assert await policies._topics.refusal(TopicRequest("orders.x", 1, 1, None, {})) is None
        kept = ConfigRequest("topic", "orders.x", {"retention.ms": "-1"})
        assert str(await policies._configs.refusal(kept)) == "Topic orders.x must not keep records for ever"
        await policies.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (None, "there is no policy mine among the entry points ottla.policies; installed are com.example.HouseRules, "),
        ("class Mine:\n    def __init__(self):\n        raise ValueError('x')\n", "cannot be made: ValueError('x')"),
        ("class Mine:\n    def configure(self, s): pass\n", "has no method validate and no close"),
        (
            "class Mine:\n    def configure(self, s): 1/0\n    def validate(self, r): 0\n    def close(self): 0\n",
            "does not take the settings: ZeroDivisionError",
        ),
    ],
)
def test_a_policy_that_cannot_be_had_stops_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str | None, reason: str
) -> None:
    module = f"mine_{abs(hash(reason))}"
    modules = {} if source is None else {module: f"# POLICY mine = {module}:Mine\n{source}"}
    (tmp_path / "site").mkdir()
    monkeypatch.syspath_prepend(str(install(tmp_path / "site", **modules)))
    given = {
        "create.topic.policy.class.name": "mine",
        "log.dirs": str(tmp_path / "data"),
        "listeners": "PLAINTEXT://127.0.0.1:0",
    }
    config, _ = load(None, given, allow_insecure=True)

    async def start() -> None:
        async with Broker(config):
            pass

    with pytest.raises(InvalidConfig) as refused:
        asyncio.run(start())
    assert str(refused.value).startswith("create.topic.policy.class.name: ")
    assert reason in str(refused.value)
    assert not (tmp_path / "data").exists()
