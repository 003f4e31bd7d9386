"""What the observer of the metadata log says of a new leader of the quorum: its log has all that earlier epochs have
committed, and need not have anything else."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.metadata.quorum.batches import encode_records
from ottla.metadata.quorum.metadata_log import MetadataLog, MetadataLogConfig
from ottla.metadata.quorum.node import LeaderAndEpoch
from ottla.metadata.quorum.raft_node import RaftNode
from ottla.testing import FaultyFS, ManualClock
from tests.simulation.metadata_observer import MetadataObserver


class Node:
    """What the observer sees of a `RaftNode`: `epochs` are those of the records in its log."""

    def __init__(self, number: int, *epochs: int) -> None:
        self.node_id = number
        self.high_watermark = 0
        self.leader = LeaderAndEpoch(None, 0)
        self.log = MetadataLog.open(f"/{number}", MetadataLogConfig(), fs=FaultyFS(seed=number), clock=ManualClock())
        for epoch in epochs:
            self.append(epoch)

    def append(self, epoch: int) -> None:
        """Append a record that says nothing, the same in each epoch."""
        base = self.log.end.offset
        self.log.append(encode_records([b"\x01\x14\x00\x00"], base_offset=base, epoch=epoch, now_ms=0), base)


class Observed:
    """An observer, and the problems that it has found."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self._observer = MetadataObserver("cluster", [])
        history: Any = SimpleNamespace(fail=self.problems.append)
        self._observer._history = history

    def leads(self, node: Node, epoch: int) -> None:
        node.leader = LeaderAndEpoch(node.node_id, epoch)
        self._observer._leads(cast(RaftNode, node), epoch)

    def commits(self, node: Node) -> None:
        self._observer._committed(cast(RaftNode, node), node.log.end.offset)
        node.high_watermark = node.log.end.offset


def test_a_leader_whose_last_vote_comes_late_need_not_have_what_a_later_epoch_has_committed() -> None:
    observed = Observed()
    first, late, following = Node(1, 3), Node(3, 3, 3), Node(2, 3)
    observed.leads(first, 3)
    observed.commits(first)
    observed.leads(following, 6)
    for _ in range(3):
        following.append(6)
    observed.commits(following)
    observed.leads(late, 5)
    assert observed.problems == []


@pytest.mark.parametrize(
    "epochs", [pytest.param((1,), id="shorter"), pytest.param((1, 2, 2), id="longer, with other records")]
)
def test_a_leader_lacks_what_an_earlier_epoch_has_committed(epochs: tuple[int, ...]) -> None:
    observed = Observed()
    first = Node(1, 1, 3)
    observed.leads(first, 3)
    observed.commits(first)
    observed.leads(Node(2, *epochs), 4)
    assert [problem for problem in observed.problems if "lacks the last of them" in problem]


def test_an_old_record_that_a_later_epoch_has_committed_binds_only_leaders_after_that_epoch() -> None:
    observed = Observed()
    newest = Node(1, 1, 1, 4)
    observed.leads(newest, 4)
    observed.commits(newest)
    observed.leads(Node(2, 1), 3)
    assert observed.problems == []
    observed.leads(Node(3, 1), 5)
    assert observed.problems
