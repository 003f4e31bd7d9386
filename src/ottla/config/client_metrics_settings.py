"""The settings of a subscription to clients' metrics (KIP-714): which metrics, how often, and of which clients.

Names, types, defaults and refusals are Kafka 4.3's. Patterns are RE2's, not Java's: they take linear time.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, cast

from ottla.config.setting import Kind, Setting, Value
from ottla.errors import InvalidConfig, InvalidRequest

ALL_METRICS: Final = "*"
DEFAULT_INTERVAL_MS: Final = 300_000
SHORTEST_INTERVAL_MS: Final = 100
LONGEST_INTERVAL_MS: Final = 3_600_000
MATCHED: Final = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
"""What of a client a subscription may look at."""

CLIENT_METRICS_SETTINGS: Final[Mapping[str, Setting]] = {
    setting.name: setting
    for setting in (
        Setting(
            "metrics",
            Kind.LIST,
            "",
            "Prefixes of the names of metrics, comma-separated; `*` for all. Without one nothing is asked for.",
        ),
        Setting(
            "interval.ms",
            Kind.INT,
            str(DEFAULT_INTERVAL_MS),
            "How often a client sends its metrics: 100 ms to an hour. Of several subscriptions the shortest counts.",
        ),
        Setting(
            "match",
            Kind.LIST,
            "",
            "Clients that are asked: `name=expression`, comma-separated, all of which must match; all clients where "
            f"unset. Names are {', '.join(f'`{name}`' for name in MATCHED)}.",
        ),
    )
}


class Subscription(NamedTuple):
    """A subscription as it holds, defaults included."""

    metrics: tuple[str, ...]
    interval_ms: int
    match: tuple[tuple[str, Callable[[str], Any]], ...]
    """Attribute and expression, of which each must match the whole attribute."""

    def matches(self, attributes: Mapping[str, str | None]) -> bool:
        """Whether it is meant for a client with these attributes, by the names in `MATCHED`."""
        return all(
            (value := attributes.get(name)) is not None and fullmatch(value) is not None
            for name, fullmatch in self.match
        )


def subscription(configs: Mapping[str, str]) -> Subscription:
    """The subscription that these settings make. Raises `InvalidRequest`, `InvalidConfig` with Kafka's words."""
    unknown = next((name for name in configs if name not in CLIENT_METRICS_SETTINGS), None)
    if unknown is not None:
        raise InvalidRequest(f"Unknown client metrics configuration: {unknown}")
    values = {name: client_metrics_value(name, configs) for name in CLIENT_METRICS_SETTINGS}
    interval_ms = cast("int", values["interval.ms"])
    if not SHORTEST_INTERVAL_MS <= interval_ms <= LONGEST_INTERVAL_MS:
        raise InvalidRequest(
            f"Invalid value {interval_ms} for interval.ms, interval must be between {SHORTEST_INTERVAL_MS} and "
            f"{LONGEST_INTERVAL_MS} (1 hour)"
        )
    patterns = dict(_pattern(text) for text in cast("tuple[str, ...]", values["match"]))
    return Subscription(cast("tuple[str, ...]", values["metrics"]), interval_ms, tuple(patterns.items()))


def client_metrics_value(name: str, configs: Mapping[str, str]) -> Value:
    """A setting's value, words of lists once each; raises `InvalidConfig` with Kafka's words."""
    setting = CLIENT_METRICS_SETTINGS[name]
    value = setting.parse(configs.get(name, setting.default))
    if not isinstance(value, tuple):
        return value
    if "" in value:
        raise InvalidConfig(f"Configuration '{name}' values must not be empty.")
    return tuple(dict.fromkeys(value))


def _pattern(text: str) -> tuple[str, Callable[[str], Any]]:
    import re2  # only a broker with such subscriptions pays for it

    name, *expressions = (word.strip() for word in text.rstrip("=").split("="))  # trailing ones do not count in Java
    options = re2.Options()
    options.log_errors = False
    try:
        if name not in MATCHED or len(expressions) != 1:
            raise ValueError(text)
        return name, re2.compile(expressions[0], options).fullmatch
    except (ValueError, re2.error) as error:
        raise InvalidConfig(f"Illegal client matching pattern: {text}") from error
