"""Calls of third-party code, which may never return: in threads that do not delay the end of the process."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def in_thread(name: str, action: Callable[[], T]) -> "Future[T]":
    """Start a call in a thread of its own; the future gets its result.

    A process waits for the threads of an executor when it ends, which delays its successors. An exception that is no
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
