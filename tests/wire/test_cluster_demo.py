"""`ottla cluster demo`: the scene is played with real processes, and its findings are shown."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.genuine39 import kafka39_libs

OTTLA = Path(sys.executable).with_name("ottla")


@pytest.mark.timeout(200)
@pytest.mark.parametrize("zookeeper", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_brokers_die_and_nothing_is_lost(tmp_path: Path, *, zookeeper: bool) -> None:
    command = [str(OTTLA), "cluster", "demo", "--seconds", "0.5", "--rate", "200", "--json"]
    if zookeeper:
        command += ["--with-zookeeper", "--home", str(kafka39_libs())]
    done = subprocess.run([*command, "--dir", str(tmp_path)], capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["acknowledged"] > 300
    assert {name: found[name] for name in ("refused", "missing_in_log", "missing_at_group", "doubled_in_log")} == {
        "refused": 0,
        "missing_in_log": 0,
        "missing_at_group": 0,
        "doubled_in_log": 0,
    }
    assert [step["step"].split()[0] for step in found["steps"]] == ["start", "kill", "kill", "start", "elect", "read"]
    told = done.stderr
    for expected in ("is down", "is the controller", "leads orders-0 instead of", "is in sync in"):
        assert expected in told
