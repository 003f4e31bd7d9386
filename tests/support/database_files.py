"""The files of an empty database server, made once by the server's own program and copied for each test."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.support.genuine import locked

_CACHE: Final = Path(__file__).resolve().parents[2] / ".cache" / "databases"


def copied(name: str, data: Path, install: Callable[[], None]) -> None:
    """Fill the directory `data` with an empty server's files, which keep their owner.

    Args:
        name: of the server and its version: a new version makes files of its own.
        data: does not exist yet.
        install: fills it by the server's own program, which takes seconds; called where no copy is kept yet.
    """
    kept = _CACHE / f"{name}-{os.geteuid()}"  # the owner of the files depends on the user
    with locked(kept.with_name(f"{kept.name}.lock")):
        if not kept.exists():
            install()
            unfinished = kept.with_name(f"{kept.name}.unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            _copy(data, unfinished)
            unfinished.rename(kept)
            return
    _copy(kept, data)


def _copy(source: Path, target: Path) -> None:
    subprocess.run(["cp", "-a", "--reflink=auto", str(source), str(target)], check=True)
