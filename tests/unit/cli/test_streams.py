"""The program's standard streams: full, closed, gone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.cli.main import INTERRUPTED
from ottla.cli.terminal import exits

OTTLA = f"{sys.executable} -m ottla.cli.main"


def shell(line: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=30)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="only Linux has a file that is always full")
def test_a_full_output_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    ended = shell(f"{OTTLA} log dump {tmp_path}/leader-epoch-checkpoint > /dev/full")
    assert ended.stderr == "ottla: the output cannot be written: no space left on device\n"
    assert ended.returncode == exits.FAILED


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_as_good_as_none(closed: str, tmp_path: Path) -> None:
    (tmp_path / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    ended = shell(f"{OTTLA} log dump {tmp_path}/leader-epoch-checkpoint {closed}")
    assert ended.stderr == ""
    assert ended.returncode == exits.OK
    assert ended.stdout == ("" if ">&-" in closed.split() else "epoch 0 from offset 0\n")


def test_an_interruption_while_it_is_imported() -> None:
    code = (
        "import sys; sys.argv = ['ottla', 'topic', 'list']\n"
        "import ottla.cli.main as main\n"
        "class Interrupted:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'click': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupted())\n"
        "sys.exit(main.main())\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert (ended.returncode, ended.stdout, ended.stderr) == (INTERRUPTED, "", "")
    assert INTERRUPTED == exits.INTERRUPTED
