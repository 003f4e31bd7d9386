"""Share sessions: epochs, connections, and the notifications when one ends."""

from collections.abc import Iterable
from uuid import UUID

import pytest

from ottla.errors import ApiError, ErrorCode
from ottla.share_partitions.sessions import MemberKey, SharedPartition, ShareSession, ShareSessionCache

A, B, C = ((UUID(int=1), number) for number in range(3))
ONE, TWO = MemberKey("g", "one"), MemberKey("g", "two")


class Ended(list[MemberKey]):
    def __call__(self, member: MemberKey, partitions: Iterable[SharedPartition]) -> None:
        self.append(member)


@pytest.fixture
def ended() -> Ended:
    return Ended()


@pytest.fixture
def cache(ended: Ended) -> ShareSessionCache:
    return ShareSessionCache(2, ended)


def code(cache: ShareSessionCache, member: MemberKey, epoch: int) -> ErrorCode:
    with pytest.raises(ApiError) as error:
        cache.use(member, epoch)
    return error.value.code


def test_epochs_go_up_and_around(cache: ShareSessionCache) -> None:
    assert code(cache, ONE, 1) is ErrorCode.SHARE_SESSION_NOT_FOUND
    session = cache.open(ONE, [A], 7)
    assert cache.use(ONE, 1) is session
    assert code(cache, ONE, 1) is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert cache.use(ONE, -1) is session, "closing is possible at any epoch"
    session.epoch = 2**31 - 1
    cache.use(ONE, 2**31 - 1)
    assert session.epoch == 1


def test_a_full_cache_takes_no_more(cache: ShareSessionCache, ended: Ended) -> None:
    cache.open(ONE, [], 1)
    cache.open(TWO, [], 1)
    with pytest.raises(ApiError) as error:
        cache.open(MemberKey("g", "three"), [], 1)
    assert error.value.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    cache.open(ONE, [], 2)
    assert len(cache) == 2
    assert ended == [], "what it holds, it keeps"


def test_sessions_end_with_the_connection_they_were_opened_on(cache: ShareSessionCache, ended: Ended) -> None:
    cache.open(ONE, [], 1)
    cache.open(TWO, [], 1)
    cache.open(ONE, [], 2)
    cache.disconnected(1)
    assert ended == [TWO]
    assert cache.has_group("g")
    cache.close(ONE)
    cache.close(ONE)
    cache.disconnected(2)
    assert ended == [TWO, ONE]
    assert not cache.has_group("g")


def test_partitions_come_and_go_and_take_turns() -> None:
    session = ShareSession([A, B], 1)
    session.update([C, A], [B])
    assert session.rotated(0) == [A, C]
    assert session.rotated(1) == [C, A]
    assert session.rotated(2) == [A, C]
    session.update([], [A, C])
    assert session.rotated(3) == []
