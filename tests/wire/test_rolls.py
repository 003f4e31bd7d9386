"""A segment that begins in a log that is synced later (`flush.before.ack=false`) has the loop wait for no disk."""

import threading
from typing import Any, Final

import pytest
from tests.support.eventually import eventually
from tests.support.raw_client import RawConnection, errors_in
from tests.support.stories import batch, produce

from ottla.ids import Offset
from ottla.log.decisions.durability import Durability
from ottla.log.fs import RealFileSystem
from ottla.protocol.messages import create_topics as ct
from ottla.testing import Broker

LOOP: Final = "ottla broker"
"""The name of the loop's thread in an in-process broker."""
CONFIGS: Final = {"flush.before.ack": "false", "segment.bytes": str(1 << 20)}


def test_a_roll_syncs_no_directory_on_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    synced_by: list[str] = []
    synced = RealFileSystem.sync_directory

    def sync_directory(*args: Any) -> None:
        synced_by.append(threading.current_thread().name)
        synced(*args)

    ends: list[int] = []
    noted = Durability.synced

    def note(self: Durability[Any], end_offset: Offset, **facts: Any) -> bool:
        ends.append(end_offset)
        return noted(self, end_offset, **facts)

    configs = [ct.CreatableTopicConfig(name=name, value=value) for name, value in CONFIGS.items()]
    topic = ct.CreatableTopic(name="orders", num_partitions=1, replication_factor=1, assignments=[], configs=configs)
    request = ct.CreateTopicsRequest(topics=[topic], timeout_ms=30_000, validate_only=False)
    with Broker() as broker, RawConnection(broker.bootstrap) as client:
        assert errors_in(client.ask(request, 7)) == set()
        monkeypatch.setattr(RealFileSystem, "sync_directory", sync_directory)
        monkeypatch.setattr(Durability, "synced", note)
        for end in range(1, 5):  # each but the first begins a segment
            answer = client.ask(produce([("orders", 0, batch(b"v" * 600_000))], acks=1), 12)
            assert errors_in(answer) == set()
            eventually(lambda end=end: end in ends)  # a roll before that is not to overtake the one before it
        assert synced_by
        assert LOOP not in synced_by  # before the broker stops: then it may
