"""What `start`, `stop` and `restart` report of a request for one flow of a run."""

import threading
from pathlib import Path

import pytest
from tests.unit.pipeline.test_run_store import record

from ottla.cli.pipeline.single_flows import ask
from ottla.cli.terminal.exits import CommandFailed
from ottla.pipeline.flow_requests import Request
from ottla.pipeline.run_store import FAILED, RUNNING, STOPPED, WAITING, FlowRecord, RunDirectory, run_directory
from ottla.waiting import wait_until


def flow(state: str, error: str | None = None) -> FlowRecord:
    return FlowRecord(["topic orders"], "topic copies", "append", "1 second", "/c", state, error)


def asked(directory: RunDirectory, request: Request, outcome: dict[str, FlowRecord]) -> None:
    """Ask for `copies`, with a run that takes the request, and writes that outcome."""

    def run() -> None:
        requests = directory.path / "requests"
        assert wait_until(lambda: any(requests.glob("*.json")), 10.0, every_s=0.01)
        directory.write(record("shop", flows=outcome))
        for file in requests.glob("*.json"):
            file.unlink()

    with directory.claimed():
        directory.write(record("shop", flows={"copies": flow(RUNNING)}))
        thread = threading.Thread(target=run)
        thread.start()
        try:
            ask(directory, request, ["copies"], within_s=10.0)
        finally:
            thread.join()


@pytest.mark.parametrize(
    ("request_", "state"), [(Request.STOP, STOPPED), (Request.START, RUNNING), (Request.RESTART, WAITING)]
)
def test_what_has_become_of_the_flow_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], request_: Request, state: str
) -> None:
    asked(run_directory(tmp_path, "shop"), request_, {"copies": flow(state)})
    assert capsys.readouterr().err == f"'copies' is {state}\n"


@pytest.mark.parametrize(
    ("request_", "outcome", "complaint"),
    [
        (Request.STOP, {"copies": flow(RUNNING)}, "'copies' is running"),
        (Request.START, {"copies": flow(FAILED, "no column")}, "'copies' is failed: no column"),
        (Request.STOP, {"others": flow(RUNNING)}, "'shop' has no flow 'copies' any longer"),
    ],
)
def test_what_has_not_been_carried_out_is_a_failure(
    tmp_path: Path, request_: Request, outcome: dict[str, FlowRecord], complaint: str
) -> None:
    with pytest.raises(CommandFailed, match=complaint):
        asked(run_directory(tmp_path, "shop"), request_, outcome)


def test_the_flows_of_a_run_that_starts_are_not_known_yet(tmp_path: Path) -> None:
    directory = run_directory(tmp_path, "shop")
    with directory.claimed():
        directory.write(record("shop", flows={}))
        with pytest.raises(CommandFailed, match="'shop' is starting"):
            ask(directory, Request.STOP, ["copies"], within_s=1.0)
