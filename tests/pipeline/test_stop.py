"""Stopping a job when nothing answers: it ends soon, in good order, and loses nothing."""

from pathlib import Path

import psutil
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.pipeline.conftest import broker_kind
from tests.pipeline.run_process import CommandLine
from tests.pipeline.topic import Topic
from tests.support.eventually import eventually

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]
JOB = """\
from pyspark.sql import functions as F

from ottla.pipeline import Job, topic
from ottla.pipeline.sinks import parquet

job = Job("words")


@job.flow(words=topic("words"), to=topic("words-copied"))
def copied(words):
    return words


@job.flow(words=topic("words"), to=parquet("files"))
def kept(words):
    return words.select(F.col("value").cast("string").alias("word"))


@job.flow(words=topic("words"), to=topic("words-counted", key="word"), mode="update")
def counted(words):
    return words.groupBy(F.col("value").cast("string").alias("word")).count()
"""


@pytest.mark.parametrize("options", [(), ("--now",)])
def test_a_run_whose_brokers_are_away_stops_when_it_is_told_to(tmp_path: Path, options: tuple[str, ...]) -> None:
    job = tmp_path / "words.py"
    job.write_text(JOB)
    with broker_kind()() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("words", 2, 1)])["words"].result(30)
        words = Topic(broker.bootstrap, "words")
        words.send(["a", "b"])
        ottla = CommandLine(tmp_path, broker.bootstrap)
        run = ottla.start(job)
        try:
            eventually(lambda: ottla.output(job).count(": first 2 records") == 3, timeout_s=300)
            broker.kill()
            eventually(lambda: "no broker answers at" in (ottla.status("words")["error"] or ""), timeout_s=60)
            started = psutil.Process(run.pid).children(recursive=True)
            stopped = ottla("stop", "words", "--within", "90", *options)
            assert stopped.returncode == 0, stopped.stderr + ottla.output(job)
            assert run.wait(30) == 0, ottla.output(job)
        finally:
            run.kill()
            run.wait()
        assert "Traceback" not in ottla.output(job)
        assert ottla.status("words")["state"] == "stopped"
        assert psutil.wait_procs(started, timeout=30)[1] == []

        broker.start()
        words.send(["a"])
        went_on = ottla("run", str(job), "--once")
        assert went_on.returncode == 0, went_on.stderr
        copied = Topic(broker.bootstrap, "words-copied").messages()
        assert sorted(message.value() or b"" for message in copied) == [b"a", b"a", b"b"]
