"""A module in C under the address sanitizer: built with it, and used by a program in a process of its own."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

from tests.support.requirements import require

_OPTIONS = ["-std=c11", "-O1", "-g", "-fPIC", "-shared", "-fsanitize=address,undefined", "-fno-sanitize-recover"]
_STRICT = ["-Wall", "-Wextra", "-Wconversion", "-Werror"]


def run_sanitized(source: Path, directory: Path, program: Path, *arguments: str) -> str:
    """What `program MODULE.so ARGUMENT...` prints. Raises AssertionError with its errors if it fails."""
    compiler = require("gcc")
    require("Python.h")
    asan = subprocess.run([compiler, "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    module = directory / f"{source.stem}.abi3.so"
    include = sysconfig.get_path("include")
    subprocess.run([compiler, *_OPTIONS, *_STRICT, f"-I{include}", str(source), "-o", str(module)], check=True)
    environment = {
        **os.environ,
        "LD_PRELOAD": asan.stdout.strip(),
        "ASAN_OPTIONS": "detect_leaks=0",
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    command = [sys.executable, str(program), str(module), *arguments]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout
