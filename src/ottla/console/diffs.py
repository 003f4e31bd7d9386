"""A replay's outputs beside those of its run, row by row: by `ottla pipeline diff` in a process of its own, since that
takes Spark, a minute, and a gigabyte."""

import atexit
import json
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from ottla.pipeline.errors import PipelineError
from ottla.processes import ottla_command

LONGEST_S: Final = 900.0
EXAMPLES: Final = 10
LARGEST_BYTES: Final = 4 << 20
SHOWN: Final = 500
"""Characters of a row."""
_LAST_S: Final = 10.0
"""For a process to end that was asked to."""
_MOST_KEPT: Final = 10
_EQUAL, _DIFFERENT = 0, 1
"""Exit codes of the command that come with an answer."""


class Example(NamedTuple):
    """Rows of one key, which differ."""

    key: str
    in_a: str
    in_b: str


class FlowDiff(NamedTuple):
    """One flow's output in both runs. `columns`: for each, in how many rows it differs."""

    flow: str
    equal: int
    only_in_a: int
    only_in_b: int
    differing: int
    columns: list[tuple[str, int]]
    examples: list[Example]

    @property
    def is_equal(self) -> bool:
        """Whether both runs have written the same."""
        return not (self.only_in_a or self.only_in_b or self.differing)


def flow_diffs(answer: Mapping[str, Any]) -> list[FlowDiff]:
    """What `ottla pipeline diff --json` has found, flows that differ first. PURE."""
    found = [
        FlowDiff(
            flow,
            each["equal"],
            each["only_in_a"],
            each["only_in_b"],
            each["differing"],
            sorted(each["columns"].items(), key=lambda column: -column[1]),
            [
                Example(
                    *(_cut(text) for text in (example["key"], *("\n".join(example[of]) for of in ("in_a", "in_b"))))
                )
                for example in each["examples"]
            ],
        )
        for flow, each in answer["flows"].items()
    ]
    return sorted(found, key=lambda each: (each.is_equal, each.flow))


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


class Comparison:
    """One comparison, which goes on in a thread and a process; its outcome is `found` or a `problem`."""

    def __init__(self, a: str, b: str, command: Sequence[str], properties: str) -> None:
        self.a, self.b = a, b
        self.began_at = time.time()
        self.found: list[FlowDiff] | None = None
        self.problem = ""
        self.exit_code: int | None = None
        self._command = command
        self._properties = properties
        self.thread = threading.Thread(target=self._run, name=f"comparison of {a} and {b}", daemon=True)

    @property
    def is_over(self) -> bool:
        """Whether there is an outcome."""
        return self.found is not None or bool(self.problem)

    def _run(self) -> None:
        try:
            self.found = flow_diffs(self._answer())
        except Exception as problem:  # the page shows it
            self.problem = str(problem) or type(problem).__name__

    def _answer(self) -> dict[str, Any]:
        with tempfile.TemporaryDirectory(prefix="ottla-console-") as scratch:  # for this user alone
            config, out, said = (Path(scratch) / name for name in ("client.properties", "out", "err"))
            config.write_text(self._properties, encoding="utf-8")
            with out.open("wb") as output, said.open("wb") as errors:
                command = [*self._command, "--command-config", str(config)]
                process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors)
            end = atexit.register(process.terminate)
            try:
                code = self.exit_code = process.wait(LONGEST_S)
            except subprocess.TimeoutExpired:
                raise PipelineError(f"it took longer than {LONGEST_S / 60:.0f} minutes, and was given up") from None
            finally:
                atexit.unregister(end)
                _end(process)
            if code not in (_EQUAL, _DIFFERENT) or not out.stat().st_size:
                lines = said.read_text(encoding="utf-8", errors="replace").strip().splitlines()
                raise PipelineError(lines[-1].removeprefix("ottla: ") if lines else f"it ended with exit code {code}")
            if out.stat().st_size > LARGEST_BYTES:
                raise PipelineError("the rows that differ are too large to be shown here")
            answer: dict[str, Any] = json.loads(out.read_bytes())
            return answer


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(_LAST_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Comparisons:
    """The comparisons of this console, the newest of each pair; one at a time."""

    def __init__(self, home: Path, command: Callable[..., Sequence[str]] | None = None) -> None:
        """`command` gets the names of two runs."""
        self._home = home
        self._command = command or self._of
        self._known: dict[tuple[str, str], Comparison] = {}

    def of(self, a: str, b: str) -> Comparison | None:
        """The newest comparison of two runs."""
        return self._known.get((a, b))

    def begin(self, a: str, b: str, client: Mapping[str, Any]) -> Comparison:
        """Compare two runs as this client. Raises PipelineError while others are being compared."""
        going = next((each for each in self._known.values() if not each.is_over), None)
        if going is not None:
            raise PipelineError(f"{going.a} and {going.b} are being compared: wait for that")
        self._known.pop((a, b), None)
        while len(self._known) >= _MOST_KEPT:
            del self._known[next(iter(self._known))]
        begun = self._known[a, b] = Comparison(a, b, self._command(a, b), as_properties(client))
        begun.thread.start()
        return begun

    def _of(self, a: str, b: str) -> list[str]:
        options = ["--json", "--limit", str(EXAMPLES), "--home", str(self._home)]
        return ottla_command("pipeline", "diff", a, b, *options)


def as_properties(client: Mapping[str, Any]) -> str:
    """Settings of a client as a file of properties, so that no secret is among the arguments of a process. PURE.

    Raises PipelineError for a value that no line of such a file can have.
    """
    lines = []
    for name, value in client.items():
        text = str(value)
        if text != text.strip() or text.endswith("\\") or len(text.splitlines()) > 1:
            raise PipelineError(
                f"the property {name} has several lines or ends in a space or backslash: use the command"
            )
        lines.append(f"{name}={text}\n")
    return "".join(lines)
