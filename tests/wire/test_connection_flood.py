"""Connections that do harm, many at a time: others are served, within the memory limit."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.bystander import Suffered, bystander
from tests.support.certificates import write_certificate
from tests.support.connection_flood import flood
from tests.support.eventually import eventually
from tests.support.ottla_process import OttlaProcess
from tests.support.probe import free_port
from tests.support.quota_stories import create
from tests.support.raw_client import RawConnection

from ottla.protocol.messages.metadata import MetadataRequest
from ottla.server.memory import BROKERS_SHARE

BUDGET_BYTES = 256 << 20
"""queued.max.request.bytes, by default. The listener between brokers, which the flood uses, may take an eighth more."""
SMALL_BUDGET_BYTES = 16 << 20
CONNECTION_BYTES = 24 << 10
"""What the broker takes for a connection besides, on the average of the four kinds; half-open TLS takes 50 KB."""


@contextmanager
def with_tls(directory: Path, budget_bytes: int) -> Iterator[tuple[OttlaProcess, str]]:
    """A broker, and the address of its listener with TLS."""
    key, certificate = write_certificate(directory)
    (directory / "store.pem").write_bytes(key.read_bytes() + certificate.read_bytes())
    broker, tls = OttlaProcess(), f"127.0.0.1:{free_port()}"
    broker.properties.update(
        {
            "listeners": f"PLAINTEXT://{broker.bootstrap},SSL://{tls}",
            "queued.max.request.bytes": str(budget_bytes),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(directory / "store.pem"),
        }
    )
    with broker:
        yield broker, tls


def suffer(
    directory: Path, count: int, *, giant_bytes: int, budget_bytes: int, processes: int = 1, seconds: int = 1
) -> tuple[Suffered, int]:
    """What another client sees while the connections come, are held, and go; and how many were opened."""
    with with_tls(directory, budget_bytes) as (broker, tls):
        create(broker.bootstrap, "setup", {f"topic-{number}": 3 for number in range(50)})
        with bystander(broker) as seen:
            with flood(broker.bootstrap, tls, count, giant_bytes=giant_bytes, processes=processes) as opened:
                for _ in range(seconds):
                    with RawConnection(broker.bootstrap) as late:  # those that come later are served as well
                        assert len(late.ask(MetadataRequest(topics=None), 12).topics) == 50
            with RawConnection(broker.bootstrap) as after:
                eventually(lambda: after.ask(MetadataRequest(topics=[]), 12).brokers)
        assert broker.is_alive()
    return seen.suffered, opened


def allowed_bytes(budget_bytes: int, connections: int) -> int:
    return budget_bytes + budget_bytes // BROKERS_SHARE + connections * CONNECTION_BYTES


def test_a_few_hundred_harmful_connections_delay_nobody(tmp_path: Path) -> None:
    """At the listener between brokers, which clients can use as well: they send five times its memory."""
    seen, opened = suffer(tmp_path, 800, giant_bytes=400_000, budget_bytes=SMALL_BUDGET_BYTES)
    assert opened == 800
    assert seen.worst_s < 0.2, seen
    assert seen.grown_bytes < allowed_bytes(SMALL_BUDGET_BYTES, 800), seen


@pytest.mark.soak
@pytest.mark.timeout(300)
@pytest.mark.parametrize("giant_bytes", [16 << 10, 400_000])
def test_20000_harmful_connections(tmp_path: Path, giant_bytes: int) -> None:
    """As many as the system allows the broker; the rest is refused, and others are served all the same."""
    seen, opened = suffer(tmp_path, 20_000, giant_bytes=giant_bytes, budget_bytes=BUDGET_BYTES, processes=4, seconds=20)
    print(f"{opened} of 20000 were opened; {seen}")
    assert seen.worst_s < 0.25, seen
    assert seen.grown_bytes < allowed_bytes(BUDGET_BYTES, 20_000), seen
