"""Takes this package to the machines on which Spark runs its Python workers.

Spark sends functions by value or by name, never the packages they come from. What of Ottla the workers need is pure
Python, so that one archive of it goes along with the session, whatever the master: it comes before anything that is
installed there, and the workers run the driver's version. Packages with machine code cannot travel: they are asked for
on every worker, and missed in one sentence before the first query starts.
"""

import hashlib
import os
import py_compile
import sys
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import ottla
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.failures import explain

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_SENT: Final = (
    "__init__.py",
    "client",
    "config",
    "errors.py",
    "ids.py",
    "pipeline",
    "producers.py",
    "protocol",
    "records",
    "registry",
    "secret_files.py",
    "spark",
    "waiting.py",
)
"""The modules of this package that workers import, and their imports."""
_NEEDED: Final = ("confluent_kafka", "cramjam", "crc32c", "numpy", "pyarrow")
"""What the source and the sinks of a topic, and joins as of a time, import on a worker, and cannot be sent."""


class WorkersError(PipelineError):
    """The Python of Spark's workers cannot run what it will be sent."""


def is_elsewhere(master: str) -> bool:
    """Do Python workers of this master run outside of this machine's Python, as far as one can tell?"""
    return not master.startswith("local") or master.startswith("local-cluster")


def send_package(spark: "SparkSession", directory: Path) -> None:
    """Send the package to the Python workers of this session, and make the format `ottla` known to it.

    The archive is kept in `directory`, which belongs to the run. Raises WorkersError if a worker lacks a package.
    """
    from pyspark.sql.utils import is_remote

    from ottla.spark import register

    archive = package_archive(directory)
    if is_remote():
        spark.addArtifacts(str(archive), pyfile=True)
    else:
        spark.sparkContext.addPyFile(str(archive))
    check_workers(spark)
    register(spark)  # Spark finds the format by itself only where the package is installed


def put_on_path(directory: Path) -> None:
    """Have the Python processes of Spark's driver find the package, too, which the workers' Python may not have.

    Those that follow the offsets of a stream are not given what goes along with the session. Before the JVM starts:
    its environment is theirs.
    """
    archive = str(package_archive(directory).absolute())
    present = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if archive not in present:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [archive, *present]))


def package_archive(directory: Path) -> Path:
    """The package as an archive from which Python imports it; made in `directory`, unless it is there already.

    It holds the modules compiled, too: a worker that imports from an archive keeps nothing for the next one.
    """
    files = dict(sorted(_sources()))
    contents = {name: file.read_bytes() for name, file in files.items()}
    digest = hashlib.sha256(repr(sorted(contents.items())).encode() + sys.version.encode()).hexdigest()
    path = directory / f"ottla-{digest[:12]}.zip"
    if path.exists():
        return path
    directory.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(f".{os.getpid()}")
    with zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as archive, TemporaryDirectory() as scratch:
        compiled = Path(scratch) / "module.pyc"
        for name, content in contents.items():
            archive.writestr(name, content)
            py_compile.compile(
                str(files[name]),
                str(compiled),
                dfile=name,
                doraise=True,
                invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
            )
            archive.writestr(f"{name}c", compiled.read_bytes())
    draft.replace(path)
    return path


def check_workers(spark: "SparkSession") -> None:
    """Raises WorkersError that names the machine, its Python and the packages it lacks, or why no worker starts."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # comes without types
    from pyspark.errors import PySparkException

    looked = spark.range(0, 1, 1, 1).mapInArrow(_look, "machine STRING, python STRING, lacks STRING")
    try:
        found = looked.collect()
    except (PySparkException, Py4JError) as error:
        # the text of an error of Py4J is in the JVM, which ends now
        raise WorkersError(f"no Python worker runs on the cluster: {explain(str(error))}") from error
    for row in found:
        if row.lacks:
            raise WorkersError(
                f"Python on {row.machine} ({row.python}) lacks {row.lacks}: install 'ottla[pipeline]' there, or set "
                "spark.pyspark.python to a Python that has it on every machine"
            )


def _look(_rows: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    """Runs on a worker."""
    import importlib
    import platform

    import pyarrow as arrow

    lacks = []
    for name in (*_NEEDED, "ottla.spark"):
        try:
            importlib.import_module(name)
        except ImportError as error:
            lacks.append(error.name or name)
    columns = {"machine": [platform.node()], "python": [sys.executable], "lacks": [", ".join(lacks)]}
    yield arrow.RecordBatch.from_pydict(columns)


def _sources() -> Iterator[tuple[str, Path]]:
    """Names in the archive, and files."""
    root = Path(ottla.__file__).parent
    for each in _SENT:
        found = root / each
        for file in found.rglob("*.py") if found.is_dir() else (found,):
            yield f"{root.name}/{file.relative_to(root)}", file
