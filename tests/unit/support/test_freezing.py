"""A process that was frozen does nothing more; one that has ended is no error."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.support.eventually import eventually
from tests.support.freezing import freeze, stands_still, thaw

_BUSY: Final = """\
import pathlib, sys, threading
def count():
    number = 0
    while True:
        pathlib.Path(sys.argv[1]).write_text(str(number := number + 1))
threading.Thread(target=count).start()
count()
"""


def test_nothing_of_a_frozen_process_runs(tmp_path: Path) -> None:
    counted = tmp_path / "count"
    with subprocess.Popen([sys.executable, "-c", _BUSY, str(counted)]) as process:
        try:
            eventually(counted.exists)
            assert not stands_still(process.pid)
            assert freeze(process.pid)
            before = os.stat(counted).st_mtime_ns
            assert stands_still(process.pid)
            assert os.stat(counted).st_mtime_ns == before
            thaw(process.pid)
            eventually(lambda: os.stat(counted).st_mtime_ns != before)
        finally:
            process.kill()


def test_what_has_ended_stands_still() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert freeze(process.pid)  # a zombie, until its parent has waited for it
    assert not freeze(process.pid)
    thaw(process.pid)
    assert stands_still(process.pid)
