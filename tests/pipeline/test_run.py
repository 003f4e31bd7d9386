"""Jobs in processes of their own: run, watched, stopped, run again; a broker that goes away; jobs that have changed."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.pipeline.conftest import broker_kind
from tests.pipeline.run_process import CommandLine
from tests.pipeline.topic import Topic
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually

pytestmark = pytest.mark.timeout(900)
_WITHIN_S = 300  # on a machine that is busy with other things

JOB = """\
from pyspark.sql import functions as F

from ottla.pipeline import Job, topic

job = Job("orders")


@job.view(orders=topic("orders", maxOffsetsPerTrigger=50))
def big(orders):
    return orders.select("key", F.col("value").cast("string").alias("value")).where({condition})


@job.flow(orders=big, to=topic("big-orders"), trigger="{trigger}")
def copies(orders):
    return orders


job.sql_flow(
    "counts",
    "SELECT left(value, 1) AS key, CAST(count({counted}) AS STRING) AS value FROM big GROUP BY left(value, 1)",
    big="big",
    to=topic("counts"),
    mode="update",
)
"""


def job_file(directory: Path, *, condition: str = "True", trigger: str = "0 seconds", counted: str = "*") -> Path:
    file = directory / "orders.py"
    condition = condition if condition != "True" else "F.lit(True)"
    file.write_text(JOB.format(condition=condition, trigger=trigger, counted=counted))
    return file


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    """Its own: it is killed here."""
    with broker_kind()() as process:
        yield process


@pytest.fixture(scope="module")
def ottla(broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    return CommandLine(tmp_path_factory.mktemp("home"), broker.bootstrap)


def make(broker: BrokerProcess, name: str, partitions: int = 2) -> Topic:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(30)
    return Topic(broker.bootstrap, name)


def values(broker: BrokerProcess, name: str) -> list[str]:
    return sorted((message.value() or b"").decode() for message in Topic(broker.bootstrap, name).messages())


def test_a_job_runs_is_watched_survives_its_broker_and_goes_on_where_it_was(
    broker: BrokerProcess, ottla: CommandLine, tmp_path: Path
) -> None:
    job = job_file(tmp_path)
    orders = make(broker, "orders")
    orders.send([f"{number:03}" for number in range(120)])
    first = ottla.start(job)
    try:
        eventually(lambda: "counts: first" in ottla.output(job), timeout_s=_WITHIN_S)
        eventually(lambda: len(values(broker, "big-orders")) == 120, timeout_s=_WITHIN_S)

        # watched
        def has_caught_up(records: int) -> bool:
            flows = ottla.status("orders")["flows"]
            figures = [flows[name]["figures"] for name in ("copies", "counts")]
            return all(each and each["records"] == records and each["lag_records"] == 0 for each in figures)

        eventually(lambda: has_caught_up(120), timeout_s=60, interval_s=0.5)
        found = ottla.status("orders")
        assert (found["state"], found["pid"], found["error"]) == ("running", first.pid, None)
        assert found["flows"]["counts"]["figures"]["state_rows"] == 2  # 0.. and 1..
        assert found["flows"]["copies"]["output"] == "topic big-orders"
        lines = (line.split("\t") for line in ottla("list").stdout.splitlines())
        listed = next(line for line in lines if line[0] == "orders")  # other tests have run others
        assert (listed[0], listed[1], listed[5]) == ("orders", "running", str(first.pid))

        # held
        again = ottla("run", str(job))
        assert (again.returncode, again.stderr) == (
            1,
            f"ottla: 'orders' is running already (process {first.pid}); stop it with `ottla pipeline stop orders`, or "
            "give this run another --name\n",
        )

        # without its broker, and with it again
        broker.kill()
        eventually(lambda: "no broker answers at" in (ottla.status("orders")["error"] or ""), timeout_s=60)
        broker.start()
        eventually(lambda: ottla.status("orders")["error"] is None, timeout_s=60)
        orders.send([f"{number:03}" for number in range(120, 200)])
        # a micro-batch that the stop interrupts could not be repeated by the job with another filter
        eventually(lambda: has_caught_up(200), timeout_s=_WITHIN_S, interval_s=0.5)
        assert len(values(broker, "big-orders")) == 200
        assert first.poll() is None

        # stopped
        stopped = ottla("stop", "orders")
        assert stopped.returncode == 0, ottla.output(job)
        assert stopped.stderr == "'orders' has stopped\n"
        assert first.wait(30) == 0
    finally:
        first.kill()
    assert values(broker, "big-orders") == [f"{number:03}" for number in range(200)]
    assert ottla.status("orders")["state"] == "stopped"
    assert "is not running: it is stopped" in ottla("stop", "orders").stderr

    # changed in a way that its state does not go with
    refused = ottla("run", str(job_file(tmp_path, counted="DISTINCT key")), "--once")
    assert refused.returncode == 1
    assert "'counts' no longer fits its checkpoint: " in refused.stderr
    assert "its state was that of an aggregation by (left(big.value, 1) string) of (count(1)" in refused.stderr
    assert ottla.status("orders")["state"] == "failed"

    # changed otherwise: another filter, another trigger
    orders.send(["997", "998", "999"])
    went_on = ottla("run", str(job_file(tmp_path, condition="F.col('value') > '997'", trigger="1 hour")), "--once")
    assert went_on.returncode == 0, went_on.stderr
    assert values(broker, "big-orders") == [*(f"{number:03}" for number in range(200)), "998", "999"]
    assert ottla.status("orders")["flows"]["copies"]["figures"]["records"] == 203  # of all starts


@pytest.mark.soak
def test_a_run_that_was_killed_is_lost_and_leaves_nothing_behind(
    broker: BrokerProcess, ottla: CommandLine, tmp_path: Path
) -> None:
    import psutil

    make(broker, "letters").send(["a", "b"])
    job = tmp_path / "letters.py"
    job.write_text(
        "from ottla.pipeline import Job, topic\njob = Job('letters')\n"
        "@job.flow(rows=topic('letters'), to=topic('letters-copied'))\ndef copies(rows):\n    return rows\n"
    )
    process = ottla.start(job)
    try:
        eventually(lambda: "copies: first 2 records" in ottla.output(job), timeout_s=_WITHIN_S)
        descendants = psutil.Process(process.pid).children(recursive=True)
        assert descendants
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert psutil.wait_procs(descendants, timeout=60)[1] == []
    assert ottla.status("letters")["state"] == "lost"
    assert "'letters' is not running: it is lost" in ottla("stop", "letters").stderr
    assert ottla.status("letters")["flows"]["copies"]["state"] == "lost"


@pytest.mark.soak
def test_ctrl_c_lets_the_micro_batches_finish(broker: BrokerProcess, ottla: CommandLine, tmp_path: Path) -> None:
    make(broker, "words").send(["a", "b"])
    job, begun = tmp_path / "words.py", tmp_path / "begun"
    job.write_text(
        "from ottla.pipeline import Job, topic\nfrom ottla.pipeline.sinks import each_batch\njob = Job('words')\n"
        f"def slowly(batch, context):\n    import pathlib, time\n    pathlib.Path({str(begun)!r}).touch()\n"
        f"    time.sleep(3)\n    batch.rows.write.text({str(tmp_path / 'written')!r})\n"
        "@job.flow(rows=topic('words'), to=each_batch(slowly))\ndef copies(rows):\n"
        "    return rows.selectExpr('CAST(value AS STRING) AS value')\n"
    )
    process = ottla.start(job)
    try:
        eventually(begun.exists, timeout_s=_WITHIN_S)
        process.send_signal(signal.SIGINT)
        assert process.wait(_WITHIN_S) == 0, ottla.output(job)
    finally:
        process.kill()
        process.wait()
    assert "Traceback" not in ottla.output(job)
    assert (ottla.status("words")["state"], ottla.status("words")["error"]) == ("stopped", None)
    assert (tmp_path / "written" / "_SUCCESS").exists()


@pytest.mark.soak
def test_a_run_whose_spark_was_killed_says_so_and_leaves_nothing_behind(
    broker: BrokerProcess, ottla: CommandLine, tmp_path: Path
) -> None:
    import psutil

    make(broker, "digits").send(["1", "2"])
    job = tmp_path / "digits.py"
    job.write_text(
        "from ottla.pipeline import Job, topic\njob = Job('digits')\n"
        "@job.flow(rows=topic('digits'), to=topic('digits-copied'))\ndef copies(rows):\n    return rows\n"
    )
    process = ottla.start(job)
    try:
        eventually(lambda: "copies: first 2 records" in ottla.output(job), timeout_s=_WITHIN_S)
        descendants = psutil.Process(process.pid).children(recursive=True)
        # A command that the JVM starts bears its name for a moment, between fork and exec.
        min((each for each in descendants if each.name() == "java"), key=lambda each: each.create_time()).kill()
        assert process.wait(_WITHIN_S) == 1
    finally:
        process.kill()
        process.wait()
    assert "Spark is gone: " in ottla.output(job).splitlines()[-1]
    assert psutil.wait_procs(descendants, timeout=60)[1] == []
    found = ottla.status("digits")
    assert found["state"] == "failed"
    assert found["error"].startswith("Spark is gone: ")


def test_what_is_wrong_before_spark_starts(broker: BrokerProcess, ottla: CommandLine, tmp_path: Path) -> None:
    """Each of these answers in a second or two."""
    make(broker, "arrivals")
    job = tmp_path / "departures.py"

    def complaint(text: str, *arguments: str) -> str:
        job.write_text(text)
        outcome = ottla("run", str(job), *arguments, timeout_s=60)
        assert outcome.returncode in (1, 2)
        return outcome.stderr

    text = (
        "from ottla.pipeline import Job, topic\njob = Job('departures')\n"
        "@job.flow(rows=topic('arrival'), to=topic('x'))\ndef copies(rows):\n    return rows\n"
    )
    assert "reads topic 'arrival', which does not exist on" in complaint(text)
    assert "did you mean 'arrivals'?" in complaint(text)
    long = text.replace("'arrival'", "'arrivals'").replace("'x'", repr("x" * 250))
    assert "whose name has 250 characters, and a topic's has at most 249: shorten" in complaint(long)
    assert "'memory' is no setting such as spark.driver.memory=2g" in complaint(text, "--conf", "memory")
    assert "has no parameter 'x'" in complaint(text, "--param", "x=1")
    assert "cannot name a run" in complaint(text, "--name", "a/b")
    assert "departures.py, line 1: " in complaint("job = (")
    assert "no broker answers at 127.0.0.1:1" in complaint(text, "--bootstrap", "127.0.0.1:1")
    assert "nothing has run as 'ordres'" in ottla("status", "ordres").stderr
    assert ottla("run", str(tmp_path / "nothing.py")).stderr.endswith(
        "nothing.py does not exist: give the Python file that declares the job\n"
    )


CHAIN = """\
from ottla.pipeline import Job, topic

job = Job("chain")


@job.flow(orders=topic("chained", firstOffsetsPerTrigger=10, maxOffsetsPerTrigger=40), to=topic("chain-copies"))
def copies(orders):
    return orders.select("key", "value")


@job.flow(orders=topic("chain-copies"), to=topic("chain-ends"))
def ends(orders):
    return orders.selectExpr("CAST(value AS STRING) AS value")
"""


@pytest.mark.soak
def test_once_a_flow_follows_the_one_that_writes_what_it_reads(
    broker: BrokerProcess, ottla: CommandLine, tmp_path: Path
) -> None:
    numbers = [f"{number:03}" for number in range(600)]
    make(broker, "chained").send(numbers)
    job = tmp_path / "chain.py"
    job.write_text(CHAIN)

    once = ottla("run", str(job), "--once")

    assert once.returncode == 0, once.stderr
    assert values(broker, "chain-ends") == values(broker, "chain-copies") == numbers
    printed = once.stdout + once.stderr
    assert "copies: first 10 records" in printed
    assert "ends: first " in printed
    assert "ends: first 600 records" not in printed, "it began when everything was there"
