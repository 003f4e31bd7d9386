"""When tests run, and which go to the same worker of pytest-xdist: those of a file, and files that share a session."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from zlib import crc32

from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

from tests.support.between_phases import INTERNAL_ERROR

_SPARK_SESSIONS: Final = 2
"""A session takes ten seconds to start, and minutes of work until its virtual machine is fast."""
_OWN_SESSIONS: Final = ("flows_alone", "golden", "demo", "redrive", "replay", "run")
"""Tests of the pipeline that start programs with sessions of their own."""
_STARTS_WITH: Final = 2
"""Tests that a worker must have before it runs the first: a test ends by setting up for the next."""


def in_turn(files: Iterable[Path], *, long: Sequence[Path], busy: Path) -> list[Path]:
    """The order in which workers take up files: `long` ones (or directories) first, so that all workers end together.

    Files below the directory `busy` need the processor all the time, and most others wait for processes half of it.
    So the busy ones are spread over the whole run, and come last.
    """
    ranks = {path: rank for rank, path in enumerate(long)}
    spread: list[Path] = []
    others: list[Path] = []
    for file in files:
        (spread if busy in file.parents else others).append(file)
    others.sort(key=lambda file: next((ranks[path] for path in (file, file.parent) if path in ranks), len(ranks)))
    places = {file: place / len(others) for place, file in enumerate(others)}
    places |= {file: (place + 1) / len(spread) for place, file in enumerate(spread)}
    return sorted(places, key=places.__getitem__)


class ByFileAndSession(LoadScopeScheduling):  # type: ignore[misc]
    """A file is a unit of work; the files of the pipeline that use the shared Spark session are two of them.

    A crash of a worker costs the one test that it was running. The library's own scheduler would run that test again
    and again, and would send finished units to other workers, which wait forever for something to run
    (pytest-xdist#1327, #1371, #1378).
    """

    def remove_node(self, node: Any) -> str | None:
        """Take away a worker that ended or crashed; returns the test that it crashed in.

        Raises:
            RuntimeError: The worker's session ended with an internal error.
        """
        units = self.assigned_work[node]
        crashed = next(((unit, test) for unit in units.values() for test, is_done in unit.items() if not is_done), None)
        if crashed is not None:
            unit, test = crashed
            unit[test] = True
        self.assigned_work[node] = {scope: unit for scope, unit in units.items() if not all(unit.values())}
        super().remove_node(node)
        if crashed is None:
            return None
        error = getattr(node, "workeroutput", {}).get(INTERNAL_ERROR)
        if error is not None:
            raise RuntimeError(
                f"the session of worker {node.gateway.id!r} ended in the midst of {crashed[1]!r}:\n{error}"
            )
        return crashed[1]

    def _assign_work_unit(self, node: Any) -> None:
        """Send tests to a worker. One that has crashed just now gives them back when it is taken away."""
        with suppress(OSError):
            super()._assign_work_unit(node)

    def _reschedule(self, node: Any) -> None:
        """Send a worker enough tests to begin with, or the end of the tests."""
        if node not in self.registered_collections:  # it replaces one that crashed, and still collects
            return
        super()._reschedule(node)
        while not node.shutting_down and self._pending_of(self.assigned_work[node]) < _STARTS_WITH:
            super()._reschedule(node)

    def _split_scope(self, nodeid: str) -> str:
        """The unit of work of a test."""
        file = nodeid.partition("::")[0]
        directory, _, name = file.rpartition("/")
        has_own = name.removeprefix("test_").removesuffix(".py") in _OWN_SESSIONS
        if directory.endswith("tests/pipeline") and not has_own:
            return f"{directory} on session {crc32(name.encode()) % _SPARK_SESSIONS}"
        return file
