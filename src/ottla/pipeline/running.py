"""Running a job: everything between `ottla pipeline run` and its end.

load the file ─▶ claim the name ─▶ ask the brokers ─▶ start Spark ─▶ plan ─▶ compare checkpoints ─▶ start queries
                                        watch, restart, note down progress (`Watch`) ◀───────────────────┘
                                                              │ SIGTERM, Ctrl-C, the end of --once, a failure
                                                              ▼
                                        wait for micro-batches to finish ─▶ stop queries ─▶ stop Spark
"""

import json
import logging
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from ottla.pipeline import flow_requests, job_file, session
from ottla.pipeline.brokers import Brokers
from ottla.pipeline.checkpoint import check_fit, has_unfinished_batch
from ottla.pipeline.context import AVAILABLE_NOW, Outputs, Pins, RunContext, suffixed
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.estimate import rates
from ottla.pipeline.job import ISOLATE, Flow, Job
from ottla.pipeline.late_rows import LateRowsThread
from ottla.pipeline.metrics import RunMetrics
from ottla.pipeline.names import check_topic_names
from ottla.pipeline.progress import latest
from ottla.pipeline.queries import DEAD_LETTERS, Planned, follower, plan, stages, upstream
from ottla.pipeline.regroup import complete, regroup, starting_of
from ottla.pipeline.restore import Restoration
from ottla.pipeline.run_store import FAILED, LEFT_OUT, STOPPED, FlowRecord, RunDirectory, RunRecord, run_directory
from ottla.pipeline.savepoint import Manifest
from ottla.pipeline.stopping import StopRequest
from ottla.pipeline.supervised import RESTARTS, Supervised
from ottla.pipeline.turns import Turns
from ottla.pipeline.watch import Screen, Watch, note_down
from ottla.pipeline.windows import watermark_ahead_ms

_SETTINGS: Final = {"spark.sql.streaming.stopTimeout": "15s"}


@dataclass(frozen=True, slots=True)
class RunRequest:
    """The job to run, and the file that it was loaded from. `name` None: the job's; `master` None: this machine.

    `properties` are the client library's; `settings` Spark's, which win over the job's. `suffix`, `starting` and
    `replays` are those of a replay (see `RunRecord`); a name that has run before keeps its own. `parameters` are
    those given to the job, which has them already. `flows` are the names of those to run (`Job.select`); None: all.
    `windows_until_ms` closes, at the end of a run `once`, the windows that end by then. With a `savepoint` the run goes
    on from that, in place of its own checkpoints if `replace`; for `set_back` see `Restoration`. `tables` are the
    snapshots that a replay keeps to, those of the run that it replays; with `newest_tables` this start
    takes newer ones. The open windows of the flows in `regroup` are computed anew, by the key that they have now.
    Metrics are served at `metrics_listeners`, as brokers' `metrics.listeners`; empty: they are not.
    """

    job: Job
    file: Path
    home: Path
    bootstrap: str
    name: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    master: str | None = None
    once: bool = False
    suffix: str = ""
    starting: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    replays: str | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    flows: frozenset[str] | None = None
    windows_until_ms: int | None = None
    savepoint: Path | None = None
    replace: bool = False
    set_back: frozenset[str] = frozenset()
    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    newest_tables: bool = False
    regroup: frozenset[str] = frozenset()
    metrics_listeners: str = ""


def run(request: RunRequest, screen: Screen, *, engine: session.Engine | None = None) -> bool:
    """Run a job until it is stopped, or with `once` until all available records are processed; True in that case.

    `engine`: a Spark to run on (`start_engine`), which goes on after the run; None: the run starts and stops one.
    Raises PipelineError if it cannot start, or when it has failed for good; JavaNotFoundError.
    """
    began_at = time.monotonic()
    stop = StopRequest()
    directory = run_directory(request.home, request.name or request.job.name)
    metrics = RunMetrics(directory.name)
    with (
        directory.claimed(),
        _logging_to(directory.path / "job.log"),
        metrics.serving(request.metrics_listeners),
    ):
        flow_requests.forget(directory)
        before = directory.read() if directory.exists() else None
        restoration = _restoration(request, directory, before)
        record = _record(request, directory, before, restoration)
        former = before if restoration is None else restoration.manifest
        edited = former is not None and former.fingerprint != record.fingerprint
        try:
            with stop.listening():
                metrics.record = record
                start = _Start(
                    request, directory, record, screen, stop, began_at, restoration, metrics, is_edited=edited
                )
                return start.run(engine)
        except BaseException as error:
            record.state, record.error = FAILED, str(error) or type(error).__name__
            raise
        finally:
            if record.state != FAILED:
                record.state = STOPPED
            record.stopped_at = time.time()
            for flow in record.flows.values():
                if flow.state not in (FAILED, LEFT_OUT):
                    flow.state = STOPPED
            if restoration is None or restoration.is_taken_up:
                note_down(directory, record)
            else:
                restoration.give_up()


def _restoration(request: RunRequest, directory: RunDirectory, before: RunRecord | None) -> Restoration | None:
    if request.savepoint is None:
        return None
    job = request.job
    begun = Restoration.begin(
        request.savepoint, job, directory, before, replace=request.replace, set_back=request.set_back
    )
    begun.check_flows(job, () if request.flows is None else job.flows.keys() - request.flows)
    return begun


def start_engine(
    job: Job, directory: Path, *, master: str, settings: Mapping[str, str] | None = None
) -> session.Engine:
    """Start Spark for runs of a job, with its log in `directory`; `settings` win over the job's. Raises what
    `session.start` raises."""
    return session.start(
        directory.name, directory, master=master, settings={**_SETTINGS, **job.settings, **(settings or {})}
    )


@dataclass(frozen=True, slots=True)
class _Start:
    """The steps from a record of a run to the watch over its queries."""

    request: RunRequest
    directory: RunDirectory
    record: RunRecord
    screen: Screen
    stop: StopRequest
    began_at: float
    restoration: Restoration | None
    metrics: RunMetrics
    is_edited: bool
    """Whether the job's file has changed since the checkpoints were written."""

    def run(self, given: session.Engine | None) -> bool:
        """Start Spark, unless one is given, and run the queries: True at their end, False after a request to stop."""
        request, record = self.request, self.record
        brokers = Brokers({**request.properties, "bootstrap.servers": record.bootstrap})
        self._prepare_topics(brokers)
        if self.restoration is None:
            note_down(self.directory, record)
        else:
            self.screen.say(f"{self.directory.name}: {self.restoration.path} is copied")
            self.restoration.copy()
        if given is None:
            self.screen.say(f"{self.directory.name}: Spark starts ({record.master})")
        engine = given or start_engine(
            request.job, self.directory.path, master=record.master, settings=request.settings
        )
        try:
            if self.stop.times:  # that took seconds
                return False
            record.spark = engine.spark.version
            return self._run_queries(engine, brokers)
        finally:
            if given is None:
                engine.stop()

    def _run_queries(self, engine: session.Engine, brokers: Brokers) -> bool:
        request, job = self.request, self.request.job
        trigger = AVAILABLE_NOW if request.once else None
        self._regroup(engine, brokers)
        context = self._context(engine)
        planned = plan(job, context, trigger=trigger, flows=request.flows)
        names = [each.name for each in planned]
        checkpoints = self._checkpoints()
        if self.restoration is not None:
            self.restoration.check_queries(names, is_whole=request.flows in (None, job.flows.keys()))
        isolates = job.on_failure == ISOLATE
        queries = [Supervised(each, context, checkpoints / each.name, RESTARTS if isolates else 0) for each in planned]
        self._compare(queries)
        self._write_flows(queries, checkpoints)
        self._make(brokers, {topic for each in planned for topic in each.topics(context)})
        self._name_deleting(brokers)
        self._check_corrected(brokers)
        late = LateRowsThread(
            {
                each.name: follower(job, each, context, checkpoints / each.name, checkpoints / f"{each.name}.late.json")
                for each in planned
                if each.follows_late_rows
            }
        )
        watch = Watch(
            directory=self.directory,
            record=self.record,
            screen=self.screen,
            stop=self.stop,
            engine=engine,
            brokers=brokers,
            queries=queries,
            late=late,
            began_at=self.began_at,
            isolates=isolates,
            windows_until_ms=request.windows_until_ms,
        )
        self.metrics.queries = queries
        return watch.until_done(self._turns(planned, context))

    def _turns(self, planned: Sequence[Planned], context: RunContext) -> Turns:
        """When each query starts: all at once, or stage by stage where they end by themselves."""
        if not self.request.once:
            return Turns([[each.name for each in planned]])
        following = [each.name for each in planned if each.may_follow]
        return Turns(
            [[each.name for each in stage] for stage in stages(planned, context)],
            upstream(planned, context),
            # the rows of windows that are closed at the end come last
            following if self.request.windows_until_ms is None else (),
            [each.name for each in planned if each.name.endswith(DEAD_LETTERS)],
        )

    def _checkpoints(self) -> Path:
        """Where the checkpoints will be when the queries start."""
        restored = self.restoration
        return self.directory.checkpoints_of(self.record) if restored is None else restored.final

    def _context(self, engine: session.Engine) -> RunContext:
        return RunContext(
            spark=engine.spark,
            bootstrap=self.record.bootstrap,
            job=self.request.job.name,
            run=self.directory.name,
            home=self.directory.path,
            directory=Path(self.record.job_file).parent,
            client=self._client(),
            starting=self.record.starting,
            suffix=self.record.suffix,
            written=self.request.job.writes(),
            tables=Pins(self.record.tables, self.request.newest_tables),
            checkpoints=self._checkpoints(),
            own_starting=self._own_starting(),
        )

    def _outputs(self, savepoint: Manifest) -> Outputs:
        return Outputs(
            bootstrap=self.record.bootstrap,
            directory=Path(self.record.job_file).parent,
            client=self._client(),
            suffix=self.record.suffix,
            written=self.request.job.writes(),
            since_ms=int(savepoint.taken_at * 1000),
        )

    def _client(self) -> dict[str, str]:
        """The client library's properties as options of Spark's source and sink."""
        return {f"kafka.{name}": value for name, value in self.request.properties.items()}

    def _present(self) -> Path:
        """Where the checkpoints are until the queries start."""
        restored = self.restoration
        return self.directory.checkpoints_of(self.record) if restored is None else restored.copied

    def _own_starting(self) -> dict[str, dict[str, dict[str, str]]]:
        """Where flows begin whose windows were computed anew: the options of each topic."""
        found = {}
        for flow in self.request.job.flows:
            starting = starting_of(self._present() / flow) or {}
            names = {next(iter(self._named([name]))): name for name in self.request.job.reads([flow])}
            options = {
                names[topic]: {"startingOffsets": json.dumps({topic: offsets})} for topic, offsets in starting.items()
            }
            if options:
                found[flow] = options
        return found

    def _regroup(self, engine: session.Engine, brokers: Brokers) -> None:
        """Finish what a crash has left of flows that were to be regrouped, and regroup those that are to be."""
        checkpoints, flows = self.directory.checkpoints_of(self.record), self.request.regroup
        for flow in self.request.job.flows:
            complete(checkpoints / flow)
        for query in plan(self.request.job, self._context(engine), flows=flows) if flows else ():
            if query.name in flows:
                done = regroup(query, checkpoints / query.name, engine.spark, brokers)
                self.screen.say(
                    f"{query.name}: its state is that of the job as it is, so that nothing is computed anew"
                    if done is None
                    else done.in_words(rates(self.request.home, self.request.job.name).get(query.name))
                )

    # -- topics ------------------------------------------------------------------------------------

    def _prepare_topics(self, brokers: Brokers) -> None:
        """Check the topics that are read, and make those that flows write for each other."""
        job = self.request.job
        check_topic_names(self._named(job.writes()))
        if self.restoration is not None:
            self.restoration.check_topics(brokers)
            self.restoration.check_sinks(job, self._outputs(self.restoration.manifest))
        reads, writes = self._named(job.reads(self.request.flows)), self._named(job.writes())
        brokers.check_inputs(reads - writes)
        self._make(brokers, reads & writes)
        brokers.watch(reads)

    def _make(self, brokers: Brokers, topics: set[str]) -> None:
        originals = {name: topic for topic in self.request.job.writes() for name in self._named([topic])}
        for topic in brokers.make(topics, originals, self._copies() | self._corrected()):
            self.screen.say(f"topic {topic!r} created")

    def _name_deleting(self, brokers: Brokers) -> None:
        for topic, policy in brokers.deleting(self._copies()).items():
            self.screen.say(
                f"topic {topic!r} follows a captured table, and its cleanup.policy is {policy}: rows that have not "
                f"changed for long will be missing. `ottla config set topic {topic} cleanup.policy=compact` mends that"
            )

    def _check_corrected(self, brokers: Brokers) -> None:
        """Raises PipelineError for a topic that may have lost the record that a late row is to be merged into."""
        for topic, policy in brokers.not_compacted(self._corrected()).items():
            said = f"its cleanup.policy is {policy}" if policy else "this client may not read its cleanup.policy"
            raise PipelineError(
                f"late rows are merged into topic {topic!r}, which has to keep the newest record of each key, and "
                f"{said}: `ottla config set topic {topic} cleanup.policy=compact`"
            )

    def _corrected(self) -> set[str]:
        return self._named(self.request.job.corrected(self.request.flows))

    def _copies(self) -> set[str]:
        return self._named(self.request.job.copies(self.request.flows))

    def _named(self, topics: Iterable[str]) -> set[str]:
        """The topics by their names in this run: those that a replay writes have its suffix."""
        written = self.request.job.writes()
        return {suffixed(topic, written, self.record.suffix) for topic in topics}

    # -- checkpoints -------------------------------------------------------------------------------

    def _compare(self, queries: Sequence[Supervised]) -> None:
        """Have queries go on from their figures and checkpoints. Raises PipelineError for one that does not fit."""
        names = [each.name for each in queries]
        restored, present = self.restoration, self._present()
        figures = latest(self.directory.progress, names) if restored is None else restored.figures()
        settings = {**self.request.job.settings, **self.request.settings}
        for each in queries:
            each.progress.go_on_from(figures.get(each.name))
            check_fit(each.planned, present / each.name, settings)
            if self.is_edited and has_unfinished_batch(present / each.name):
                self.screen.say(
                    f"{each.name}: the micro-batch that was not finished is done again by the job as it is now"
                )
            ahead_ms = watermark_ahead_ms(present / each.name, time.time_ns() // 1_000_000)
            if ahead_ms is not None:
                until = datetime.fromtimestamp(ahead_ms // 1000, UTC).isoformat()
                self.screen.say(
                    f"{each.name}: its windows have been closed until {until}, by --close-windows or by a record from "
                    "the future: rows before that are late, and are left out"
                )

    def _write_flows(self, queries: Sequence[Supervised], checkpoints: Path) -> None:
        """Write the flows down in the record, and put a savepoint's checkpoints in their place."""
        job, flows = self.request.job, self.record.flows
        for each in queries:
            flows[each.name] = _flow_record(each.planned, each.checkpoint)
        for name, flow in job.flows.items():
            flows.setdefault(name, _left_out(job, flow, self.record.suffix, checkpoints / name))
        if self.restoration is not None:
            self.restoration.take_up(self.record)
        note_down(self.directory, self.record)


def _record(
    request: RunRequest, directory: RunDirectory, before: RunRecord | None, restoration: Restoration | None
) -> RunRecord:
    """The record to write for this run, with the data kept from an earlier one, or from a savepoint. Raises
    PipelineError."""
    job = request.job
    kept = before if restoration is None else restoration.manifest
    if before is not None:
        if before.job != job.name:
            raise PipelineError(
                f"{directory.name!r} is a run of the job {before.job!r} ({before.job_file}), not of {job.name!r}: "
                "give this one another --name"
            )
        if before.promoted_to is not None:
            raise PipelineError(f"{directory.name!r} has taken the place of {before.promoted_to!r}: run that")
    file = request.file.resolve()
    return RunRecord(
        name=directory.name,
        job=job.name,
        job_file=str(file),
        fingerprint=job_file.fingerprint(file),
        bootstrap=request.bootstrap,
        master=request.master or f"local[{os.cpu_count() or 2}]",
        pid=os.getpid(),
        started_at=time.time(),
        suffix=kept.suffix if kept else request.suffix,
        starting=kept.starting if kept else {topic: dict(each) for topic, each in request.starting.items()},
        replays=kept.replays if kept else request.replays,
        parameters=dict(request.parameters),
        checkpoints=before.checkpoints if before else None,
        spark=before.spark if before else None,
        tables={table: dict(pin) for table, pin in (kept.tables if kept else request.tables).items()},
    )


def _flow_record(query: Planned, checkpoint: Path) -> FlowRecord:
    return FlowRecord(
        inputs=[each.describe() for each in query.sources],
        output=query.sink.describe(),
        mode=query.mode,
        trigger=query.trigger,
        checkpoint=str(checkpoint),
    )


def _left_out(job: Job, flow: Flow, suffix: str, checkpoint: Path) -> FlowRecord:
    sink = flow.to.renamed(suffix) if suffix else flow.to
    return FlowRecord(
        inputs=[each.describe() for each in job.sources(flow)],
        output=sink.describe(),
        mode=flow.mode,
        trigger=flow.trigger,
        checkpoint=str(checkpoint),
        state=LEFT_OUT,
    )


@contextmanager
def _logging_to(file: Path) -> Iterator[None]:
    """What libraries have to say goes to a file: a person watches figures."""
    handler = logging.FileHandler(file, encoding="utf-8", delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)
        handler.close()
