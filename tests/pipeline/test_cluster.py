"""A job on real clusters: the package travels, and machines, drivers and brokers that die cost nothing."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.pipeline.cluster_job import Outputs, kill_in_task
from tests.pipeline.conftest import TopicFactory, broker_kind
from tests.support.eventually import eventually
from tests.support.spark_cluster import SparkCluster
from tests.support.yarn_cluster import YarnCluster

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]
_WITHIN_S = 400


def test_a_job_survives_the_death_of_a_machine(new_topic: TopicFactory, bootstrap: str, tmp_path: Path) -> None:
    outputs = Outputs(new_topic, tmp_path)
    with (
        SparkCluster(tmp_path / "spark") as cluster,
        running(outputs, bootstrap, cluster.master_url, cluster.settings) as run,
    ):
        wait_for_files(outputs, 1, run)
        died_in = eventually(lambda: kill_in_task(cluster, outputs.tasks), interval_s=0.02)
        assert run.wait(_WITHIN_S) == 0, log_of(outputs)

    stage, part, _ = died_in.stem.split(".")
    assert list(outputs.tasks.glob("*.running")) == [died_in]
    again = list(outputs.tasks.glob(f"{stage}.{part}.*.done"))
    assert len(again) == 1, "the task that died was not done again"
    outputs.check()


def test_a_job_on_yarn_survives_its_executor_its_broker_and_its_driver(tmp_path: Path) -> None:
    with broker_kind()() as broker, YarnCluster(tmp_path / "yarn") as cluster:
        outputs = Outputs(TopicFactory(broker.bootstrap), tmp_path)
        job = (outputs, broker.bootstrap, cluster.master_url, cluster.settings, cluster.environment)
        with running(*job) as run:
            wait_for_files(outputs, 1, run)
            eventually(lambda: kill_in_task(cluster, outputs.tasks), interval_s=0.02)
            wait_for_files(outputs, 3, run)
            broker.restart(kill=True)
            wait_for_files(outputs, 5, run)
            run.send_signal(signal.SIGKILL)  # its executors go on for a moment
            run.wait()
        with running(*job) as run:
            assert run.wait(_WITHIN_S) == 0, log_of(outputs)
        outputs.check()
        applications = eventually(
            lambda: [each for each in cluster.applications() if each["finishedTime"]][1:], timeout_s=60
        )
        assert [each["finalStatus"] for each in applications] == ["SUCCEEDED"]


@contextmanager
def running(
    outputs: Outputs, bootstrap: str, master: str, settings: Mapping[str, str], environment: Mapping[str, str] = {}
) -> Iterator["subprocess.Popen[bytes]"]:
    """`ottla pipeline run --once` of the job; it is killed at the end if it still runs."""
    command = [sys.executable, "-m", "ottla.cli.main", "pipeline", "run", str(outputs.file), "--once"]
    directory = outputs.file.parent
    command += ["--bootstrap", bootstrap, "--home", str(directory / "home"), "--master", master]
    for key, value in settings.items():
        command += ["--conf", f"{key}={value}"]
    with (directory / "run.log").open("ab") as log:
        run = subprocess.Popen(command, stdout=log, stderr=log, cwd=directory, env={**os.environ, **environment})
    try:
        yield run
    finally:
        run.kill()
        run.wait()


def wait_for_files(outputs: Outputs, number: int, run: "subprocess.Popen[bytes]") -> None:
    """Until the job has written so many files. Raises AssertionError if it has ended."""
    eventually(
        lambda: len(list(outputs.files.glob("*.parquet"))) >= number or run.poll() is not None, timeout_s=_WITHIN_S
    )
    assert run.poll() is None, "killed too late: " + log_of(outputs)


def log_of(outputs: Outputs) -> str:
    """What the runs of the job have printed."""
    return (outputs.file.parent / "run.log").read_text()
