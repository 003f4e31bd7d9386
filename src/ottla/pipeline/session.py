"""A Spark session that starts quickly, keeps quiet and knows topics."""

import os
import re
import signal
import subprocess
import sys
import threading
import warnings
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from ottla.pipeline import class_archive, fork_server, package_distribution
from ottla.pipeline.java import find_java

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_JVM_OPTIONS: Final = ("-Xshare:auto", "-Djava.net.preferIPv4Stack=true")
# A job of a minute or two: collecting in one thread and compiling with the first compiler alone costs the least.
_SHORT_LIVED: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
# A job that stays: the second compiler takes what has run ten times as often as it would wait for, the truly hot. That
# starts as cheaply as without it (13 s of processor time for a first result, against 20 s with the JVM's defaults).
_LONG_LIVED: Final = (
    "-XX:+UseSerialGC",
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
)

_SESSION_SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.python.filterPushdown.enabled": "true",  # the source reads no more than is asked of it
    "spark.sql.adaptive.enabled": "false",  # streaming queries do without, and say so in a warning
    # state on disk, not on the heap, which is still Spark's default
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}
_SETTINGS: Final = {
    **_SESSION_SETTINGS,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    # between the JVM and Python: over TCP, small messages wait for delayed acknowledgements (no TCP_NODELAY in Spark)
    "spark.python.unix.domain.socket.enabled": "true",
}
# There, Spark's temporary directory is that of a container, whose path is longer than an address of a socket may be.
_ON_YARN: Final = {"spark.python.unix.domain.socket.dir": "/tmp"}
_ON_THIS_MACHINE: Final = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}

# What a person has set for a Spark elsewhere; the one meant here came with PySpark.
_OF_ANOTHER_SPARK: Final = ("SPARK_HOME", "SPARK_CONF_DIR", "SPARK_REMOTE", "PYSPARK_SUBMIT_ARGS")

_forking: "Final[WeakKeyDictionary[SparkContext, fork_server.Handle]]" = WeakKeyDictionary()

_LOGGING: Final = """\
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {path}
appender.file.filePattern = {path}.%i
appender.file.append = {append}
appender.file.policies.type = SizeBasedTriggeringPolicy
appender.file.policies.size = 10MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 1
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd HH:mm:ss.SSS}} %p %c{{1}}: %m%n%ex
"""


def launch(
    name: str,
    directory: Path,
    *,
    cores: int = 2,
    master: str | None = None,
    settings: dict[str, str] | None = None,
    long_lived: bool = False,
    jvm_options: tuple[str, ...] | None = None,
) -> "SparkContext":
    """Start Spark with its log and scratch files below `directory`: the slow part, which any thread may do.

    `master` is Spark's, else a local one with so many `cores`. `long_lived` has the JVM compile well what is hot,
    and appends to the log. `jvm_options` come instead of those for the archive of classes. Raises JavaNotFoundError;
    whatever the JVM and the Python workers print goes to `directory`/spark.err.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    directory.mkdir(parents=True, exist_ok=True)
    java = find_java()
    given = {**_SETTINGS, **(settings or {})}
    for variable in _OF_ANOTHER_SPARK:
        os.environ.pop(variable, None)
    os.environ["JAVA_HOME"] = str(java.home)
    is_local = master is None or master.startswith("local")
    forking = None if "spark.pyspark.python" in given else fork_server.start(directory)
    if forking is not None and is_local:
        given["spark.pyspark.python"] = str(forking.launcher)
    os.environ["PYSPARK_PYTHON"] = given.get("spark.pyspark.python", sys.executable)
    # what the JVM starts on the driver, to plan and to follow offsets
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable if forking is None else str(forking.launcher)
    os.environ["SPARK_LAUNCHER_OPTS"] = " ".join((*_JVM_OPTIONS, *_SHORT_LIVED))
    logging = directory / "log4j2.properties"
    log = (directory / "spark.log").absolute()
    logging.write_text(_LOGGING.format(path=log, append=str(long_lived).lower()), encoding="utf-8")

    if master is not None and package_distribution.is_elsewhere(master):
        package_distribution.put_on_path(directory)
    if is_local:
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"  # a host name that resolves to nothing would end it
        given = {**_ON_THIS_MACHINE, "spark.sql.shuffle.partitions": str(cores), **given}
    elif master == "yarn":
        given = {**_ON_YARN, **given}
    java_options = [
        *_JVM_OPTIONS,
        *(_LONG_LIVED if long_lived else _SHORT_LIVED),
        *(class_archive.jvm_options(java) if jvm_options is None else jvm_options),
        f"-Dlog4j2.configurationFile={logging.absolute().as_uri()}",
        given.pop("spark.driver.extraJavaOptions", ""),
    ]
    conf = SparkConf().setMaster(master or f"local[{cores}]").setAppName(name)
    conf.set("spark.driver.extraJavaOptions", " ".join(filter(None, java_options)))
    conf.set("spark.local.dir", str((directory / "scratch").absolute()))
    conf.set("spark.sql.warehouse.dir", str((directory / "warehouse").absolute()))
    for key, value in given.items():
        conf.set(key, value)
    with (directory / "spark.err").open("ab" if long_lived else "wb") as output:
        gateway = launch_gateway(  # type: ignore[no-untyped-call]  # Spark's lack
            conf, popen_kwargs={"stdout": output, "stderr": output}
        )
    on_interrupt = signal.getsignal(signal.SIGINT)
    context = SparkContext(conf=conf, gateway=gateway)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, on_interrupt)  # Spark's own handler would cancel micro-batches at Ctrl-C
    if forking is not None:
        _forking[context] = forking
    return context


def open_session() -> "SparkSession":
    """The session over what was launched. Spark finds the format `ottla` by itself (`pyspark_ottla`)."""
    from pyspark.sql import SparkSession

    return SparkSession.builder.getOrCreate()


def stop(context: "SparkContext", *, within_s: float = 20.0) -> None:
    """Stop Spark and its JVM, and wait until the JVM is gone; kill it if it is not by then.

    Another may be launched afterwards.
    """
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # comes without types
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    gateway = context._gateway
    assert gateway is not None
    try:
        # the JVM may be gone, killed by the kernel for its memory
        with suppress(Py4JError, OSError):
            session = SparkSession.getActiveSession()
            if session is not None:
                session.stop()
        with suppress(Py4JError, OSError), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Unable to cleanly shutdown Spark JVM", category=RuntimeWarning)
            context.stop()
        SparkSession._instantiatedSession = None
        with suppress(Py4JError, OSError):
            gateway.shutdown()
        with suppress(OSError):
            gateway.proc.stdin.close()  # the JVM lives as long as this pipe
        try:
            gateway.proc.wait(timeout=within_s)
        except subprocess.TimeoutExpired:
            gateway.proc.kill()
            gateway.proc.wait()
        SparkContext._gateway = SparkContext._jvm = None  # the next one is not to talk to this one's
    finally:
        forking = _forking.pop(context, None)
        if forking is not None:
            forking.stop()


class Engine:
    """A Spark that a run works with: `spark` is its session."""

    def __init__(self, spark: "SparkSession", directory: Path, context: "SparkContext | None") -> None:
        """`context` None: it runs elsewhere, behind Spark Connect."""
        self.spark = spark
        self._directory = directory
        self._context = context

    def last_words(self) -> str | None:
        """What the JVM printed last, if it has ended by itself; None while it runs."""
        if self._context is None or self._context._gateway is None or self._context._gateway.proc.poll() is None:
            return None
        text = (self._directory / "spark.err").read_text(errors="replace").strip()
        return text.rpartition("\n")[2] or "it wrote nothing"

    def stop(self) -> None:
        """End the session, and the JVM if it is one of this process."""
        if self._context is None:
            self.spark.stop()
        else:
            stop(self._context)


def start(name: str, directory: Path, *, master: str, settings: dict[str, str]) -> Engine:
    """A session on any of Spark's masters, `sc://host:port` (Spark Connect) among them, with its log in `directory`.

    This package goes along with it where Python runs on other machines. Raises JavaNotFoundError, WorkersError, or what
    Spark raises if the master cannot be reached.
    """
    engine = _started(name, directory, master, settings)
    if package_distribution.is_elsewhere(master):
        try:
            package_distribution.send_package(engine.spark, directory)
        except BaseException:
            engine.stop()
            raise
    return engine


def _started(name: str, directory: Path, master: str, settings: dict[str, str]) -> Engine:
    if not master.startswith("sc://"):
        local = re.match(r"local\[(\d+)", master)
        cores = int(local[1]) if local else os.cpu_count() or 2
        context = launch(name, directory, cores=cores, master=master, settings=settings, long_lived=True)
        return Engine(open_session(), directory, context)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.remote(master).appName(name)
    for key, value in {**_SESSION_SETTINGS, **settings}.items():
        builder = builder.config(key, value)
    return Engine(builder.getOrCreate(), directory, None)
