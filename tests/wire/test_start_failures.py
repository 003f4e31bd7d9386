"""What `ottla serve` says when it cannot start: one sentence with the setting, address or file, and exit code 1."""

import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest


def serve(directory: Path, *overrides: str, flags: Sequence[str] = ()) -> str:
    """What a broker that must fail writes to standard error."""
    options = [part for override in ("log.dirs=data", *overrides) for part in ("--override", override)]
    ended = subprocess.run(
        [sys.executable, "-m", "ottla.cli.main", "serve", *options, *flags],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert ended.returncode == 1
    assert ended.stdout == ""
    assert "Traceback" not in ended.stderr
    assert "Errno" not in ended.stderr
    return ended.stderr


def test_a_port_in_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        said = serve(tmp_path, f"listeners=PLAINTEXT://127.0.0.1:{port}")
    assert f"cannot bind 127.0.0.1:{port}: Address already in use; stop what listens there, or name another" in said


def test_a_host_that_does_not_exist(tmp_path: Path) -> None:
    said = serve(tmp_path, "listeners=PLAINTEXT://no-such-host.invalid:0")
    assert "listener PLAINTEXT finds no address of 'no-such-host.invalid'" in said


@pytest.mark.parametrize("setting", ["log.dirs=file", "log.dirs=file/below"])
def test_a_log_directory_that_is_a_file(tmp_path: Path, setting: str) -> None:
    (tmp_path / "file").touch()
    assert "file" in serve(tmp_path, "listeners=PLAINTEXT://127.0.0.1:0", setting)


def test_settings_that_do_not_exist(tmp_path: Path) -> None:
    said = serve(tmp_path, "log.retention.hour=3", "num.partition=2", flags=["--strict"])
    assert "did you mean log.retention.hours?" in said
    assert "did you mean num.partitions?" in said


def test_settings_that_ask_for_protection(tmp_path: Path) -> None:
    said = serve(tmp_path, "authorizer.class.name=x", "ssl.keystore.password=hunter2")
    assert "authorizer.class.name: asks for access control" in said
    assert "--allow-insecure" in said
    assert "hunter2" not in said
