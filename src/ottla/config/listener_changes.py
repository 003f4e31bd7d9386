"""PURE. What Kafka 4.3 refuses when `listeners` or `listener.security.protocol.map` is changed while a broker runs.

`advertised.listeners` stays as it is until a restart, as in Kafka 4.3.
"""

from collections.abc import Mapping

from ottla.config.broker import BrokerConfig
from ottla.config.changeable import ONE_LISTENER_CHANGEABLE
from ottla.config.listeners import Listener
from ottla.errors import InvalidConfig


def check_listeners(now: BrokerConfig, after: BrokerConfig) -> None:
    """Raise `InvalidConfig` if a broker that runs with the settings `now` cannot go on with the listeners `after`."""
    check_internal_listeners(now, after)
    before, wanted = _by_name(now.listeners), _by_name(after.listeners)
    if before == wanted and now.listener_security_protocol_map == after.listener_security_protocol_map:
        return
    missing = sorted(_by_name(now.advertised_listeners or now.listeners).keys() - wanted.keys())
    if missing:
        raise InvalidConfig(
            f"listeners: {', '.join(missing)} cannot be removed while it is advertised; without it in "
            "advertised.listeners, which needs a restart, it can"
        )
    for name in before.keys() & wanted.keys():
        if before[name].security_protocol != wanted[name].security_protocol:
            raise InvalidConfig(
                f"listener.security.protocol.map: the protocol of the existing listener {name} cannot be changed "
                "while the broker runs; restart the broker, or add another listener"
            )
        if _fixed_settings(now, name) != _fixed_settings(after, name):
            raise InvalidConfig(
                f"listener.name.{name.lower()}: settings of the existing listener {name} cannot be changed while the "
                "broker runs; restart the broker, or add another listener"
            )
        if now.is_in_cluster and before[name] != wanted[name]:
            raise InvalidConfig(
                f"listeners: the address of {name}, which is registered in the cluster, cannot be changed while the "
                "broker runs; restart the broker, or add another listener"
            )


def check_internal_listeners(now: BrokerConfig, after: BrokerConfig) -> None:
    """Raise `InvalidConfig` if brokers would speak with this one over another listener than now."""
    for setting, name, other in (
        ("inter.broker.listener.name", now.inter_broker_listener, after.inter_broker_listener),
        ("control.plane.listener.name", now.control_plane_listener, after.control_plane_listener),
    ):
        if name != other:
            raise InvalidConfig(
                f"listeners: brokers speak with this one over {name}, and would over {other} after the change; "
                f"set {setting} in the properties file, and restart the broker"
            )


def _by_name(listeners: tuple[Listener, ...]) -> dict[str, Listener]:
    return {listener.name: listener for listener in listeners}


def _fixed_settings(config: BrokerConfig, name: str) -> Mapping[str, str]:
    prefix = f"listener.name.{name.lower()}."
    return {
        key: text
        for key, text in config.given.items()
        if key.startswith(prefix) and key.removeprefix(prefix) not in ONE_LISTENER_CHANGEABLE
    }
