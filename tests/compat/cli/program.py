"""`ottla` as its users run it: a program with arguments, pipes, signals and sometimes a terminal."""

import json
import os
import pty
import select
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class OttlaProgram:
    """The program, pointed at one broker. Called like a function it runs to its end."""

    bootstrap: str

    def command(self, *arguments: str) -> list[str]:
        """The command line."""
        script = Path(sys.executable).with_name("ottla")
        return [str(script), *arguments] if script.exists() else [sys.executable, "-m", "ottla.cli.main", *arguments]

    def environment(self) -> dict[str, str]:
        """The environment it runs in: a terminal of 120 columns, Python strict about what it leaves behind."""
        return {**os.environ, "OTTLA_BOOTSTRAP": self.bootstrap, "COLUMNS": "120", "TERM": "xterm"}

    def __call__(
        self, *arguments: str, stdin: str | bytes = b"", code: int = 0, timeout_s: float = 120.0
    ) -> subprocess.CompletedProcess[str]:
        """Run to the end with pipes; the exit code must be `code`."""
        raw = stdin.encode() if isinstance(stdin, str) else stdin
        done = subprocess.run(
            self.command(*arguments),
            input=raw,
            capture_output=True,
            timeout=timeout_s,
            env=self.environment(),
            check=False,
        )
        out, err = done.stdout.decode(errors="surrogateescape"), done.stderr.decode(errors="replace")
        assert done.returncode == code, f"ottla {' '.join(arguments)} gave {done.returncode}, not {code}\n{out}\n{err}"
        assert "Traceback" not in err, err
        return subprocess.CompletedProcess(done.args, done.returncode, out, err)

    def json(self, *arguments: str, stdin: str = "") -> Any:
        """Run with --json and give what it printed."""
        return json.loads(self(*arguments, "--json", stdin=stdin).stdout)

    def start(self, *arguments: str) -> "subprocess.Popen[bytes]":
        """Start with pipes and return the process; the caller ends it."""
        return subprocess.Popen(
            self.command(*arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environment(),
        )

    def on_terminal(self, *arguments: str, answer: str = "", timeout_s: float = 60.0) -> tuple[int, str]:
        """Run on a terminal of its own; `answer` is typed at the first question. Gives exit code and what was seen."""
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            self.command(*arguments), stdin=theirs, stdout=theirs, stderr=theirs, env=self.environment()
        )
        os.close(theirs)
        seen = b""
        deadline = time.monotonic() + timeout_s
        try:
            while time.monotonic() < deadline:
                if select.select([ours], [], [], 0.1)[0]:
                    try:
                        piece = os.read(ours, 65536)
                    except OSError:  # Linux says so when the last holder of the other end is gone
                        break
                    if not piece:
                        break
                    seen += piece
                    if answer and b"[y/N]" in seen:
                        os.write(ours, answer.encode() + b"\n")
                        answer = ""
            return process.wait(timeout_s), seen.decode()
        finally:
            os.close(ours)
            process.kill()
            process.wait()
