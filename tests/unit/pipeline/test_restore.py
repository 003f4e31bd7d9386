"""Going on from a savepoint: what is refused, and what a crash leaves between any two steps."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pytest
from tests.support.checkpoints import QUERY, make_run

from ottla.pipeline import Job, topic
from ottla.pipeline.context import Outputs
from ottla.pipeline.restore import Restoration, missing, relocate_state
from ottla.pipeline.run_store import RunDirectory, RunRecord, run_directory
from ottla.pipeline.savepoint import SavepointError, take
from ottla.pipeline.sinks import each_batch
from ottla.pipeline.sinks.base import UncertainBatchError
from ottla.spark.metadata_queries import Described
from ottla.spark.offsets import Partition
from ottla.spark.stream_offset import StreamOffset


@dataclass(frozen=True)
class Asked:
    """A sink that says which micro-batch it has."""

    last: int | Exception | None

    def start(self, rows: Any, query: Any) -> Any:
        raise AssertionError("not here")

    def describe(self) -> str:
        return "table delays"

    def renamed(self, _suffix: str) -> "Asked":
        return self

    def read(self, _context: Any) -> Any:
        raise AssertionError("not here")

    def last_batch(self, query_id: str, _outputs: Outputs) -> int | None:
        assert query_id == QUERY
        if isinstance(self.last, Exception):
            raise self.last
        return self.last


def job(sink: Any = None, name: str = "flight-delays", flows: tuple[str, ...] = ("delays", "quiet")) -> Job:
    declared = Job(name)
    for flow in flows:

        def rows(flights: Any) -> Any:
            return flights

        rows.__name__ = flow
        declared.flow(flights=topic("flights"), to=sink or Asked(None))(rows)
    return declared


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return make_run(tmp_path / "home", "flights")


@pytest.fixture
def saved(run: RunDirectory, tmp_path: Path) -> Path:
    take(run, tmp_path / "saved")
    return tmp_path / "saved"


def elsewhere(tmp_path: Path) -> RunDirectory:
    """The directory of the run on another machine, where it has never run."""
    directory = run_directory(tmp_path / "other home", "flights")
    directory.path.mkdir(parents=True, exist_ok=True)
    return directory


def begin(saved: Path, run: RunDirectory, declared: Job | None = None, **options: Any) -> Restoration:
    before = run.read() if run.exists() else None
    return Restoration.begin(saved, declared or job(), run, before, **options)


# -- refused before anything is touched ----------------------------------------------------------------


def test_a_savepoint_of_another_job_and_a_run_with_checkpoints_are_refused(run: RunDirectory, saved: Path) -> None:
    with pytest.raises(SavepointError, match="is a savepoint of the job 'flight-delays', not of 'sales'"):
        begin(saved, run, job(name="sales"), replace=True)
    with pytest.raises(SavepointError, match=r"'flights' has checkpoints already .* add --replace"):
        begin(saved, run)
    with pytest.raises(SavepointError, match="--set-back dellays: the savepoint has no such flow"):
        begin(saved, run, replace=True, set_back=frozenset({"dellays"}))
    begin(saved, run, replace=True)
    (run.checkpoints_of(run.read()) / "delays.starting.json").write_text(json.dumps({"formers": [QUERY]}))
    with pytest.raises(SavepointError, match=r"flow 'delays' has been regrouped since .*would come out again"):
        begin(saved, run, replace=True)


def test_two_runs_never_have_the_same_queries(run: RunDirectory, saved: Path) -> None:
    beside = run_directory(run.path.parent.parent, "beside")
    with pytest.raises(SavepointError, match=r"'flights' has the queries of .*--name flights --replace"):
        begin(saved, beside)
    record = run.read()
    record.promoted_to = "v2"
    run.write(record)  # retired
    begin(saved, beside)


def test_a_newer_spark_is_refused(tmp_path: Path) -> None:
    take(make_run(tmp_path / "home", "flights", spark="99.0.0"), tmp_path / "saved")
    with pytest.raises(SavepointError, match=r"was written by Spark 99\.0\.0, and this is"):
        begin(tmp_path / "saved", elsewhere(tmp_path))


def test_flows_that_are_missing_or_unknown_are_refused(saved: Path, tmp_path: Path) -> None:
    begun = begin(saved, elsewhere(tmp_path))
    with pytest.raises(SavepointError, match="has a flow 'quiet', which the job does not have"):
        begun.check_flows(job(flows=("delays",)))
    wider = job(flows=("delays", "quiet", "hourly"))
    with pytest.raises(SavepointError, match=r"has no flow 'hourly', .*--except hourly"):
        begun.check_flows(wider)
    begun.check_flows(wider, {"hourly"})
    begun.check_queries(["delays", "quiet"], is_whole=True)
    with pytest.raises(SavepointError, match="with the job file as it was then"):
        begun.check_queries(["delays", "quiet", "clean.dead-letters"], is_whole=True)


# -- sinks ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("last", [None, 2, 4])
def test_sinks_that_have_nothing_newer_are_gone_on_with(saved: Path, tmp_path: Path, last: int | None) -> None:
    """Micro-batch 4 was begun: it is repeated as it was, and the sink knows it again."""
    begin(saved, elsewhere(tmp_path)).check_sinks(job(Asked(last)), Outputs("", tmp_path))


def test_a_run_does_not_go_back_in_time(saved: Path, tmp_path: Path) -> None:
    begun = begin(saved, elsewhere(tmp_path), set_back=frozenset({"delays"}))
    with pytest.raises(SavepointError) as refused:
        begun.check_sinks(job(Asked(5)), Outputs("", tmp_path))
    said = str(refused.value)
    assert "flow 'delays' would go back in time: table delays has its micro-batches up to 5" in said
    assert "ends with 4" in said
    assert "ottla pipeline replay flights --from TIME --into NEW" in said


def test_a_sink_that_cannot_tell_needs_a_word_of_the_operator(run: RunDirectory, saved: Path, tmp_path: Path) -> None:
    uncertain = job(Asked(UncertainBatchError("marks may have been forgotten")))
    with pytest.raises(SavepointError, match=r"marks may have been forgotten, so nobody knows .*--set-back delays"):
        begin(saved, elsewhere(tmp_path)).check_sinks(uncertain, Outputs("", tmp_path))
    set_back = begin(saved, elsewhere(tmp_path), set_back=frozenset({"delays"}))
    set_back.check_sinks(uncertain, Outputs("", tmp_path))

    begin(saved, run, replace=True).check_sinks(uncertain, Outputs("", tmp_path))  # its own checkpoints are no further

    # a function has no record: what the run itself has begun is the most that it can have
    function = job(each_batch(cast(Any, None), describe="function deliver"))
    with pytest.raises(SavepointError, match="function deliver keeps no record"):
        begin(saved, elsewhere(tmp_path)).check_sinks(function, Outputs("", tmp_path))
    begin(saved, run, replace=True).check_sinks(function, Outputs("", tmp_path))
    (run.path / "checkpoints" / "delays" / "offsets" / "5").write_text("v1\n{}")
    with pytest.raises(SavepointError, match="would go back in time: function deliver"):
        begin(saved, run, replace=True).check_sinks(function, Outputs("", tmp_path))


def test_a_sink_whose_library_fails_is_named(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(SavepointError, match=r"table delays cannot be asked what it has: .*no route"):
        begin(saved, elsewhere(tmp_path)).check_sinks(job(Asked(ConnectionError("no route"))), Outputs("", tmp_path))


# -- topics --------------------------------------------------------------------------------------------

READ = StreamOffset({Partition("flights", 0): 20, Partition("flights", 1): 7}, {"flights": UUID(int=1)})
TOPIC = {"flights": Described([0, 1], UUID(int=1))}
RANGES = {Partition("flights", 0): (0, 23), Partition("flights", 1): (7, 7)}


def test_topics_that_have_all_records_from_there_on() -> None:
    assert list(missing(READ, TOPIC, RANGES)) == []
    assert list(missing(READ, {"flights": Described([0, 1], None)}, RANGES)) == []  # brokers without ids


@pytest.mark.parametrize(
    ("described", "ranges", "said"),
    [
        ({}, {}, "topic 'flights' does not exist any longer"),
        ({"flights": Described([0, 1], UUID(int=2))}, {}, "topic 'flights' was deleted and created again since"),
        ({}, {Partition("flights", 0): (21, 23)}, "1 records of flights-0 are gone: it was read up to offset 20, and"),
        ({}, {Partition("flights", 1): (0, 5)}, "flights-1 was read up to offset 7, and ends at 5"),
    ],
)
def test_what_is_gone_is_said(described: dict[str, Described], ranges: dict[Partition, Any], said: str) -> None:
    there = described or (TOPIC if ranges else {})
    assert next(missing(READ, there, {**RANGES, **ranges} if there else {})).startswith(said)
    without_one = {Partition("flights", 0): (0, 23)}
    assert list(missing(READ, TOPIC, without_one)) == ["topic 'flights' no longer has a partition 1"]


# -- placing -------------------------------------------------------------------------------------------


def test_paths_in_the_state_go_with_the_checkpoint(run: RunDirectory, tmp_path: Path) -> None:
    copy = tmp_path / "copy" / "delays"
    shutil.copytree(run.path / "checkpoints" / "delays", copy)

    relocate_state(copy, tmp_path / "final" / "delays")

    file = copy / "state" / "0" / "_metadata" / "v2" / "0"
    version, metadata = file.read_text().split("\n")
    assert version == "v2"
    (store,) = json.loads(metadata)["stateStoreInfo"]
    assert store["stateSchemaFilePaths"] == [f"file:{tmp_path}/final/delays/state/0/_stateSchema/default/0_abc"]
    assert not file.with_name(".0.crc").exists()  # Spark would find it wrong
    file.write_text("v2\nnothing known")
    with pytest.raises(SavepointError, match="of a form that is not known"):
        relocate_state(copy, tmp_path / "final" / "delays")


def restored(run: RunDirectory, saved: Path) -> RunRecord:
    begun = begin(saved, run, replace=True)
    record = replace(run.read(), fingerprint="of the restored one")
    begun.copy()
    begun.take_up(record)
    return record


def last_begun(run: RunDirectory) -> int:
    offsets = run.checkpoints_of(run.read()) / "delays" / "offsets"
    return max(int(each.name) for each in offsets.iterdir())


def further(run: RunDirectory) -> None:
    """The run goes on to micro-batch 9."""
    (run.checkpoints_of(run.read()) / "delays" / "offsets" / "9").write_text("v1\n{}")


def test_the_copy_takes_the_place_of_the_checkpoints_in_one_step(run: RunDirectory, saved: Path) -> None:
    further(run)
    assert last_begun(run) == 9

    record = restored(run, saved)

    assert last_begun(run) == 4
    assert run.read() == record
    assert run.checkpoints_of(run.read()) == run.path / "restored-1"
    assert sorted(each.name for each in run.path.iterdir()) == ["pid", "restored-1", "run.json"]

    further(run)
    restored(run, saved)
    assert last_begun(run) == 4
    assert sorted(each.name for each in run.path.iterdir()) == ["pid", "restored-2", "run.json"]


class KilledError(BaseException):
    """The process ends here."""


def crashed(run: RunDirectory, saved: Path, monkeypatch: pytest.MonkeyPatch, step: int) -> bool:
    """Take the savepoint up by a process that is killed before this step; False if it has ended before."""
    calls = 0

    def counting(function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*given: Any, **named: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls > step:  # nothing is done any more, by no handler either
                raise KilledError
            return function(*given, **named)

        return called

    with monkeypatch.context() as crashing:
        for owner, name in ((Path, "rename"), (Path, "replace"), (Path, "open"), (Path, "mkdir"), (shutil, "rmtree")):
            crashing.setattr(owner, name, counting(getattr(owner, name)))
        try:
            restored(run, saved)
        except KilledError:
            return True
    return False


def test_a_crash_between_any_two_steps_leaves_one_or_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)  # the machine does not crash, and disks are slow
    saved = tmp_path / "saved"
    take(make_run(tmp_path / "home", "flights", batches=(0, 1)), saved)
    found = []
    for step in count():
        run = make_run(tmp_path / str(step), "flights", batches=(0, 1))
        further(run)
        was_killed = crashed(run, saved, monkeypatch, step)
        found.append(last_begun(run))

        # whole, the old or the new; and it can be tried again
        checkpoint = run.checkpoints_of(run.read()) / "delays"
        assert (checkpoint / "state" / "0" / "0" / "1.zip").read_bytes() == b"state"
        restored(run, saved)
        assert last_begun(run) == 1
        assert not list(run.path.glob(".*.partial"))
        if not was_killed:
            break
    assert len(found) > 20
    assert found == sorted(found, reverse=True)  # the old ones, then the new ones
    assert {*found} == {1, 9}


def test_what_is_not_taken_up_leaves_nothing(run: RunDirectory, saved: Path) -> None:
    before = sorted(each.name for each in run.path.iterdir())
    begun = begin(saved, run, replace=True)
    begun.copy()
    begun.give_up()
    assert sorted(each.name for each in run.path.iterdir()) == before
