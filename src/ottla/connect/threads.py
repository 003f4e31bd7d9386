"""Calls of what other people wrote, which may never come back: in threads that nobody waits for at the end."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def in_thread(name: str, action: Callable[[], T]) -> "Future[T]":
    """Begin something in a thread of its own, of which the future tells.

    The threads of an executor are waited for when a process ends, and hold up those who come after them. What is no
    Exception (a plugin that calls `sys.exit`) becomes a RuntimeError.
    """
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            outcome = action()
        except Exception as failure:
            future.set_exception(failure)
        except BaseException as failure:
            future.set_exception(RuntimeError(f"{type(failure).__name__}: {failure}"))
        else:
            future.set_result(outcome)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future
