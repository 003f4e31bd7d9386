"""A real standalone cluster of Spark on this machine: a master and workers, each a JVM of its own.

The workers' Python is not the tests': it finds every installed package, but neither Ottla nor what is installed by
links to a working tree.
"""

import os
import re
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final

import psutil
import pyspark

from ottla.pipeline import class_archive
from ottla.pipeline.java import find_java
from tests.support.eventually import eventually
from tests.support.probe import free_port

_START_TIMEOUT_S: Final = 180.0


class SparkCluster:
    """A standalone cluster: `master_url` is its address for Spark, `settings` are those that a session needs."""

    def __init__(self, directory: Path, workers: int = 2, cores: int = 1) -> None:
        self._directory = directory
        self._processes: list[subprocess.Popen[bytes]] = []
        self._workers = workers
        self._cores = cores
        self._port = free_port()
        self.master_url = f"spark://127.0.0.1:{self._port}"

    @property
    def settings(self) -> dict[str, str]:
        return {
            "spark.pyspark.python": str(self._directory / "python"),
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": jvm_options(),
            "spark.network.timeout": "60s",
        }

    def __enter__(self) -> "SparkCluster":
        self._directory.mkdir(parents=True, exist_ok=True)
        write_python(self._directory / "python")
        try:
            self._start("master", "org.apache.spark.deploy.master.Master", "--port", str(self._port))
            eventually(lambda: "Starting Spark master" in self._log("master"), timeout_s=_START_TIMEOUT_S)
            for number in range(self._workers):
                arguments = ["--cores", str(self._cores), "--memory", "600m"]
                arguments += ["--work-dir", str(self._directory / f"work-{number}"), self.master_url]
                self._start(f"worker-{number}", "org.apache.spark.deploy.worker.Worker", *arguments)
            registered = re.compile("Registering worker")
            eventually(
                lambda: len(registered.findall(self._log("master"))) == self._workers, timeout_s=_START_TIMEOUT_S
            )
        except BaseException:
            self._kill_all()
            raise
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._kill_all()

    def holds(self, pid: int) -> bool:
        """Does this process descend from one of its workers: an executor, or Python of one?"""
        return self._worker_with(pid) is not None

    def kill_around(self, pid: int) -> None:
        """As if the machine of this process lost power: the worker and its executor, at once."""
        worker = self._worker_with(pid)
        assert worker is not None
        assert kill_with_children(worker) > 1, "the worker had no executor"

    def _worker_with(self, pid: int) -> "subprocess.Popen[bytes] | None":
        for worker in self._processes[1:]:
            if worker.poll() is None:
                descendants = psutil.Process(worker.pid).children(recursive=True)
                if pid in (each.pid for each in descendants):
                    return worker
        return None

    def _start(self, name: str, program: str, *arguments: str) -> None:
        spark_class = Path(pyspark.__file__).parent / "bin" / "spark-class"
        environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYSPARK_", "PYTHON"))},
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": jvm_options(),
            "SPARK_LAUNCHER_OPTS": jvm_options(),
            "JAVA_HOME": str(find_java().home),
        }
        host = ["--host", "127.0.0.1", "--webui-port", "0"]
        with (self._directory / f"{name}.log").open("wb") as log:
            self._processes.append(
                subprocess.Popen(
                    [str(spark_class), program, *host, *arguments],
                    env=environment,
                    cwd=self._directory,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )

    def _log(self, name: str) -> str:
        for process in self._processes:
            assert process.poll() is None, (self._directory / f"{name}.log").read_text(errors="replace")[-2000:]
        return (self._directory / f"{name}.log").read_text(errors="replace")

    def _kill_all(self) -> None:
        for process in reversed(self._processes):
            kill_with_children(process)


def jvm_options() -> str:
    """Whatever makes a JVM start at less cost; there are five of them besides the driver's."""
    quick = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
    return " ".join((*quick, *class_archive.jvm_options(find_java())))


def kill_with_children(process: "subprocess.Popen[bytes]") -> int:
    """Kill a process and all that it has started; gives how many there were."""
    if process.poll() is not None:
        return 0
    killed = kill_tree(psutil.Process(process.pid))
    process.wait(20)
    return killed


def kill_tree(process: psutil.Process) -> int:
    """Kill a process that any other started, and all that it has started; gives how many there were."""
    children = process.children(recursive=True)
    process.kill()
    for child in children:
        with suppress(psutil.NoSuchProcess):
            child.kill()
    return 1 + len(children)


def write_python(path: Path) -> None:
    """A Python that sees the packages of this one without their `.pth` files, by which a working tree is installed."""
    packages = Path(pyspark.__file__).parents[1]
    assert not (packages / "ottla").exists(), "the tests run on an editable installation"
    python = shutil.which(sys.executable)
    path.write_text(f'#!/bin/sh\nPYTHONPATH="${{PYTHONPATH:+$PYTHONPATH:}}{packages}" exec {python} -S "$@"\n')
    path.chmod(0o755)
