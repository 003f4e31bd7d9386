"""What the figures were measured on."""

import os
import platform
import re
import subprocess
from importlib.metadata import version
from pathlib import Path

import psutil
from tests.support.genuine import KAFKA_VERSION
from tests.support.requirements import java_program


def cores() -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The core of the broker and the core of the load: the first and the last that this process may use.

    Raises:
        OSError: there is only one.
    """
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) < 2:
        raise OSError("the benchmarks need two cores, one for the broker and one for the load")
    return (usable[0],), (usable[-1],)


def describe() -> dict[str, str | int | float]:
    """Processor, memory, kernel, versions."""
    cpuinfo = Path("/proc/cpuinfo")
    model = re.search(r"model name\s*:\s*(.+)", cpuinfo.read_text()) if cpuinfo.exists() else None
    java = subprocess.run([java_program(), "-version"], capture_output=True, text=True, check=True).stderr
    return {
        "processor": model[1] if model else platform.processor(),
        "cores": psutil.cpu_count() or 0,
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "java": java.splitlines()[0],
        "kafka": KAFKA_VERSION,
        "ottla": version("ottla"),
        "confluent_kafka": version("confluent-kafka"),
    }
