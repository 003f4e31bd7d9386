import asyncio

import pytest

from ottla.errors import RecordListTooLarge
from ottla.metadata.quorum.appends import Appends
from ottla.metadata.quorum.node import NotQuorumLeader

NEVER_MS = 3_600_000


def test_appends_are_gathered_into_one_batch_and_answered_when_delivered() -> None:
    async def run() -> None:
        appends = Appends(NEVER_MS, lambda: None)
        first, second = appends.add([b"a", b"b"], 10), appends.add([b"c"], 12)
        assert appends.count == 3
        assert list(appends.drain()) == [[b"a", b"b", b"c"]]
        assert appends.count == 0
        appends.delivered(12)
        assert first.result() == 11
        assert not second.done()
        appends.delivered(13)
        assert second.result() == 12
        assert await appends.add([], 13) == 12

    asyncio.run(run())


def test_an_append_is_never_divided_among_batches() -> None:
    async def run() -> None:
        appends = Appends(NEVER_MS, lambda: None)
        large = [b"x" * (1 << 20)] * 5
        appends.add(large, 0)
        appends.add(large, 5)
        assert [len(batch) for batch in appends.drain()] == [5, 5]
        with pytest.raises(RecordListTooLarge, match="9 metadata records take"):
            appends.add([b"x" * (1 << 20)] * 9, 10)
        assert appends.count == 0

    asyncio.run(run())


def test_a_lost_leadership_fails_what_was_not_delivered() -> None:
    async def run() -> None:
        appends = Appends(NEVER_MS, lambda: None)
        waiting = appends.add([b"a"], 0)
        appends.fail(NotQuorumLeader("lost"))
        with pytest.raises(NotQuorumLeader):
            await waiting
        assert list(appends.drain()) == []

    asyncio.run(run())


def test_the_oldest_append_waits_for_the_linger_at_most() -> None:
    async def run() -> None:
        due = asyncio.Event()
        appends = Appends(1, due.set)
        appends.add([b"a"], 0)
        await asyncio.wait_for(due.wait(), 30)

    asyncio.run(run())
