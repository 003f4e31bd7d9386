"""Requests of other processes for single flows."""

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.flow_requests import FlowRequests, Request, forget, send
from ottla.pipeline.run_store import RunDirectory, run_directory
from ottla.pipeline.supervised import Supervised


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    found = run_directory(tmp_path, "orders")
    found.path.mkdir(parents=True)
    return found


@pytest.fixture
def query() -> Supervised:
    planned: Any = SimpleNamespace(name="copies")
    nothing: Any = None
    return Supervised(planned, nothing, Path("/checkpoint"))


def test_a_request_is_there_until_it_has_been_carried_out(directory: RunDirectory, query: Supervised) -> None:
    requests = FlowRequests(directory, {"copies": query})
    file = send(directory, Request.STOP, "copies")
    requests.take()
    requests.confirm()
    assert not query.is_done()
    assert file.exists()
    query.look()  # it does not run, and is stopped at once
    requests.take()  # which does not take the same file twice
    requests.confirm()
    assert query.is_done()
    assert not file.exists()


def test_requests_for_a_process_that_has_ended_are_not_carried_out(directory: RunDirectory, query: Supervised) -> None:
    file = send(directory, Request.STOP, "copies")
    forget(directory)
    requests = FlowRequests(directory, {"copies": query})
    requests.take()
    assert query.is_done()
    assert not file.exists()


def test_a_request_that_comes_while_the_run_starts_is_carried_out(directory: RunDirectory, query: Supervised) -> None:
    forget(directory)  # as the run is claimed: Spark and the flows take seconds more
    file = send(directory, Request.STOP, "copies")
    requests = FlowRequests(directory, {"copies": query})
    requests.take()
    assert file.exists()
    assert not query.is_done()


@pytest.mark.parametrize("content", ["", "[]", "{", '{"flow": "copies"}', '{"flow": "x", "request": "stop"}', "\xff"])
def test_what_is_no_request_is_removed(
    directory: RunDirectory, query: Supervised, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    requests = FlowRequests(directory, {"copies": query})
    (directory.path / "requests").mkdir()
    file = directory.path / "requests" / "00001.json"
    file.write_text(content, encoding="latin-1")
    with caplog.at_level(logging.WARNING):
        requests.take()
    assert query.is_done()
    assert not file.exists()
    assert "is no request for a flow of this run" in caplog.text


def test_a_request_that_cannot_be_written_is_refused_as_such(directory: RunDirectory) -> None:
    (directory.path / "requests").write_text("")
    with pytest.raises(PipelineError, match=r"the request for 'copies' cannot be written below .*: "):
        send(directory, Request.STOP, "copies")


def test_a_query_may_have_the_name_of_the_longest_topic(directory: RunDirectory, query: Supervised) -> None:
    name = 249 * "x" + ".dead-letters"
    requests = FlowRequests(directory, {name: query})
    send(directory, Request.STOP, name)
    requests.take()
    assert not query.is_done()
