"""Every setting that Kafka knows, Ottla knows: under its name, with its type and its default.

What is otherwise stands here, with the reason, and no longer than it is so.
"""

import subprocess
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from tests.support.java_sources import compiled, java_command

from ottla.config.broker_settings import BROKER_SETTINGS
from ottla.config.group_settings import GROUP_SETTINGS
from ottla.config.other_settings import OTHER_SETTINGS
from ottla.config.setting import Kind, Setting, render_value
from ottla.config.topic_settings import TOPIC_SETTINGS

_SOURCE: Final = Path(__file__).parents[1] / "java" / "ConfigDefaults.java"


class KafkaSetting(NamedTuple):
    kind: str
    default: str | None


OTHER_TYPES: Final = {
    # lists in Kafka since 4.2; here text, which is written in the same way
    "advertised.listeners",
    "controller.listener.names",
    "listeners",
    "log.dir",
    "log.dirs",
}
OTHER_DEFAULTS: Final = {
    "listeners",  # only the own machine, instead of every interface
    "log.dir",  # the current directory, instead of /tmp
    "node.id",  # Kafka has no default
    "process.roles",  # Kafka has no default
}


@pytest.fixture(scope="module")
def theirs() -> dict[str, dict[str, KafkaSetting]]:
    command = java_command(compiled(_SOURCE), "ConfigDefaults")
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found: dict[str, dict[str, KafkaSetting]] = {}
    for line in printed.splitlines():
        group, name, kind, default, _ = line.split("\t")
        found.setdefault(group, {})[name] = KafkaSetting(kind, None if default == "null" else default)
    return found


OURS: Final[dict[str, dict[str, Setting]]] = {
    "broker": {**BROKER_SETTINGS, **OTHER_SETTINGS},
    "topic": {name: topic.setting for name, topic in TOPIC_SETTINGS.items()},
    "group": {name: group.setting for name, group in GROUP_SETTINGS.items()},
}


@pytest.mark.parametrize("group", OURS)
def test_names(theirs: dict[str, dict[str, KafkaSetting]], group: str) -> None:
    assert not theirs[group].keys() - OURS[group].keys()


@pytest.mark.parametrize("group", OURS)
def test_types_and_defaults(theirs: dict[str, dict[str, KafkaSetting]], group: str) -> None:
    types: set[str] = set()
    defaults: dict[str, object] = {}
    for name, their in theirs[group].items():
        our = OURS[group].get(name)
        if our is None:
            continue
        default = None if their.default is None else render_value(our.parse(their.default))
        if our.kind is not Kind[their.kind]:
            types.add(name)
        if our.default != default:
            defaults[name] = (our.default, default)
    assert types == (OTHER_TYPES if group == "broker" else set())
    assert defaults.keys() == (OTHER_DEFAULTS if group == "broker" else set()), defaults
