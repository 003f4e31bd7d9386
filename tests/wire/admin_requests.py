"""Requests about topics and settings, with answers that are easy to compare."""

from typing import Any

from confluent_kafka import Producer
from tests.support.raw_client import ask

from ottla.protocol.api import ApiKey
from ottla.protocol.messages import create_topics as ct
from ottla.protocol.messages import describe_configs as dc
from ottla.protocol.messages import incremental_alter_configs as ic
from ottla.protocol.messages import metadata as md
from ottla.server.routing import ROUTES
from ottla.testing import Broker

TOPIC, BROKER, LOGGER, GROUP = 2, 4, 8, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


def versions(api: ApiKey) -> range:
    route = ROUTES[api]
    return range(route.min_version, route.max_version + 1)


def create(
    broker: Broker,
    name: str,
    partitions: int = 1,
    configs: dict[str, str | None] | None = None,
    version: int = 7,
    **more: Any,
) -> ct.CreatableTopicResult:
    topic = ct.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        assignments=[],
        configs=[ct.CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
    )
    return ask(broker.bootstrap, ct.CreateTopicsRequest(topics=[topic], **more), version).topics[0]


def metadata(broker: Broker, *names: str, version: int = 13, **more: Any) -> md.MetadataResponse:
    topics = [md.MetadataRequestTopic(name=name) for name in names]
    return ask(broker.bootstrap, md.MetadataRequest(topics=topics, **more), version)


def described(broker: Broker, kind: int, name: str, *keys: str, version: int = 4, **more: Any) -> Any:
    resource = dc.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=list(keys) or None)
    return ask(broker.bootstrap, dc.DescribeConfigsRequest(resources=[resource], **more), version).results[0]


def changed(
    broker: Broker, kind: int, name: str, *edits: tuple[str, int, str | None], validate_only: bool = False
) -> Any:
    resource = ic.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            ic.AlterableConfig(name=key, config_operation=operation, value=value) for key, operation, value in edits
        ],
    )
    request = ic.IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    return ask(broker.bootstrap, request, 1).responses[0]


def value_of(broker: Broker, kind: int, name: str, key: str) -> str | None:
    (entry,) = described(broker, kind, name, key).configs
    return entry.value


def produce(broker: Broker, topic: str, count: int, partition: int = 0, **config: Any) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all", **config})
    for number in range(count):
        producer.produce(topic, str(number).encode(), partition=partition)
    assert producer.flush(10) == 0
