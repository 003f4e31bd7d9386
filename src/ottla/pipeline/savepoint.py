"""A savepoint: a copy of all checkpoints of a stopped run, with a manifest by which it can be taken up elsewhere.

    <path>/
        savepoint.json          the manifest: job, flows and how far each is, versions, a hash of every file
        checkpoints/<flow>/...  Spark's own
        checkpoints/<flow>.json, .late.json, .starting.json   what Ottla keeps beside them

The copy is made in the directory `.<name>.partial` beside it, which gets its name in one step once every file and the
manifest are on the disk: whatever has the name is whole. What a killed copy leaves is removed by the next one to the
same path.
"""

import errno
import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Final

import ottla
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.progress import Figures, latest
from ottla.pipeline.rows.checkpoint_log import CheckpointLog
from ottla.pipeline.run_store import RunDirectory, RunRecord

MANIFEST: Final = "savepoint.json"
CHECKPOINTS: Final = "checkpoints"
_FORMAT: Final = 1
_BESIDE: Final = (".json", ".late.json", ".starting.json")
"""The ends of the names of Ottla's own files beside a flow's checkpoint."""
_CHUNK: Final = 1 << 20


class SavepointError(PipelineError):
    """A savepoint cannot be made or taken up; the message names it, the reason, and the remedy."""


@dataclass(frozen=True, slots=True)
class SavedFile:
    """A file below the savepoint; `path` has `/` between its parts."""

    path: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class SavedFlow:
    """How far a query was. `query_id` None: it has never run. `done` is the number of its last finished micro-batch
    and `begun` that of the last begun one, -1 if there is none. `read` has what it has read of each source, as Spark's
    JSON."""

    query_id: str | None
    done: int
    begun: int
    read: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Manifest:
    """What savepoint.json holds. `taken_at` is in seconds since 1970; `spark` the version that wrote the checkpoints,
    None if it is unknown; `figures` are those of the flows (`ottla.pipeline.progress`); the others are the
    `RunRecord`'s."""

    run: str
    job: str
    fingerprint: str
    taken_at: float
    ottla: str
    spark: str | None
    suffix: str = ""
    starting: dict[str, dict[str, str]] = field(default_factory=dict)
    replays: str | None = None
    parameters: dict[str, str] = field(default_factory=dict)
    tables: dict[str, dict[str, Any]] = field(default_factory=dict)
    flows: dict[str, SavedFlow] = field(default_factory=dict)
    figures: dict[str, dict[str, Any]] = field(default_factory=dict)
    files: tuple[SavedFile, ...] = ()
    format: int = _FORMAT

    @property
    def size_bytes(self) -> int:
        """The size of all files together, without the manifest."""
        return sum(file.size_bytes for file in self.files)

    def to_json(self) -> str:
        """With a hash of itself, so that a damaged manifest is recognised."""
        content = asdict(self)
        return json.dumps({**content, "sha256": _digest(content)}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Manifest":
        """Raises ValueError, KeyError, TypeError or AttributeError for text that is damaged or something else."""
        content: dict[str, Any] = json.loads(text)
        if content.pop("sha256") != _digest(content):
            raise ValueError("its content does not have the hash that it names")
        if content["format"] != _FORMAT:
            raise ValueError(f"it has format {content['format']}, and this version of Ottla knows {_FORMAT}")
        flows = {
            name: SavedFlow(**{**each, "read": tuple(each["read"])}) for name, each in content.pop("flows").items()
        }
        files = tuple(SavedFile(**each) for each in content.pop("files"))
        for file in files:
            _check_path(file.path)
        return cls(**content, flows=flows, files=files)


# -- making one --------------------------------------------------------------------------------------


def take(run: RunDirectory, path: Path, show: Callable[[int, int], None] = lambda _done, _total: None) -> Manifest:
    """Copy the checkpoints of a run that is stopped; the run cannot be started meanwhile.

    `show` is called with the bytes copied so far and those of all files. Raises AlreadyRunningError, RunNotFoundError,
    or SavepointError; then nothing is left at `path`.
    """
    process = run.process_id()
    if process is not None:
        raise SavepointError(
            f"{run.name!r} is running (process {process}), and a copy of a running run's files is of no moment at all: "
            f"stop it with `ottla pipeline stop {run.name}`, take the savepoint, and start it again"
        )
    record = run.read()
    if record.promoted_to is not None:
        raise SavepointError(f"{run.name!r} has taken the place of {record.promoted_to!r}: take a savepoint of that")
    with run.claimed():
        record = run.read()
        checkpoints = run.checkpoints_of(record)
        _check_new(path, checkpoints)
        flows = {name: _saved_flow(checkpoints / name) for name in record.flows}
        if not any(flow.query_id for flow in flows.values()):
            raise SavepointError(f"{run.name!r} has no checkpoint yet: there is nothing to save")
        found = [file for name in flows for file in _files_of(checkpoints, name)]
        with _partial(path) as partial:
            files = tuple(_copied(checkpoints, found, partial / CHECKPOINTS, show))
            manifest = _manifest(record, flows, latest(run.progress), files)
            write_file(partial / MANIFEST, manifest.to_json().encode())
            sync_directories(partial)
            _publish(partial, path)
    return manifest


def _manifest(
    record: RunRecord, flows: Mapping[str, SavedFlow], figures: Mapping[str, Figures], files: tuple[SavedFile, ...]
) -> Manifest:
    return Manifest(
        run=record.name,
        job=record.job,
        fingerprint=record.fingerprint,
        taken_at=time.time(),
        ottla=ottla.__version__,
        spark=record.spark,
        suffix=record.suffix,
        starting=record.starting,
        replays=record.replays,
        tables=record.tables,
        parameters=record.parameters,
        flows=dict(flows),
        figures={name: asdict(each) for name, each in figures.items() if name in flows},
        files=files,
    )


def _check_new(path: Path, checkpoints: Path) -> None:
    if os.path.lexists(path):
        raise SavepointError(
            f"{path} exists already: give a path that does not, since a savepoint is never overwritten"
        )
    if not path.parent.is_dir():
        raise SavepointError(f"{path.parent} is no directory: make it first")
    if path.resolve().is_relative_to(checkpoints.resolve()):
        raise SavepointError(f"{path} lies below the checkpoints themselves: give a path outside of {checkpoints}")


def _saved_flow(checkpoint: Path) -> SavedFlow:
    log = CheckpointLog(checkpoint)
    if not log.exists():
        return SavedFlow(None, -1, -1)
    done = log.last_done()
    return SavedFlow(log.query_id(), done, log.last_begun(), log.batch(done).ends if done >= 0 else ())


def _files_of(checkpoints: Path, flow: str) -> Iterator[str]:
    """What belongs to a flow, as paths below the checkpoints."""
    for directory, _, names in os.walk(checkpoints / flow):
        for name in names:
            yield Path(directory, name).relative_to(checkpoints).as_posix()
    yield from (name for end in _BESIDE if (checkpoints / (name := flow + end)).is_file())


@contextmanager
def _partial(path: Path) -> Iterator[Path]:
    """A new directory beside `path`, removed if the block fails. Raises SavepointError."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        partial.mkdir(exist_ok=True)
        held = os.open(partial, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as problem:
        raise _failed(path, problem) from None
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.lexists(path):  # another process was quicker
            raise SavepointError(f"{path} exists already: give a path that does not")
        try:
            _empty(partial)
            yield partial
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
    except BlockingIOError:
        raise SavepointError(f"another process is writing a savepoint to {path}") from None
    except OSError as problem:
        raise _failed(path, problem) from None
    finally:
        os.close(held)


def _empty(directory: Path) -> None:
    """Remove what a killed copy left."""
    for each in directory.iterdir():
        if each.is_dir() and not each.is_symlink():
            shutil.rmtree(each)
        else:
            each.unlink()


def _copied(source: Path, files: list[str], target: Path, show: Callable[[int, int], None]) -> Iterator[SavedFile]:
    total, done = sum((source / file).stat().st_size for file in files), 0
    show(done, total)
    for file in files:
        digest, size = copy_file(source / file, target / file)
        done += size
        show(done, total)
        yield SavedFile(f"{CHECKPOINTS}/{file}", size, digest)


def _publish(partial: Path, path: Path) -> None:
    partial.rename(path)
    sync_directory(path.parent)


def _failed(path: Path, problem: OSError) -> SavepointError:
    reason = (problem.strerror or str(problem)).lower()
    what = "; make room" if problem.errno in (errno.ENOSPC, errno.EDQUOT) else ""
    return SavepointError(f"no savepoint was written to {path}: {problem.filename or 'a file'}: {reason}{what}")


# -- reading one -------------------------------------------------------------------------------------


def read_manifest(path: Path) -> Manifest:
    """Raises SavepointError for a path that holds no savepoint, or a manifest that is damaged."""
    file = path / MANIFEST
    try:
        return Manifest.from_json(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise SavepointError(f"{path} is no savepoint: it has no {MANIFEST}") from None
    except OSError as problem:
        raise SavepointError(f"{file} cannot be read: {(problem.strerror or str(problem)).lower()}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise SavepointError(f"{file} cannot be used: {problem}. Take up another savepoint") from None


def copy_out(path: Path, manifest: Manifest, target: Path) -> None:
    """Copy the checkpoints of a savepoint into the directory `target`, each file held against its hash.

    Raises SavepointError for a file that is missing or damaged, or that cannot be written.
    """
    for file in manifest.files:
        place = target / PurePosixPath(file.path).relative_to(CHECKPOINTS)
        try:
            digest, _ = copy_file(path / file.path, place)
        except FileNotFoundError:
            raise SavepointError(f"{path / file.path} is missing: the savepoint is damaged, take up another") from None
        except OSError as problem:
            reason = (problem.strerror or str(problem)).lower()
            raise SavepointError(f"{path} cannot be copied to {target}: {problem.filename}: {reason}") from None
        if digest != file.sha256:
            raise SavepointError(
                f"{path / file.path} is not as it was written: its SHA-256 is {digest[:12]}..., and {MANIFEST} has "
                f"{file.sha256[:12]}.... The savepoint is damaged, take up another"
            )


def copy_file(source: Path, target: Path) -> tuple[str, int]:
    """Copy a file and bring the copy to the disk; its SHA-256 and size. Raises OSError."""
    digest, size = hashlib.sha256(), 0
    target.parent.mkdir(parents=True, exist_ok=True)
    with source.open("rb") as old, target.open("wb") as new:
        while chunk := old.read(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
            new.write(chunk)
        new.flush()
        os.fsync(new.fileno())
    return digest.hexdigest(), size


def sync_directories(top: Path) -> None:
    """Bring the entries of a directory and of those below it to the disk. Raises OSError."""
    for directory, _, _ in os.walk(top):
        sync_directory(Path(directory))


def sync_directory(directory: Path) -> None:
    """Bring the entries of a directory to the disk. Raises OSError."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_file(file: Path, content: bytes) -> None:
    """Write a file and bring it to the disk. Raises OSError."""
    with file.open("wb") as new:
        new.write(content)
        new.flush()
        os.fsync(new.fileno())


def _check_path(path: str) -> None:
    """Raises ValueError for a path that leads out of the savepoint's checkpoints."""
    parts = PurePosixPath(path).parts
    if len(parts) < 2 or parts[0] != CHECKPOINTS or ".." in parts:
        raise ValueError(f"it names the file {path!r}, which is none of a checkpoint")


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
