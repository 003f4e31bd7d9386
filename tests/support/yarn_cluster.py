"""A real YARN on this machine: a resource manager and a node manager, each a JVM of its own.

The files of its containers lie on the local file system (`fs.defaultFS`), so there is no HDFS. Python on the nodes is
not the tests': see `write_python`.
"""

import json
import os
import subprocess
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final
from urllib.error import URLError
from urllib.request import urlopen
from xml.sax.saxutils import escape

import psutil
import pyspark

from tests.support.eventually import eventually
from tests.support.genuine import maven_libs
from tests.support.probe import free_port
from tests.support.requirements import java_program
from tests.support.spark_cluster import jvm_options, kill_tree, kill_with_children, write_python

_REPOSITORY: Final = Path(__file__).resolve().parents[2]
_RECIPE: Final = _REPOSITORY / "benches" / "genuine" / "yarn.xml"
_CACHE: Final = _REPOSITORY / ".cache" / "yarn"
_JARS: Final = Path(pyspark.__file__).parent / "jars"
_START_TIMEOUT_S: Final = 180.0
_LOGGING: Final = """\
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss.SSS} %p %c{1}: %m%n%ex
"""


class YarnCluster:
    """A YARN cluster of one node. `environment` is for the process that submits, `settings` for its session."""

    master_url: Final = "yarn"

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._processes: list[subprocess.Popen[bytes]] = []
        self._web = f"127.0.0.1:{free_port()}"

    @property
    def environment(self) -> dict[str, str]:
        return {"HADOOP_CONF_DIR": str(self._directory)}

    @property
    def settings(self) -> dict[str, str]:
        return {
            "spark.pyspark.python": str(self._directory / "python"),
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.executor.instances": "2",
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": jvm_options(),
            "spark.yarn.am.extraJavaOptions": jvm_options(),
            "spark.yarn.jars": f"local:{_JARS}/*",  # else all of them are uploaded
            "spark.yarn.stagingDir": str(self._directory / "staging"),
            "spark.network.timeout": "60s",
        }

    def __enter__(self) -> "YarnCluster":
        self._directory.mkdir(parents=True, exist_ok=True)
        write_python(self._directory / "python")
        (self._directory / "log4j2.properties").write_text(_LOGGING)
        self._write("core-site.xml", {"fs.defaultFS": "file:///"})
        self._write("yarn-site.xml", self._yarn())
        self._write(
            "capacity-scheduler.xml",
            {
                "yarn.scheduler.capacity.root.queues": "default",
                "yarn.scheduler.capacity.root.default.capacity": "100",
                "yarn.scheduler.capacity.maximum-am-resource-percent": "1",
            },
        )
        try:
            self._start("org.apache.hadoop.yarn.server.resourcemanager.ResourceManager")
            self._start("org.apache.hadoop.yarn.server.nodemanager.NodeManager")
            eventually(lambda: self._asked("metrics")["clusterMetrics"]["activeNodes"], timeout_s=_START_TIMEOUT_S)
        except BaseException:
            self._kill_all()
            raise
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._kill_all()

    def applications(self) -> list[dict[str, Any]]:
        """All applications that were submitted, the first one first."""
        found = (self._asked("apps").get("apps") or {}).get("app", [])
        return sorted(found, key=lambda each: int(each["startedTime"]))

    def holds(self, pid: int) -> bool:
        """Is this process a Python worker of a container?"""
        return self._executor_of(pid) is not None

    def kill_around(self, pid: int) -> None:
        """Kill the container of this Python worker: the executor with all its workers."""
        executor = self._executor_of(pid)
        assert executor is not None
        kill_tree(executor)

    def _executor_of(self, pid: int) -> psutil.Process | None:
        with suppress(psutil.NoSuchProcess):
            above = psutil.Process(pid).parents()
            if self._processes[1].pid in (each.pid for each in above):
                return next(each for each in above if each.name() == "java")
        return None

    def _yarn(self) -> dict[str, str]:
        manager, node = "yarn.resourcemanager", "yarn.nodemanager"
        return {
            f"{manager}.hostname": "127.0.0.1",
            **{
                f"{manager}.{name}": f"127.0.0.1:{free_port()}"
                for name in ("address", "scheduler.address", "resource-tracker.address", "admin.address")
            },
            f"{manager}.webapp.address": self._web,
            f"{node}.hostname": "127.0.0.1",
            f"{node}.address": "127.0.0.1:0",
            f"{node}.localizer.address": f"127.0.0.1:{free_port()}",
            f"{node}.webapp.address": "127.0.0.1:0",
            f"{node}.local-dirs": str(self._directory / "local"),
            f"{node}.log-dirs": str(self._directory / "containers"),
            f"{node}.resource.memory-mb": "6144",
            f"{node}.resource.cpu-vcores": "4",
            f"{node}.vmem-check-enabled": "false",
            f"{node}.disk-health-checker.max-disk-utilization-per-disk-percentage": "100",
            "yarn.scheduler.minimum-allocation-mb": "128",
        }

    def _write(self, name: str, settings: dict[str, str]) -> None:
        properties = "".join(
            f"<property><name>{key}</name><value>{escape(value)}</value></property>\n"
            for key, value in settings.items()
        )
        (self._directory / name).write_text(f"<configuration>\n{properties}</configuration>\n")

    def _start(self, program: str) -> None:
        path = f"{self._directory}:{_JARS}/*:{maven_libs(_RECIPE, _CACHE)}/*"
        quick = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx300m")
        logging = f"-Dlog4j2.configurationFile={self._directory / 'log4j2.properties'}"
        with self._log(program).open("wb") as log:
            self._processes.append(
                subprocess.Popen(
                    [java_program(), *quick, logging, "-cp", path, program],
                    env={**os.environ, "USER": os.environ.get("USER", "ottla")},
                    cwd=self._directory,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )

    def _log(self, program: str) -> Path:
        return self._directory / f"{program.rpartition('.')[2]}.log"

    def _asked(self, what: str) -> dict[str, Any]:
        """What the resource manager's REST API answers; empty figures while it does not."""
        for process in self._processes:
            program = str(process.args[-1])  # type: ignore[index]
            assert process.poll() is None, self._log(program).read_text(errors="replace")[-2000:]
        try:
            with urlopen(f"http://{self._web}/ws/v1/cluster/{what}", timeout=10) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except (URLError, OSError):
            return {"clusterMetrics": {"activeNodes": 0}}

    def _kill_all(self) -> None:
        for process in reversed(self._processes):
            kill_with_children(process)
