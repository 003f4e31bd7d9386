"""The broker's settings about metrics, which are Ottla's own; a part of `broker_settings`."""

from typing import Final

from ottla.config.setting import Kind, Setting
from ottla.config.topic_settings import AT_LEAST_0

METRICS: Final = (
    Setting(
        "metrics.listeners",
        Kind.LIST,
        "",
        "Ottla's own. Addresses at which metrics and health are served: `http://host:port`, comma-separated; none if "
        "empty, which costs nothing. The names of topics, groups and clients can be read there without a login.",
    ),
    Setting(
        "metrics.topics.max",
        Kind.INT,
        "1000",
        "Ottla's own. How many topics have series of their own at `metrics.listeners`; 0 for none.",
        AT_LEAST_0,
    ),
    Setting(
        "metrics.groups.max",
        Kind.INT,
        "1000",
        "Ottla's own. How many groups have series of their own at `metrics.listeners`; 0 for none.",
        AT_LEAST_0,
    ),
    Setting(
        "tracing.endpoint",
        Kind.STRING,
        None,
        "Ottla's own. Address of a collector to which traces of slow requests are sent, as OTLP over HTTP: "
        "`http://127.0.0.1:4318/v1/traces`. Unset, requests are not traced.",
    ),
    Setting(
        "tracing.slow.request.ms",
        Kind.INT,
        "500",
        "Ottla's own. Requests that take as long, or longer, are traced.",
        AT_LEAST_0,
    ),
)
