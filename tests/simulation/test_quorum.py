"""The simulated quorum: `python -m tests.simulation.quorum` runs thousands of seeds, these tests two hundred."""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.quorum.effects import Role, RoleChanged
from ottla.quorum.replicas import ReplicaKey, Voter, VoterSet
from ottla.records.record import Record, encode_batch
from tests.simulation.quorum.__main__ import run
from tests.simulation.quorum.broken import BREAKAGES, Breakage
from tests.simulation.quorum.disk import Disk
from tests.simulation.quorum.node import Node
from tests.simulation.quorum.observer import Broken, Observer
from tests.simulation.quorum.world import KINDS, World

RUNS_PER_TEST = 50

FOUND_BY = {
    Breakage.UNSYNCED_VOTE: 1,
    Breakage.COMMIT_WITHOUT_QUORUM: 0,
    Breakage.STALE_FETCH: 0,
    Breakage.EARLIER_EPOCH: 0,
    Breakage.TWO_CHANGES: 7,
    Breakage.UNSYNCED_LOG: 0,
    Breakage.SECOND_VOTE: 0,
    Breakage.UNSYNCED_START: 2,
    Breakage.UNSAVED_VOTE: 2,
}
"""Seeds of docs/simulation.md."""


@pytest.mark.parametrize("first", range(0, 200, RUNS_PER_TEST))
def test_quorums_keep_rafts_invariants_and_recover(first: int) -> None:
    reports = [run(seed) for seed in range(first, first + RUNS_PER_TEST)]
    assert [report for report in reports if report["problem"]] == []
    assert sum(report["committed"] for report in reports) > RUNS_PER_TEST * 30
    assert sum(report["elections"] for report in reports) > RUNS_PER_TEST
    happened = Counter(kind for report in reports for kind in report["faults"])
    assert set(happened) >= set(KINDS)
    assert happened["AddRaftVoterRequest done"]
    assert happened["RemoveRaftVoterRequest done"]


@pytest.mark.parametrize("breakage", Breakage, ids=lambda breakage: breakage.value)
def test_a_careless_quorum_is_found(breakage: Breakage) -> None:
    assert re.search(BREAKAGES[breakage].finds, run(FOUND_BY[breakage], breakage)["problem"] or "nothing")


def test_messages_arrive_as_they_are_encoded_in_older_versions_too() -> None:
    for seed in range(5):
        assert World(seed, encodes=True).run().problem is None


def test_a_seed_decides_everything() -> None:
    """Alone in a process, or after other seeds, and whatever the order of its sets."""
    after_others = [run(seed) for seed in range(5, 8)][-1]
    alone = subprocess.run(
        [sys.executable, "-m", "tests.simulation.quorum", "--seeds", "7"],
        capture_output=True,
        check=True,
        env={**os.environ, "PYTHONHASHSEED": "1"},
    )
    assert json.loads(alone.stdout) == after_others


class Seen:
    """What the observer sees of a node that leads in `epoch`, with records of these epochs in its log."""

    def __init__(self, number: int, epoch: int, *epochs: int) -> None:
        self.id = number
        self.high_watermark = 0
        self.disk = Disk()
        voters = VoterSet([Voter(ReplicaKey(number), ())])
        self.machine = SimpleNamespace(role=Role.LEADER, epoch=epoch, voters=voters)
        for each in epochs:
            self.append(each)

    def append(self, epoch: int) -> None:
        self.disk.append(bytes(encode_batch([Record(self.disk.end.offset, 0, None, b"x")], leader_epoch=epoch)))
        self.disk.synced = self.disk.end.offset


def leads(observer: Observer, node: Seen) -> None:
    change = RoleChanged(Role.LEADER, node.machine.epoch, node.id, None)
    observer.role_changed(cast(Node, node), change)


def commits(observer: Observer, node: Seen, high_watermark: int) -> None:
    observer.advanced(cast(Node, node), high_watermark)


def test_a_leader_has_what_earlier_epochs_have_committed_however_much_later_ones_have() -> None:
    first, later, late = Seen(1, 3, 3, 3), Seen(2, 6, 3, 3), Seen(3, 5, 3)
    observer = Observer(cast(Any, [first, later, late]))
    leads(observer, first)
    commits(observer, first, 2)
    leads(observer, later)
    for high_watermark in range(3, 30):
        later.append(6)
        commits(observer, later, high_watermark)
    with pytest.raises(Broken, match="leader completeness"):
        leads(observer, late)


def test_a_leader_whose_last_vote_comes_late_need_not_have_what_later_epochs_have_committed() -> None:
    """Nor when a leader of an earlier epoch learns after that what it has committed itself."""
    first, later, late = Seen(1, 3, 3, 3), Seen(2, 6, 3, 3, 6), Seen(3, 5, 3, 3)
    observer = Observer(cast(Any, [first, later, late]))
    leads(observer, first)
    leads(observer, later)
    commits(observer, later, 3)
    commits(observer, first, 2)
    leads(observer, late)
