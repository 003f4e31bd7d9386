"""Background tasks: named, reported when they fail, cancelled at the end of their owner."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")


def supervised(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T], name: str) -> "asyncio.Task[T]":
    """Begin `work` in a later turn of the loop. A failure is logged, under this name, when it happens.

    For a task that its owner cancels by itself; an owner of several has `Tasks`.
    """
    task = loop.create_task(work, name=name)
    task.add_done_callback(_report_failure)
    return task


def _report_failure(task: "asyncio.Task[Any]") -> None:
    if not task.cancelled() and (failure := task.exception()) is not None:
        log.error("background work failed: %s", task.get_name(), exc_info=failure)


class Tasks:
    """Work that goes on in the background. On the loop's thread."""

    def __init__(self) -> None:
        self._running: dict[asyncio.Task[Any], None] = {}

    def __len__(self) -> int:
        """How many have not ended."""
        return len(self._running)

    def spawn(self, work: Coroutine[Any, Any, T], name: str) -> "asyncio.Task[T]":
        """Begin `work` in a later turn of the loop. A failure is logged, under this name, when it happens."""
        task = supervised(asyncio.get_running_loop(), work, name)
        self._running[task] = None
        task.add_done_callback(self._ended)
        return task

    async def close(self) -> None:
        """Cancel all tasks, in the order in which they began, and wait until they have ended."""
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        del self._running[task]
