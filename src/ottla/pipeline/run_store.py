"""The home directory: the files of each run, and the lock of the process that runs it.

    <home>/pipelines/<run name>/
        run.json            the job, its parameters, its flows and their state (`RunRecord`)
        checkpoints/<flow>  Spark's own; beside each, <flow>.json: what must not change (`ottla.pipeline.checkpoint`)
        requests/           what other processes ask of single flows (`ottla.pipeline.flow_requests`)
        progress.jsonl      one line per flow and second at most (`ottla.pipeline.progress`); the older half in .1
        spark.log, spark.err, job.log   the output of Spark, its processes and the job
        pid                 locked (flock) for as long as a process runs it; holds that process's id

The home is --home, else OTTLA_HOME, else ~/.ottla.
"""

import errno
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, Final

from ottla.pipeline import names
from ottla.pipeline.errors import AlreadyRunningError, PipelineError, RunNotFoundError
from ottla.waiting import tries

RUNNING: Final = "running"
STOPPED: Final = "stopped"
"""Stopped by the user, or finished with all available records."""
WAITING: Final = "waiting"
"""The state of a flow that waits for its next try, after a failure that may pass."""
FAILED: Final = "failed"
LEFT_OUT: Final = "left out"
"""The state of a flow that this start of the run does without (`--only`, `--except`)."""
_HISTORIES: Final = "history"
"""Where `rows.history` keeps versions, below a directory for each topic and set of columns."""
_SETTLED_WITHIN_S: Final = 2.0
_LOOK_EVERY_S: Final = 0.02
_BLOCK_BYTES: Final = 4096
_SPARE_BYTES: Final = 1024
"""In run.json at least, for what there is to say when the disk is full."""
LOST: Final = "lost"
"""Never written: the record is still running, but no process holds the run; it was killed."""


@dataclass(slots=True)
class FlowRecord:
    """One streaming query of a run. `state`: running, waiting (for its next try after `error`), stopped, failed,
    left out."""

    inputs: list[str]
    output: str
    mode: str
    trigger: str
    checkpoint: str
    state: str = RUNNING
    error: str | None = None


@dataclass(slots=True)
class RunRecord:
    """What run.json holds. Times are seconds since 1970.

    `flows` has the flows of the job, and beside them its queries for dead letters (`<view>.dead-letters`). `suffix`
    and `starting` belong to a replay: see `RunContext`. `parameters` are those that were given (`Job.param`).
    `replays` names the run that this one is a replay of. A replay that was promoted has the name of that run in
    `promoted_to`, and that run the replay's `suffix` and its directory of `checkpoints`, None being its own.
    `tables` has the snapshots that it reads of tables with a history (`context.Pins`).
    `spark` is the version of Spark that ran it last, None before it has.
    """

    name: str
    job: str
    job_file: str
    fingerprint: str
    bootstrap: str
    master: str
    pid: int
    started_at: float
    state: str = RUNNING
    stopped_at: float | None = None
    error: str | None = None
    suffix: str = ""
    starting: dict[str, dict[str, str]] = field(default_factory=dict)
    replays: str | None = None
    parameters: dict[str, str] = field(default_factory=dict)
    promoted_to: str | None = None
    checkpoints: str | None = None
    spark: str | None = None
    tables: dict[str, dict[str, Any]] = field(default_factory=dict)
    flows: dict[str, FlowRecord] = field(default_factory=dict)

    @classmethod
    def from_json(cls, text: str) -> "RunRecord":
        """Raises ValueError, KeyError or TypeError for text that no run has written."""
        found: dict[str, Any] = json.loads(text)
        flows = {name: FlowRecord(**each) for name, each in found.pop("flows").items()}
        return cls(**found, flows=flows)

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1) + "\n"


def state_of(record: RunRecord) -> str:
    """A run's state in one word; `promoted` for one that has taken the place of another."""
    return record.state if record.promoted_to is None or record.state == RUNNING else "promoted"


def find_home(given: str | Path | None = None) -> Path:
    """The home directory: `given`, else OTTLA_HOME, else ~/.ottla."""
    return Path(given or os.environ.get("OTTLA_HOME") or Path.home() / ".ottla").expanduser().absolute()


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """The directory of one run; it may not exist yet."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def progress(self) -> Path:
        return self.path / "progress.jsonl"

    def late_changes(self) -> dict[str, int]:
        """Changes that came too late for `history(...)`, as far as this machine has read them, by topic."""
        found: dict[str, int] = {}
        for file in sorted((self.path / _HISTORIES).glob("*/current.json")):
            with suppress(OSError, ValueError, TypeError):
                late = int(json.loads(file.read_text()).get("late", 0))
                topic = file.parent.name.rpartition("-")[0]
                found[topic] = max(found.get(topic, 0), late)
        return {topic: late for topic, late in found.items() if late}

    @property
    def spark_log(self) -> Path:
        return self.path / "spark.log"

    def checkpoints_of(self, record: RunRecord) -> Path:
        """Where Spark's checkpoints are, one directory per query: here, unless the run goes on from another's."""
        return self.path / "checkpoints" if record.checkpoints is None else Path(record.checkpoints)

    def exists(self) -> bool:
        return (self.path / "run.json").exists()

    def read(self) -> RunRecord:
        """The record, with the state LOST where the process is gone.

        Raises RunNotFoundError, or PipelineError if run.json is not what a run writes.
        """
        file = self.path / "run.json"
        try:
            record = RunRecord.from_json(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise RunNotFoundError(f"nothing has run as {self.name!r}") from None
        except (ValueError, KeyError, TypeError) as problem:
            raise PipelineError(f"{file} cannot be read ({problem}): it was written by something else") from None
        if record.state == RUNNING and self.process_id() is None:
            record.state = LOST
            for flow in record.flows.values():
                if flow.state in (RUNNING, WAITING):
                    flow.state = LOST
        return record

    def write(self, record: RunRecord) -> None:
        """Replace what is written down, in one step. Raises OSError; then it is as it was.

        The file is filled up with blanks to whole blocks, so that on a full disk those take what there is to say.
        """
        file, fresh = self.path / "run.json", self.path / "run.json.new"
        content = record.to_json().encode()
        try:
            with fresh.open("wb") as new:
                new.write(content.ljust(-(-(len(content) + _SPARE_BYTES) // _BLOCK_BYTES) * _BLOCK_BYTES))
                new.flush()
                os.fsync(new.fileno())
            fresh.replace(file)
        except OSError as problem:
            with suppress(OSError):
                fresh.unlink()
            if problem.errno not in (errno.ENOSPC, errno.EDQUOT) or not file.exists():
                raise
            room = file.stat().st_size
            if room % _BLOCK_BYTES or len(content) > room:
                raise
            with file.open("r+b", buffering=0) as old:
                old.write(content.ljust(room))
                os.fsync(old.fileno())

    def process_id(self) -> int | None:
        """The process that runs it now, None if there is none. Raises PipelineError for one that names no id."""
        try:
            # one that has just claimed the run writes its id a moment later
            for _ in tries(_SETTLED_WITHIN_S, every_s=_LOOK_EVERY_S):
                with (self.path / "pid").open("r", encoding="ascii") as file:
                    try:
                        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                    except BlockingIOError:
                        if process := int(file.read() or 0):
                            return process
                    else:
                        return None
        except FileNotFoundError:
            return None
        raise PipelineError(f"{self.path}: a process holds the run, and its id is not in the file 'pid'")

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Hold the run for this process alone. Raises AlreadyRunningError, or PipelineError if it cannot be made."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            # opened for appending, since a process that finds it locked must not wipe the id of another one
            lock = (self.path / "pid").open("a", encoding="ascii")
        except OSError as problem:
            reason = (problem.strerror or str(problem)).lower()
            raise PipelineError(f"{self.path}: {reason}; choose another directory with --home") from None
        with lock:
            self._lock(lock)
            try:
                lock.truncate(0)
                lock.write(str(os.getpid()))
                lock.flush()
            except OSError as problem:
                if problem.errno != errno.ENOSPC:
                    raise
                raise PipelineError(f"{self.path}: the disk is full; make room, then run it again") from None
            yield

    def _lock(self, file: IO[str]) -> None:
        process = None
        for _ in tries(_SETTLED_WITHIN_S, every_s=_LOOK_EVERY_S):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                process = self.process_id()
                if process is not None:  # else another process has just looked whether one runs
                    break
        raise AlreadyRunningError(
            f"{self.name!r} is running already (process {process}); stop it with "
            f"`ottla pipeline stop {self.name}`, or give this run another --name"
        )


def run_directory(home: Path, name: str) -> RunDirectory:
    """Where the run of this name is or will be. Raises PipelineError for a name that cannot be one."""
    if not names.is_run_name(name):
        raise PipelineError(f"{name!r} cannot name a run: {names.RUN_NAME_RULE}")
    return RunDirectory(home / "pipelines" / name)


def run_directories(home: Path) -> Mapping[str, RunDirectory]:
    """All runs that the home knows, by name."""
    try:
        found = sorted((home / "pipelines").iterdir())
    except FileNotFoundError:
        return {}
    return {each.name: RunDirectory(each) for each in found if (each / "run.json").exists()}


def earlier_run(home: Path, file: Path, name: str | None) -> RunRecord | None:
    """The record of this name or, without one, of the job file under its job's own name; None if nothing is.

    Raises PipelineError if that of the name cannot be read; without a name, what cannot be read is passed over.
    """
    if name is not None:
        directory = run_directory(home, name)
        return directory.read() if directory.exists() else None
    for directory in run_directories(home).values():
        try:
            record = directory.read()
        except PipelineError:  # another job's, most likely
            continue
        if record.name == record.job and record.job_file == str(file.resolve()):
            return record
    return None


def find_run(home: Path, name: str) -> RunDirectory:
    """The run of this name. Raises RunNotFoundError with the nearest name, or where to look."""
    runs = run_directories(home)
    if name not in runs:
        listed = f"; there are {', '.join(runs)}" if 0 < len(runs) <= 10 else f"; see `ottla pipeline list` ({home})"
        raise RunNotFoundError(f"nothing has run as {name!r}{names.did_you_mean(name, runs, otherwise=listed)}")
    return runs[name]
