"""Policies for topics and settings: a Java one in genuine Kafka and a Python one in Ottla have the same effect."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.compat.genuine.test_same_answers import APPEND, BROKER, DELETE, GROUP, SET, TOPIC, Pair, new
from tests.support.genuine import KAFKA_VERSION, OLDER_KAFKA_VERSION, GenuineKafka
from tests.support.java_sources import compiled
from tests.support.ottla_process import OttlaProcess
from tests.support.policies import install
from tests.support.raw_client import ask

from ottla.errors import ErrorCode
from ottla.protocol.messages import alter_configs as ac
from ottla.protocol.messages import create_topics as ct
from ottla.protocol.messages import incremental_alter_configs as ic
from ottla.protocol.messages import metadata as md

_JAVA = Path(__file__).parents[1] / "java"
_RULES = '''
# POLICY rules = rules:Rules
# POLICY setting-rules = rules:SettingRules
from house import HouseRules
from ottla.policies import PolicyViolation


def java(value):
    """A value as Java writes it."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}={java(value[key])}" for key in sorted(value)) + "}"
    return "null" if value is None else str(value)


class Rules(HouseRules):
    def validate(self, request):
        if request.topic == "orders.broken":
            raise RuntimeError("broken")
        if request.topic == "orders.shape":
            placed = request.assignments and {number: list(nodes) for number, nodes in request.assignments.items()}
            shape = (request.partition_count, request.replication_factor, placed, dict(request.configs))
            raise PolicyViolation(" ".join(map(java, shape)))
        super().validate(request)


class SettingRules(HouseRules):
    def validate(self, request):
        super().validate(request)
        if request.configs.get("retention.bytes") == "1":
            raise PolicyViolation(f"{request.kind.upper()} {request.name} {java(dict(request.configs))}")
'''


@pytest.fixture(
    scope="module", params=[KAFKA_VERSION, pytest.param(OLDER_KAFKA_VERSION, marks=pytest.mark.soak)], ids=str
)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    classes = compiled(_JAVA / "HouseRules.java", _JAVA / "HouseSettings.java")
    installed = install(tmp_path_factory.mktemp("policies"), rules=_RULES)
    settings = {"house.teams": "orders,billing"}
    java = {"create.topic.policy.class.name": "HouseRules", "alter.config.policy.class.name": "HouseSettings"}
    python = {"create.topic.policy.class.name": "rules", "alter.config.policy.class.name": "setting-rules"}
    with (
        GenuineKafka(properties=settings | java, classes=classes, version=request.param) as genuine,
        OttlaProcess(properties=settings | python, environment={"PYTHONPATH": str(installed)}) as ottla,
    ):
        yield Pair(genuine.bootstrap, ottla.bootstrap)


@pytest.mark.parametrize("validate_only", [True, False])
def test_topics(pair: Pair, validate_only: bool) -> None:
    topics = [
        new("strangers.topic", 1),
        new("strangers/topic", 1),
        new("strangers.other", 0),
        new("orders.shape"),
        new("orders.keep", 1, {"retention.ms": "-1"}),
        new("orders.bytes", 1, {"retention.bytes": "1", "segment.bytes": "2000000"}),
        new("strangers.bytes", 1, {"retention.bytes": "2"}),
        new("orders.fine", 2, {"retention.ms": "1000"}),
    ]
    pair.ask(ct.CreateTopicsRequest(topics=topics, validate_only=validate_only), 7)
    placed = [new("orders.shape", configs={"retention.ms": "7"}, assignments=((0, [1]), (1, [1])))]
    pair.ask(ct.CreateTopicsRequest(topics=placed, validate_only=validate_only), 7)


def test_a_policy_that_fails(pair: Pair) -> None:
    made = ct.CreateTopicsRequest(topics=[new("orders.broken", 1)])
    codes = [[topic.error_code for topic in ask(bootstrap, made, 7).topics] for bootstrap in pair]
    assert codes == [[ErrorCode.UNKNOWN_SERVER_ERROR]] * 2, "Kafka sends no message, Ottla says where to look"


def test_topics_that_are_created_because_they_are_used(pair: Pair) -> None:
    named = md.MetadataRequest(topics=[md.MetadataRequestTopic(name="strangers.used")], allow_auto_topic_creation=True)
    for _ in range(3):
        pair.look(named, 12)


@pytest.mark.parametrize("validate_only", [True, False])
def test_settings(pair: Pair, validate_only: bool) -> None:
    made = ct.CreateTopicsRequest(topics=[new("orders.set", 1)])
    pair.ask(made, 7)
    edits: list[tuple[int, str, list[tuple[str, int, str | None]]]] = [
        (TOPIC, "orders.set", [("retention.ms", SET, "-1")]),
        (TOPIC, "orders.set", [("retention.ms", SET, "5"), ("cleanup.policy", APPEND, "compact")]),
        (
            TOPIC,
            "orders.set",
            [("retention.ms", SET, "5"), ("cleanup.policy", SET, "delete"), ("retention.bytes", SET, "1")],
        ),
        (TOPIC, "orders.set", [("retention.ms", DELETE, None), ("retention.bytes", SET, "1")]),
        (TOPIC, "missing", [("retention.ms", SET, "-1")]),
        (BROKER, "", [("retention.bytes", SET, "1")]),
        (BROKER, "1", [("retention.bytes", SET, "1"), ("log.cleaner.threads", SET, "1")]),
        (GROUP, "g", [("retention.bytes", SET, "1")]),
    ]
    for kind, name, changes in edits:
        resource = ic.AlterConfigsResource(
            resource_type=kind,
            resource_name=name,
            configs=[ic.AlterableConfig(name=key, config_operation=op, value=value) for key, op, value in changes],
        )
        pair.ask(ic.IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only), 1)
    for configs in ({"retention.bytes": "1"}, {"retention.ms": "6"}, {"retention.bytes": "1", "retention.ms": "6"}):
        whole = ac.AlterConfigsResource(
            resource_type=TOPIC,
            resource_name="orders.set",
            configs=[ac.AlterableConfig(name=key, value=value) for key, value in configs.items()],
        )
        pair.ask(ac.AlterConfigsRequest(resources=[whole], validate_only=validate_only), 2)
