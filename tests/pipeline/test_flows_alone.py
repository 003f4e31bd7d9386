"""A flow that fails alone, is started again, and is left out, while the others of its job go on; windows that are
closed at the end."""

import json
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.pipeline.conftest import broker_kind
from tests.pipeline.run_process import CommandLine
from tests.pipeline.topic import Topic
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually
from tests.support.probe import free_port

pytestmark = pytest.mark.timeout(600)
_WITHIN_S = 200  # on a machine that is busy with other things

LONG = "A value that a check rejects"
TRACE = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
JOB = """\
from pathlib import Path

from pyspark.sql import functions as F

from ottla.pipeline import Job, supervised, topic
from ottla.pipeline.rows import checked, trace_headers
from ottla.pipeline.sinks import each_batch

supervised._LONGEST_PAUSE_S = 1.0  # for five restarts in a few seconds, and not in half a minute

job = Job("orders", dead_letters=topic("orders-dead"))
here = Path(__file__).parent


@job.flow(orders=topic("orders"), to=topic("copied"))
def copied(orders):
    kept = checked(orders.withColumn("headers", trace_headers()))
    return kept.expect("is early", F.col("value") < "c").check("is short", F.length("value") < 9)


def deliver(batch, context):
    if (here / "closed").exists():
        raise ValueError("the store is closed")
    (here / f"delivered-{batch.number}").write_text("\\n".join(row.value for row in batch.rows.collect()))


@job.flow(orders=topic("orders"), to=each_batch(deliver))
def delivered(orders):
    return orders.selectExpr("CAST(value AS STRING) AS value")


@job.flow(orders=topic("orders"), to=topic("hourly"))
def hourly(orders):
    return orders.withWatermark("timestamp", "1 minute").groupBy(F.window("timestamp", "1 hour")).count()
"""


def delivered(directory: Path) -> list[str]:
    files = directory.glob("delivered-*")
    return sorted(line for file in files for line in file.read_text().splitlines() if line != LONG)


@pytest.mark.parametrize("and_again", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_a_flow_fails_and_is_started_and_stopped_alone(tmp_path: Path, and_again: bool) -> None:
    with broker_kind()() as broker:
        _fails_and_goes_on_alone(broker, tmp_path, and_again=and_again)


def _fails_and_goes_on_alone(broker: BrokerProcess, tmp_path: Path, *, and_again: bool) -> None:
    home = tmp_path / "home"
    home.mkdir()
    ottla = CommandLine(home, broker.bootstrap)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(30)
    orders, copied, hourly = (Topic(broker.bootstrap, name) for name in ("orders", "copied", "hourly"))
    job = tmp_path / "orders.py"
    job.write_text(JOB)
    closed = tmp_path / "closed"
    closed.touch()
    orders.send(["a", "b"])
    address = f"http://127.0.0.1:{free_port()}"

    def served(path: str) -> str:
        try:
            with urllib.request.urlopen(f"{address}{path}", timeout=20) as answer:
                body: bytes = answer.read()
        except urllib.error.HTTPError as refused:
            return refused.read().decode()
        return body.decode()

    def copies() -> list[str]:
        return sorted((message.value() or b"").decode() for message in copied.messages())

    def state(flow: str) -> str:
        found: str = ottla.status("orders")["flows"][flow]["state"]
        return found

    run = ottla.start(job, "--metrics-listeners", address)
    try:
        # it fails, and is tried again; the other one goes on meanwhile and after that
        eventually(lambda: "delivered has failed: " in ottla.output(job), timeout_s=_WITHIN_S)
        assert ottla.output(job).count("delivered waits: ValueError: the store is closed; next try") == 5
        orders.send(["c"], headers=[("other", b"x"), ("traceparent", TRACE)])
        eventually(lambda: copies() == ["a", "b", "c"], timeout_s=_WITHIN_S)
        (traced,) = [message for message in copied.messages() if message.value() == b"c"]
        assert traced.headers() == [("traceparent", TRACE)], "its trace goes on"
        found = ottla.status("orders")
        assert (found["state"], found["flows"]["copied"]["state"]) == ("running", "running")
        assert found["flows"]["delivered"]["state"] == "failed"
        assert "the store is closed" in found["flows"]["delivered"]["error"]
        assert "delivered: ValueError: the store is closed" in ottla("list").stdout

        # the same at its metrics endpoint
        assert json.loads(served("/health/ready"))["reasons"] == [
            "flow delivered has failed: ValueError: the store is closed"
        ]
        read = 'ottla_pipeline_records_total{flow="copied",run="orders"} 3.0'
        eventually(lambda: read in served("/metrics"), timeout_s=_WITHIN_S)  # figures come after the output
        shown = served("/metrics")
        assert 'ottla_pipeline_flow_state{flow="delivered",run="orders",state="failed"} 1.0' in shown
        assert 'ottla_pipeline_restarts_total{flow="delivered",run="orders"} 5.0' in shown
        broken = 'ottla_pipeline_broken_expectations_total{expectation="is early",flow="copied",otherwise="warn"'
        assert f'{broken},run="orders",view="copied"}} 1.0' in shown

        orders.send([LONG])
        rejected = 'ottla_pipeline_dead_letters_total{flow="copied.dead-letters",reason="is short",run="orders"} 1.0'
        eventually(lambda: rejected in served("/metrics"), timeout_s=_WITHIN_S)

        # mended
        closed.unlink()
        started = ottla("start", "orders", "--flow", "delivered")
        assert (started.returncode, started.stderr) == (0, "'delivered' is running\n")
        eventually(lambda: delivered(tmp_path) == ["a", "b", "c"], timeout_s=_WITHIN_S)
        assert ottla.status("orders")["flows"]["delivered"]["error"] is None

        # stopped alone
        stopped = ottla("stop", "orders", "--flow", "copied")
        assert (stopped.returncode, stopped.stderr) == (0, "'copied' is stopped\n")
        orders.send(["d"])
        eventually(lambda: delivered(tmp_path) == ["a", "b", "c", "d"], timeout_s=_WITHIN_S)
        assert (copies(), state("copied")) == (["a", "b", "c"], "stopped")
        again = ottla("restart", "orders", "--flow", "copied", "--flow", "delivered")
        assert again.stderr == "'copied' is running\n'delivered' is running\n"
        eventually(lambda: copies() == ["a", "b", "c", "d"], timeout_s=_WITHIN_S)

        unknown = ottla("start", "orders", "--flow", "copid")
        assert (unknown.returncode, unknown.stderr) == (
            1,
            "ottla: 'orders' has no flow 'copid'; did you mean 'copied'?\n",
        )
        assert ottla("stop", "orders").returncode == 0
        assert run.wait(30) == 0
    finally:
        run.kill()
        run.wait()
    assert "copied: 2 rows of copied break 'is early' (warn)\n" in ottla("status", "orders").stdout
    assert "'orders' is not running: it is stopped" in ottla("start", "orders", "--flow", "copied").stderr

    if not and_again:
        return
    # left out, and failing again: the run says so at its end
    closed.touch()
    orders.send(["e"])
    before = [message.offset() for message in hourly.messages()]
    once = ottla("run", str(job), "--once", "--close-windows", "--except", "copied")
    assert once.returncode == 1
    assert once.stderr == "ottla: delivered failed: ValueError: the store is closed\n"
    assert (copies(), state("copied"), state("delivered")) == (["a", "b", "c", "d"], "left out", "failed")
    assert delivered(tmp_path) == ["a", "b", "c", "d"]

    # the windows of the last hour are closed
    windows = [json.loads(message.value() or b"") for message in hourly.messages()]
    assert sum(window["count"] for window in windows) == 6
    assert len(windows) > len(before)
