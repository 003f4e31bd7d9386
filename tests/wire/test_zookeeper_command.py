"""`ottla zookeeper` as a process: ready, in use, stopped."""

import signal
import subprocess
import sys
from pathlib import Path

from kazoo.client import KazooClient
from tests.support.genuine39 import kafka39_libs
from tests.support.probe import free_port


def start(directory: Path, port: int) -> "subprocess.Popen[str]":
    script = Path(sys.executable).with_name("ottla")
    arguments = ["zookeeper", "--port", str(port), "--dir", str(directory), "--home", str(kafka39_libs())]
    return subprocess.Popen([script, *arguments], stderr=subprocess.PIPE, text=True)


def test_runs_until_it_is_stopped_and_keeps_what_it_holds(tmp_path: Path) -> None:
    port = free_port()
    for start_number in range(2):
        running = start(tmp_path / "zk", port)
        assert running.stderr is not None
        try:
            line = running.stderr.readline()
            assert line == f"ready: ZooKeeper at 127.0.0.1:{port}, data in {tmp_path / 'zk'}\n"
            client = KazooClient(f"127.0.0.1:{port}")
            client.start()
            assert bool(client.exists("/kept")) == (start_number == 1)
            client.ensure_path("/kept")
            client.stop()
            client.close()
            if start_number == 0:
                second = start(tmp_path / "other", port)
                _, said = second.communicate(timeout=60)
                assert second.returncode == 1
                assert f"something listens at 127.0.0.1:{port} already; --port takes another" in said
        finally:
            running.send_signal(signal.SIGTERM)
            _, rest = running.communicate(timeout=60)
        assert running.returncode == 143
        assert rest == ""
