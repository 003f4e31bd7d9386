"""Spark's errors as sentences, and which of them pass by themselves. PURE.

Python's errors reach a query through the JVM, as text around the traceback of a worker.
"""

import re
import traceback
from typing import Final

_PYTHON_ERROR: Final = re.compile(
    r"^(?:[A-Za-z_]\w*\.)*([A-Z]\w*(?:Error|Exception|Interrupt|Warning|Exit|Found|Loss)): ?(.*)$"
)
_ERROR_CLASS: Final = re.compile(r"^\[[A-Z0-9_.]+\] ")
_SQLSTATE: Final = re.compile(r" ?SQLSTATE: \w+\.?")
_OUR_ERRORS: Final = (
    "SourceError", "OptionError", "UnknownTopicError", "UnreachableError", "NotReadyError", "DataLossError",
    "SinkError", "HistoryError",
)  # fmt: skip

_PASSING: Final = (
    re.compile(r"no broker at .* answers"),
    re.compile(
        r"\b_(?:TIMED_OUT|TRANSPORT|ALL_BROKERS_DOWN|TIMED_OUT_QUEUE|MSG_TIMED_OUT|RESOLVE|WAIT_COORD|PURGE_\w+)\b"
    ),
    re.compile(r"(?:NOT_LEADER_OR_FOLLOWER|NOT_LEADER_FOR_PARTITION|LEADER_NOT_AVAILABLE|COORDINATOR_NOT_AVAILABLE)"),
    re.compile(
        r"(?:NOT_COORDINATOR|COORDINATOR_LOAD_IN_PROGRESS|REQUEST_TIMED_OUT|NOT_ENOUGH_REPLICAS|BROKER_NOT_AVAILABLE)"
    ),
    re.compile("RegistryAwayError|NotReadyError"),
    re.compile("a query with that name is already active"),  # one that could not be stopped while its brokers are away
    re.compile("Python worker failed to connect back"),  # within 10 s: the machine is busy
    re.compile(r"Connection (?:refused|reset by peer)|Transport failure", re.IGNORECASE),
    re.compile("server closed the connection unexpectedly"),  # PostgreSQL, as the next
    re.compile("the database system is (?:starting up|shutting down|in recovery mode)"),
    re.compile(r"No space left on device|Disk quota exceeded", re.IGNORECASE),
)
"""Failures that pass when brokers, coordinators and connections come back, or when disk space is freed."""
_MAY_PASS: Final = re.compile("timed out|Broken pipe", re.IGNORECASE)
"""Words of connection errors, but also of functions of the job that will never succeed."""
_TRIES: Final = 20
"""For those: about nine minutes, with pauses of up to 30 s."""


def is_passing(text: str, *, tries: int = 1) -> bool:
    """Whether a query that failed like this, so many times without a micro-batch between, may be started again."""
    return any(each.search(text) for each in _PASSING) or (tries < _TRIES and _MAY_PASS.search(text) is not None)


def is_stop_timeout(text: str) -> bool:
    """Whether this is Spark's message for a query that has not stopped within `spark.sql.streaming.stopTimeout`."""
    return "TimeoutException" in text and "failed to stop within" in text


def explain(text: str) -> str:
    """An error of Spark in one line: the last Python error in it, else its first words, without stacks."""
    lines = text.splitlines()
    python = [found for line in lines if (found := _PYTHON_ERROR.match(line.strip()))]
    if python:
        kind, said = python[-1].groups()
        return said if kind in _OUR_ERRORS and said else f"{kind}: {said}".rstrip(": ")
    kept = []
    for line in lines:
        if (
            line.startswith(("\tat ", "\t... ", "Traceback ", "JVM stacktrace", "== Physical", "=== "))
            or not line.strip()
        ):
            break
        kept.append(line.strip())
        if _SQLSTATE.search(line):  # what follows is a plan
            break
    said = _SQLSTATE.sub("", _ERROR_CLASS.sub("", " ".join(kept) or text.strip()))
    return said.rstrip(". ;")


def explain_python(error: Exception) -> str:
    """An error of a job's function: what, and on which line."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{where}"
