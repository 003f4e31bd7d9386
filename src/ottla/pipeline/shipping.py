"""Takes this package to the machines on which Spark runs its Python workers.

Spark sends functions by value or by name, never the packages they come from. What of Ottla the workers need is pure
Python, so that one archive of it goes along with the session, whatever the master: it comes before anything that is
installed there, and the workers run the driver's version. Packages with machine code cannot travel: they are asked for
on every worker, and missed in one sentence before the first query starts.
"""

import sys
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.pipeline.errors import PipelineError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

ARCHIVE: Final = "ottla-package.zip"
_PACKAGES: Final = ("ottla", "pyspark_ottla")
_NEEDED: Final = ("confluent_kafka", "cramjam", "crc32c", "pyarrow")
"""What the source and the sinks of a topic import on a worker, and cannot be sent."""
_NEVER_SHIPPED: Final = ("__pycache__", "testing")
_STAMP: Final = (1980, 1, 1, 0, 0, 0)
"""The same files give the same archive."""


class WorkersError(PipelineError):
    """The Python of Spark's workers cannot run what it will be sent."""


def is_elsewhere(master: str) -> bool:
    """Do Python workers of this master run outside of this machine's Python, as far as one can tell?"""
    return not master.startswith("local") or master.startswith("local-cluster")


def ship(spark: "SparkSession", directory: Path) -> None:
    """Send the package to whoever will run Python for this session, and make the format `ottla` known to it.

    The archive is kept in `directory`. Raises WorkersError if a worker lacks a package.
    """
    from pyspark.sql.utils import is_remote

    from ottla import spark as source

    archive = package_archive(directory / ARCHIVE)
    if is_remote():
        spark.addArtifacts(str(archive), pyfile=True)
    else:
        spark.sparkContext.addPyFile(str(archive))
    check_workers(spark)
    source.register(spark)  # Spark finds the format by itself only where the package is installed


def package_archive(path: Path) -> Path:
    """Write the packages as an archive from which Python imports them; its path."""
    draft = path.with_suffix(".draft")
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, file in sorted(_sources()):
            archive.writestr(zipfile.ZipInfo(name, _STAMP), file.read_bytes(), zipfile.ZIP_DEFLATED)
    draft.replace(path)
    return path


def check_workers(spark: "SparkSession") -> None:
    """Raises WorkersError that names the machine, its Python and the packages it lacks."""
    found = spark.range(0, 1, 1, 1).mapInArrow(_look, "machine STRING, python STRING, lacks STRING").collect()
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
    import importlib

    for package in _PACKAGES:
        root = Path(importlib.import_module(package).__path__[0])
        for file in root.rglob("*"):
            below = file.relative_to(root)
            if file.is_file() and not set(below.parts) & set(_NEVER_SHIPPED):
                yield f"{package}/{below}", file
