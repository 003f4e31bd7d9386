"""`ottla pipeline ...` as a user types it."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class CommandLine:
    """Commands with one home and one cluster."""

    home: Path
    bootstrap: str

    def start(self, job: Path, *arguments: str) -> "subprocess.Popen[str]":
        """`ottla pipeline run`, with its output in <home>/<job>.out."""
        with (self.home / f"{job.stem}.out").open("a") as output:
            return subprocess.Popen(
                [*_OTTLA, "pipeline", "run", str(job), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=self._environment(),
                text=True,
            )

    def output(self, job: Path) -> str:
        """What all runs of a job have printed so far."""
        return (self.home / f"{job.stem}.out").read_text()

    def __call__(self, *arguments: str, timeout_s: float = 300) -> "subprocess.CompletedProcess[str]":
        """Any verb, to its end."""
        return subprocess.run(
            [*_OTTLA, "pipeline", *arguments],
            capture_output=True,
            env=self._environment(),
            text=True,
            check=False,
            timeout=timeout_s,
        )

    def status(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self("status", name, "--json").stdout)
        return found

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "OTTLA_HOME": str(self.home), "OTTLA_BOOTSTRAP": self.bootstrap}


_OTTLA = [sys.executable, "-m", "ottla.cli.main"]
