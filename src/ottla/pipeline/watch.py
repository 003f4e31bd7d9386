"""Watching the queries of a run: their progress, their failures, the wish to stop them."""

import json
import logging
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # comes without types
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from ottla.pipeline import progress
from ottla.pipeline.brokers import Brokers
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.flow_requests import FlowRequests
from ottla.pipeline.lag import LagHistory
from ottla.pipeline.late_rows import LateRowsThread
from ottla.pipeline.progress import Figures
from ottla.pipeline.run_store import FAILED, RUNNING, WAITING, RunDirectory, RunRecord
from ottla.pipeline.stopping import StopRequest
from ottla.pipeline.supervised import Change, Supervised, stop_all
from ottla.pipeline.turns import After, Turns
from ottla.pipeline.windows import close_windows

if TYPE_CHECKING:
    from ottla.pipeline.session import Engine

_LOOK_EVERY_S: Final = 0.25
_LATE_ROWS_WITHIN_S: Final = 30.0
_ASK_EVERY_S: Final = 2.0
_FINISH_WITHIN_S: Final = 60.0
_LAST_EVENTS_WITHIN_S: Final = 20.0
_GONE_WITHIN_S: Final = 2.0

_ENDED_RUN: Final = "ended run"
"""The key of the event for the end of a query; all others are Spark's progress events."""

log = logging.getLogger(__name__)


class Screen(Protocol):
    """The display of a run for the process that started it."""

    def say(self, text: str) -> None:
        """One line."""

    def figures(self, record: RunRecord, figures: Mapping[str, Figures]) -> None:
        """How far the flows are; called a few times a second."""

    def line(self, figures: Figures) -> None:
        """One flow's figures, as they are written to progress.jsonl."""


@dataclass(slots=True, kw_only=True)
class Watch:
    """Everything between the first query's start and the last one's end."""

    directory: RunDirectory
    record: RunRecord
    screen: Screen
    stop: StopRequest
    engine: "Engine"
    brokers: Brokers
    queries: Sequence[Supervised]
    late: LateRowsThread
    began_at: float
    isolates: bool
    """Whether the other flows go on when one has failed for good."""
    windows_until_ms: int | None
    """Windows that end by then are closed when a query has ended; None: they stay open for later rows."""
    _history: LagHistory = field(default_factory=LagHistory)
    _events: "SimpleQueue[Mapping[str, Any]]" = field(default_factory=SimpleQueue)
    _ended_runs: set[str] = field(default_factory=set)
    _asked_at: float = 0.0

    def until_done(self, turns: Turns) -> bool:
        """Start stage after stage of queries, each when the one before has ended, and watch them.

        Returns True when the last one has ended, False after a request to stop. Raises PipelineError when Spark is
        gone, and when one has failed for good: at the end of the others, or once they have finished their micro-batches
        where flows are not isolated.
        """
        requests = FlowRequests(self.directory, by_name := {each.name: each for each in self.queries})
        for name in (name for stage in turns.stages[1:] for name in stage):
            by_name[name].awaits_turn = True
        self.late.start()
        with self._telling_if_spark_is_gone(), self._listening():
            for number, stage in enumerate(turns.stages):
                for name in stage:
                    by_name[name].take_turn()
                # a flow that was stopped before its turn stays so
                members = [by_name[name] for name in stage if by_name[name].state in (RUNNING, WAITING)]
                behind = turns.behind(number)
                if not self._run(members, requests, behind) or not self._run(self._to_close(members), requests):
                    return False
            self._take_last_events()
        failed = [f"{each.name} failed: {each.error}" for each in self.queries if each.state == FAILED]
        if failed:
            raise PipelineError("; ".join(failed))
        return True

    def _run(
        self,
        stage: Sequence[Supervised],
        requests: FlowRequests,
        behind: Mapping[str, After] = MappingProxyType({}),
    ) -> bool:
        """Start queries and watch them to their end; False after a request to stop the run.

        Those in `behind` start later, members of the stage or not, when what is named there has come.
        """
        for each in stage:
            if each.name not in behind and each.state != WAITING and not each.is_active():
                self._start(each)
        pending = dict(behind)
        while any(each.state in (RUNNING, WAITING) for each in stage):
            if self.stop.times:
                self._finish()
                return False
            requests.take()
            self._look()
            self._start_behind(pending)
            requests.confirm()
            time.sleep(_LOOK_EVERY_S)
        return True

    def _start(self, query: Supervised) -> None:
        if not self.stop.times:
            self._note(query, query.start())

    def _start_behind(self, pending: dict[str, After]) -> None:
        by_name = {each.name: each for each in self.queries}
        for name, after in list(pending.items()):
            first = [by_name[each] for each in after.queries]
            if all(each.has_shown(after.batches) and each.has_left(after.times_left) for each in first):
                del pending[name]
                query = by_name[name]
                query.is_following, query.awaits_turn = query.awaits_turn, False
                if query.state == RUNNING and query.query is None:
                    self._start(query)

    def _to_close(self, group: Sequence[Supervised]) -> list[Supervised]:
        """Those whose windows are to be closed by one more micro-batch.

        A flow that has not read all of its input keeps its windows open, and so do the flows of later groups, which may
        read what it writes: what comes then would be late.
        """
        until_ms = self.windows_until_ms
        if until_ms is None:
            return []
        closing = [each for each in group if each.has_finished and self._closes(each, until_ms)]
        unfinished = [each.name for each in group if not each.has_finished]
        if unfinished:
            self.windows_until_ms = None
            self.screen.say(f"{', '.join(unfinished)} did not finish: its windows, and those of later flows, stay open")
        return closing

    def _closes(self, query: Supervised, until_ms: int) -> bool:
        """Plan the micro-batch that closes its windows, if there are any. Where that cannot be done, on a full disk for
        example, it has failed. Raises PipelineError as `_note`."""
        try:
            return close_windows(query.checkpoint, until_ms)
        except (OSError, ValueError) as problem:
            query.state, query.has_finished = FAILED, False
            query.error = f"its windows cannot be closed: {problem}"
            self._note(query, Change.FAILED)
            return False

    # -- looking -----------------------------------------------------------------------------------

    def _look(self) -> None:
        if self.engine.last_words() is not None:
            raise PipelineError("Spark has ended")
        self._take_events()
        for each in self.queries:
            self._note(each, each.look())
            trouble = each.error or self.late.errors.get(each.name)
            if trouble != self.record.flows[each.name].error:
                self._write_down(each)
        self._refresh()

    @contextmanager
    def _telling_if_spark_is_gone(self) -> Iterator[None]:
        """When the JVM has died, the first failing call does not show that."""
        try:
            yield
        except Exception as error:
            deadline = time.monotonic() + _GONE_WITHIN_S
            words = self.engine.last_words()
            while words is None and isinstance(error, Py4JError) and time.monotonic() < deadline:
                time.sleep(_LOOK_EVERY_S / 5)
                words = self.engine.last_words()
            if words is None:
                raise
            raise PipelineError(f"Spark is gone: {words}; more is in {self.directory.path}") from error

    def _note(self, query: Supervised, change: Change) -> None:
        """Write down and say what has changed. Raises PipelineError for a query that has failed for good, unless the
        others go on."""
        if change is Change.NONE:
            return
        self._write_down(query)
        if change is Change.WAITS:
            pause_s = max(0.0, query.next_try_at - time.monotonic())
            self.screen.say(f"{query.name} waits: {query.error}; next try in {pause_s:.0f} s")
        elif change is Change.FAILED and self.isolates:
            self.screen.say(
                f"{query.name} has failed: {query.error}. The other flows go on; once the cause is mended, start it: "
                f"ottla pipeline start {shlex.quote(self.record.name)} --flow {query.name}"
            )
        elif change is Change.FAILED:
            self._finish()
            raise PipelineError(f"{query.name} failed: {query.error}")

    def _write_down(self, query: Supervised) -> None:
        flow = self.record.flows[query.name]
        flow.state, flow.error = query.state, query.error or self.late.errors.get(query.name)
        note_down(self.directory, self.record)

    def _take_events(self) -> int:
        """Add up Spark's reports; returns the number of micro-batches."""
        by_name = {f"{self.record.name}.{each.name}": each for each in self.queries}
        taken = 0
        while True:
            try:
                event = self._events.get_nowait()
            except Empty:
                return taken
            if _ENDED_RUN in event:
                self._ended_runs.add(event[_ENDED_RUN])
            query = by_name.get(str(event.get("name")))
            if query is None:
                continue
            taken += 1
            is_first = not query.progress.records_here
            query.progress.on_batch(event, time.time())
            self.late.on_batch(query.name, event)
            if query.on_batch(str(event.get("runId"))):
                self.screen.say(f"{query.name} goes on")
                self._write_down(query)
            if is_first and query.progress.records_here:
                after_s = time.monotonic() - self.began_at
                self.screen.say(f"{query.name}: first {query.progress.records_here:,} records after {after_s:.1f} s")

    def _refresh(self, *, last: bool = False) -> None:
        now = time.time()
        self._history.add(self.brokers.poll(), now)
        if self.record.error != self.brokers.trouble:
            self.record.error = self.brokers.trouble
            note_down(self.directory, self.record)
            self.screen.say(self.brokers.trouble or "the brokers answer again")
        if now - self._asked_at >= _ASK_EVERY_S:
            self._asked_at = now
            self.brokers.ask(partition for each in self.queries for partition in each.progress.position)
        for each in self.queries:
            each.progress.refresh(now, self._history.lag(each.progress.position, now))
            if each.progress.is_due(now) or last:
                for figure, rows in self.late.figures(each.name).items():
                    setattr(each.progress.figures, figure, rows)
                self.screen.line(each.progress.figures)
                try:
                    progress.append(self.directory.progress, each.progress.figures)
                except OSError as problem:
                    log.warning("progress.jsonl cannot be written: %s", problem)
        self.screen.figures(self.record, {each.name: each.progress.figures for each in self.queries})

    # -- stopping ----------------------------------------------------------------------------------

    def _finish(self) -> None:
        """Stop each query when it is between two micro-batches; at once if that takes too long, or at a second wish."""
        asked = self.stop.times
        deadline = time.monotonic() + _FINISH_WITHIN_S
        left = [each for each in self.queries if each.state in (RUNNING, WAITING)]
        if any(not each.is_between_batches() for each in left):
            self.screen.say("stopping when the micro-batches that run are done; again to stop at once")
        batches = {each.name: each.progress.batches_reported for each in left}
        while left and time.monotonic() < deadline and self.stop.times <= max(asked, 1):
            self._take_events()
            done = {
                each.name
                for each in left
                if each.is_between_batches() or each.progress.batches_reported > batches[each.name]
            }
            stop_all([each for each in left if each.name in done])
            left = [each for each in left if each.name not in done]
            time.sleep(_LOOK_EVERY_S / 5)
        stop_all(left)
        self._take_last_events()

    def _take_last_events(self) -> None:
        """Spark reports a query's last micro-batch some time after it has ended, and then its end."""
        deadline = time.monotonic() + _LAST_EVENTS_WITHIN_S
        started = {str(each.query.runId) for each in self.queries if each.query is not None}
        while not started <= self._ended_runs and time.monotonic() < deadline:
            time.sleep(_LOOK_EVERY_S / 5)
            self._take_events()
        late_until = time.monotonic() + _LATE_ROWS_WITHIN_S

        def is_enough() -> bool:  # a run that ends by itself is complete, however long that takes
            return self.stop.times > 1 or (self.stop.times == 1 and time.monotonic() > late_until)

        if not self.late.finish(is_enough):
            self.screen.say("some late rows are not written yet: the next start writes them")
        self._refresh(last=True)

    @contextmanager
    def _listening(self) -> Iterator[None]:
        listener = _Listener(self._events)
        self.engine.spark.streams.addListener(listener)
        try:
            yield
        finally:
            if self.engine.last_words() is None:
                stop_all(self.queries)
                self.engine.spark.streams.removeListener(listener)


class _Listener(StreamingQueryListener):
    """Passes progress on; called by Spark from threads of its own."""

    def __init__(self, events: "SimpleQueue[Mapping[str, Any]]") -> None:
        self._events = events

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        self._events.put(json.loads(event.progress.json))

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        pass

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        self._events.put({_ENDED_RUN: str(event.runId)})


def note_down(directory: RunDirectory, record: RunRecord) -> None:
    """Write the record if that can be done: a full disk is no reason to end."""
    try:
        directory.write(record)
    except OSError as problem:
        log.warning("run.json cannot be written: %s", problem)
