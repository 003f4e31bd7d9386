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

BUDGET_BYTES = 256 << 20
"""queued.max.request.bytes, by default."""
CONNECTION_BYTES = 32 << 10
"""What the broker takes for a connection besides, on the average of the four kinds; half-open TLS takes 50 KB."""


@contextmanager
def with_tls(directory: Path) -> Iterator[tuple[OttlaProcess, str]]:
    """A broker, and the address of its listener with TLS."""
    key, certificate = write_certificate(directory)
    (directory / "store.pem").write_bytes(key.read_bytes() + certificate.read_bytes())
    broker, tls = OttlaProcess(), f"127.0.0.1:{free_port()}"
    broker.properties.update(
        {
            "listeners": f"PLAINTEXT://{broker.bootstrap},SSL://{tls}",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(directory / "store.pem"),
        }
    )
    with broker:
        yield broker, tls


def suffer(directory: Path, count: int, *, processes: int = 1, seconds: int = 1) -> tuple[Suffered, int]:
    """What another client sees while the connections come, are held, and go; and how many were opened."""
    with with_tls(directory) as (broker, tls):
        create(broker.bootstrap, "setup", {f"topic-{number}": 3 for number in range(50)})
        with bystander(broker) as seen:
            with flood(broker.bootstrap, tls, count, processes=processes) as opened:
                for _ in range(seconds):
                    with RawConnection(broker.bootstrap) as late:  # those that come later are served as well
                        assert len(late.ask(MetadataRequest(topics=None), 12).topics) == 50
            with RawConnection(broker.bootstrap) as after:
                eventually(lambda: after.ask(MetadataRequest(topics=[]), 12).brokers)
        assert broker.is_alive()
    return seen.suffered, opened


def test_a_few_hundred_harmful_connections_delay_nobody(tmp_path: Path) -> None:
    seen, opened = suffer(tmp_path, 400)
    assert opened == 400
    assert seen.worst_s < 0.1, seen
    assert seen.grown_bytes < BUDGET_BYTES + 400 * CONNECTION_BYTES, seen


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_20000_harmful_connections(tmp_path: Path) -> None:
    """As many as the system allows the broker; the rest is refused, and others are served all the same."""
    seen, opened = suffer(tmp_path, 20_000, processes=4, seconds=20)
    print(f"{opened} of 20000 were opened; {seen}")
    assert seen.worst_s < 0.25, seen
    assert seen.grown_bytes < BUDGET_BYTES + 20_000 * CONNECTION_BYTES, seen
