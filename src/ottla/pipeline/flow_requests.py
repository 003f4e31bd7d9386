"""Requests of other processes for single flows of a run: start, stop, restart.

A request is a file below the run's directory, which appears in one step. The process of the run removes it when it has
been carried out. Requests that an earlier process has not taken are removed when the run is claimed; those that come
while the run starts are carried out once its flows are known.
"""

import json
import logging
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.run_store import RunDirectory

if TYPE_CHECKING:
    from ottla.pipeline.supervised import Supervised

_DIRECTORY: Final = "requests"
_ENDING: Final = ".json"
_LONGEST_NAME: Final = 200
"""Bytes of a request's name, of the 255 that file systems take: a query of dead letters has the name of a topic."""

log = logging.getLogger(__name__)


class Request(Enum):
    """What another process may ask of one flow."""

    START = "start"
    STOP = "stop"
    RESTART = "restart"


def send(directory: RunDirectory, request: Request, flow: str) -> Path:
    """Ask the process of a run; returns the file, which is there until the request has been carried out.

    Raises PipelineError if it cannot be written, as on a full disk.
    """
    requests = directory.path / _DIRECTORY
    file = requests / f"{time.time_ns():020}-{os.getpid()}-{flow}"[:_LONGEST_NAME]
    file, fresh = file.with_name(file.name + _ENDING), file.with_name(file.name + ".new")
    try:
        requests.mkdir(exist_ok=True)
        fresh.write_text(json.dumps({"request": request.value, "flow": flow}), encoding="utf-8")
        fresh.replace(file)
    except OSError as problem:
        with suppress(OSError):
            fresh.unlink()
        reason = (problem.strerror or str(problem)).lower()
        raise PipelineError(f"the request for {flow!r} cannot be written below {requests}: {reason}") from None
    return file


def forget(directory: RunDirectory) -> None:
    """Remove the requests that were meant for an earlier process of the run. Raises OSError."""
    for left_over in _files(directory):
        left_over.unlink(missing_ok=True)


class FlowRequests:
    """Those of one process of a run, for its queries by name."""

    def __init__(self, directory: RunDirectory, queries: "Mapping[str, Supervised]") -> None:
        self._directory = directory
        self._queries = queries
        self._taken: dict[Path, Supervised] = {}

    def take(self) -> None:
        """Pass new requests on to their queries."""
        for file in _files(self._directory):
            if file in self._taken:
                continue
            try:
                content = json.loads(file.read_text(encoding="utf-8"))
                query, request = self._queries[content["flow"]], Request(content["request"])
            except (OSError, ValueError, KeyError, TypeError) as problem:
                log.warning("%s is no request for a flow of this run: %r", file, problem)
                file.unlink(missing_ok=True)
                continue
            query.request(request)
            self._taken[file] = query

    def confirm(self) -> None:
        """Remove the requests that have been carried out."""
        for file in [file for file, query in self._taken.items() if query.is_done()]:
            del self._taken[file]
            file.unlink(missing_ok=True)


def _files(directory: RunDirectory) -> list[Path]:
    try:
        return sorted(each for each in (directory.path / _DIRECTORY).iterdir() if each.suffix == _ENDING)
    except FileNotFoundError:
        return []
