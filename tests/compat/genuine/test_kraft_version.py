"""`kraft.version` is raised by genuine Kafka's tool, on a node of genuine Kafka and of Ottla alike."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.support.eventually import eventually
from tests.support.genuine import kafka_tool
from tests.support.genuine_quorum import GenuineController, addresses
from tests.support.quorum_nodes import ottla_nodes

pytestmark = pytest.mark.soak


@contextmanager
def node(kind: str) -> Iterator[tuple[str, ...]]:
    """The address of its broker, as the tool takes it."""
    if kind == "ottla":
        with ottla_nodes(1, 2) as (own, _):  # one alone would be no quorum
            yield "--bootstrap-server", own.bootstrap
    else:
        quorum = addresses(1)
        with GenuineController(quorum[1], quorum, broker=True) as genuine:
            yield "--bootstrap-server", genuine.bootstrap


def features(*arguments: str, check: bool = True) -> str:
    done = kafka_tool("org.apache.kafka.tools.FeatureCommand", *arguments, check=check)
    return done.stdout + done.stderr


def level(*address: str) -> int:
    found = re.search(r"Feature: kraft.version .*FinalizedVersionLevel: (\d+)", features(*address, "describe"))
    assert found is not None
    return int(found[1])


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["ottla", "genuine"])
def test_the_voters_come_into_the_log_and_stay_there(kind: str) -> None:
    with node(kind) as address:
        assert level(*address) == 0
        refused = features(*address, "upgrade", "--feature", "kraft.version=2", check=False)
        assert "Invalid update version 2 for feature kraft.version. Local controller" in refused
        both = ("--feature", "kraft.version=1", "--feature", "group.version=7")
        assert "Could not upgrade kraft.version" in features(*address, "upgrade", *both, check=False)
        dry = ("upgrade", "--feature", "kraft.version=1", "--dry-run")
        eventually(lambda: "can be upgraded to 1" in features(*address, *dry, check=False))  # once all have reported
        assert level(*address) == 0
        assert "was upgraded to 1" in features(*address, "upgrade", "--feature", "kraft.version=1")
        eventually(lambda: level(*address) == 1)
        refused = features(*address, "downgrade", "--feature", "kraft.version=0", check=False)
        assert "Can't downgrade the version of this feature." in refused
