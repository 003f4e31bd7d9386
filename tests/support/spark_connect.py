"""A real Spark Connect server on this machine, whose Python is that of the tests."""

import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType

import pyspark

from ottla.pipeline.java import find_java
from tests.support.eventually import eventually
from tests.support.probe import free_port, listens
from tests.support.spark_cluster import jvm_options, kill_with_children

_START_TIMEOUT_S = 180.0


class SparkConnectServer:
    """A Spark Connect server: `remote` is its address for Spark."""

    def __init__(self, directory: Path, cores: int = 2) -> None:
        self._directory = directory
        self._cores = cores
        self._port = free_port()
        self.remote = f"sc://127.0.0.1:{self._port}"

    def __enter__(self) -> "SparkConnectServer":
        self._directory.mkdir(parents=True, exist_ok=True)
        home = Path(pyspark.__file__).parent
        settings = {
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(self._port),
            "spark.driver.extraJavaOptions": jvm_options(),
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.pyspark.python": sys.executable,
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(self._directory / "warehouse"),
        }
        command = [str(home / "bin" / "spark-submit"), "--master", f"local[{self._cores}]"]
        command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
        for key, value in settings.items():
            command += ["--conf", f"{key}={value}"]
        environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYSPARK_", "PYTHON"))},
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LAUNCHER_OPTS": jvm_options(),
            "JAVA_HOME": str(find_java().home),
            "PYSPARK_PYTHON": sys.executable,
        }
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, "spark-internal"],
                env=environment,
                cwd=self._directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            eventually(self._answers, timeout_s=_START_TIMEOUT_S)
        except BaseException:
            kill_with_children(self._process)
            raise
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        kill_with_children(self._process)

    @property
    def _log(self) -> Path:
        return self._directory / "connect.log"

    def _answers(self) -> bool:
        assert self._process.poll() is None, self._log.read_text(errors="replace")[-2000:]
        return listens(self._port)
