"""A job: what a Python file declares with `Job`, `job.view` and `job.flow`, and what is checked before Spark starts.

    job = Job("flight-delays")


    @job.view(flights=topic("flights"))
    def clean(flights): ...


    @job.flow(flights=clean, to=topic("delays"))
    def delays(flights): ...

A view is an intermediate DataFrame; a flow is one streaming query, with a sink. Both are functions whose parameters are
their inputs, given by name where they are declared.
"""

import inspect
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Any, Final

from ottla.pipeline import names
from ottla.pipeline.context import AVAILABLE_NOW, CHANGES, HISTORY, MODES
from ottla.pipeline.errors import JobError
from ottla.pipeline.inputs import Input, Topic
from ottla.pipeline.sinks.base import Correctable, Sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ottla.pipeline.rows.checked import Checked

Function = Callable[..., "DataFrame | Checked"]
"""A decorated function: DataFrames in, a DataFrame out, or rows of which some were rejected."""

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,79}")
ISOLATE: Final = "isolate"
"""A flow that fails for good stops alone."""
STOP: Final = "stop"
"""A flow that fails for good ends the run."""
LATEST: Final = "latest"
"""The history that `Job.apply_changes` keeps of a row: its newest state."""
ALL: Final = "all"
"""... or all its versions, with the times between which each was valid."""
_MODES_OF_HISTORY: Final = {LATEST: CHANGES, ALL: HISTORY}
CORRECT: Final = "correct"
"""What `late` may be instead of a topic: late rows are merged into what the flow has written."""
_INTERVAL: Final = re.compile(r"\d+ *(milliseconds?|seconds?|minutes?|hours?|days?|ms|s|m|min|h)")


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """An intermediate DataFrame: a function or a statement in SQL over inputs. Called, it is its function."""

    name: str
    inputs: Mapping[str, "Input | View | str"]
    function: Function | None = None
    statement: str | None = None

    def __call__(self, *frames: "DataFrame", **named_frames: "DataFrame") -> "DataFrame | Checked":
        """The function itself, for tests of it. Raises JobError for SQL, which is run by a job alone."""
        if self.function is None:
            raise JobError(f"{self.name!r} is SQL: it runs as part of a job")
        return self.function(*frames, **named_frames)


@dataclass(frozen=True, slots=True, eq=False)
class Flow(View):
    """A view that is written: one streaming query. `late` takes rows that came behind the watermark, or is `CORRECT`:
    then they are merged into what it has written."""

    to: Sink = field(kw_only=True)
    trigger: str = field(kw_only=True)
    mode: str = field(kw_only=True)
    late: Topic | str | None = field(kw_only=True)

    @property
    def late_topic(self) -> Topic | None:
        """Where late rows are set aside, if they are."""
        return self.late if isinstance(self.late, Topic) else None


_given: Final[ContextVar[Mapping[str, str] | None]] = ContextVar("parameters", default=None)


@contextmanager
def with_parameters(parameters: Mapping[str, str]) -> Iterator[None]:
    """While a job file is loaded: what its `Job.param` gives."""
    token = _given.set(parameters)
    try:
        yield
    finally:
        _given.reset(token)


class Job:
    """The declarations of a job file.

    `bootstrap` is the address of the brokers if neither --bootstrap nor OTTLA_BOOTSTRAP is given, `settings` are
    Spark's (`spark.driver.memory`), `dead_letters` the topic for rows that views reject (`<name>.dead-letters`).
    By `on_failure`, the other flows go on when one fails and no restart helps (`ISOLATE`), or finish their
    micro-batches, and the run ends (`STOP`). Raises JobError for a name that cannot be one of a directory and of
    topics, and for another `on_failure`.
    """

    def __init__(
        self,
        name: str,
        *,
        bootstrap: str | None = None,
        settings: Mapping[str, str] | None = None,
        dead_letters: str | Topic | None = None,
        on_failure: str = ISOLATE,
    ) -> None:
        if not names.is_run_name(name):
            raise JobError(f"Job({name!r}): a job's name is {names.RUN_NAME_RULE}")
        if on_failure not in (ISOLATE, STOP):
            raise JobError(f"Job({name!r}): on_failure is {ISOLATE!r} or {STOP!r}, not {on_failure!r}")
        self.name = name
        self.bootstrap = bootstrap
        self.on_failure = on_failure
        self.settings = {key: str(value) for key, value in (settings or {}).items()}
        letters = dead_letters or f"{name}.dead-letters"
        self.dead_letters = letters if isinstance(letters, Topic) else Topic(letters)
        self.parameters: dict[str, str] = {}
        """What `param` has been asked for, and what it gave."""
        self._views: dict[str, View] = {}

    def param(self, name: str, default: str | None = None) -> str:
        """A parameter of the run (`--param NAME=VALUE`), else the default. Raises JobError if there is neither."""
        value = (_given.get() or {}).get(name, default)
        if value is None:
            raise JobError(f"the job {self.name!r} needs the parameter {name!r}: give it by --param {name}=...")
        self.parameters[name] = value
        return value

    @property
    def views(self) -> Mapping[str, View]:
        """All views and flows by name, in the order of the file."""
        return self._views

    @property
    def flows(self) -> Mapping[str, Flow]:
        """The flows by name, in the order of the file."""
        return {name: view for name, view in self._views.items() if isinstance(view, Flow)}

    # -- declaring ---------------------------------------------------------------------------------

    def view(self, **inputs: "Input | View | str") -> Callable[[Function], View]:
        """Declare the decorated function as a view. Each keyword is a parameter of it and names its input: a topic,
        a table, files, another view, or the name of a view that comes later. Raises JobError."""

        def declare(function: Function) -> View:
            name = _checked_name(function.__name__)
            _check_parameters(name, function, inputs)
            return self._add(View(name, inputs, function))

        return declare

    def flow(
        self,
        *,
        to: Sink,
        trigger: str = "1 second",
        mode: str = "append",
        late: Topic | str | None = None,
        **inputs: "Input | View | str",
    ) -> Callable[[Function], Flow]:
        """Declare the decorated function as a flow, written to the sink `to`.

        `trigger` is an interval, or `available-now` for a flow that takes what is there and ends; `mode` is Spark's
        output mode. `late` is a topic for rows behind the watermark, or `correct`: they are merged into what the flow
        has written. Inputs are as in `view`. Raises JobError.
        """

        def declare(function: Function) -> Flow:
            name = _checked_name(function.__name__)
            _check_parameters(name, function, inputs)
            _check_flow(name, to, trigger, mode, late)
            flow = Flow(name, inputs, function, to=to, trigger=trigger, mode=mode, late=late)
            self._add(flow)
            return flow

        return declare

    def sql_view(self, name: str, statement: str, **inputs: "Input | View | str") -> View:
        """A view as a SELECT in which each input is a table of that name. Raises JobError."""
        _check_statement(_checked_name(name), statement, inputs)
        return self._add(View(name, inputs, statement=statement))

    def sql_flow(
        self,
        name: str,
        statement: str,
        *,
        to: Sink,
        trigger: str = "1 second",
        mode: str = "append",
        late: Topic | str | None = None,
        **inputs: "Input | View | str",
    ) -> Flow:
        """A flow as a SELECT in which each input is a table of that name. Raises JobError."""
        _check_statement(_checked_name(name), statement, inputs)
        _check_flow(name, to, trigger, mode, late)
        flow = Flow(name, inputs, statement=statement, to=to, trigger=trigger, mode=mode, late=late)
        self._add(flow)
        return flow

    def apply_changes(
        self,
        changes: "Input | View | str",
        *,
        into: Sink,
        keys: str | tuple[str, ...] = (),
        history: str = LATEST,
        name: str | None = None,
        trigger: str = "1 second",
    ) -> Flow:
        """A flow by which `into` follows a captured table: rows are put by their key, and removed when they are
        deleted, each micro-batch once.

        `changes` is `captured(...)`, or a view of its rows. `keys` are the columns that identify a row; left out, those
        of the sink or of the records' keys. `history` is `latest`: a row for each key, or `all`: a row for each version
        of it, with the columns `valid_from` and `valid_to`, null while it lasts. `name` is the flow's; left out, the
        last part of the topic's name, or `<view>_applied`. Raises JobError.
        """
        given = (keys,) if isinstance(keys, str) else tuple(keys)
        _check_input("apply_changes", "changes", changes)
        flow_name = _checked_name(_name_of_changes(changes) if name is None else name)
        _check_flow(flow_name, into, trigger, "append", None)
        mode = _MODES_OF_HISTORY.get(history)
        if mode is None:
            raise JobError(
                f"flow {flow_name!r}: history is {LATEST!r}, a row for each key, or {ALL!r}, one for each version of "
                f"it; there is no {history!r}"
            )
        if mode == HISTORY:
            _check_keeps_versions(flow_name, into)
            changes = _with_truncates(changes)
        of_sink = getattr(into, "key", None)
        if of_sink is None:
            raise JobError(
                f"flow {flow_name!r}: rows of {into.describe()} cannot be changed by their key: "
                "give database(...), delta(...), iceberg(...) or topic(...)"
            )
        key = given or of_sink

        def apply(changes: "DataFrame") -> "DataFrame":
            from ottla.pipeline.applying import keyed_changes

            return keyed_changes(changes, key, mode)

        flow = Flow(flow_name, {"changes": changes}, apply, to=into, trigger=trigger, mode=mode, late=None)
        self._add(flow)
        return flow

    def _add(self, view: View) -> View:
        if view.name in self._views:
            what = "flow" if isinstance(view, Flow) else "view"
            raise JobError(
                f"{what} {view.name!r} is declared twice: each view and flow of a job needs a name of its own"
            )
        self._views[view.name] = view
        return view

    # -- checking ----------------------------------------------------------------------------------

    def input_of(self, view: View, parameter: str) -> "Input | View":
        """What a view gets as this parameter, names resolved. Raises JobError for the name of no view."""
        given = view.inputs[parameter]
        if isinstance(given, str):
            found = self._views.get(given)
            if found is None:
                hint = names.did_you_mean(given, self._views, otherwise=f"; a topic is written topic({given!r})")
                raise JobError(f"{view.name!r} reads {given!r}, which is no view of this job{hint}")
            given = found
        if isinstance(given, Flow):
            raise JobError(
                f"{view.name!r} reads the flow {given.name!r}: read what it writes ({given.to.describe()}), or make it "
                "a view that both share"
            )
        if isinstance(given, View) and self._views.get(given.name) is not given:
            raise JobError(f"{view.name!r} reads {given.name!r}, a view of another job")
        return given

    def check(self, parameters: Iterable[str] = ()) -> None:
        """Raises JobError if there is no flow, an input is unknown, or views read each other in a circle, or if one of
        the `parameters` given is not one of the job's."""
        for name in parameters:
            if name not in self.parameters:
                listed = ", ".join(map(repr, sorted(self.parameters))) or "none"
                hint = names.did_you_mean(name, self.parameters, otherwise=f"; it has {listed}")
                raise JobError(f"job {self.name!r} has no parameter {name!r}{hint}")
        if not self.flows:
            raise JobError(f"job {self.name!r} has no flow: declare one with @job.flow(..., to=topic(...))")
        graph = {
            view.name: {read.name for name in view.inputs if isinstance(read := self.input_of(view, name), View)}
            for view in self._views.values()
        }
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as cycle:
            raise JobError(f"views read each other in a circle: {' -> '.join(reversed(cycle.args[1]))}") from None

    def select(self, only: Collection[str], excluded: Collection[str]) -> frozenset[str]:
        """The names of the flows in `only` (empty: all) without those `excluded`. Raises JobError for a name that no
        flow has, and if no flow is left."""
        for name in (*only, *excluded):
            if name not in self.flows:
                hint = names.did_you_mean(name, self.flows, otherwise=f"; it has {', '.join(self.flows)}")
                raise JobError(f"job {self.name!r} has no flow {name!r}{hint}")
        selected = frozenset(only or self.flows) - frozenset(excluded)
        if not selected:
            raise JobError(f"no flow of job {self.name!r} is left to run")
        return selected

    def reads(self, flows: Collection[str] | None = None) -> frozenset[str]:
        """The topics that these flows (None: all) read, directly or through views."""
        reading = (flow for name, flow in self.flows.items() if flows is None or name in flows)
        return frozenset(topic for flow in reading for each in self.sources(flow) for topic in each.topics)

    def writes(self) -> frozenset[str]:
        """The topics that flows write, those for late rows and dead letters among them."""
        return frozenset((self.dead_letters.name, *_written(self.flows.values())))

    def copies(self, flows: Collection[str] | None = None) -> frozenset[str]:
        """The topics by which these flows (None: all) follow captured tables: each is to keep the newest record of a
        key for ever."""
        chosen = (flow for name, flow in self.flows.items() if flows is None or name in flows)
        return frozenset(flow.to.name for flow in chosen if flow.mode == CHANGES and isinstance(flow.to, Topic))

    def corrected(self, flows: Collection[str] | None = None) -> frozenset[str]:
        """The topics of these flows (None: all) into which late rows are merged: each has to keep the newest record of
        a key for ever."""
        chosen = (flow for name, flow in self.flows.items() if flows is None or name in flows)
        return frozenset(flow.to.name for flow in chosen if flow.late == CORRECT and isinstance(flow.to, Topic))

    def sources(self, view: View) -> Iterator[Input]:
        """What a view or flow reads outside of the job, in the order in which it is loaded; twice if it is."""
        for parameter in view.inputs:
            given = self.input_of(view, parameter)
            if isinstance(given, View):
                yield from self.sources(given)
            else:
                yield given


def _written(flows: Iterable[Flow]) -> Iterator[str]:
    for flow in flows:
        if isinstance(flow.to, Topic):
            yield flow.to.name
        if flow.late_topic is not None:
            yield flow.late_topic.name


def _checked_name(name: str) -> str:
    if _NAME.fullmatch(name) is None:
        raise JobError(f"{name!r} cannot name a view or flow: letters, digits, '_' and '-', no digit first")
    return name


def _name_of_changes(changes: "Input | View | str") -> str:
    if isinstance(changes, Input):
        if not changes.topics:
            raise JobError(f"apply_changes takes captured(...) or a view of its rows, and not {changes.describe()}")
        return changes.topics[0].rpartition(".")[2]
    return f"{changes.name if isinstance(changes, View) else changes}_applied"


def _check_parameters(name: str, function: Function, inputs: Mapping[str, object]) -> None:
    """Each input is a parameter, and each parameter an input."""
    parameters = inspect.signature(function).parameters
    takes_any = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values())
    named = {each for each, it in parameters.items() if it.kind in (it.POSITIONAL_OR_KEYWORD, it.KEYWORD_ONLY)}
    for given, what in inputs.items():
        if given not in named and not takes_any:
            listed = ", ".join(map(repr, sorted(named))) or "none"
            hint = names.did_you_mean(given, named, otherwise=f"; it has {listed}")
            raise JobError(f"function {name!r} has no parameter {given!r}{hint}")
        _check_input(name, given, what)
    for parameter, declared in parameters.items():
        if parameter in named and parameter not in inputs and declared.default is inspect.Parameter.empty:
            raise JobError(
                f"the parameter {parameter!r} of {name!r} has no input: name one, as in "
                f"{parameter}=topic({parameter!r})"
            )
    if not inputs:
        raise JobError(f"{name!r} reads nothing: name its inputs, as in flights=topic('flights')")


def _check_input(view: str, parameter: str, given: object) -> None:
    if isinstance(given, Input | View | str):
        return
    raise JobError(
        f"{view!r} gets {parameter}={given!r}, which is no input: give topic(...), table(...), captured(...), "
        "history(...), files(...) or a view"
    )


def _check_keeps_versions(flow: str, into: Sink) -> None:
    """Ending a version changes its row, which a sink has to be able to. Raises JobError."""
    if getattr(into, "keeps_versions", False):
        return
    why = "a row that was written cannot be changed there, as the end of a version does"
    if isinstance(into, Topic):
        why = "a topic keeps records, not rows that end: the captured topic itself is the history"
    raise JobError(
        f"flow {flow!r}: {into.describe()} cannot keep all versions: {why}. "
        "Give database(...), delta(...) or iceberg(...)"
    )


def _with_truncates(changes: "Input | View | str") -> "Input | View | str":
    """A captured table with its truncates, which end versions."""
    from ottla.pipeline.rows.captured import Captured

    return replace(changes, truncates=True) if isinstance(changes, Captured) else changes


def _check_statement(name: str, statement: str, inputs: Mapping[str, object]) -> None:
    if not statement.strip():
        raise JobError(f"{name!r} has no statement: give a SELECT")
    if not inputs:
        raise JobError(f"{name!r} reads nothing: name its tables, as in flights=topic('flights')")
    for parameter, given in inputs.items():
        _check_input(name, parameter, given)


def _check_flow(name: str, to: object, trigger: str, mode: str, late: object) -> None:
    if not all(callable(getattr(to, method, None)) for method in ("start", "describe")):
        raise JobError(f"flow {name!r} writes to {to!r}, which is no sink: give topic(...), parquet(...) or another")
    if trigger != AVAILABLE_NOW and not _INTERVAL.fullmatch(trigger.strip()):
        raise JobError(
            f"flow {name!r}: trigger {trigger!r} is neither an interval such as '1 second' nor {AVAILABLE_NOW!r}"
        )
    if mode not in MODES:
        hint = names.did_you_mean(str(mode), MODES, otherwise=f"; there are {', '.join(MODES)}")
        raise JobError(f"flow {name!r}: there is no output mode {mode!r}{hint}")
    if late == CORRECT:
        _check_correctable(name, to, mode)
    elif late is not None and not isinstance(late, Topic):
        raise JobError(
            f"flow {name!r}: late rows go to a topic, as in late=topic('{name}-late'), or are merged into the output: "
            f"late={CORRECT!r}"
        )


def _check_correctable(flow: str, to: Any, mode: str) -> None:
    """Whether late rows can be merged into what the sink has. What the flow computes is judged by its plan. Raises
    JobError."""
    if mode == "complete":
        raise JobError(f"flow {flow!r}: no row is late in mode 'complete', which keeps all groups: leave late= out")
    if not isinstance(to, Correctable):
        raise JobError(
            f"flow {flow!r}: rows of {to.describe()} cannot be changed by their key, as late={CORRECT!r} does: write "
            f"to database(...), delta(...), iceberg(...) or a topic, or set late rows aside: late=topic('{flow}-late')"
        )
    if not to.key:
        raise JobError(
            f"flow {flow!r}: late={CORRECT!r} finds the rows to correct by their key, and {to.describe()} has none: "
            "give it key=..., the window and all columns by which rows are grouped"
        )
