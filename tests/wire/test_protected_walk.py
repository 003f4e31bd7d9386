"""The page about TLS, as a new user follows it: certificates, a broker with logins and rules, a first record."""

import os
import subprocess
import sys
from pathlib import Path

from tests.compat.cli.program import OttlaProgram
from tests.support.eventually import eventually
from tests.support.probe import free_port
from tools.docs.markdown import ROOT, blocks


def test_a_new_user_comes_to_a_protected_broker(tmp_path: Path) -> None:
    (text,) = [
        block.text
        for block in blocks((ROOT / "docs/tls.md").read_text(encoding="utf-8"), "console")
        if "cert dev --logins" in block.text
    ]
    commands = [part.split("\n", 1) for part in ("\n" + text).split("\n$ ")[1:]]
    bootstrap = f"127.0.0.1:{free_port()}"
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "OTTLA_BOOTSTRAP": bootstrap}
    server: subprocess.Popen[bytes] | None = None
    try:
        for command, shown in ((line[0], "".join(line[1:])) for line in commands):
            if command.startswith("export"):
                continue
            if command.endswith("&"):
                file = tmp_path / "certs" / "server.properties"
                assert file.stat().st_mode & 0o077 == 0
                file.write_text(file.read_text().replace("127.0.0.1:9093", bootstrap))
                arguments = command.removesuffix("&").split()[1:]
                server = subprocess.Popen(
                    OttlaProgram(bootstrap).command(*arguments), cwd=tmp_path, env=environment, stderr=subprocess.PIPE
                )
                eventually(lambda: is_ready(tmp_path, environment), timeout_s=40)
                continue
            done = subprocess.run(
                ["bash", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, (command, done.stderr)
            if shown:
                assert done.stdout == shown
    finally:
        if server is not None:
            server.terminate()
            _, log = server.communicate(timeout=30)
            assert b"wonderland" not in log
            assert b"password=" not in log


def is_ready(place: Path, environment: dict[str, str]) -> bool:
    asked = ["bash", "-c", "ottla user list --command-config certs/admin.properties"]
    found = subprocess.run(asked, cwd=place, env=environment, capture_output=True, text=True, check=False)
    return found.stdout == "admin\tSCRAM-SHA-512\n"
