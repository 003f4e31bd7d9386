"""Who can be killed: processes of a running query, found by their place in the tree."""

import contextlib
import os
import signal
from collections.abc import Callable
from enum import StrEnum
from typing import TypeVar

import psutil

from tests.support.freezing import freeze

T = TypeVar("T")

_EXECUTOR = "CoarseGrainedExecutorBackend"
_DAEMON = "daemon"
_FORK_SERVER = "ottla.pipeline.fork_server"


class Victim(StrEnum):
    """What is killed; always with SIGKILL."""

    TASK = "task"  # a Python worker of an executor, which reads, or writes, or waits for a task
    EXECUTOR = "executor"  # its JVM; the Python workers go with it
    # the JVM of an executor whose Python workers are stopped before: their connections and transactions stay open while
    # Spark repeats their tasks. Woken, they die of the SIGHUP that PySpark's daemon left them, so none writes again
    HUNG = "hung"
    PLANNER = "planner"  # a Python process of the driver's: the source's offsets, the sink's commit
    DRIVER = "driver"  # its JVM and its Python


def descendants(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def executors() -> list[psutil.Process]:
    """The executors of the clusters that this process has started."""
    return [each for each in descendants(os.getpid()) if _EXECUTOR in _command(each)]


def python_workers(jvm: psutil.Process) -> list[psutil.Process]:
    """Those forked to run tasks, not the daemon that forks them."""
    return [worker for daemon in _children(jvm) if _DAEMON in _command(daemon) for worker in _children(daemon)]


def driver_jvm(driver_pid: int) -> psutil.Process | None:
    return next((each for each in descendants(driver_pid) if "SparkSubmit" in _command(each)), None)


def planners(driver_pid: int) -> list[psutil.Process]:
    """What the server of the driver's Python processes has forked."""
    found = [each for each in descendants(driver_pid) if _FORK_SERVER in _command(each)]
    return [each for each in found if _or_nothing(each.ppid) not in (None, driver_pid)]


def kill(process: psutil.Process) -> bool:
    """Whether there was anyone to kill."""
    return _send(process, signal.SIGKILL)


def pause(process: psutil.Process) -> bool:
    return _send(process, signal.SIGSTOP) and freeze(process.pid)


def wake(process: psutil.Process) -> bool:
    return _send(process, signal.SIGCONT)


def _send(process: psutil.Process, number: int) -> bool:
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return False
    return True


def _children(process: psutil.Process) -> list[psutil.Process]:
    return _or_nothing(process.children) or []


def _command(process: psutil.Process) -> str:
    return " ".join(_or_nothing(process.cmdline) or [])


def _or_nothing(question: Callable[[], T]) -> T | None:
    with contextlib.suppress(psutil.Error):
        return question()
    return None
