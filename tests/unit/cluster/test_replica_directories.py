"""The directory that a broker reports for a replica, when its own is full."""

from uuid import UUID

import pytest
from tests.unit.cluster.images import partition

from ottla.cluster.image import NO_LEADER
from ottla.cluster.metadata_log.partitions import LOST, PartitionState
from ottla.cluster.replica_directories import reported_directory
from ottla.ids import BrokerId

HERE, THERE = UUID(int=1 << 64), UUID(int=2 << 64)
OWN = BrokerId(2)
REPLICAS = (1, 2, 3)


def reported(
    leader: int, isr: tuple[int, ...], *, alive: tuple[int, ...] = REPLICAS, at: UUID = HERE, is_full: bool = True
) -> UUID:
    state = PartitionState(partition(0, leader, REPLICAS, isr), (THERE, at, THERE))
    return reported_directory(state, OWN, set(map(BrokerId, alive)), HERE, is_full=is_full)


@pytest.mark.parametrize("at", [HERE, THERE, LOST])
def test_with_room_it_is_where_it_is(at: UUID) -> None:
    assert reported(2, (1, 2), at=at, is_full=False) == HERE


@pytest.mark.parametrize("leader", [1, 2])
def test_in_a_full_directory_it_counts_as_lost_while_another_is_in_sync(leader: int) -> None:
    assert reported(leader, (1, 2)) == LOST
    assert reported(leader, (1, 2), at=THERE) == LOST


def test_the_last_one_in_sync_stays() -> None:
    assert reported(2, (2,)) == HERE
    assert reported(2, (1, 2), alive=(2, 3)) == HERE, "the other one is not alive"
    assert reported(2, (2,), at=THERE) == HERE


def test_one_that_is_out_of_sync_stays_as_it_is() -> None:
    assert reported(1, (1, 3)) == HERE
    assert reported(1, (1, 3), at=LOST) == LOST


def test_one_with_all_records_returns_when_nobody_leads() -> None:
    assert reported(NO_LEADER, (2,), at=LOST, alive=(2, 3)) == HERE
    state = PartitionState(
        partition(0, NO_LEADER, REPLICAS, ())._replace(departed=(BrokerId(2),), eligible_count=1), (THERE, LOST, THERE)
    )
    assert reported_directory(state, OWN, {OWN}, HERE, is_full=True) == HERE


def test_one_that_lacks_records_does_not_return_when_nobody_leads() -> None:
    assert reported(NO_LEADER, (1,), at=LOST, alive=(2, 3)) == LOST
