"""What a task does about a partition that is out of reach, without sockets."""

from typing import Any

import pytest

from ottla.client.cluster import TopicGone, TopicMissing
from ottla.client.errors import BrokerUnavailable
from ottla.pipeline.failures import is_passing
from ottla.spark import wire_fetch
from ottla.spark.errors import NotReadyError
from ottla.spark.offsets import Partition
from ottla.spark.wire_fetch import PartitionFetch


class FakeCluster:
    """Has nobody who leads, for this reason; None: it says so."""

    def __init__(self, reason: Exception | None) -> None:
        self.reason = reason

    def leader(self, *_: Any) -> None:
        if self.reason is not None:
            raise self.reason

    def forget_leader(self, _: Partition) -> None:
        pass


def fetch(monkeypatch: pytest.MonkeyPatch, reason: Exception | None, *, missing_s: float = 0.0) -> None:
    monkeypatch.setattr(wire_fetch, "_cluster", lambda *_: FakeCluster(reason))
    monkeypatch.setattr(wire_fetch, "RETRY_S", 0.001)
    client = (("bootstrap.servers", "h:1"),)
    with PartitionFetch(client, Partition("t", 0), timeout_s=0.01, missing_s=missing_s) as found:
        found.request(7)
        found.wait()


@pytest.mark.parametrize(
    "reason", [None, BrokerUnavailable("h:1 closed the connection"), TopicMissing("there is no topic")]
)
def test_a_partition_that_stays_out_of_reach_is_one_to_come_back_to(
    monkeypatch: pytest.MonkeyPatch, reason: Exception | None
) -> None:
    with pytest.raises(NotReadyError, match="reading t-0 at offset 7: its leader could not be reached") as raised:
        fetch(monkeypatch, reason, missing_s=60.0)
    assert is_passing(f"ottla.spark.errors.{type(raised.value).__name__}: {raised.value}")


@pytest.mark.parametrize("reason", [TopicMissing("there is no topic 't'"), TopicGone("was deleted and made again")])
def test_a_topic_that_is_no_more_is_told_at_once(monkeypatch: pytest.MonkeyPatch, reason: Exception) -> None:
    with pytest.raises(TopicGone, match="was deleted"):
        fetch(monkeypatch, reason)
