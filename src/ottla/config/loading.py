"""From a properties file and overrides to a `BrokerConfig`, with warnings for what Ottla does not act on."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ottla.config.broker import BrokerConfig
from ottla.config.broker_settings import BROKER_SETTINGS
from ottla.config.properties import PropertiesProblem, parse_properties
from ottla.errors import InvalidConfig

DEVELOPMENT_START: Final = {"group.initial.rebalance.delay.ms": "0"}
"""What is different when a broker is started without a properties file."""

_PREFIXED: Final = re.compile(r"(listener\.name|rlmm\.config|rsm\.config|config\.providers)\..+|config\.providers")

_OF_KAFKA_3: Final = re.compile(
    r"zookeeper\.(max\.in\.flight\.requests|set\.acl|metadata\.migration\..+|ssl\..+|clientCnxnSocket)"
)


def load(properties_file: Path | None, overrides: Mapping[str, str]) -> tuple[BrokerConfig, list[str]]:
    """Read the broker's settings; `overrides` win over the file.

    Returns the settings and a warning, one sentence, for each that Kafka knows and Ottla does not act on.

    Raises:
        InvalidConfig: the file cannot be read, a name is unknown or a value refused; the text says which, and where.
    """
    given: dict[str, str] = {}
    if properties_file is None:
        given.update(DEVELOPMENT_START)
    else:
        try:
            given.update(parse_properties(properties_file.read_text(encoding="utf-8")))
        except OSError as error:
            raise InvalidConfig(f"{properties_file} cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise InvalidConfig(f"{properties_file} is not UTF-8 text: {error.reason}") from error
        except PropertiesProblem as problem:
            raise InvalidConfig(f"{properties_file}, {problem}") from problem
    given.update(overrides)
    warnings, unknown = [], []
    for name, text in given.items():
        if name in BROKER_SETTINGS:
            if not BROKER_SETTINGS[name].acted_on:
                warnings.append(f"{name}: Ottla does not act on this setting")
        else:
            try:
                warnings.append(_not_acted_on(name, text))
            except _UnknownSetting as problem:
                unknown.append(str(problem) if name in overrides else f"{properties_file}: {problem}")
    if unknown:  # all of them, so that a file is put right in one go
        raise InvalidConfig("\n".join(unknown))
    config = BrokerConfig(given)
    if config.controller_listener_names and "listeners" in given:
        warnings.append(
            f"controller.listener.names: {', '.join(config.controller_listener_names)} is not opened; "
            "Ottla has no controller quorum"
        )
    return config, warnings


class _UnknownSetting(Exception):
    """The text names it, and the nearest one that exists."""


def _not_acted_on(name: str, text: str) -> str:
    from ottla.config.other_settings import OTHER_SETTINGS  # big, and seldom needed

    setting = OTHER_SETTINGS.get(name)
    if setting is not None:
        setting.parse(text)
        return f"{name}: Ottla does not act on this setting"
    if _PREFIXED.fullmatch(name):
        return f"{name}: Ottla does not act on settings of this kind"
    if _OF_KAFKA_3.fullmatch(name):
        return f"{name}: Ottla does not act on this setting of Kafka 3.9"
    import difflib

    near = difflib.get_close_matches(name, [*BROKER_SETTINGS, *OTHER_SETTINGS], n=1, cutoff=0.6)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise _UnknownSetting(f"{name}: there is no such setting{hint}")
