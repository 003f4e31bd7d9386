"""A local Spark session that starts quickly, keeps quiet and knows topics."""

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.pipeline.java import find_java

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

# A job of a minute or two: collecting in one thread and compiling with the first compiler alone costs the least.
_JVM_OPTIONS: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Djava.net.preferIPv4Stack=true")

_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.enabled": "false",  # streaming queries do without, and say so in a warning
    # state on disk, not on the heap, which is still Spark's default
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}

# What a person has set for a Spark elsewhere; the one meant here came with PySpark.
_OF_ANOTHER_SPARK: Final = ("SPARK_HOME", "SPARK_CONF_DIR", "SPARK_REMOTE", "PYSPARK_SUBMIT_ARGS")

_LOGGING: Final = """\
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {path}
appender.file.append = false
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{HH:mm:ss.SSS}} %p %c{{1}}: %m%n%ex
"""


def launch(name: str, directory: Path, *, cores: int, settings: dict[str, str] | None = None) -> "SparkContext":
    """Start a local Spark whose log and scratch files go below `directory`: the slow part, which any thread may do.

    Raises JavaNotFoundError; whatever the JVM and the Python workers print goes to `directory`/spark.err.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    directory.mkdir(parents=True, exist_ok=True)
    for name in _OF_ANOTHER_SPARK:
        os.environ.pop(name, None)
    os.environ["JAVA_HOME"] = str(find_java().home)
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"  # a host name that resolves to nothing would end it
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LAUNCHER_OPTS"] = " ".join(_JVM_OPTIONS)
    logging = directory / "log4j2.properties"
    logging.write_text(_LOGGING.format(path=(directory / "spark.log").absolute()))

    java_options = (*_JVM_OPTIONS, f"-Dlog4j2.configurationFile={logging.absolute().as_uri()}")
    conf = SparkConf().setMaster(f"local[{cores}]").setAppName(name)
    conf.set("spark.driver.extraJavaOptions", " ".join(java_options))
    conf.set("spark.local.dir", str((directory / "scratch").absolute()))
    conf.set("spark.sql.warehouse.dir", str((directory / "warehouse").absolute()))
    conf.set("spark.sql.shuffle.partitions", str(cores))
    for key, value in (_SETTINGS | (settings or {})).items():
        conf.set(key, value)
    with (directory / "spark.err").open("wb") as output:
        gateway = launch_gateway(  # type: ignore[no-untyped-call]  # Spark's lack
            conf, popen_kwargs={"stdout": output, "stderr": output}
        )
    return SparkContext(conf=conf, gateway=gateway)


def open_session() -> "SparkSession":
    """The session over what was launched. Spark finds the format `ottla` by itself (`pyspark_ottla`)."""
    from pyspark.sql import SparkSession

    return SparkSession.builder.getOrCreate()


def stop(context: "SparkContext") -> None:
    """Stop Spark and its JVM, and wait until the JVM is gone."""
    from pyspark.sql import SparkSession

    gateway = context._gateway
    session = SparkSession.getActiveSession()
    if session is not None:
        session.stop()
    context.stop()
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()  # the JVM lives as long as this pipe
    try:
        gateway.proc.wait(timeout=20)
    except subprocess.TimeoutExpired:
        gateway.proc.kill()
        gateway.proc.wait()
