"""One run takes the place of another: what is written, in which order, and what a crash leaves."""

import json
from pathlib import Path

import pytest

from ottla.pipeline.errors import AlreadyRunningError, PipelineError
from ottla.pipeline.promote import Behind, PromotionError, behind, check, positions, promote
from ottla.pipeline.run_store import FAILED, STOPPED, FlowRecord, RunDirectory, RunRecord, run_directory


def make(home: Path, name: str, *, suffix: str = "", replays: str | None = None, state: str = STOPPED) -> RunDirectory:
    directory = run_directory(home, name)
    directory.path.mkdir(parents=True)
    output = f"topic delays-{suffix}" if suffix else "topic delays"
    checkpoint = str(directory.path / "checkpoints" / "delays")
    record = RunRecord(
        name=name,
        job="flight-delays",
        job_file="/jobs/delays.py",
        fingerprint=f"of {name}",
        bootstrap="127.0.0.1:9092",
        master="local[2]",
        pid=1,
        started_at=1.0,
        state=state,
        error="the disk is full" if state == FAILED else None,
        suffix=suffix,
        starting={"flights": {"startingOffsets": "earliest"}} if suffix else {},
        replays=replays,
        flows={"delays": FlowRecord(["topic flights"], output, "update", "1 second", checkpoint, state)},
    )
    directory.write(record)
    return directory


def read_up_to(run: RunDirectory, flow: str, *sources: object, batch: int = 3) -> None:
    checkpoint = run.path / "checkpoints" / flow
    for kind in ("offsets", "commits"):
        (checkpoint / kind).mkdir(parents=True, exist_ok=True)
    lines = ["v1", '{"batchWatermarkMs":0}', *(each if isinstance(each, str) else json.dumps(each) for each in sources)]
    (checkpoint / "offsets" / str(batch)).write_text("\n".join(lines))
    (checkpoint / "commits" / str(batch)).write_text("v1\n{}")


def test_the_replay_is_the_run_from_now_on(tmp_path: Path) -> None:
    first, replay = make(tmp_path, "flights"), make(tmp_path, "v2", suffix="v2", replays="flights")

    done = promote(tmp_path, "v2")

    assert (done.name, done.replay, done.outputs) == (
        "flights",
        "v2",
        {"delays": ("topic delays", "topic delays-v2")},
    )
    record = first.read()
    assert (record.name, record.suffix, record.replays, record.promoted_to) == ("flights", "v2", None, None)
    assert first.checkpoints_of(record) == replay.path / "checkpoints"
    assert record.fingerprint == "of v2"
    assert record.flows["delays"].output == "topic delays-v2"
    assert replay.read().promoted_to == "flights"
    with pytest.raises(PromotionError, match="'v2' has been promoted already: it runs as 'flights'"):
        promote(tmp_path, "v2")


def test_a_run_that_was_promoted_can_be_replayed_again(tmp_path: Path) -> None:
    first = make(tmp_path, "flights")
    make(tmp_path, "v2", suffix="v2", replays="flights")
    promote(tmp_path, "v2")
    third = make(tmp_path, "v3", suffix="v3", replays="flights")
    promote(tmp_path, "v3")
    assert first.read().suffix == "v3"
    assert first.checkpoints_of(first.read()) == third.path / "checkpoints"


@pytest.mark.parametrize("written", [0, 1])
def test_after_a_crash_it_is_promoted_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: int) -> None:
    first, replay = make(tmp_path, "flights"), make(tmp_path, "v2", suffix="v2", replays="flights")
    before = first.read()
    whole, left = RunDirectory.write, [written]

    def write(self: RunDirectory, record: RunRecord) -> None:
        if left[0] == 0:
            raise KeyboardInterrupt
        left[0] -= 1
        whole(self, record)

    with monkeypatch.context() as crashing:
        crashing.setattr(RunDirectory, "write", write)
        with pytest.raises(KeyboardInterrupt):
            promote(tmp_path, "v2")

    assert first.read() == before  # nothing has changed for who runs it
    assert (replay.read().promoted_to is not None) == bool(written)
    promote(tmp_path, "v2")
    assert first.read().suffix == "v2"
    assert replay.read().promoted_to == "flights"


def test_what_cannot_be_promoted(tmp_path: Path) -> None:
    first = make(tmp_path, "flights")
    replay = make(tmp_path, "v2", suffix="v2", replays="flights")
    make(tmp_path, "broken", suffix="broken", replays="flights", state=FAILED)
    make(tmp_path, "orphan", suffix="orphan", replays="gone")
    with pytest.raises(PromotionError, match="'flights' replays nothing"):
        promote(tmp_path, "flights")
    with pytest.raises(PromotionError, match=r"'broken' has failed \(the disk is full\)"):
        promote(tmp_path, "broken")
    with pytest.raises(PipelineError, match="nothing has run as 'gone'"):
        promote(tmp_path, "orphan")
    for running in (first, replay):
        with running.claimed(), pytest.raises(AlreadyRunningError):
            promote(tmp_path, "v2")
    assert first.read().suffix == ""
    assert check(tmp_path, "v2") == (first, replay)


def test_a_replay_of_which_a_flow_has_failed_replaces_no_run_that_works(tmp_path: Path) -> None:
    make(tmp_path, "flights")
    replay = make(tmp_path, "v2", suffix="v2", replays="flights")
    record = replay.read()
    record.flows["delays"].state, record.flows["delays"].error = FAILED, "no column 'late'"
    replay.write(record)  # the others went on until the run was stopped
    with pytest.raises(PromotionError, match=r"the flow 'delays' of 'v2' has failed \(no column 'late'\)"):
        promote(tmp_path, "v2")


def test_how_far_a_query_has_come(tmp_path: Path) -> None:
    run = make(tmp_path, "flights")
    assert positions(run.path / "checkpoints" / "delays") == {}
    flights = {"flights": {"0": 7, "1": 9}, "#": {"minPartitions": 6}}
    read_up_to(run, "delays", flights, {"logOffset": 3}, "-", {"weather": {"0": 1}})
    read_up_to(run, "delays", {"flights": {"0": 1, "1": 1}}, batch=2)
    assert positions(run.path / "checkpoints" / "delays") == {
        ("flights", 0): 7,
        ("flights", 1): 9,
        ("weather", 0): 1,
    }


def test_a_replay_that_is_behind(tmp_path: Path) -> None:
    first, replay = make(tmp_path, "flights"), make(tmp_path, "v2", suffix="v2", replays="flights")
    read_up_to(first, "delays", {"flights": {"0": 70, "1": 90}}, {"delays-by-day": {"0": 5}})
    assert behind(first, replay) == [Behind("delays", "flights", 160), Behind("delays", "delays-by-day", 5)]
    read_up_to(replay, "delays", {"flights": {"0": 60, "1": 95}}, {"delays-by-day-v2": {"0": 2}})
    assert behind(first, replay) == [Behind("delays", "flights", 10)]
    read_up_to(replay, "delays", {"flights": {"0": 70, "1": 95}}, {"delays-by-day-v2": {"0": 5}}, batch=4)
    assert behind(first, replay) == []
