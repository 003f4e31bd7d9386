import subprocess
import sys
from pathlib import Path
from unittest.mock import MagicMock

import pyspark
import pytest
from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # comes without types

from ottla.pipeline import package_distribution

IMPORT_ALL = """
import importlib, pkgutil, sys
import ottla.pipeline.rows, ottla.pipeline.sinks, ottla.spark
for package in (ottla.pipeline.rows, ottla.pipeline.sinks, ottla.spark):
    for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)
ours = [module for name, module in sys.modules.items() if name.partition(".")[0] == "ottla"]
assert len(ours) > 40, ours
print({module.__file__.partition(".zip")[0] for module in ours}, {module.__file__[-4:] for module in ours})
"""


def test_workers_import_everything_compiled_from_the_archive(tmp_path: Path) -> None:
    archive = package_distribution.package_archive(tmp_path)
    path = f"{archive}:{Path(pyspark.__file__).parents[1]}"
    # without `site`, a working tree that is installed by a link is not seen
    output = subprocess.run(
        [sys.executable, "-S", "-W", "error", "-c", IMPORT_ALL],
        env={"PYTHONPATH": path},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (output.returncode, output.stderr) == (0, "")
    assert output.stdout.strip() == f"{{'{archive.with_suffix('')}'}} {{'.pyc'}}"


def test_the_same_package_is_packed_once(tmp_path: Path) -> None:
    archive = package_distribution.package_archive(tmp_path)
    packed_at = archive.stat().st_mtime_ns
    assert package_distribution.package_archive(tmp_path) == archive
    assert archive.stat().st_mtime_ns == packed_at
    assert [path.name for path in tmp_path.iterdir()] == [archive.name]


def test_only_local_masters_need_nothing_sent() -> None:
    masters = ("local[4]", "local", "local-cluster[2,1,512]", "spark://host:7077", "yarn", "k8s://host", "sc://host")
    assert [each for each in masters if not package_distribution.is_elsewhere(each)] == ["local[4]", "local"]


def test_a_cluster_on_which_no_worker_starts_is_reported_in_a_sentence() -> None:
    spark = MagicMock()
    collect = spark.range.return_value.mapInArrow.return_value.collect
    collect.side_effect = Py4JError(
        "Error from python worker:\n  OSError: AF_UNIX path too long\n\tat org.apache.spark"
    )
    with pytest.raises(package_distribution.WorkersError) as raised:
        package_distribution.check_workers(spark)
    assert str(raised.value) == "no Python worker runs on the cluster: OSError: AF_UNIX path too long"
