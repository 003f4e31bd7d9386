"""The jobs that a home knows: what they do, how far they are, their dead letters, and replays beside their originals.

All of it is read from files of this machine, in threads. Letters are counted by a redrive that sends nothing.
"""

import asyncio
import contextlib
import functools
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final, NamedTuple

from ottla.connect.runtime.threads import in_thread
from ottla.console.cluster import ClusterView
from ottla.console.sharing import Shared
from ottla.pipeline import progress
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.late_again import watermarks
from ottla.pipeline.promote import Behind, behind
from ottla.pipeline.redrive import Account, Fate, Plan, Wanted, redrive
from ottla.pipeline.run_rows import flow_rows, last_error, remarks
from ottla.pipeline.run_store import RunDirectory, RunRecord, find_run, run_directories, state_of
from ottla.pipeline.task_names import TaskNames, query_of_task

TOPIC: Final = "topic "
"""Begins the description of an output that is a topic."""
LETTERS: Final = ".dead-letters"
LOOKED_AT_S: Final = 5.0
"""How long letters are counted; then the counts are of those that were read so far."""
COUNTED_AT_A_TIME: Final = 2
"""Topics of letters, by all viewers; others wait. A broker that is silent holds a count up for a minute."""
_LETTERS_KEPT_S: Final = 60.0
_QUERIES_S: Final = 10.0
_MOST_QUERIES: Final = 200


class Run(NamedTuple):
    """A run in the list; `problem`: why its record cannot be read."""

    name: str
    state: str = "unreadable"
    job: str = ""
    flows: int = 0
    rate: int = 0
    lag_records: int | None = None
    since: float | None = None
    process: int | None = None
    replays: str | None = None
    problem: str | None = None


class Beside(NamedTuple):
    """A replay beside the run that it replays: for each flow, both rows; and where the replay has not come as far."""

    original: str
    replay: str
    flows: list[tuple[str, Mapping[str, Any], Mapping[str, Any]]]
    behind: list[Behind]


class RunPage(NamedTuple):
    """A run on a page of its own."""

    name: str
    record: RunRecord
    state: str
    process: int | None
    rows: list[dict[str, Any]]
    remarks: list[str]
    letters: list[str]
    """Topics of dead letters."""
    beside: list[Beside]


class LetterCount(NamedTuple):
    """Dead letters with one reason and fate."""

    letters: int
    fate: str
    topic: str
    reason: str


class Letters(NamedTuple):
    """The dead letters of a topic; `is_whole`: all of them were looked at."""

    topic: str
    counts: list[LetterCount]
    would_go: int
    late_again: int
    is_whole: bool


class SparkQuery(NamedTuple):
    """A query of Spark by the marks of its tasks; `flow` None: no run of the home has it."""

    query: str
    flow: str | None
    tasks: int
    next_batch: int | None


class Runs:
    """The runs of one home. On one event loop."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._shared = Shared()
        self._counting = asyncio.Semaphore(COUNTED_AT_A_TIME)

    def forget(self) -> None:
        """Read anew: something was changed."""
        self._shared.forget()

    async def listed(self) -> list[Run]:
        """All runs, those that run first."""
        return await self._shared.get("list", lambda: asyncio.to_thread(_listed, self.home))

    async def run(self, name: str) -> RunPage:
        """One run. Raises PipelineError."""
        return await self._shared.get(("run", name), lambda: asyncio.to_thread(_run, self.home, name))

    async def letters(self, view: ClusterView, topic: str) -> Letters:
        """Dead letters by reason. Raises PipelineError, KafkaException."""

        async def ask() -> Letters:
            count = functools.partial(_letters, view.client_properties, self.home, topic)
            async with self._counting:
                return await asyncio.wrap_future(in_thread(f"console counts {topic}", count))

        return await view.shared.get(("letters", topic), ask, _LETTERS_KEPT_S)

    async def queries(self, view: ClusterView) -> list[SparkQuery]:
        """Queries of Spark, by the groups in which their tasks keep marks. Raises ClientError."""

        async def ask() -> list[SparkQuery]:
            names = [group.name for group in await view.groups() if query_of_task(group.name)]
            largest = dict(Counter(map(query_of_task, names)).most_common(_MOST_QUERIES))
            shown = [name for name in names if query_of_task(name) in largest]
            marks = await view.dear(lambda admin: admin.list_offsets_of_groups(shown)) if shown else {}
            known = await asyncio.to_thread(TaskNames, self.home)
            return spark_queries(shown, marks, known)

        return await view.shared.get("spark queries", ask, _QUERIES_S)


def spark_queries(names: Sequence[str], marks: Mapping[str, Mapping[Any, int]], known: TaskNames) -> list[SparkQuery]:
    """One row a query, those that a run has first. PURE."""
    tasks: dict[str, list[str]] = {}
    for name in names:
        tasks.setdefault(str(query_of_task(name)), []).append(name)
    rows = []
    for query, groups in tasks.items():
        batches = [offset for name in groups for offset in marks.get(name, {}).values()]
        rows.append(SparkQuery(query, known.flow_of(query), len(groups), max(batches, default=None)))
    return sorted(rows, key=lambda each: (each.flow is None, each.flow or "", each.query))


def letter_counts(account: Account) -> list[LetterCount]:
    """Most letters first, without those that are sent already. PURE."""
    return [
        LetterCount(number, "would be sent" if fate is Fate.SENT else fate.value, topic or "", reason)
        for (fate, reason, topic), number in sorted(account.fates.items(), key=lambda each: (-each[1], each[0][1]))
        if fate is not Fate.SENT_BEFORE
    ]


# -- in threads --------------------------------------------------------------------------------------------------------


def _listed(home: Path) -> list[Run]:
    found = []
    for name, directory in run_directories(home).items():
        try:
            record = directory.read()
            rows = flow_rows(record, progress.latest(directory.progress, record.flows))
            lags = [row["lag_records"] for row in rows if row["lag_records"] is not None]
            found.append(
                Run(
                    name,
                    state_of(record),
                    record.job,
                    len(record.flows),
                    sum(row["rate"] or 0 for row in rows),
                    sum(lags) if lags else None,
                    record.started_at if record.stopped_at is None else record.stopped_at,
                    directory.process_id(),
                    record.replays,
                    last_error(record),
                )
            )
        except (PipelineError, OSError) as problem:
            found.append(Run(name, problem=str(problem)))
    return sorted(found, key=lambda each: (each.process is None, each.name))


def _run(home: Path, name: str) -> RunPage:
    directory = find_run(home, name)
    record = directory.read()
    figures = progress.latest(directory.progress, record.flows)
    outputs = {about.output for flow, about in record.flows.items() if flow.endswith(LETTERS)}
    return RunPage(
        name,
        record,
        state_of(record),
        directory.process_id(),
        flow_rows(record, figures),
        list(remarks(record, figures, directory.late_changes())),
        sorted(each.removeprefix(TOPIC) for each in outputs if each.startswith(TOPIC)),
        list(_beside(home, directory, record)),
    )


def _beside(home: Path, directory: RunDirectory, record: RunRecord) -> Iterator[Beside]:
    """The run beside its original if it is a replay, and each of its replays beside it."""
    others = run_directories(home)
    if record.replays is not None and record.replays in others and record.promoted_to is None:
        with contextlib.suppress(PipelineError, OSError):  # the original cannot be read: it stands alone
            yield _pair(others[record.replays], directory)
    for other in others.values():
        with contextlib.suppress(PipelineError, OSError):
            its = other.read()
            if its.replays == record.name and its.promoted_to is None and other.name != record.name:
                yield _pair(directory, other)


def _pair(original: RunDirectory, replay: RunDirectory) -> Beside:
    first, second = _rows_of(original), _rows_of(replay)
    flows: list[tuple[str, Mapping[str, Any], Mapping[str, Any]]] = [
        (flow, first.get(flow, {}), second.get(flow, {})) for flow in sorted({*first, *second})
    ]
    return Beside(original.name, replay.name, flows, behind(original, replay))


def _rows_of(directory: RunDirectory) -> dict[str, dict[str, Any]]:
    record = directory.read()
    rows = flow_rows(record, progress.latest(directory.progress, record.flows))
    return {row["flow"]: {**row, "output": record.flows[row["flow"]].output} for row in rows}


class _EnoughLetters(Exception):
    """So many were counted as there was time for."""


def plan_of(home: Path, topic: str, wanted: Wanted, *, leave_late: bool = False, dry_run: bool = False) -> Plan:
    """A redrive as the command line would do it. Reads the watermarks of the home's runs."""
    return Plan(topic, wanted, dry_run=dry_run, flows=tuple(watermarks(home)), leave_late=leave_late)


def _letters(client: Mapping[str, Any], home: Path, topic: str) -> Letters:
    until = time.monotonic() + LOOKED_AT_S
    counted = Account()

    def look(account: Account) -> None:
        nonlocal counted
        counted = account
        if time.monotonic() > until:
            raise _EnoughLetters

    is_whole = True
    try:
        counted = redrive(client, plan_of(home, topic, Wanted(), dry_run=True), look)
    except _EnoughLetters:
        is_whole = False
    return Letters(topic, letter_counts(counted), counted.count(Fate.SENT), counted.late_letters, is_whole)


# -- redrives ----------------------------------------------------------------------------------------------------------


class Redriving:
    """One redrive that was begun here, in a thread of its own: the letters it has sent, and its end (`problem` "": it
    went well)."""

    def __init__(self, client: Mapping[str, Any], plan: Plan) -> None:
        self.topic = plan.letters
        self.sent = 0
        self.is_over = False
        self.problem = ""
        self._client = client
        self._plan = plan
        self.end: Future[None] | None = None

    def start(self) -> None:
        """Begin; `end` is done when it is over, and never fails."""
        self.end = in_thread(f"redrive {self.topic}", self._run)

    def _run(self) -> None:
        try:
            self._show(redrive(self._client, self._plan, self._show))
        except Exception as problem:  # the page shows it
            self.problem = str(problem)
        finally:
            self.is_over = True

    def _show(self, account: Account) -> None:
        self.sent = account.count(Fate.SENT)


class Redrives:
    """The redrives of this console, the newest of each topic."""

    MOST_AT_A_TIME: Final = 2
    MOST_KEPT: Final = 50

    def __init__(self) -> None:
        self._known: dict[str, Redriving] = {}

    def of(self, topic: str) -> Redriving | None:
        """The newest redrive of a topic."""
        return self._known.get(topic)

    def begin(self, client: Mapping[str, Any], plan: Plan) -> Redriving:
        """Send letters back. Raises PipelineError while others are being sent."""
        topic = plan.letters
        running = [each for each in self._known.values() if not each.is_over]
        if any(each.topic == topic for each in running):
            raise PipelineError(f"the letters of {topic} are being sent back already")
        if len(running) >= self.MOST_AT_A_TIME:
            raise PipelineError(f"{len(running)} redrives are running: wait for one of them")
        self._known.pop(topic, None)
        while len(self._known) >= self.MOST_KEPT:
            del self._known[next(name for name, each in self._known.items() if each.is_over)]
        begun = self._known[topic] = Redriving(client, plan)
        begun.start()
        return begun
