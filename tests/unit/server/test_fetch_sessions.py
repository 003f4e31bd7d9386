"""Incremental fetch sessions (KIP-227), step by step."""

from uuid import UUID, uuid4

import pytest

from ottla.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from ottla.protocol.session_epochs import FINAL_EPOCH, INITIAL_EPOCH, MAX_EPOCH
from ottla.server import fetch_sessions as module
from ottla.server.fetch_sessions import FetchSession, FetchSessionCache

VERSION = 17
TOPIC = uuid4()


def request(
    session_id: int = 0,
    epoch: int = INITIAL_EPOCH,
    offsets: dict[int, int] | None = None,
    forget: list[int] | None = None,
    topic: UUID = TOPIC,
) -> FetchRequest:
    partitions = [
        FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=1000)
        for number, offset in (offsets or {}).items()
    ]
    return FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        session_id=session_id,
        session_epoch=epoch,
        topics=[FetchTopic(topic_id=topic, partitions=partitions)] if partitions else [],
        forgotten_topics_data=[ForgottenTopic(topic_id=topic, partitions=forget)] if forget else [],
        rack_id="",
    )


def opened(cache: FetchSessionCache, wanted: FetchRequest, now: float = 0.0) -> tuple[FetchSession, bool]:
    result = cache.open(wanted, VERSION, now)
    assert not isinstance(result, ErrorCode), result.name
    return result


def offsets_of(session: FetchSession) -> dict[int, int]:
    return {target.partition: target.fetch_offset for target in session.targets.values()}


def test_a_session_remembers_what_later_requests_leave_out() -> None:
    cache = FetchSessionCache()
    session, incremental = opened(cache, request(offsets={0: 10, 1: 20, 2: 30}))
    assert session.session_id > 0
    assert not incremental

    again, incremental = opened(cache, request(session.session_id, 1, offsets={1: 25, 3: 0}, forget=[2]))
    assert again is session
    assert incremental
    assert offsets_of(session) == {0: 10, 1: 25, 3: 0}

    opened(cache, request(session.session_id, 2))
    assert offsets_of(session) == {0: 10, 1: 25, 3: 0}


def test_who_got_data_is_served_last_next_time() -> None:
    session, _ = opened(FetchSessionCache(), request(offsets={0: 0, 1: 0, 2: 0}))
    session.served([session.targets[TOPIC, 0]])
    assert list(offsets_of(session)) == [1, 2, 0]


def test_epochs_must_follow_each_other() -> None:
    cache = FetchSessionCache()
    session, _ = opened(cache, request(offsets={0: 0}))
    assert cache.open(request(session.session_id, 2), VERSION, 0.0) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    opened(cache, request(session.session_id, 1))
    assert cache.open(request(session.session_id, 1), VERSION, 0.0) is ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_the_epoch_after_the_last_is_one() -> None:
    cache = FetchSessionCache()
    session, _ = opened(cache, request(offsets={0: 0}))
    session.epoch = MAX_EPOCH
    opened(cache, request(session.session_id, MAX_EPOCH))
    assert session.epoch == 1


def test_an_unknown_session_is_refused() -> None:
    assert FetchSessionCache().open(request(7, 1), VERSION, 0.0) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_names_and_ids_do_not_mix_in_a_session() -> None:
    cache = FetchSessionCache()
    session, _ = opened(cache, request(offsets={0: 0}))
    assert cache.open(request(session.session_id, 1), 12, 0.0) is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_the_final_epoch_closes_the_session_and_opens_none() -> None:
    cache = FetchSessionCache()
    session, _ = opened(cache, request(offsets={0: 0}))
    last, incremental = opened(cache, request(session.session_id, FINAL_EPOCH, offsets={0: 5}))
    assert (last.session_id, incremental, offsets_of(last)) == (0, False, {0: 5})
    assert len(cache) == 0


def test_a_full_request_replaces_the_session_it_names() -> None:
    cache = FetchSessionCache()
    first, _ = opened(cache, request(offsets={0: 0}))
    second, _ = opened(cache, request(first.session_id, INITIAL_EPOCH, offsets={1: 0}))
    assert second.session_id not in (0, first.session_id)
    assert len(cache) == 1


@pytest.mark.parametrize(("idle_seconds", "kept"), [(119.0, False), (121.0, True)])
def test_a_full_cache_gives_only_the_place_of_an_idle_session(idle_seconds: float, kept: bool) -> None:
    cache = FetchSessionCache(max_sessions=2, min_eviction_seconds=120.0)
    first, _ = opened(cache, request(offsets={0: 0}), now=0.0)
    second, _ = opened(cache, request(offsets={0: 0}), now=0.0)
    opened(cache, request(first.session_id, 1), now=idle_seconds)  # the first is in use; the second lies idle
    third, _ = opened(cache, request(offsets={0: 0}), now=idle_seconds)
    assert (third.session_id != 0) is kept
    evicted = cache.open(request(second.session_id, 1), VERSION, idle_seconds) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert evicted is kept


def test_a_session_that_grows_too_large_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SESSION_TARGETS", 3)
    cache = FetchSessionCache()
    session, _ = opened(cache, request(offsets={0: 0, 1: 0}))
    opened(cache, request(session.session_id, 1, offsets={2: 0}))
    grown = cache.open(request(session.session_id, 2, offsets={3: 0}), VERSION, 0.0)
    assert grown is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(cache) == 0
    _, incremental = opened(cache, request(offsets=dict.fromkeys(range(4), 0)))
    assert not incremental


def test_all_sessions_together_hold_a_limited_number_of_partitions() -> None:
    cache = FetchSessionCache(max_targets=4)
    first, _ = opened(cache, request(offsets={0: 0, 1: 0}))
    second, _ = opened(cache, request(offsets={0: 0}))
    without, _ = opened(cache, request(offsets={0: 0, 1: 0}))
    assert (first.session_id > 0, second.session_id > 0, without.session_id) == (True, True, 0)
    opened(cache, request(second.session_id, 1, offsets={1: 0}))
    grown = cache.open(request(second.session_id, 2, offsets={2: 0}), VERSION, 0.0)
    assert grown is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    opened(cache, request(first.session_id, 1, forget=[0]))
    opened(cache, request(first.session_id, FINAL_EPOCH))
    again, _ = opened(cache, request(offsets=dict.fromkeys(range(4), 0)))
    assert again.session_id > 0, "there is room again"
    idle, _ = opened(cache, request(offsets={0: 0}), now=121.0)
    assert idle.session_id > 0, "in place of one that lay idle"
    assert len(cache) == 1
