"""A job on real clusters: the package travels, and machines, drivers and brokers that die cost nothing."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import kubernetes_validate
import pytest

from tests.pipeline.cluster_job import Outputs, kill_in_task
from tests.pipeline.conftest import TopicFactory, broker_kind
from tests.support.eventually import eventually
from tests.support.kubernetes import DRIVER, KUBERNETES, MANIFESTS, NAMESPACE, KubernetesStandIn, manifest
from tests.support.spark_cluster import SparkCluster, write_python
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


def test_a_job_by_sparks_scheduler_for_kubernetes_survives_its_executor_its_broker_and_its_driver(
    tmp_path: Path,
) -> None:
    python, images = tmp_path / "python", tmp_path / "images"
    write_python(python)
    images.mkdir()
    (images / "python3").symlink_to(python)
    (images / "spark-executor").symlink_to(MANIFESTS / "spark-executor")
    stand_in = KubernetesStandIn(tmp_path / "pods", f"{images}:{os.environ['PATH']}")
    with broker_kind()() as broker, stand_in.serving():
        outputs = Outputs(TopicFactory(broker.bootstrap), tmp_path)
        settings = {**manifest_settings(tmp_path), "spark.pyspark.python": str(python)}
        settings |= {"spark.executor.memory": "512m", "spark.kubernetes.executor.apiPollingInterval": "1s"}
        job = (outputs, broker.bootstrap, f"k8s://{stand_in.url}", settings)
        with running(*job) as run:
            wait_for_files(outputs, 1, run)
            eventually(lambda: kill_in_task(stand_in, outputs.tasks), interval_s=0.02)
            wait_for_files(outputs, 3, run)
            broker.restart(kill=True)
            wait_for_files(outputs, 5, run)
            run.send_signal(signal.SIGKILL)  # its executors go on for a moment
            run.wait()
        assert len(stand_in.pods) == 3, "the executor that was killed has not been replaced"
        with running(*job) as run:
            assert run.wait(_WITHIN_S) == 0, log_of(outputs)
        outputs.check()

    for pod in stand_in.pods:
        kubernetes_validate.validate(pod, KUBERNETES, strict=True)
        (container,) = pod["spec"]["containers"]
        assert (container["command"], container["args"]) == (["spark-executor"], ["executor"])
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        claims = [
            each["persistentVolumeClaim"]["claimName"] for each in pod["spec"]["volumes"] if each["name"] == "jobs"
        ]
        assert claims == ["ottla-jobs"]
        assert ("jobs", "/var/lib/ottla/jobs") in [
            (each["name"], each["mountPath"]) for each in container["volumeMounts"]
        ]
        assert [each["name"] for each in pod["metadata"]["ownerReferences"]] == [DRIVER]
    (rule,) = manifest("job.yaml")["Role", "ottla-job"]["rules"]
    assert stand_in.asked <= {(verb, kind) for verb in rule["verbs"] for kind in rule["resources"]}


def manifest_settings(directory: Path) -> dict[str, str]:
    """Spark's settings in the manifest of a job, with what Kubernetes puts in place of variables and volumes."""
    objects = manifest("job.yaml")
    template = directory / "executor.yaml"
    template.write_text(objects["ConfigMap", "ottla-executor"]["data"]["executor.yaml"])
    (driver,) = objects["StatefulSet", "sales"]["spec"]["template"]["spec"]["containers"]
    known = {"POD": DRIVER, "NAMESPACE": NAMESPACE, "POD_IP": "127.0.0.1"}
    settings = dict(word.removeprefix("--conf=").split("=", 1) for word in driver["args"] if word.startswith("--conf="))
    for key, value in settings.items():
        settings[key] = re.sub(r"\$\((\w+)\)", lambda found: known[found[1]], value)
    settings["spark.kubernetes.executor.podTemplateFile"] = str(template)
    return settings


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
