"""The directory that a broker reports for a replica, when its own is full."""

from uuid import UUID

import pytest
from tests.unit.cluster.images import partition

from ottla.cluster.image import NO_LEADER
from ottla.cluster.metadata_log.partitions import LOST, PartitionState, marked_full
from ottla.cluster.replica_directories import reported_directory
from ottla.ids import BrokerId

HERE, THERE = UUID(int=1 << 64), UUID(int=2 << 64)
FULL = marked_full(HERE)
OWN = BrokerId(2)
REPLICAS = (1, 2, 3)


def reported(
    leader: int, isr: tuple[int, ...], *, alive: tuple[int, ...] = REPLICAS, at: UUID = HERE, is_full: bool = True
) -> UUID:
    state = PartitionState(partition(0, leader, REPLICAS, isr), (THERE, at, THERE))
    return reported_directory(state, OWN, set(map(BrokerId, alive)), HERE, is_full=is_full)


def test_a_mark_stands_for_its_directory_and_for_nothing_else() -> None:
    assert marked_full(FULL) == HERE
    assert len({HERE, THERE, FULL, marked_full(THERE), LOST}) == 5


@pytest.mark.parametrize("at", [HERE, THERE, LOST, FULL])
def test_with_room_it_is_where_it_is(at: UUID) -> None:
    assert reported(2, (1, 2), at=at, is_full=False) == HERE


@pytest.mark.parametrize("leader", [1, 2])
@pytest.mark.parametrize("at", [HERE, THERE, LOST, FULL])
def test_in_a_full_directory_it_is_marked_while_another_is_in_sync(leader: int, at: UUID) -> None:
    assert reported(leader, (1, 2), at=at) == FULL


def test_the_last_one_in_sync_stays() -> None:
    assert reported(2, (2,)) == HERE
    assert reported(2, (1, 2), alive=(2, 3)) == HERE, "the other one is not alive"
    assert reported(2, (2,), at=THERE) == HERE
    assert reported(2, (2,), at=FULL) == HERE, "it leads again, since the elected one has never led"


def test_one_that_is_out_of_sync_stays_as_it_is() -> None:
    assert reported(1, (1, 3)) == HERE
    assert reported(1, (1, 3), at=LOST) == LOST
    assert reported(1, (1, 3), at=FULL) == FULL


@pytest.mark.parametrize("at", [LOST, FULL])
def test_one_with_all_records_returns_when_nobody_leads(at: UUID) -> None:
    assert reported(NO_LEADER, (2,), at=at, alive=(2, 3)) == HERE
    state = PartitionState(
        partition(0, NO_LEADER, REPLICAS, ())._replace(departed=(BrokerId(2),), eligible_count=1), (THERE, at, THERE)
    )
    assert reported_directory(state, OWN, {OWN}, HERE, is_full=True) == HERE


@pytest.mark.parametrize("at", [LOST, FULL])
def test_one_that_lacks_records_does_not_return_when_nobody_leads(at: UUID) -> None:
    assert reported(NO_LEADER, (1,), at=at, alive=(2, 3)) == at
