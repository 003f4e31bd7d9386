"""Viewers share what the cluster is asked for."""

import asyncio
import gc

import pytest

from ottla.console import sharing
from ottla.console.sharing import Shared


def test_questions_that_come_together_are_asked_once() -> None:
    asyncio.run(_together())


async def _together() -> None:
    shared, asked = Shared(), 0

    async def ask() -> int:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0)
        return asked

    assert await asyncio.gather(*(shared.get("a", ask) for _ in range(50))) == [1] * 50
    assert await shared.get("a", ask, max_age_s=0.0) == 1
    assert await shared.get("b", ask, max_age_s=0.0) == 2
    assert await shared.get("b", ask) == 3


def test_a_failure_is_not_kept() -> None:
    asyncio.run(_failure())


async def _failure() -> None:
    shared = Shared()

    async def fail() -> int:
        raise OSError("gone")

    async def work() -> int:
        return 1

    with pytest.raises(OSError, match="gone"):
        await shared.get("a", fail)
    assert await shared.get("a", work) == 1


def test_a_failure_whose_viewer_has_left_is_neither_kept_nor_logged() -> None:
    asyncio.run(_left())


async def _left() -> None:
    shared, goes_on, logged = Shared(), asyncio.Event(), list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: logged.append(context))

    async def fail() -> int:
        await goes_on.wait()
        raise OSError("gone")

    async def work() -> int:
        return 1

    viewer = asyncio.ensure_future(shared.get("a", fail))
    await asyncio.sleep(0)
    viewer.cancel()
    await asyncio.wait([viewer])
    goes_on.set()
    await asyncio.sleep(0.01)
    assert await shared.get("a", work) == 1
    shared.forget()
    gc.collect()
    assert logged == []


def test_old_answers_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "MOST", 5)
    asyncio.run(_old_answers())


async def _old_answers() -> None:
    shared = Shared(max_age_s=0.0)

    async def work() -> bytes:
        return bytes(10)

    for number in range(50):
        await shared.get(number, work)
    assert len(shared._answers) <= 1
    kept = Shared(max_age_s=1_000)
    for number in range(50):
        await kept.get(number, work)
    assert len(kept._answers) == 5
