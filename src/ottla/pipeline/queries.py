"""From what a job declares to Spark's queries: one per flow, and one per view or flow that rejects rows."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ottla.pipeline import failures
from ottla.pipeline.alignment import upstream_of
from ottla.pipeline.context import QuerySpec, RunContext
from ottla.pipeline.corrections import Corrections
from ottla.pipeline.errors import JobError, PipelineError
from ottla.pipeline.inputs import Input, Topic
from ottla.pipeline.job import CORRECT, Flow, Job, View
from ottla.pipeline.mergeable import corrections_of
from ottla.pipeline.progress import REJECTED
from ottla.pipeline.rows.aligned import is_aligned
from ottla.pipeline.rows.captured import Captured
from ottla.pipeline.rows.checked import Checked, labelled
from ottla.pipeline.rows.correcting import CorrectedRows
from ottla.pipeline.rows.history import Versions
from ottla.pipeline.rows.late import Follower, LateRows
from ottla.pipeline.rows.verdicts import unsteady
from ottla.pipeline.sinks.base import Correctable, Sink

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

Loaded = DataFrame | Checked | Versions
"""What an input gives."""
DEAD_LETTERS: Final = ".dead-letters"
"""Ends the name of the query that writes what a view rejects."""
_DEAD_LETTERS_TRIGGER: Final = "1 second"
_FOLLOWING_TRIGGER: Final = "1 second"
_WATERMARK: Final = "EventTimeWatermark"
"""The node of Spark's plans that defines one."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A query that is ready to be started. `name` is its flow's, or `<view>.dead-letters`; `sources` are the streams
    it reads, in Spark's order."""

    name: str
    rows: DataFrame
    sink: Sink
    mode: str
    trigger: str
    sources: tuple[Input, ...]
    late: Topic | None = None
    corrections: Corrections | None = None
    """How late rows are merged into the output, if they are."""

    @property
    def follows_late_rows(self) -> bool:
        """Whether late rows are written anywhere."""
        return self.late is not None or self.corrections is not None

    @property
    def may_follow(self) -> bool:
        """Whether it may read what is still being written: its rows do not depend on where micro-batches end.

        With a watermark they do: a row that is late in small micro-batches is not late in one large one.
        """
        plan = getattr(self.rows, "_jdf", None)  # out of reach on Spark Connect
        return plan is not None and _WATERMARK not in plan.queryExecution().analyzed().toString()

    def topics(self, context: RunContext) -> set[str]:
        """The topics that it writes in this run."""
        late = set() if self.late is None else {context.renamed(self.late.name)}
        return late | ({self.sink.name} if isinstance(self.sink, Topic) else set())

    def following(self) -> "Planned":
        """The same query, which does not end by itself."""
        return replace(self, trigger=_FOLLOWING_TRIGGER)

    def start(self, context: RunContext, checkpoint: Path) -> "StreamingQuery":
        """Begin, or go on from the checkpoint. Raises PipelineError, or Spark's errors."""
        spec = QuerySpec(f"{context.run}.{self.name}", checkpoint, self.trigger, self.mode, context)
        return self.sink.start(self.rows, spec)


def plan(
    job: Job, context: RunContext, *, trigger: str | None = None, flows: Collection[str] | None = None
) -> list[Planned]:
    """The queries of these flows (None: all) in the order of the file, each followed by those for what its views
    reject.

    `trigger` takes the place of the job's own. Raises JobError for what the functions give or Spark cannot plan.
    """
    buildings = _buildings(job, context)
    planned: list[Planned] = []
    letters_planned: set[str] = set()
    for flow in job.flows.values():
        if flows is not None and flow.name not in flows:
            continue
        building = buildings.flows[flow.name]
        rows = building.rows(flow)
        if not rows.isStreaming:
            raise JobError(
                f"flow {flow.name!r} reads no stream: one of its inputs has to be a topic or files(..., stream=True)"
            )
        if not is_aligned(rows):
            raise JobError(
                f"flow {flow.name!r} reads a topic that is aligned, and sets no watermark by rows.watermark or "
                "drop_duplicates, which alone know of that"
            )
        sources = tuple(building.streams(flow))
        planned.append(
            Planned(
                flow.name,
                rows,
                _sink(flow.to, context),
                flow.mode,
                trigger or flow.trigger,
                sources,
                late=flow.late_topic,
                corrections=_corrections(flow, rows, sources) if flow.late == CORRECT else None,
            )
        )
        rejecting = {name: each for name, each in building.rejecting().items() if name not in letters_planned}
        letters_planned.update(rejecting)
        planned.extend(_dead_letters(buildings.letters, rejecting, trigger or _DEAD_LETTERS_TRIGGER))
    return planned


def _corrections(flow: Flow, rows: DataFrame, sources: Iterable[Input]) -> Corrections:
    """How late rows of a flow are merged into its output. Raises JobError."""
    for each in sources:
        if not isinstance(each, Topic | Captured):
            raise JobError(
                f"flow {flow.name!r}: late={CORRECT!r} reads the records of a micro-batch again, which "
                f"{each.describe()} does not allow: leave late= out"
            )
    if isinstance(flow.to, Topic) and "value" in rows.columns:
        raise JobError(
            f"flow {flow.name!r}: late={CORRECT!r} merges columns, and a column 'value' is written as it is: rename "
            "it, so that all columns become a JSON object"
        )
    assert isinstance(flow.to, Correctable)
    return corrections_of(rows, flow.to.key, flow.name)


def follower(job: Job, query: Planned, context: RunContext, checkpoint: Path, position: Path) -> Follower:
    """What writes late rows of a query, or merges them: `position` is its file."""
    rebuilt = partial(rebuild, job, job.flows[query.name], context)
    if query.late is not None:
        return LateRows(query.name, checkpoint, position, context, rebuilt, topic=query.late)
    assert query.corrections is not None
    assert isinstance(query.sink, Correctable)
    corrections = query.corrections
    return CorrectedRows(query.name, checkpoint, position, context, rebuilt, sink=query.sink, corrections=corrections)


def stages(planned: Iterable[Planned], context: RunContext) -> list[list[Planned]]:
    """The queries in groups, each of which reads nothing that a later one writes: the order for `AVAILABLE_NOW`.

    Flows that write topics for each other in a circle are one group, the last.
    """
    queries = list(planned)
    order = TopologicalSorter(upstream(queries, context))
    left = {query.name: query for query in queries}
    found: list[list[Planned]] = []
    try:
        order.prepare()
    except CycleError:
        return [queries]
    while order.is_active():
        ready = order.get_ready()
        found.append([left.pop(name) for name in sorted(ready, key=list(left).index)])
        order.done(*ready)
    return found


def upstream(planned: Iterable[Planned], context: RunContext) -> dict[str, set[str]]:
    """For each query, by name, those others that write topics that it reads."""
    queries = list(planned)
    writers: dict[str, list[str]] = {}
    renamed = context.renamed
    for query in queries:
        if isinstance(query.sink, Topic):
            writers.setdefault(query.sink.name, []).append(query.name)
    return {
        query.name: {
            writer for each in query.sources for name in map(renamed, each.topics) for writer in writers.get(name, ())
        }
        - {query.name}
        for query in queries
    }


def run_stage(stage: Iterable[Planned], context: RunContext, checkpoint: Callable[[str], Path]) -> None:
    """Start queries with the trigger `AVAILABLE_NOW`, and wait until they have taken in what there is.

    `checkpoint` gives the place for each query's name. Raises PipelineError with what a query failed with.
    """
    started: dict[str, StreamingQuery] = {}
    try:
        for each in stage:
            started[each.name] = each.start(context, checkpoint(each.name))
        for query in started.values():
            query.awaitTermination()
    except PySparkException as error:
        raise PipelineError(failures.explain(str(error))) from error
    finally:
        for query in started.values():
            query.stop()


def rebuild(job: Job, flow: Flow, context: RunContext, load: Callable[[Input], Loaded]) -> DataFrame:
    """The rows of a flow made of other inputs: `load` stands in for each input's own. Raises JobError."""
    return _Building(job, context, load).rows(flow)


# -- building --------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Building:
    """DataFrames made so far. A view or a topic that several read is one DataFrame."""

    job: Job
    context: RunContext
    load: Callable[[Input], Loaded]
    built: dict[str, DataFrame | Checked] = field(default_factory=dict)
    loaded: dict[str, Loaded] = field(default_factory=dict)
    captured: dict[str, Captured] = field(default_factory=dict)
    """The inputs, by name, that are decoded when they are loaded."""
    aligns: bool = False
    """Whether topics that are declared `aligned` get the flows that write them."""
    aligning: list[str] = field(default_factory=list)

    def rows(self, view: View) -> DataFrame:
        return _passed(self.make(view))

    def make(self, view: View) -> DataFrame | Checked:
        if view.name not in self.built:
            frames = {parameter: self.input_rows(view, parameter) for parameter in view.inputs}
            made = _call(view, frames, self.context)
            self.built[view.name] = made.of_view(view.name) if isinstance(made, Checked) else made
        return self.built[view.name]

    def input_rows(self, view: View, parameter: str) -> DataFrame | Versions:
        given = self.job.input_of(view, parameter)
        if isinstance(given, View):
            return self.rows(given)
        made = self.read(given)
        return made if isinstance(made, Versions) else _passed(made)

    def read(self, given: Input) -> Loaded:
        key = repr(given)
        if key not in self.loaded:
            made = self.load(self._aligned(given) if isinstance(given, Topic) else given)
            if isinstance(given, Captured):
                if self.captured.setdefault(given.name, given) != given:
                    raise JobError(
                        f"the job reads {given} in two ways: give all flows and views the same captured(...); "
                        "history='all' reads it with truncates=True"
                    )
                made = made.of_view(given.name) if isinstance(made, Checked) else made
            self.loaded[key] = made
        return self.loaded[key]

    def _aligned(self, given: Topic) -> Topic:
        if not given.aligned or not self.aligns:
            return given
        if given.name in self.aligning:
            circle = " and ".join(self.aligning)
            raise JobError(f"the topics {circle} are written by flows that read them, so that none can be aligned")
        self.aligning.append(given.name)
        try:
            return replace(given, upstream=upstream_of(self.job, given, self.context, self.rows))
        finally:
            self.aligning.remove(given.name)

    def streams(self, view: View) -> list[Input]:
        """What the view reads as a stream, directly or through others."""
        return [each for each in self.job.sources(view) if _is_stream(self.loaded[repr(each)])]

    def rejecting(self) -> dict[str, View | Captured]:
        """What gave `Checked`, by name. Raises JobError if two have one name."""
        views = {name: self.job.views[name] for name, made in self.built.items() if isinstance(made, Checked)}
        for name in views.keys() & self.captured.keys():
            raise JobError(f"view {name!r} has the name of a captured topic, and both reject rows: rename the view")
        return {**self.captured, **views}


@dataclass(frozen=True, slots=True)
class _Buildings:
    """What each flow, and the queries for dead letters, are made of."""

    flows: Mapping[str, _Building]
    letters: _Building


def _buildings(job: Job, context: RunContext) -> _Buildings:
    """One for all, unless offsets are committed to a consumer group: queries of one group would each overwrite where
    the others are. Then a flow that reads alone has the group as it is given, several have one each, with their names
    at the end, and dead letters have none."""
    committing = [
        flow.name
        for flow in job.flows.values()
        if any(isinstance(each, Topic | Captured) and each.commits(context) for each in job.sources(flow))
    ]

    def building(group_suffix: str | None, flow: str = "") -> _Building:
        starting = context.own_starting.get(flow, context.starting)
        own = replace(context, group_suffix=group_suffix, starting=starting)
        return _Building(job, own, partial(_load, own), aligns=context.checkpoints is not None)

    shared = building("")
    suffixes = {name: name if len(committing) > 1 and name in committing else "" for name in job.flows}
    flows = {
        name: building(suffix, name) if suffix or name in context.own_starting else shared
        for name, suffix in suffixes.items()
    }
    return _Buildings(flows, building(None) if committing else shared)


def _is_stream(made: Loaded) -> bool:
    return not isinstance(made, Versions) and _passed(made).isStreaming


def _passed(made: DataFrame | Checked) -> DataFrame:
    return made.rows if isinstance(made, Checked) else made


def _dead_letters(building: _Building, rejecting: Mapping[str, View | Captured], trigger: str) -> Iterable[Planned]:
    job, context = building.job, building.context
    for name, each in rejecting.items():
        made = building.make(each) if isinstance(each, View) else building.read(each)
        assert isinstance(made, Checked)
        rejected = labelled(made.rejected, job=job.name, view=name)
        rejected = rejected.observe(REJECTED, F.count(F.lit(1)).alias(REJECTED), *made.counts_of_rejected())
        if not rejected.isStreaming:
            raise JobError(
                f"{name!r} rejects rows that are no stream, and would do so again at each start: "
                "leave them out by where(...), or check them where they are joined with a stream"
            )
        doubt = unsteady(made)
        if doubt is not None:
            raise JobError(
                f"{name!r} rejects rows by a condition that comes out otherwise in the query that writes the dead "
                f"letters, so that rows would be lost: {doubt}"
            )
        sources = tuple(building.streams(each)) if isinstance(each, View) else (each,)
        yield Planned(name + DEAD_LETTERS, rejected, _sink(job.dead_letters, context), "append", trigger, sources)


def _sink(sink: Sink, context: RunContext) -> Sink:
    return sink.renamed(context.suffix) if context.suffix else sink


def _load(context: RunContext, given: Input) -> Loaded:
    try:
        return given.load(context)
    except PySparkException as error:
        raise JobError(f"{given.describe()}: {failures.explain(str(error))}") from error


def _call(view: View, frames: Mapping[str, DataFrame | Versions], context: RunContext) -> DataFrame | Checked:
    what = "flow" if isinstance(view, Flow) else "view"
    function: Callable[..., object] = partial(_select, view, context) if view.function is None else view.function
    try:
        made = function(**frames)
    except PySparkException as error:
        raise JobError(f"{what} {view.name!r}: {failures.explain(str(error))}") from error
    except PipelineError as problem:
        raise JobError(f"{what} {view.name!r}: {problem}") from problem
    except Exception as error:
        raise JobError(f"{what} {view.name!r} failed with {failures.explain_python(error)}") from error
    if not isinstance(made, Checked | DataFrame):
        hint = "; is its return missing?" if made is None else ""
        raise JobError(f"{what} {view.name!r} gave {type(made).__name__}, not a DataFrame{hint}")
    return made


def _select(view: View, context: RunContext, **frames: DataFrame | Versions) -> DataFrame:
    """Spark's answer to the view's statement; the names in it are resolved here and now. Raises JobError."""
    assert view.statement is not None
    for name, rows in frames.items():
        if isinstance(rows, Versions):
            raise JobError(f"{rows} is no table of SQL: join it by as_of in a view of Python before")
        rows.createOrReplaceTempView(name)
    try:
        return context.spark.sql(view.statement)
    finally:
        for name in frames:
            context.spark.catalog.dropTempView(name)
