"""Background work: what becomes of failures, and of what is under way at the end."""

import asyncio
from pathlib import Path

import pytest

import ottla
from ottla.tasks import Tasks, supervised

AWAITED = {
    "broker_process.py": 2,
    "metadata/controller_channel.py": 1,
    "server/dispatch.py": 1,
    "server/handlers/fetch.py": 2,
    "server/keyed_queue.py": 1,
    "server/membership.py": 3,
    "replication/fetcher.py": 1,
    "tasks.py": 1,
    "testing/simulation/cluster.py": 2,
    "testing/simulation/loop.py": 1,
    "testing/simulation/store.py": 1,
}
"""Tasks whose outcome the code that began them looks at: all others are supervised."""


def test_every_task_that_nobody_awaits_is_supervised() -> None:
    source = Path(ottla.__file__).parent
    begun = {
        path.relative_to(source).as_posix(): count
        for path in sorted(source.rglob("*.py"))
        if (count := path.read_text().count("create_task("))
    }
    assert begun == AWAITED


def test_a_supervised_task_has_its_name_and_its_failure_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise ValueError("a defect")

    async def main() -> None:
        task = supervised(asyncio.get_running_loop(), fail(), "a failing task")
        assert task.get_name() == "a failing task"
        stopped = supervised(asyncio.get_running_loop(), asyncio.sleep(60), "a stopped one")
        await asyncio.sleep(0)
        stopped.cancel()
        await asyncio.wait([task, stopped])
        await asyncio.sleep(0)

    asyncio.run(main())
    assert "background work failed: a failing task" in caplog.text
    assert "stopped one" not in caplog.text


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
