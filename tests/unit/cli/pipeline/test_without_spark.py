"""`ottla pipeline` where PySpark is not installed: every command works, or names the extra that it needs."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

from ottla.cli.pipeline.commands import VERBS
from ottla.pipeline.run_store import FlowRecord, RunRecord, run_directory

_JOB: Final = """
from ottla.pipeline import Job, topic

job = Job("shop")
job.sql_flow("copies", "SELECT * FROM orders", orders=topic("orders"), to=topic("copies"))
"""
_HIDE: Final = """
import json, sys, traceback

class Without:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] == "pyspark" else self.finder.find_spec(name, path, target)

sys.meta_path[:] = map(Without, sys.meta_path)
from ottla.cli.app import run
for arguments in json.loads(sys.argv[1]):
    try:
        code = run(arguments)
    except BaseException:
        traceback.print_exc()
        code = -1
    print("#", arguments[1], code, file=sys.stderr, flush=True)
"""
_NOWHERE: Final = ("--bootstrap", "127.0.0.1:1")
_NEEDS: Final = {"run", "replay", "diff", "test", "graph", "compact"}
"""Those that load the job's file, or what reads its topics."""


def test_no_command_prints_a_traceback(tmp_path: Path) -> None:
    home, job = tmp_path / "home", tmp_path / "shop.py"
    job.write_text(_JOB)
    (tmp_path / "tests" / "shop" / "case").mkdir(parents=True)
    for name, replays in (("shop", None), ("v2", "shop")):
        directory = run_directory(home, name)
        directory.path.mkdir(parents=True)
        flow = FlowRecord(["topic orders"], "topic copies", "append", "1 second", str(directory.path / "copies"))
        record = RunRecord(name, "shop", str(job), "f", _NOWHERE[1], "m", 1, 1.0, "stopped", flows={"copies": flow})
        record.replays, record.suffix = replays, "" if replays is None else name
        directory.write(record)
    at = ("--home", str(home))
    of_verbs: dict[str, list[str]] = {
        "new": ["fresh"],
        "run": [str(job), *at, *_NOWHERE],
        "list": [*at],
        "status": ["shop", *at],
        "logs": ["shop", *at],
        "stop": ["shop", *at],
        "savepoint": ["shop", str(tmp_path / "saved"), *at],
        "start": ["shop", "--flow", "copies", *at],
        "restart": ["shop", "--flow", "copies", *at],
        "replay": ["shop", "--from", "earliest", "--into", "v3", *at, *_NOWHERE],
        "diff": ["shop", "v2", *at],
        "promote": ["v2", "--yes", *at],
        "test": [str(job)],
        "graph": [str(job)],
        "compact": ["shop", *at],
        "redrive": ["shop.dead-letters", *at, *_NOWHERE],
    }
    assert of_verbs.keys() == VERBS.keys()
    commands = [["pipeline", verb, *arguments] for verb, arguments in of_verbs.items()]

    ended = subprocess.run(
        [sys.executable, "-c", _HIDE, json.dumps(commands)],
        cwd=tmp_path, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=120,
    )  # fmt: skip

    assert "Traceback" not in ended.stdout + ended.stderr, ended.stderr
    parts = re.findall(r"((?:(?!# ).*\n)*)# (\S+) (-?\d+)\n", ended.stderr)
    assert [verb for _, verb, _ in parts] == list(of_verbs)
    for said, verb, code in parts:
        assert ("extra `pipeline`" in said or "pip install" in said) == (verb in _NEEDS), (verb, said)
        assert int(code) in (0, 1, 2), verb
        assert (int(code) == 0) <= (verb not in _NEEDS), verb
