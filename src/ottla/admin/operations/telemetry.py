"""Which metrics clients are asked for (KIP-714), and which clients send some. PURE."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from ottla.admin.errors import NotFound, RequestRefused, refusal
from ottla.admin.operations.core import Ask, Operation, brokers
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from ottla.protocol.messages.describe_telemetry import DescribeTelemetryRequest, DescribeTelemetryResponse
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.protocol.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse

_CLIENT_METRICS: Final = 16
_SET, _DELETE = 0, 1
_METRICS: Final = "metrics"
_INTERVAL: Final = "interval.ms"
_MATCH: Final = "match"
EVERY_CLIENT: Final = uuid.UUID(int=0)


@dataclass(frozen=True, slots=True, order=True)
class Subscription:
    """Metrics that clients are asked for.

    `metrics`: prefixes of their names, `*` for all. `interval_ms` None: the broker's default of five minutes.
    `match`: expressions such as `client_id=app.*`; a client has to match all of them.
    """

    name: str
    metrics: tuple[str, ...]
    interval_ms: int | None = None
    match: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TelemetryClient:
    """A client that has sent metrics, and its newest push: `pushed_at_ms` is milliseconds since 1970.

    `metrics`: the push in OpenTelemetry's format (OTLP), if it was asked for.
    """

    instance: uuid.UUID
    client_id: str | None
    software_name: str | None
    software_version: str | None
    host: str
    port: int
    pushed_at_ms: int
    size_bytes: int
    metrics: bytes | None


def list_subscriptions() -> Operation[list[Subscription]]:
    """List the subscriptions, by name. Raises `ClientError`."""
    answer: ListConfigResourcesResponse = yield Ask(ListConfigResourcesRequest(resource_types=[_CLIENT_METRICS]))
    if answer.error_code:
        raise RequestRefused(f"the broker does not list subscriptions: {refusal(answer.error_code)}", answer.error_code)
    names = sorted(str(resource.resource_name) for resource in answer.config_resources)
    asked = [
        DescribeConfigsResource(resource_type=_CLIENT_METRICS, resource_name=name, configuration_keys=None)
        for name in names
    ]
    described: DescribeConfigsResponse = yield Ask(DescribeConfigsRequest(resources=asked))
    return [_subscription(each) for each in sorted(described.results, key=lambda each: str(each.resource_name))]


def _subscription(answer: Any) -> Subscription:
    if answer.error_code:
        raise _refused(answer.resource_name, answer)
    values = {entry.name: entry.value for entry in answer.configs}
    interval = values.get(_INTERVAL)
    return Subscription(
        answer.resource_name,
        _listed(values.get(_METRICS)),
        int(interval) if interval else None,
        _listed(values.get(_MATCH)),
    )


def _listed(value: str | None) -> tuple[str, ...]:
    return tuple(filter(None, (part.strip() for part in (value or "").split(","))))


def alter_subscription(subscription: Subscription) -> Operation[None]:
    """Make a subscription, or replace the one of that name. Raises `ClientError`."""
    yield from _alter(
        subscription.name,
        {
            _METRICS: ",".join(subscription.metrics),
            _INTERVAL: None if subscription.interval_ms is None else str(subscription.interval_ms),
            _MATCH: ",".join(subscription.match) or None,
        },
    )


def delete_subscription(name: str) -> Operation[None]:
    """End a subscription. Raises `NotFound`, `ClientError`."""
    known = yield from list_subscriptions()
    if all(each.name != name for each in known):
        raise NotFound(f"there is no subscription {name!r}")
    yield from _alter(name, dict.fromkeys((_METRICS, _INTERVAL, _MATCH)))


def _alter(name: str, wanted: dict[str, str | None]) -> Operation[None]:
    edits = [
        AlterableConfig(name=key, config_operation=_DELETE if value is None else _SET, value=value)
        for key, value in wanted.items()
    ]
    resource = AlterConfigsResource(resource_type=_CLIENT_METRICS, resource_name=name, configs=edits)
    response: IncrementalAlterConfigsResponse = yield Ask(
        IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    )
    (answer,) = response.responses
    if answer.error_code:
        raise _refused(name, answer)


def _refused(name: str, answer: Any) -> RequestRefused:
    reason = refusal(answer.error_code, answer.error_message)
    return RequestRefused(f"subscription {name!r}: {reason}", answer.error_code)


def list_telemetry_clients(instance: uuid.UUID = EVERY_CLIENT) -> Operation[Sequence[TelemetryClient]]:
    """List the clients that have sent metrics, the last one first, or describe one, with its metrics.

    Ottla's brokers only. Raises `UnsupportedRequest` by other brokers, `ClientError`.
    """
    newest: dict[uuid.UUID, TelemetryClient] = {}
    for address in (yield from brokers()).values():  # a client sends to one broker, and may change it
        answer: DescribeTelemetryResponse = yield Ask(DescribeTelemetryRequest(client_instance_id=instance), address)
        if answer.error_code:
            raise RequestRefused(
                f"{address} does not show its clients' metrics: {refusal(answer.error_code)}", answer.error_code
            )
        for client in answer.clients:
            known = newest.get(client.client_instance_id)
            if known is None or known.pushed_at_ms < client.pushed_at_ms:
                newest[client.client_instance_id] = TelemetryClient(
                    client.client_instance_id,
                    client.client_id,
                    client.software_name,
                    client.software_version,
                    client.host,
                    client.port,
                    client.pushed_at_ms,
                    client.size_bytes,
                    None if client.metrics is None else bytes(client.metrics),
                )
    return sorted(newest.values(), key=lambda client: -client.pushed_at_ms)
