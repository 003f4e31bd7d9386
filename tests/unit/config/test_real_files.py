"""Configuration files of real life, from Kafka 2.8 to 4.3, of vendors and tutorials: each starts, or says why not.

The files in `files/` were written for this test after public documentation; their first lines say whose they are like.
"""

import asyncio
import logging
from pathlib import Path

import pytest

from ottla.broker import Broker
from ottla.config import load
from ottla.errors import InvalidConfig

FILES = Path(__file__).parent / "files"

REFUSED = {
    "confluent-rbac": ["authorizer.class.name", "oauthbearer"],
    "strimzi": ["principal.builder.class: asks for access control"],
}
"""What the refusal names, at least."""

OF_QUORUMS = (
    "kafka-3.3-kraft-broker",
    "kafka-3.5-kraft-controller",
    "kafka-4.3-broker",
    "kafka-4.3-controller",
    "strimzi-three-nodes",
)
"""Nodes that start only beside the others of their cluster."""

UNKNOWN = {
    "bitnami": ["max.request.size"],
    "confluent-docker": ["jmx.port"],
    "debian": ["log4j.configuration"],
    "tutorial-2014": ["replica.lag.max.messages"],
}
"""Names that neither Kafka nor a known addition to it has; of other files none."""

NAMES = sorted(file.stem for file in FILES.glob("*.properties"))
WITHOUT_FILES = ("tutorial-tls",)
"""They name key stores, which only their owner has."""
STARTED = [name for name in NAMES if name not in (*REFUSED, *WITHOUT_FILES, *OF_QUORUMS)]


def test_there_are_twenty_and_more() -> None:
    assert len(NAMES) >= 20
    assert REFUSED.keys() | UNKNOWN.keys() <= set(NAMES)


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_says_exactly_why(name: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        load(FILES / f"{name}.properties", {})
    for named in REFUSED[name]:
        assert named in str(refused.value)


@pytest.mark.parametrize("name", WITHOUT_FILES)
def test_a_key_store_that_is_not_there_is_named(name: str, tmp_path: Path) -> None:
    async def start() -> None:
        async with Broker.configured(FILES / f"{name}.properties", {"log.dirs": str(tmp_path / "data")}):
            raise AssertionError

    with pytest.raises(
        InvalidConfig, match=r"^listener SSL: ssl\.[a-z]+store\.location: /var/private/ssl/.*No such file"
    ):
        asyncio.run(start())


@pytest.mark.parametrize(
    ("name", "setting", "address"),
    [
        ("kafka-3.3-kraft-broker", "controller.quorum.voters", "1@127.0.0.1:1"),
        ("kafka-4.3-broker", "controller.quorum.bootstrap.servers", "127.0.0.1:1"),
    ],
)
def test_a_broker_without_its_controllers_names_where_it_has_looked(
    name: str, setting: str, address: str, tmp_path: Path
) -> None:
    overrides = {"log.dirs": str(tmp_path / "data"), "initial.broker.registration.timeout.ms": "100", setting: address}

    async def start() -> None:
        async with Broker.configured(FILES / f"{name}.properties", overrides):
            raise AssertionError

    with pytest.raises(
        InvalidConfig, match=rf"^{setting}: no active controller was found .* 127\.0\.0\.1:1: see whether"
    ):
        asyncio.run(start())


@pytest.mark.parametrize("name", [*STARTED, *OF_QUORUMS])
def test_the_others_are_understood(name: str) -> None:
    _, warnings = load(FILES / f"{name}.properties", {})
    unknown = [warning.split(": ")[1] for warning in warnings if "there is no such setting" in warning]
    assert unknown == UNKNOWN.get(name, [])
    assert not any("PROTECTION" in warning for warning in warnings)


@pytest.mark.parametrize("name", STARTED)
def test_the_others_start(name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """On free ports of this machine, and alone: ZooKeeper is another test's matter."""
    file = FILES / f"{name}.properties"
    there = load(file, {})[0].listeners
    overrides = {
        "listeners": ",".join(f"{listener.name}://127.0.0.1:0" for listener in there),
        "log.dirs": str(tmp_path / "data"),
    }
    copy = tmp_path / "server.properties"
    copy.write_text("\n".join(line for line in file.read_text().splitlines() if "zookeeper.connect=" not in line))

    async def start() -> None:
        with caplog.at_level(logging.ERROR):
            async with Broker.configured(copy, overrides) as broker:
                assert broker.ports.keys() == {listener.name for listener in there}

    asyncio.run(start())
    assert not caplog.records


def test_all_of_them_start_where_insecurity_is_wanted_and_the_quorum_left_out() -> None:
    for name in (*REFUSED, *OF_QUORUMS):
        given = {"process.roles": "broker"}
        given |= dict.fromkeys(("controller.quorum.voters", "controller.quorum.bootstrap.servers"), "")
        if "controller" in name:
            given["listeners"] = "PLAINTEXT://localhost:0"
            given["advertised.listeners"] = ""
        load(FILES / f"{name}.properties", given, allow_insecure=True)
