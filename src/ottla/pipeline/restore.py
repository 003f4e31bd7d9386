"""Taking up a savepoint as the checkpoints of a run (ADR 35).

    read the manifest ─▶ job, flows, versions ─▶ topics: the same, and all records there? ─▶ sinks: nothing newer?
      ─▶ copy aside, with hashes ─▶ does the job still fit? ─▶ run.json names the copy ─▶ remove the former ones

    <home>/pipelines/<name>/
        run.json                checkpoints: checkpoints, and from the last but one step on: restored-2
        checkpoints/            in use until then
        .restored-2.partial/    the copy, until then
        restored-2/             in use from then on

Whatever fails or crashes before run.json is replaced, in one step, leaves the run as it was; after that it goes on from
the savepoint.
"""

import json
import logging
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ottla.pipeline import failures
from ottla.pipeline.brokers import Brokers
from ottla.pipeline.context import Outputs
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.job import CORRECT, Job
from ottla.pipeline.progress import Figures
from ottla.pipeline.queries import DEAD_LETTERS
from ottla.pipeline.regroup import formers_of
from ottla.pipeline.rows.checkpoint_log import CheckpointLog
from ottla.pipeline.run_store import RunDirectory, RunRecord, run_directories
from ottla.pipeline.savepoint import (
    Manifest,
    SavedFlow,
    SavepointError,
    copy_out,
    read_manifest,
    sync_directories,
    sync_directory,
    write_file,
)
from ottla.pipeline.sinks.base import Recording, Sink, UncertainBatchError
from ottla.spark.metadata_queries import Described
from ottla.spark.offsets import Partition
from ottla.spark.stream_offset import StreamOffset

_RESTORED: Final = "restored-"
_PARTIAL: Final = ".partial"
_LATE: Final = "late-"
"""Begins the name under which the follower of a query writes late rows (`ottla.pipeline.rows.late`)."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Restoration:
    """One savepoint on its way to be the checkpoints of a run that this process has claimed. `before` is the run's
    record, None if nothing has run under its name. `set_back` names flows whose outputs cannot be asked, and were set
    back by hand."""

    path: Path
    manifest: Manifest
    run: RunDirectory
    before: RunRecord | None
    set_back: frozenset[str] = frozenset()
    is_taken_up: bool = False
    _partial: Path | None = None

    @classmethod
    def begin(
        cls,
        path: Path,
        job: Job,
        run: RunDirectory,
        before: RunRecord | None,
        *,
        replace: bool = False,
        set_back: frozenset[str] = frozenset(),
    ) -> "Restoration":
        """Read the savepoint, and compare it with the job and with what has run here. Raises SavepointError."""
        manifest = read_manifest(path)
        if manifest.job != job.name:
            raise SavepointError(f"{path} is a savepoint of the job {manifest.job!r}, not of {job.name!r}")
        if unknown := set_back - manifest.flows.keys():
            raise SavepointError(f"--set-back {min(unknown)}: the savepoint has no such flow")
        _check_spark(path, manifest)
        _check_unused(path, manifest, run, before, replace=replace)
        return cls(path, manifest, run, before, set_back)

    def figures(self) -> dict[str, Figures]:
        """The figures of the flows when the savepoint was taken."""
        return {name: Figures(**each) for name, each in self.manifest.figures.items()}

    # -- checking --------------------------------------------------------------------------------------

    def check_flows(self, job: Job, left_out: Collection[str] = ()) -> None:
        """Compare the flows with those of the job, but for the ones `left_out`. Raises SavepointError."""
        saved = {name for name in self.manifest.flows if not name.endswith(DEAD_LETTERS)}
        self._compare(saved, job.flows.keys(), left_out)

    def check_queries(self, planned: Collection[str], *, is_whole: bool) -> None:
        """Compare all queries, those for dead letters among them, which only a plan knows. `is_whole`: no flow is left
        out. Raises SavepointError."""
        saved = set(self.manifest.flows)
        self._compare(saved if is_whole else saved.intersection(planned), planned, ())

    def _compare(self, saved: Collection[str], known: Collection[str], left_out: Collection[str]) -> None:
        for name in saved:
            if name not in known:
                raise SavepointError(
                    f"{self.path} has a flow {name!r}, which the job does not have: put it back into the job file, by "
                    "that name; a renamed flow is a new flow, and would write everything again"
                )
        for name in known:
            if name not in saved and name not in left_out:
                remedy = (
                    "with the job file as it was then, and change that afterwards"
                    if name.endswith(DEAD_LETTERS)
                    else f"without it (--except {name}), and add it by a later start"
                )
                raise SavepointError(
                    f"{self.path} has no flow {name!r}, which would read its inputs from the beginning: take the "
                    f"savepoint up {remedy}"
                )

    def check_topics(self, brokers: Brokers) -> None:
        """See that every topic is the one that was read, with all records from there on. Raises SavepointError."""
        positions = {name: list(positions_of(flow.read)) for name, flow in self.manifest.flows.items()}
        partitions = {partition for each in positions.values() for read in each for partition in read.offsets}
        described, ranges = brokers.extents(partitions)
        for name, each in positions.items():
            problem = next((said for read in each for said in missing(read, described, ranges)), None)
            if problem is not None:
                raise SavepointError(
                    f"flow {name!r} cannot go on from {self.path}: {problem}. Nothing was changed; compute its output "
                    "anew from what there is: ottla pipeline replay"
                )

    def check_sinks(self, job: Job, outputs: Outputs) -> None:
        """Ask every sink which micro-batch of its flow it has last. Raises SavepointError if that is newer than the
        savepoint, or if it cannot be known; SinkError if a sink cannot be reached."""
        for name, saved in self.manifest.flows.items():
            if saved.query_id is None:
                continue
            for sink, query_id in _outputs_of(job, name, saved.query_id, self.manifest.suffix):
                try:
                    last = self._last_batch(name, sink, query_id, outputs)
                except UncertainBatchError as doubt:
                    if name not in self.set_back:
                        raise SavepointError(_doubt(self.path, name, str(doubt))) from None
                    continue
                if last is not None and last > saved.begun:
                    raise SavepointError(_newer(self.path, self.manifest, name, sink, last, saved))

    def _last_batch(self, name: str, sink: Sink, query_id: str, outputs: Outputs) -> int | None:
        doubt = UncertainBatchError(f"{sink.describe()} keeps no record of micro-batches")
        if isinstance(sink, Recording):
            try:
                return sink.last_batch(query_id, outputs)
            except UncertainBatchError as problem:
                doubt = problem
            except PipelineError:
                raise
            except Exception as error:  # of a sink's libraries
                raise SavepointError(
                    f"flow {name!r}: {sink.describe()} cannot be asked what it has: {failures.explain_python(error)}"
                ) from error
        known = None if self.before is None else CheckpointLog(self.run.checkpoints_of(self.before) / name)
        if known is not None and known.exists() and known.query_id() == self.manifest.flows[name].query_id:
            return known.last_begun()  # no micro-batch after this one can be in the output
        raise doubt

    # -- placing ---------------------------------------------------------------------------------------

    @property
    def copied(self) -> Path:
        """The copy, with a checkpoint for each flow."""
        assert self._partial is not None
        return self._partial

    @property
    def final(self) -> Path:
        """Where the copy will be from `take_up` on."""
        return self.copied.with_name(self.copied.name.removeprefix(".").removesuffix(_PARTIAL))

    def copy(self) -> None:
        """Copy the savepoint aside. Raises SavepointError."""
        for left_over in self.run.path.glob(f".*{_PARTIAL}"):
            shutil.rmtree(left_over, ignore_errors=True)
        numbers = (each.name.removeprefix(_RESTORED) for each in self.run.path.glob(f"{_RESTORED}*"))
        number = 1 + max((int(each) for each in numbers if each.isdigit()), default=0)
        final = self.run.path / f"{_RESTORED}{number}"
        self._partial = partial = final.with_name(f".{final.name}{_PARTIAL}")
        copy_out(self.path, self.manifest, partial)
        try:
            for flow in self.manifest.flows:
                relocate_state(partial / flow, final / flow)
            sync_directories(partial)
        except OSError as problem:
            raise SavepointError(f"{partial} cannot be written: {(problem.strerror or str(problem)).lower()}") from None

    def take_up(self, record: RunRecord) -> None:
        """Have the run go on from the copy: `record` is written with it. Raises SavepointError; then the run is as it
        was."""
        partial, final, old = self.copied, self.final, record.checkpoints
        try:
            partial.rename(final)
            self._partial = final
            record.checkpoints = str(final)
            self.run.write(record)
            sync_directory(self.run.path)
        except OSError as problem:
            record.checkpoints = old
            raise SavepointError(
                f"{self.run.path} cannot be written: {(problem.strerror or str(problem)).lower()}. The run is as it was"
            ) from None
        self.is_taken_up = True
        self._remove_previous()

    def give_up(self) -> None:
        """Leave the run as it was; nothing is left of the copy."""
        if self._partial is not None and not self.is_taken_up:
            shutil.rmtree(self._partial, ignore_errors=True)

    def _remove_previous(self) -> None:
        """The run's own former checkpoints; those of a promoted replay are that one's."""
        previous = self.run.path / "checkpoints" if self.before is None else self.run.checkpoints_of(self.before)
        if previous.parent != self.run.path or not previous.exists():
            return
        aside = previous.with_name(f".{previous.name}{_PARTIAL}")
        try:
            shutil.rmtree(aside, ignore_errors=True)
            previous.rename(aside)
            shutil.rmtree(aside)
        except OSError as problem:
            log.warning("the former checkpoints %s cannot be removed: %s", previous, problem)


def _check_spark(path: Path, manifest: Manifest) -> None:
    import pyspark

    here = pyspark.__version__
    if manifest.spark is not None and _release(manifest.spark) > _release(here):
        raise SavepointError(
            f"{path} was written by Spark {manifest.spark}, and this is {here}, which may not read it: install that one"
        )


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())


def _check_unused(
    path: Path, manifest: Manifest, run: RunDirectory, before: RunRecord | None, *, replace: bool
) -> None:
    """Raises SavepointError if there are checkpoints already, or another run has the same queries."""
    if before is not None:
        checkpoints = run.checkpoints_of(before)
        if not replace and any(CheckpointLog(checkpoints / flow).exists() for flow in before.flows):
            raise SavepointError(
                f"{run.name!r} has checkpoints already ({checkpoints}): add --replace to give them up for {path}"
            )
        for flow, saved in manifest.flows.items():
            if saved.query_id in formers_of(checkpoints / flow):
                raise SavepointError(
                    f"flow {flow!r} has been regrouped since {path}: windows that are open there may have come out by "
                    "the new key, and would come out again. Nothing was changed; compute its output anew: "
                    "ottla pipeline replay"
                )
    ids = {flow.query_id for flow in manifest.flows.values() if flow.query_id is not None}
    for other in run_directories(run.path.parent.parent).values():
        if other.name == run.name:
            continue
        record = other.read()
        if record.promoted_to is not None:
            continue
        for flow in record.flows:
            known = CheckpointLog(other.checkpoints_of(record) / flow)
            if known.exists() and known.query_id() in ids:
                raise SavepointError(
                    f"{other.name!r} has the queries of {path}, and two runs of them would lose each other's rows: "
                    f"take the savepoint up as that run (--name {other.name} --replace), or delete {other.path} first"
                )


def _outputs_of(job: Job, name: str, query_id: str, suffix: str) -> Iterator[tuple[Sink, str]]:
    """The sinks of a query, and the id under which each knows it."""
    if name.endswith(DEAD_LETTERS):
        yield _renamed(job.dead_letters, suffix), query_id
        return
    flow = job.flows[name]
    yield _renamed(flow.to, suffix), query_id
    if flow.late_topic is not None:
        yield flow.late_topic, _LATE + query_id  # renamed where it is written, as a topic of the job
    elif flow.late == CORRECT:
        yield _renamed(flow.to, suffix), _LATE + query_id


def _renamed(sink: Sink, suffix: str) -> Sink:
    return sink.renamed(suffix) if suffix else sink


def _newer(path: Path, manifest: Manifest, name: str, sink: Sink, last: int, saved: SavedFlow) -> str:
    return (
        f"flow {name!r} would go back in time: {sink.describe()} has its micro-batches up to {last}, and {path} "
        f"ends with {saved.begun}. It would pass over new rows as if they were written already. Nothing was changed. "
        "Start the run from its newest checkpoints; or compute the output anew beside it: "
        f"`ottla pipeline replay {manifest.run} --from TIME --into NEW`, then promote"
    )


def _doubt(path: Path, name: str, reason: str) -> str:
    return (
        f"flow {name!r}: {reason}, so nobody knows whether {path} is older than that output. Set the output back to "
        f"the savepoint as well, or see that it has nothing newer; then add --set-back {name}"
    )


# -- topics ------------------------------------------------------------------------------------------


def positions_of(sources: Iterable[Any]) -> Iterator[StreamOffset]:
    """Those of sources that are topics."""
    for source in sources:
        if isinstance(source, dict) and source and all(isinstance(each, dict) for each in source.values()):
            yield StreamOffset.parse(source)


def missing(
    read: StreamOffset, described: Mapping[str, Described], ranges: Mapping[Partition, tuple[int, int]]
) -> Iterator[str]:
    """What of the topics is no longer as it was when they were read, each as a phrase. PURE."""
    for topic, known in read.ids.items():
        if topic in described and described[topic].topic_id not in (None, known):
            yield f"topic {topic!r} was deleted and created again since"
    for partition, offset in sorted(read.offsets.items()):
        if partition.topic not in described:
            yield f"topic {partition.topic!r} does not exist any longer"
        elif partition not in ranges:
            yield f"topic {partition.topic!r} no longer has a partition {partition.number}"
        elif offset < ranges[partition][0]:
            gone = ranges[partition][0] - offset
            yield (
                f"{gone:,} records of {partition} are gone: it was read up to offset {offset:,}, and begins at "
                f"{ranges[partition][0]:,}, by its retention or a deletion of records"
            )
        elif offset > ranges[partition][1]:
            yield f"{partition} was read up to offset {offset:,}, and ends at {ranges[partition][1]:,}"


# -- state -------------------------------------------------------------------------------------------


def relocate_state(checkpoint: Path, final: Path) -> None:
    """Adapt what Spark keeps as absolute paths to `final`, where the checkpoint will be: the files with the schemas of
    the state of `transformWithState`. Raises OSError, or SavepointError for something unknown."""
    for file in checkpoint.glob("state/*/_metadata/v2/*"):
        if not file.name.isdigit():
            continue
        version, *lines = file.read_text(encoding="utf-8").split("\n", 1)
        if not lines:
            continue
        try:
            metadata = json.loads(lines[0])
            stores = [each for each in metadata["stateStoreInfo"] if each.get("stateSchemaFilePaths")]
        except (ValueError, KeyError, TypeError, AttributeError):
            raise SavepointError(f"{file} is of a form that is not known: the savepoint cannot be moved") from None
        if not stores:
            continue
        for store in stores:
            store["stateSchemaFilePaths"] = [
                _moved(each, checkpoint.name, final) for each in store["stateSchemaFilePaths"]
            ]
        write_file(file, f"{version}\n{json.dumps(metadata, separators=(',', ':'))}".encode())
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


def _moved(path: str, flow: str, final: Path) -> str:
    _, marker, rest = path.rpartition(f"/{flow}/state/")
    if not marker:
        raise SavepointError(f"the state of {flow!r} names {path}, which is outside of its checkpoint")
    return f"file:{final}/state/{rest}"
