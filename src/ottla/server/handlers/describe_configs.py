"""DescribeConfigs (v1-v4): settings of topics, groups, this broker, all brokers, subscriptions to clients' metrics, and
the levels of loggers.

All that Kafka has are described for a topic and a broker, also those without effect; for a group, those that Ottla acts
on.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.cluster.config_description import ConfigDescription, ConfigSource, SettingsInForce
from ottla.cluster.controller import check_topic_name
from ottla.cluster.image import CLUSTER_DEFAULT, ResourceType
from ottla.errors import InvalidRequest, OttlaError
from ottla.errors import UnknownTopicOrPartition as UnknownTopic
from ottla.ids import TopicName
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from ottla.server import loggers
from ottla.server.context import RequestContext

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig
    from ottla.metadata.view import MetadataView
    from ottla.slices import Slices


async def handle(
    config: "BrokerConfig",
    metadata: "MetadataView",
    slices: "Slices",
    request: DescribeConfigsRequest,
    context: RequestContext,
) -> DescribeConfigsResponse:
    """Each resource on its own; an empty list of keys asks for all, as null does."""
    in_force = SettingsInForce(metadata.image, metadata.config, metadata.static_config)
    results: list[DescribeConfigsResult] = []
    known: _Known = {}
    pause = slices.pause
    for resource in request.resources:
        result = DescribeConfigsResult(
            error_message="",
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=[],
        )
        try:
            result.configs = _describe(config, metadata, resource, request, in_force, known)
        except OttlaError as refused:
            result.error_code, result.error_message = refused.code, str(refused)
        results.append(result)
        await pause()
    return DescribeConfigsResponse(results=results)


_Known = dict[tuple[tuple[tuple[str, str], ...], tuple[str, ...]], list[DescribeConfigsResourceResult]]


def _describe(
    config: "BrokerConfig",
    metadata: "MetadataView",
    resource: DescribeConfigsResource,
    request: DescribeConfigsRequest,
    in_force: SettingsInForce,
    known: "_Known",
) -> list[DescribeConfigsResourceResult]:
    """`known` has the settings described for the request so far: most topics have the same ones."""
    names = resource.configuration_keys or None
    match resource.resource_type:
        case ResourceType.TOPIC:
            check_topic_name(resource.resource_name)
            topic = TopicName(resource.resource_name)
            image = metadata.image
            if topic not in image.topics:
                raise UnknownTopic("")
            overrides = image.topic_config(topic)
            key = tuple(overrides.items()), tuple(names or ())
            if key not in known:
                known[key] = [_entry(described, request) for described in in_force.topic(overrides, names)]
            return known[key]
        case ResourceType.BROKER:
            for_all = resource.resource_name == CLUSTER_DEFAULT
            if not for_all:
                _check_node(config, resource.resource_name)
            return [_entry(described, request) for described in in_force.broker(names, cluster_default=for_all)]
        case ResourceType.GROUP:
            if not resource.resource_name:
                raise InvalidRequest("Group name must not be empty")
            overrides = metadata.image.config(ResourceType.GROUP, resource.resource_name)
            return [_entry(described, request) for described in in_force.group(overrides, names)]
        case ResourceType.CLIENT_METRICS:
            if not resource.resource_name:
                raise InvalidRequest("Client metrics subscription name must not be empty")
            configs = metadata.image.config(ResourceType.CLIENT_METRICS, resource.resource_name)
            return [_entry(described, request) for described in in_force.client_metrics(configs, names)]
        case ResourceType.BROKER_LOGGER:
            _check_node(config, resource.resource_name)
            return _loggers(names)
        case _:
            raise InvalidRequest(f"Unsupported resource type: {resource.resource_type}")


def _check_node(config: "BrokerConfig", name: str) -> None:
    if name != str(config.node_id):
        raise InvalidRequest(f"Unexpected broker id, expected {config.node_id}, but received {name!r}")


def _entry(described: ConfigDescription, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=described.setting.name,
        value=described.value,
        read_only=described.read_only,
        config_source=described.source,
        is_sensitive=described.setting.sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=synonym.source)
            for synonym in described.synonyms
        ]
        if request.include_synonyms
        else [],
        config_type=described.setting.kind.value,
        documentation=described.setting.doc if request.include_documentation else None,
    )


def _loggers(names: Iterable[str] | None) -> list[DescribeConfigsResourceResult]:
    wanted = None if names is None else set(names)
    return [
        DescribeConfigsResourceResult(
            name=name,
            value=level,
            read_only=False,
            config_source=ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG,
            is_sensitive=False,
            synonyms=[],
        )
        for name, level in loggers.levels().items()
        if wanted is None or name in wanted
    ]
