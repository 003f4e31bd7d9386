"""What becomes of a query that does not start, or does not stop."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # comes without types

from ottla.pipeline.flow_requests import Request
from ottla.pipeline.run_store import FAILED, RUNNING, STOPPED, WAITING
from ottla.pipeline.supervised import Change, Supervised, stop_all


def supervised(error: Exception, restarts: int = 0) -> Supervised:
    def start(*_: object) -> Any:
        raise error

    planned: Any = SimpleNamespace(name="copies", start=start)
    nothing: Any = None
    return Supervised(planned, nothing, Path("/checkpoint"), restarts)


@pytest.mark.parametrize(
    "error",
    [
        OSError(28, "No space left on device"),
        ConnectionRefusedError(111, "Connection refused"),
        RuntimeError("server closed the connection unexpectedly"),
    ],
)
def test_whatever_a_sink_raises_that_passes_is_waited_for(error: Exception) -> None:
    query = supervised(error)

    assert query.start() is Change.WAITS

    assert query.state == WAITING
    assert str(error) in (query.error or "")


def test_what_does_not_pass_is_said_with_its_line() -> None:
    query = supervised(KeyError("carrier"))

    assert (query.start(), query.state) == (Change.FAILED, FAILED)
    assert "KeyError: 'carrier'" in (query.error or "")


def test_what_does_not_pass_is_tried_again_a_few_times_where_flows_fail_alone() -> None:
    query = supervised(KeyError("carrier"), restarts=2)

    assert [query.start() for _ in range(3)] == [Change.WAITS, Change.WAITS, Change.FAILED]

    assert "KeyError: 'carrier'" in (query.error or "")


def test_what_may_pass_ends_after_many_tries_without_a_micro_batch() -> None:
    query = supervised(ValueError("my lookup timed out"))

    assert [query.start() for _ in range(20)] == [*[Change.WAITS] * 19, Change.FAILED]


def test_the_tries_before_a_micro_batch_do_not_count() -> None:
    query = running(Query({}))
    query._tries = query._failures = 3
    query.error = "it timed out"
    assert query.on_batch("the first")
    assert (query._tries, query._failures, query.error) == (0, 0, None)
    assert not query.on_batch("the first"), "it has not failed since"


@pytest.mark.parametrize("state", [FAILED, WAITING, RUNNING])
def test_the_report_of_an_earlier_start_does_not_take_the_reason_away(state: str) -> None:
    query = running(Query({}))
    query.state, query.error = state, "KeyError: 'carrier'"
    assert not query.on_batch("the one before")
    assert query.error == "KeyError: 'carrier'"


class JavaError(Py4JJavaError):  # type: ignore[misc]  # its base is untyped
    """As Spark's `StreamExecution` raises it, without a JVM."""

    def __init__(self, text: str) -> None:
        Exception.__init__(self, text)

    def __str__(self) -> str:
        return str(self.args[0])


class Query:
    """Stands for Spark's; `stop` fails with the error, if there is one."""

    def __init__(self, status: dict[str, Any], error: Exception | None = None) -> None:
        self.status = status
        self.isActive = True
        self.runId = "the first"
        self._error = error

    def exception(self) -> None:
        return None

    def stop(self) -> None:
        if self._error is not None:
            raise self._error
        self.isActive = False


def running(query: Query) -> Supervised:
    planned: Any = SimpleNamespace(name="copies", start=lambda *_: query)
    nothing: Any = None
    started = Supervised(planned, nothing, Path("/checkpoint"))
    assert started.start() is Change.STARTED
    return started


@pytest.mark.parametrize(
    ("active", "message", "is_between"),
    [
        (False, "Waiting for next trigger", True),
        (True, "Processing new data", False),
        (True, "Getting offsets from ottla", True),  # of brokers that may be away
    ],
)
def test_a_query_that_asks_for_offsets_has_nothing_to_finish(active: bool, message: str, is_between: bool) -> None:
    query = running(Query({"isTriggerActive": active, "message": message}))
    assert query.is_between_batches() is is_between


def test_a_query_that_cannot_be_interrupted_does_not_keep_the_others_from_stopping() -> None:
    stuck = running(
        Query({}, JavaError("java.util.concurrent.TimeoutException: Stream Execution failed to stop within 15000 ms"))
    )
    other = running(Query({}))
    stop_all([stuck, other])
    stop_all([stuck, other])  # once more is no longer than once
    assert (stuck.state, other.state) == (STOPPED, STOPPED)
    assert stuck.query is None
    assert other.query is not None
    assert not other.query.isActive


def test_what_else_goes_wrong_while_stopping_is_told() -> None:
    with pytest.raises(Py4JJavaError, match="out of memory"):
        stop_all([running(Query({}, JavaError("out of memory")))])


BUSY = {"isTriggerActive": True, "message": "Processing new data"}
IDLE = {"isTriggerActive": False, "message": "Waiting for next trigger"}


def test_a_request_to_stop_waits_for_the_micro_batch() -> None:
    query = Query(BUSY)
    flow = running(query)
    flow.request(Request.STOP)
    assert (flow.look(), flow.is_done(), query.isActive) == (Change.NONE, False, True)
    query.status = IDLE
    assert (flow.look(), flow.is_done(), query.isActive, flow.state) == (Change.ENDED, True, False, STOPPED)
    assert flow.look() is Change.NONE


def test_a_request_to_stop_is_carried_out_after_a_micro_batch_that_no_look_has_seen_end() -> None:
    flow = running(Query(BUSY))
    flow.request(Request.STOP)
    flow.progress.on_batch({}, 1.0)
    assert (flow.look(), flow.state) == (Change.ENDED, STOPPED)


def test_a_flow_that_is_stopped_has_not_finished_and_one_that_ends_by_itself_has() -> None:
    stopped, ended = running(Query(IDLE)), running(query := Query(IDLE))
    stopped.request(Request.STOP)
    query.isActive = False
    assert (stopped.look(), ended.look()) == (Change.ENDED, Change.ENDED)
    assert (stopped.has_finished, ended.has_finished) == (False, True)


def test_a_flow_is_restarted_on_request() -> None:
    flow = running(query := Query(IDLE))
    started: Any = Query(IDLE)
    object.__setattr__(flow.planned, "start", lambda *_: started)
    flow.request(Request.RESTART)
    assert flow.look() is Change.STARTED
    assert not query.isActive
    assert flow.query is not query
    assert flow.state == RUNNING


@pytest.mark.parametrize("state", [FAILED, STOPPED, WAITING])
def test_a_flow_that_does_not_run_is_started_on_request_and_has_all_its_tries_again(state: str) -> None:
    flow = running(Query(IDLE))
    flow.state, flow.error, flow._failures = state, "5 rows have no 'country'", 6
    flow.request(Request.START)
    assert flow.look() is Change.STARTED
    assert (flow.state, flow.error, flow._failures, flow.is_done()) == (RUNNING, None, 0, True)


def test_a_running_flow_that_is_to_start_goes_on() -> None:
    flow = running(query := Query(BUSY))
    flow.request(Request.START)
    assert (flow.look(), flow.is_done(), flow.query) == (Change.NONE, True, query)


@pytest.mark.parametrize("request_", [Request.START, Request.RESTART])
def test_a_flow_whose_turn_is_yet_to_come_is_started_in_its_turn(request_: Request) -> None:
    flow = supervised(AssertionError("started before its turn"))
    flow.awaits_turn = True
    flow.request(Request.STOP)
    assert (flow.look(), flow.state, flow.is_done()) == (Change.ENDED, STOPPED, True)
    flow.request(request_)
    assert (flow.look(), flow.state, flow.is_done()) == (Change.STARTED, RUNNING, True)
    assert flow.look() is Change.NONE


class Following(SimpleNamespace):
    """A planned query that notes how it was started."""

    def following(self) -> "Following":
        return Following(**{**vars(self), "how": "follows"})

    def start(self, *_: object) -> Any:
        self.started.append(self.how)
        return Query(IDLE)


def following(started: list[str]) -> Supervised:
    planned: Any = Following(name="copies", how="to its end", started=started)
    nothing: Any = None
    flow = Supervised(planned, nothing, Path("/checkpoint"))
    flow.awaits_turn, flow.is_following = False, True
    assert flow.start() is Change.STARTED
    return flow


def test_a_flow_that_followed_is_started_anew_between_two_micro_batches_when_its_turn_comes() -> None:
    started: list[str] = []
    flow = following(started)
    first: Any = flow.query
    first.status = BUSY
    flow.take_turn()
    assert (flow.look(), started) == (Change.NONE, ["follows"])
    first.status = IDLE
    assert (flow.look(), flow.look(), started) == (Change.STARTED, Change.NONE, ["follows", "to its end"])
    assert not first.isActive


def test_a_flow_that_is_to_stop_does_not_begin_anew_in_its_turn() -> None:
    started: list[str] = []
    flow = following(started)
    flow.request(Request.STOP)
    flow.take_turn()
    assert (flow.look(), flow.state, started) == (Change.ENDED, STOPPED, ["follows"])


def test_a_flow_has_something_to_show_after_a_micro_batch_with_records_or_at_its_end() -> None:
    flow = running(query := Query(IDLE))
    flow.progress.on_batch({"numInputRows": 0}, 1.0)
    assert not flow.has_shown(1)
    flow.progress.on_batch({"numInputRows": 5}, 2.0)
    assert (flow.has_shown(1), flow.has_shown(2)) == (True, False)
    ended = running(query)
    query.isActive = False
    ended.look()
    assert ended.has_shown(2)


@pytest.mark.parametrize(("left", "is_worth"), [(None, False), (19, False), (20, True)])
def test_what_is_left_to_read_is_compared_with_what_has_been_read(left: int | None, is_worth: bool) -> None:
    flow = running(Query(IDLE))
    flow.progress.on_batch({"numInputRows": 5}, 1.0)
    flow.progress.figures.lag_records = left
    assert (flow.has_left(4), flow.has_left(0)) == (is_worth, True)
