"""Background work: what becomes of failures, and of what is under way at the end."""

import asyncio

import pytest

from ottla.tasks import Tasks


def test_a_failure_is_logged_when_it_happens_and_harms_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise ValueError("a defect")

    async def main() -> str:
        tasks = Tasks()
        other = tasks.spawn(asyncio.sleep(0.01, "done"), "a pause")
        tasks.spawn(fail(), "a failing task")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert "background work failed: a failing task" in caplog.text
        assert "ValueError: a defect" in caplog.text
        return await other

    assert asyncio.run(main()) == "done"


def test_at_the_end_tasks_are_cancelled_in_their_order_and_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    ended: list[str] = []

    async def wait(name: str, cleaning: float) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(f"{name} cancelled")
            await asyncio.sleep(cleaning)
            ended.append(f"{name} ended")

    async def main() -> None:
        tasks = Tasks()
        for name, cleaning in (("first", 0.02), ("second", 0.0)):
            tasks.spawn(wait(name, cleaning), name)
        await asyncio.sleep(0)
        await tasks.close()
        await tasks.close()

    asyncio.run(main())
    assert ended == ["first cancelled", "second cancelled", "second ended", "first ended"]
    assert caplog.text == ""
