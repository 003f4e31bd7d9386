"""Runs a simulation in a forked process.

Programs that were killed wait for ever. Python would end them when it collects them, and run their `finally` blocks:
a process that ends at once, as the fork does, collects nothing.
"""

import os
import pickle
import sys
import traceback
from collections.abc import Callable
from typing import Any, Final, NoReturn, TypeVar

ResultT = TypeVar("ResultT")

_GOOD: Final = True
_BAD: Final = False


class ScenarioError(AssertionError):
    """A scenario failed with an exception that cannot be handed on; the text is its traceback."""


def in_a_fork(work: Callable[[], ResultT]) -> ResultT:
    """The result of the work, done in a child process. Raises what it raises, with its traceback as a note."""
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _work_and_exit(work, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    if not answer:
        raise ScenarioError(f"the simulation's process ended without a result: {os.waitstatus_to_exitcode(status)}")
    is_good, outcome, trace = pickle.loads(answer)
    if is_good:
        result: ResultT = outcome
        return result
    outcome.add_note(trace)
    raise outcome


def _work_and_exit(work: Callable[[], Any], writing: int) -> NoReturn:
    try:
        answer = _pickled(work)
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(answer)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(0)


def _pickled(work: Callable[[], Any]) -> bytes:
    try:
        return pickle.dumps((_GOOD, work(), ""))
    except BaseException as error:  # handed on, whatever it is
        trace = traceback.format_exc()
        try:
            answer = pickle.dumps((_BAD, error, trace))
            pickle.loads(answer)
        except Exception:
            answer = pickle.dumps((_BAD, ScenarioError(trace), ""))
        return answer
