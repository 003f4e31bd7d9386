"""A copy of a run's checkpoints: whole or not there, and held against its hashes."""

import json
import os
from pathlib import Path

import pytest
from tests.support.checkpoints import QUERY, make_run

from ottla.pipeline.run_store import RunDirectory
from ottla.pipeline.savepoint import MANIFEST, Manifest, SavepointError, copy_out, read_manifest, take


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return make_run(tmp_path / "home", "flights")


def test_a_savepoint_names_what_it_holds(run: RunDirectory, tmp_path: Path) -> None:
    shown: list[tuple[int, int]] = []

    taken = take(run, tmp_path / "before", lambda done, total: shown.append((done, total)))

    found = read_manifest(tmp_path / "before")
    assert found == taken
    assert (found.run, found.job, found.spark, found.suffix) == ("flights", "flight-delays", "4.3.0", "")
    flow = found.flows["delays"]
    assert (flow.query_id, flow.done, flow.begun) == (QUERY, 3, 4)
    assert flow.read == ({"flights": {"0": 23}, "#": {"ids": {"flights": "0" * 32}}},)
    assert found.flows["quiet"].query_id is None  # has never run
    names = {file.path.removeprefix("checkpoints/") for file in found.files}
    assert {"delays.json", "delays.late.json", "delays/metadata", "delays/state/0/0/4.zip"} <= names
    assert "removed/metadata" not in names  # of a flow that the run no longer has
    assert shown[0] == (0, found.size_bytes)
    assert shown[-1] == (found.size_bytes, found.size_bytes)

    copy_out(tmp_path / "before", found, tmp_path / "copied")
    for name in names:
        assert (tmp_path / "copied" / name).read_bytes() == (run.path / "checkpoints" / name).read_bytes()


def test_a_path_that_exists_and_a_run_that_runs_are_refused(run: RunDirectory, tmp_path: Path) -> None:
    (tmp_path / "there").write_text("mine")
    with pytest.raises(SavepointError, match="exists already"):
        take(run, tmp_path / "there")
    assert (tmp_path / "there").read_text() == "mine"
    with pytest.raises(SavepointError, match="below the checkpoints themselves"):
        take(run, run.path / "checkpoints" / "delays" / "saved")
    with pytest.raises(SavepointError, match="is no directory"):
        take(run, tmp_path / "nowhere" / "saved")
    with run.claimed(), pytest.raises(SavepointError, match=r"is running \(process \d+\).*pipeline stop flights"):
        take(run, tmp_path / "saved")
    assert not list(tmp_path.glob("*saved*"))


def test_a_copy_that_fails_leaves_nothing(run: RunDirectory, tmp_path: Path) -> None:
    def fail(done: int, _total: int) -> None:
        if done:
            raise OSError(28, "No space left on device", "checkpoints/delays")

    with pytest.raises(SavepointError, match="no space left on device; make room"):
        take(run, tmp_path / "saved", fail)
    assert [each.name for each in tmp_path.iterdir()] == ["home"]


def test_a_copy_that_is_killed_leaves_no_savepoint_and_the_next_one_is_whole(run: RunDirectory, tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        take(run, tmp_path / "saved", lambda done, _total: os._exit(9) if done else None)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    left = tmp_path / ".saved.partial"
    assert left.is_dir()
    assert not (tmp_path / "saved").exists()
    with pytest.raises(SavepointError, match="is no savepoint"):
        read_manifest(left)
    (left / "checkpoints" / "delays" / "stray").write_text("of the killed one")

    take(run, tmp_path / "saved")

    assert not left.exists()
    assert not list((tmp_path / "saved").rglob("stray"))


@pytest.mark.parametrize("damage", ["changed", "cut", "removed"])
def test_a_damaged_file_is_named(run: RunDirectory, tmp_path: Path, damage: str) -> None:
    manifest = take(run, tmp_path / "saved")
    file = tmp_path / "saved" / "checkpoints" / "delays" / "state" / "0" / "0" / "4.zip"
    if damage == "changed":
        file.write_bytes(b"STATE")
    elif damage == "cut":
        file.write_bytes(file.read_bytes()[:-1])
    else:
        file.unlink()
    with pytest.raises(SavepointError, match=r"4\.zip is (missing|not as it was written)"):
        copy_out(tmp_path / "saved", manifest, tmp_path / "copied")


def test_a_manifest_that_was_changed_or_leads_elsewhere_is_refused(run: RunDirectory, tmp_path: Path) -> None:
    manifest = take(run, tmp_path / "saved")
    file = tmp_path / "saved" / MANIFEST
    text = file.read_text()
    for changed in (text.replace("flight-delays", "flight-delay"), text[:-40], "[]", "{}"):
        file.write_text(changed)
        with pytest.raises(SavepointError, match="Take up another savepoint"):
            read_manifest(tmp_path / "saved")
    elsewhere = json.loads(manifest.to_json())
    elsewhere["files"][0]["path"] = "checkpoints/../../../.bashrc"
    del elsewhere["sha256"]
    forged = Manifest(**{**elsewhere, "files": ()}).to_json()  # its hash would be right
    assert json.loads(forged)["sha256"]
    file.write_text(_with_right_hash(elsewhere))
    with pytest.raises(SavepointError, match="which is none of a checkpoint"):
        read_manifest(tmp_path / "saved")


def _with_right_hash(content: dict[str, object]) -> str:
    from ottla.pipeline.savepoint import _digest

    return json.dumps({**content, "sha256": _digest(content)})


def test_a_run_that_has_not_begun_has_nothing_to_save(tmp_path: Path) -> None:
    run = make_run(tmp_path / "home", "flights", batches=None)
    with pytest.raises(SavepointError, match="has no checkpoint yet"):
        take(run, tmp_path / "saved")
