"""Declaring jobs: what is refused, and in which words."""

from collections.abc import Callable
from typing import Any

import pytest

from ottla.pipeline.errors import JobError
from ottla.pipeline.inputs import Topic, files, topic
from ottla.pipeline.job import Job
from ottla.pipeline.rows.captured import captured
from ottla.pipeline.sinks import console, parquet


def copy(rows: Any) -> Any:
    return rows


def two(flights: Any, airlines: Any = None) -> Any:
    return flights, airlines


def no_parameter(job: Job) -> None:
    job.view(flihgts=topic("flights"))(two)


def nothing_given(job: Job) -> None:
    job.view(airlines=topic("airlines"))(two)


def no_input(job: Job) -> None:
    job.view()(copy)


def not_an_input(job: Job) -> None:
    job.view(rows=7)(copy)  # type: ignore[arg-type]


def twice(job: Job) -> None:
    job.view(rows=topic("a"))(copy)
    job.flow(rows=topic("a"), to=topic("b"))(copy)


def no_mode(job: Job) -> None:
    job.flow(rows=topic("a"), to=topic("b"), mode="apend")(copy)


def no_trigger(job: Job) -> None:
    job.flow(rows=topic("a"), to=topic("b"), trigger="now and then")(copy)


def no_sink(job: Job) -> None:
    job.flow(rows=topic("a"), to="b")(copy)  # type: ignore[arg-type]


def a_flow_as_input(job: Job) -> None:
    flow = job.flow(rows=topic("a"), to=topic("b"))(copy)
    job.flow(flights=flow, to=topic("c"))(two)
    job.check()


def unknown_view(job: Job) -> None:
    job.view(rows=topic("a"))(copy)
    job.flow(flights="copi", to=topic("c"))(two)
    job.check()


def no_view_but_a_topic(job: Job) -> None:
    job.flow(flights="arrivals", to=topic("c"))(two)
    job.check()


def a_circle(job: Job) -> None:
    job.view(rows="two")(copy)
    job.view(flights="copy")(two)
    job.sql_flow("out", "SELECT * FROM two", two="two", to=topic("c"))
    job.check()


def no_flow(job: Job) -> None:
    job.view(rows=topic("a"))(copy)
    job.check()


def unknown_parameter(job: Job) -> None:
    job.param("carrier", "UA")
    job.flow(rows=topic("a"), to=topic("b"))(copy)
    job.check({"carier": "AA"})


def no_statement(job: Job) -> None:
    job.sql_view("x", "  ", rows=topic("a"))


@pytest.mark.parametrize(
    ("declare", "complaint"),
    [
        (no_parameter, "function 'two' has no parameter 'flihgts'; did you mean 'flights'?"),
        (nothing_given, "the parameter 'flights' of 'two' has no input: name one, as in flights="),
        (no_input, "the parameter 'rows' of 'copy' has no input"),
        (not_an_input, "'copy' gets rows=7, which is no input: give topic(...)"),
        (twice, "flow 'copy' is declared twice"),
        (no_mode, "flow 'copy': there is no output mode 'apend'; did you mean 'append'?"),
        (no_trigger, "flow 'copy': trigger 'now and then' is neither an interval such as '1 second' nor"),
        (no_sink, "flow 'copy' writes to 'b', which is no sink"),
        (a_flow_as_input, r"'two' reads the flow 'copy': read what it writes \(topic b\)"),
        (unknown_view, "'two' reads 'copi', which is no view of this job; did you mean 'copy'?"),
        (no_view_but_a_topic, r"'two' reads 'arrivals', which is no view of this job; a topic is written topic\('arr"),
        (a_circle, "views read each other in a circle: (copy -> two -> copy|two -> copy -> two)"),
        (no_flow, "job 'flights' has no flow"),
        (unknown_parameter, "job 'flights' has no parameter 'carier'; did you mean 'carrier'?"),
        (no_statement, "'x' has no statement"),
    ],
)
def test_what_is_refused(declare: Callable[[Job], None], complaint: str) -> None:
    with pytest.raises(JobError, match=complaint):
        declare(Job("flights"))


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"history": "some"}, "flow 'customers': history is 'latest', .* or 'all', .*; there is no 'some'"),
        ({"history": "all"}, "flow 'customers': topic copy cannot keep all versions: a topic keeps records, not rows"),
        ({"history": "all", "into": parquet("out")}, "Parquet files out cannot keep all versions: a row that was wri"),
        ({"history": "all", "into": console()}, "cannot keep all versions.* Give database"),
        ({"into": parquet("out")}, "flow 'customers': rows of Parquet files out cannot be changed by their key: give"),
        ({"into": console()}, "cannot be changed by their key"),
        ({"into": "out"}, "flow 'customers' writes to 'out', which is no sink"),
        ({"changes": 7}, "'apply_changes' gets changes=7, which is no input"),
        ({"changes": files("*.json")}, "a view of its rows, and not json files"),
        ({"name": "a b"}, "'a b' cannot name a view or flow"),
        ({"trigger": "soon"}, "flow 'customers': trigger 'soon' is neither"),
    ],
)
def test_changes_that_cannot_be_applied(options: dict[str, Any], complaint: str) -> None:
    given: dict[str, Any] = {"changes": captured("shop.public.customers"), "into": topic("copy"), **options}
    with pytest.raises(JobError, match=complaint):
        Job("shop").apply_changes(given.pop("changes"), **given)


def test_flows_of_changes_have_the_names_of_their_tables() -> None:
    job = Job("shop")
    customers = captured("shop.public.customers", maxOffsetsPerTrigger=10)
    seen = job.view(rows=customers)(copy)
    flows = [job.apply_changes(each, into=topic("out")) for each in (customers, seen, "later")]
    assert [flow.name for flow in flows] == ["customers", "copy_applied", "later_applied"]
    assert {flow.mode for flow in flows} == {"changes"}
    assert (job.copies(), job.copies(("none",))) == ({"out"}, frozenset())
    assert job.reads(("customers",)) == {"shop.public.customers"}
    with pytest.raises(JobError, match="a table is captured in one topic"):
        captured("a,b")


@pytest.mark.parametrize("name", ["", "a/b", "../x", "a b", "x" * 101])
def test_a_name_that_is_none(name: str) -> None:
    with pytest.raises(JobError, match="a job's name is"):
        Job(name)


def test_what_to_do_after_a_failure_is_one_of_two() -> None:
    assert Job("flights").on_failure == "isolate"
    with pytest.raises(JobError, match="on_failure is 'isolate' or 'stop', not 'ignore'"):
        Job("flights", on_failure="ignore")


def test_flows_are_selected_by_name() -> None:
    job = Job("flights")
    for name, source in (("first", "a"), ("second", "b"), ("third", "c")):
        job.sql_flow(name, "SELECT * FROM t", t=topic(source), to=topic(f"{name}-out"))
    assert job.select((), ()) == {"first", "second", "third"}
    assert job.select(("first", "third"), ("third",)) == {"first"}
    assert job.select((), ("first",)) == {"second", "third"}
    assert job.reads(job.select((), ("first",))) == {"b", "c"}
    with pytest.raises(JobError, match="job 'flights' has no flow 'frist'; did you mean 'first'"):
        job.select((), ("frist",))
    with pytest.raises(JobError, match="no flow of job 'flights' is left to run"):
        job.select(("first",), ("first",))


def test_what_a_job_reads_and_writes() -> None:
    job = Job("flights", dead_letters="rejected")
    clean = job.view(rows=topic("flights, arrivals"))(copy)
    job.flow(flights=clean, airlines=topic("airlines"), to=topic("delays"), late=topic("delays-late"))(two)
    job.sql_flow("more", "SELECT * FROM delays", delays=topic("delays"), to=topic("all"), trigger="available-now")
    job.check()
    assert job.reads() == {"flights", "arrivals", "airlines", "delays"}
    assert job.writes() == {"delays", "delays-late", "all", "rejected"}
    assert [each.describe() for each in job.sources(job.flows["two"])] == ["topic flights, arrivals", "topic airlines"]


def test_a_view_can_be_called_as_its_function() -> None:
    job = Job("flights")
    assert job.view(rows=topic("a"))(copy)("frame") == "frame"  # type: ignore[arg-type]
    with pytest.raises(JobError, match="'x' is SQL"):
        job.sql_view("x", "SELECT 1", rows=topic("a"))()


def test_inputs_that_cannot_be() -> None:
    with pytest.raises(JobError, match="a topic has a name"):
        topic(" ")
    with pytest.raises(JobError, match=r"files\('flights'\) does not end in a known format"):
        files("flights")
    with pytest.raises(JobError, match="needs a schema"):
        files("flights.csv", stream=True)


def test_options_become_text() -> None:
    assert topic("a", maxOffsetsPerTrigger=10, failOnDataLoss=False).options == {
        "maxOffsetsPerTrigger": "10",
        "failOnDataLoss": "false",
    }
    assert topic("a").renamed("v2") == Topic("a-v2")
