"""One query of a run, from its start to its end: started again when what it failed with may pass, or on request."""

import logging
import time
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # comes without types
from pyspark.errors import PySparkException

from ottla.pipeline import failures
from ottla.pipeline.context import RunContext
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.flow_requests import Request
from ottla.pipeline.progress import Figures, FlowProgress
from ottla.pipeline.queries import Planned
from ottla.pipeline.run_store import FAILED, RUNNING, STOPPED, WAITING

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 30.0
RESTARTS: Final = 5
"""So often a query is started again, within half a minute, in a run whose flows fail alone."""
_BETWEEN_BATCHES_WITHIN_S: Final = 60.0
_ASKING: Final = "Getting offsets from"
"""The start of Spark's status for a query that asks a source for its end offsets, before a micro-batch."""

log = logging.getLogger(__name__)


class Change(Enum):
    """What `look` has found."""

    NONE = "none"
    ENDED = "ended"
    FAILED = "failed"
    WAITS = "waits"
    STARTED = "started"


@dataclass(slots=True)
class Supervised:
    """A planned query and what has become of it. `error` is the last one, kept until a micro-batch succeeds.
    `restarts`: how often it is started again after failures that do not pass by themselves."""

    planned: Planned
    context: RunContext
    checkpoint: Path
    restarts: int = 0
    progress: FlowProgress = field(init=False)
    query: "StreamingQuery | None" = None
    state: str = RUNNING
    has_finished: bool = False
    """Whether it has ended by itself, with all that was there to read."""
    awaits_turn: bool = False
    """Whether it begins when others have ended, which write what it reads; a request for it is for its turn then."""
    is_following: bool = False
    """Whether it runs before its turn, behind those that write what it reads, and so does not end by itself."""
    error: str | None = None
    starts: int = 0
    """How often it has been started, or tried to."""
    next_try_at: float = 0.0
    _pause_s: float = _FIRST_PAUSE_S
    _tries: int = 0
    _failures: int = 0
    """Those that do not pass by themselves, since its last micro-batch."""
    _request: Request | None = None
    _requested_at: float = 0.0
    _batches_before: int = 0

    def __post_init__(self) -> None:
        self.progress = FlowProgress(Figures(self.planned.name, time.time()))

    @property
    def name(self) -> str:
        return self.planned.name

    def start(self) -> Change:
        """Start it, for the first time or again."""
        self.starts += 1
        try:
            planned = self.planned.following() if self.is_following else self.planned
            self.query = planned.start(self.context, self.checkpoint)
        except PipelineError as problem:
            return self._failed(str(problem), str(problem))
        except (PySparkException, Py4JJavaError) as error:
            return self._failed(failures.explain(str(error)), str(error))
        except Exception as error:  # of a sink's libraries: a store that is away, or what no restart mends
            return self._failed(failures.explain_python(error), f"{type(error).__name__}: {error}")
        self.state, self.has_finished = RUNNING, False
        return Change.STARTED

    def has_shown(self, batches: int) -> bool:
        """Whether it has had so many micro-batches with records, or nothing more is to be expected of it."""
        return self.progress.batches_here >= batches or self.state not in (RUNNING, WAITING)

    def has_left(self, times: int) -> bool:
        """Whether it has so many times as many records to read as this process has read with it."""
        left = self.progress.figures.lag_records
        return not times or (left is not None and left >= times * self.progress.records_here)

    def take_turn(self) -> None:
        """From now on it ends once it has read everything; if it followed, the next looks start it anew for that."""
        self.awaits_turn = False
        if self.is_following:
            self.is_following = False
            if self.state in (RUNNING, WAITING) and self._request is not Request.STOP:
                self.request(Request.RESTART)

    def request(self, request: Request) -> None:
        """Have the next looks start it, or stop it between two micro-batches; a later request replaces this one."""
        self._request = request
        self._requested_at = time.monotonic()
        self._batches_before = self.progress.batches_reported

    def is_done(self) -> bool:
        """Whether the last request has been carried out."""
        return self._request is None

    def look(self) -> Change:
        """See whether it still runs; start it again when the time has come, or stop it where that was requested."""
        if self._request is not None:
            return self._carry_out(self._request)
        if self.state == WAITING:
            return self.start() if time.monotonic() >= self.next_try_at else Change.NONE
        if self.state != RUNNING or self.query is None or self.query.isActive:
            return Change.NONE
        error = self.query.exception()
        if error is None:
            self.state, self.has_finished = STOPPED, True
            return Change.ENDED
        text = str(error)
        return self._failed(failures.explain(text), text)

    def on_batch(self, run_id: str) -> bool:
        """A micro-batch of the start with this id is done; returns whether the query has recovered by that. The report
        of one may come after its start has failed: the reason stays."""
        if self.state != RUNNING or self.query is None or str(self.query.runId) != run_id:
            return False
        has_recovered = self.error is not None
        self._forget_failures()
        return has_recovered

    def is_active(self) -> bool:
        """Whether Spark runs it now."""
        return self.query is not None and self.query.isActive

    def is_between_batches(self) -> bool:
        """Whether stopping it now would interrupt nothing."""
        if self.query is None or not self.query.isActive:
            return True
        status = self.query.status
        return not status["isTriggerActive"] or str(status["message"]).startswith(_ASKING)

    def stop(self) -> None:
        """Stop it where it is. What it has not finished, it does again at its next start.

        Spark cannot interrupt one that waits for an answer in Python, of brokers that are away. That one is let go
        after Spark's `stopTimeout`, and ends with the session.
        """
        if self.query is not None and self.query.isActive:
            try:
                self.query.stop()
            except Py4JJavaError as error:
                if not failures.is_stop_timeout(str(error)):
                    raise
                log.warning("%s does not stop, and ends with Spark", self.name)
                self.query = None
        if self.state in (RUNNING, WAITING):
            self.state = STOPPED

    def _carry_out(self, request: Request) -> Change:
        if self.awaits_turn:
            self._request = None
            self.state = STOPPED if request is Request.STOP else RUNNING
            return Change.ENDED if request is Request.STOP else Change.STARTED
        if request is not Request.START and self.state in (RUNNING, WAITING):
            waits = time.monotonic() < self._requested_at + _BETWEEN_BATCHES_WITHIN_S
            if waits and not self.is_between_batches() and self.progress.batches_reported == self._batches_before:
                return Change.NONE
            self.stop()
        self._request = None
        if request is Request.STOP:
            return Change.ENDED
        if self.state == RUNNING:
            return Change.NONE
        self._forget_failures()
        return self.start()

    def _forget_failures(self) -> None:
        self.error = None
        self._pause_s = _FIRST_PAUSE_S
        self._tries = self._failures = 0

    def _failed(self, reason: str, text: str) -> Change:
        self.error = reason
        self._tries += 1
        if not failures.is_passing(text, tries=self._tries):
            self._failures += 1
            if self._failures > self.restarts:
                self.state = FAILED
                return Change.FAILED
        self.state = WAITING
        self.next_try_at = time.monotonic() + self._pause_s
        self._pause_s = min(self._pause_s * 2, _LONGEST_PAUSE_S)
        return Change.WAITS


def stop_all(queries: Collection[Supervised]) -> None:
    """Stop them where they are, all at once: each may take as long as Spark waits for it."""
    with ThreadPoolExecutor(max(1, len(queries))) as pool:
        for stopped in [pool.submit(each.stop) for each in queries]:
            stopped.result()
