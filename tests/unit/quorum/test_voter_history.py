"""The voters that the log has had, where records before a snapshot are deleted and later ones truncated."""

from uuid import UUID

import pytest

from ottla.quorum.replicas import ReplicaKey, Voter, VoterSet
from ottla.quorum.voter_history import VoterHistory, kraft_version_record, voters_record


def voters(*numbers: int) -> VoterSet:
    return VoterSet(Voter(ReplicaKey(number, UUID(int=number)), (), 0, 1) for number in numbers)


@pytest.mark.parametrize("start", [50, 51, 52])
def test_a_truncated_set_gives_way_to_the_one_before_even_if_the_log_began_with_it(start: int) -> None:
    history = VoterHistory(VoterSet())
    history.add(-1, kraft_version_record(1))
    history.add(-1, voters_record(voters(1, 2, 3)))
    history.add(52, voters_record(voters(1, 2, 3, 4)))
    history.forget_before(start)
    assert history.voters.ids == {1, 2, 3, 4}
    history.truncate(52)
    assert history.voters.ids == {1, 2, 3}
    assert history.kraft_version == 1


def test_sets_that_no_truncation_brings_back_are_forgotten() -> None:
    history = VoterHistory(VoterSet())
    for offset in (3, 5, 9):
        history.add(offset, kraft_version_record(1))
        history.add(offset, voters_record(voters(1, offset)))
    history.forget_before(9)
    assert history.records_at(4) == []
    assert history.records_at(8) == [kraft_version_record(1), voters_record(voters(1, 5))]
