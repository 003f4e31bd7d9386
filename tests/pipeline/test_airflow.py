"""Jobs as tasks of a real Airflow: they are run, awaited, refused and killed."""

import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, TopicPartition
from tools.docs.markdown import ROOT, blocks

from tests.pipeline.conftest import TopicFactory
from tests.pipeline.run_process import CommandLine
from tests.support.airflow import Airflow
from tests.support.eventually import eventually

pytestmark = pytest.mark.timeout(600)
_WITHIN_S = 200  # on a machine that is busy with other things
OTTLA = Path(sys.executable).with_name("ottla")
JOB = """\
import os
import time
from collections.abc import Iterator

import pyarrow
from pyspark.sql import DataFrame, functions as F

from ottla.pipeline import Job, topic

job = Job("{name}", on_failure="stop", settings={{"spark.sql.shuffle.partitions": "1"}})
least = job.param("least", "0")
pause_s = float(os.environ.get("PAUSE_S", "0"))


def slowly(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    time.sleep(pause_s)
    yield from batches


@job.view(numbers=topic("{source}", maxOffsetsPerTrigger=5))
def parsed(numbers: DataFrame) -> DataFrame:
    values = numbers.select(F.col("value").cast("string").alias("value"))
    return values.where(F.col("value").cast("int") >= int(least)).mapInArrow(slowly, "value STRING")


@job.flow(rows=parsed, to=topic("{sink}"))
def passed(rows: DataFrame) -> DataFrame:
    return rows


@job.flow(rows=parsed, to=topic("{sink}-broken"))
def broken(rows: DataFrame) -> DataFrame:
    return rows.select(F.raise_error(F.lit("the till is closed")).cast("string").alias("value"))
"""


class Shop:
    """A job named as its source topic, with 30 numbers to read, and the DAGs that run it."""

    def __init__(self, airflow: Airflow, new_topic: TopicFactory, directory: Path) -> None:
        self._airflow = airflow
        self.source, self.sink = new_topic(1), new_topic(1)
        self.source.send(map(str, range(30)))
        self.name = self.source.name
        self.file = directory / "job.py"
        self.file.write_text(JOB.format(name=self.name, source=self.source.name, sink=self.sink.name))

    def dag(self, *tasks: str) -> str:
        """Write a DAG with these tasks, one after the other; its name. Each is the call of an operator without its
        task_id, which is its number."""
        dag = f"{self.name}-{len(list(self._airflow.dags.iterdir()))}"
        lines = ["from airflow.sdk import DAG", "from ottla.airflow import OttlaJobOperator, OttlaLagSensor"]
        lines += [f"job, ottla = {str(self.file)!r}, {str(OTTLA)!r}", f"with DAG({dag!r}):"]
        for number, task in enumerate(tasks):
            lines.append(f"    task{number} = {task.replace('(', f'(task_id={str(number)!r}, ', 1)}")
        lines.append("    " + " >> ".join(f"task{number}" for number in range(len(tasks))))
        (self._airflow.dags / f"{dag}.py").write_text("\n".join(lines))
        return dag

    def passed(self) -> list[int]:
        return sorted(int(each.value() or b"") for each in self.sink.messages())


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def ottla(home: Path, bootstrap: str) -> CommandLine:
    return CommandLine(home, bootstrap)


@pytest.fixture
def airflow(home: Path, bootstrap: str, tmp_path: Path) -> Airflow:
    return Airflow(tmp_path, {"OTTLA_HOME": str(home), "OTTLA_BOOTSTRAP": bootstrap})


@pytest.fixture
def shop(airflow: Airflow, new_topic: TopicFactory, tmp_path: Path) -> Shop:
    return Shop(airflow, new_topic, tmp_path)


def test_a_dag_runs_flows_of_a_job_once_with_its_profile_and_parameters(
    airflow: Airflow, shop: Shop, ottla: CommandLine, tmp_path: Path
) -> None:
    (tmp_path / "ottla.toml").write_text("[profile.night]\nconf = {'spark.driver.memory' = '700m'}\n")
    given = "profile='night', parameters={'least': '{{ ds[-2:] }}'}, close_windows_until='{{ ts }}'"
    dag = shop.dag(f"OttlaJobOperator(job=job, ottla=ottla, excluded=['broken'], {given})")
    output = airflow("dags", "test", dag, "2026-01-11")
    assert shop.passed() == list(range(11, 30))
    assert "passed: first " in output  # the job's own output
    status = ottla.status(shop.name)
    assert (status["state"], status["parameters"]) == ("stopped", {"least": "11"})
    assert status["flows"]["broken"]["state"] == "left out"


@pytest.mark.soak
def test_the_documented_dag_runs(airflow: Airflow, shop: Shop, ottla: CommandLine, home: Path) -> None:
    page = (ROOT / "docs" / "running-jobs.md").read_text(encoding="utf-8")
    (code,) = [block.text for block in blocks(page, "python") if "OttlaJobOperator" in block.text]
    places = {"/opt/ottla/bin/ottla": OTTLA, "/mnt/shared/jobs": home, "broker1:9092": ottla.bootstrap}
    names = {"/etc/ottla/jobs/sales.py": shop.file, '"enrich"': repr(shop.name), '["orders"]': "['passed']"}
    for documented, here in {**places, **names}.items():
        assert documented in code
        code = code.replace(documented, str(here))
    (airflow.dags / "sales.py").write_text(code.replace("close_windows", "only=['passed'], name='once', close_windows"))
    airflow("connections", "add", "shop", "--conn-uri", "postgresql://shop:secret@localhost/shop")
    consumer = Consumer({"bootstrap.servers": ottla.bootstrap, "group.id": "bookkeeping"})
    consumer.commit(offsets=[TopicPartition(shop.source.name, 0, 0)], asynchronous=False)
    consumer.close()

    run = ottla.start(shop.file, "--only", "passed")
    try:
        eventually(shop.passed, timeout_s=_WITHIN_S, interval_s=0.2)
        airflow("dags", "test", "sales", "2026-01-11")
    finally:
        run.terminate()
        run.wait()
    assert shop.passed() == sorted([*range(30), *range(30)])  # by the run that was awaited, and by the operator's


@pytest.mark.soak
def test_a_task_fails_with_the_reason_of_its_job(airflow: Airflow, shop: Shop) -> None:
    dag = shop.dag("OttlaJobOperator(job=job, ottla=ottla)")
    output = airflow("dags", "test", dag, code=1)
    assert re.search(
        r"AirflowException: \S+/job.py failed with exit code 1: broken failed: .*the till is closed", output
    )


@pytest.mark.soak
def test_a_task_names_the_package_that_its_environment_lacks(airflow: Airflow, shop: Shop) -> None:
    output = airflow("dags", "test", shop.dag("OttlaJobOperator(job=job)"), code=1)
    assert "failed with exit code 1: jobs need pyspark: in a checkout of Ottla, pip install '.[pipeline]'" in output


@pytest.mark.soak
def test_a_wrong_command_line_is_not_tried_again(airflow: Airflow, shop: Shop) -> None:
    output = airflow(
        "dags", "test", shop.dag("OttlaJobOperator(job=job, ottla=ottla, options=['--no'], retries=3)"), code=1
    )
    assert "AirflowFailException: " in output
    assert "no such option" in output.lower()


@pytest.mark.soak
def test_a_killed_task_interrupts_its_job_which_ends_in_good_order(
    airflow: Airflow, shop: Shop, ottla: CommandLine
) -> None:
    # a micro-batch takes longer than the 5 s until Airflow notices, and the 5 s between its SIGTERM and SIGKILL
    dag = shop.dag("OttlaJobOperator(job=job, ottla=ottla, only=['passed'], env={'PAUSE_S': '20'})")
    with airflow.serving() as server:
        run = server.trigger(dag)
        eventually(shop.passed, timeout_s=_WITHIN_S, interval_s=0.2)
        job = psutil.Process(ottla.status(shop.name)["pid"])
        processes = [job, *job.children(recursive=True)]
        server.fail(run, "0")
        eventually(lambda: "Task killed!" in server.log_of(run, "0"), timeout_s=60, interval_s=0.5)
        assert "Interrupting the job" in server.log_of(run, "0")
        assert job.is_running(), "it ended before Airflow had killed the task"
        assert psutil.wait_procs(processes, timeout=60)[1] == []
    status = ottla.status(shop.name)
    assert (status["state"], status["error"], status["flows"]["passed"]["state"]) == ("stopped", None, "stopped")
    assert len(shop.passed()) < 30, "it was killed too late"

    airflow("dags", "test", shop.dag("OttlaJobOperator(job=job, ottla=ottla, only=['passed'])"))
    assert shop.passed() == list(range(30))


@pytest.mark.soak
def test_a_task_whose_job_was_stopped_before_its_end_fails(airflow: Airflow, shop: Shop, ottla: CommandLine) -> None:
    dag = shop.dag("OttlaJobOperator(job=job, ottla=ottla, only=['passed'], env={'PAUSE_S': '1'})")
    task = subprocess.Popen(
        airflow.command("dags", "test", dag), env=airflow.environment, stdout=subprocess.PIPE, text=True
    )
    try:
        eventually(shop.passed, timeout_s=_WITHIN_S, interval_s=0.2)
        assert ottla("stop", shop.name).returncode == 0
        output, _ = task.communicate(timeout=60)
    finally:
        task.kill()
        task.wait()
    assert task.returncode == 1
    assert f"{shop.name} was stopped before its end; the next start goes on from there" in output


@pytest.mark.soak
def test_a_sensor_waits_for_a_flow(airflow: Airflow, shop: Shop, ottla: CommandLine) -> None:
    sensor = (
        "OttlaLagSensor(run={run!r}, flows={flows}, max_lag={lag}, ottla=ottla, poke_interval=1, timeout={timeout})"
    )
    flow = partial(sensor.format, run=shop.name, flows=["passed"], lag=0, timeout=_WITHIN_S)
    missing = airflow("dags", "test", shop.dag(flow()), code=1)
    assert f"AirflowException: nothing has run as '{shop.name}'" in missing

    run = ottla.start(shop.file, "--only", "passed")
    try:
        eventually(shop.passed, timeout_s=_WITHIN_S, interval_s=0.2)
        shop.source.send(map(str, range(30, 60)))
        airflow("dags", "test", shop.dag(flow()))
        assert shop.passed() == list(range(60))
        airflow("dags", "test", shop.dag(flow(flows=[])))
        unknown = airflow("dags", "test", shop.dag(flow(flows=["pased"])), code=1)
        assert f"AirflowFailException: run {shop.name} has no flow 'pased'; there are passed, broken" in unknown
    finally:
        run.terminate()
        run.wait()
    stopped = airflow("dags", "test", shop.dag(flow(timeout=3)), code=1)
    assert f"Waiting for the run {shop.name} to be started: it is stopped" in stopped
    assert "AirflowSensorTimeout" in stopped


@pytest.mark.soak
def test_a_sensor_waits_for_a_group(airflow: Airflow, shop: Shop) -> None:
    sensor = "OttlaLagSensor(group={group!r}, max_lag={lag}, ottla=ottla, poke_interval=1, timeout={timeout})"
    missing = airflow("dags", "test", shop.dag(sensor.format(group="nobodys", lag=0, timeout=5)), code=1)
    assert "AirflowException: group 'nobodys' does not exist" in missing

    group = f"{shop.name}-readers"
    consumer = Consumer({"bootstrap.servers": shop.source.bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(shop.source.name, 0, 20)], asynchronous=False)
    behind = airflow("dags", "test", shop.dag(sensor.format(group=group, lag=9, timeout=3)), code=1)
    assert f"Measured lag of group {group}: 10 records" in behind
    assert "AirflowSensorTimeout" in behind
    airflow("dags", "test", shop.dag(sensor.format(group=group, lag=10, timeout=60)))
    consumer.close()
