"""Members of consumer groups in Java, all in one virtual machine, and what they say happens to them."""

import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tests.support.eventually import eventually
from tests.support.java_sources import compiled, java_command

_SOURCE: Final = Path(__file__).resolve().parents[1] / "compat" / "java" / "GroupMembers.java"


class GroupMembers:
    """The program in the background, for `with`; members leave and it ends afterwards."""

    def __init__(self, bootstrap: str) -> None:
        self._process = subprocess.Popen(
            java_command(compiled(_SOURCE), "GroupMembers", bootstrap),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.lines: list[list[str]] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def join(self, name: str, **settings: Any) -> None:
        """Start a member: `topics` (comma-separated) or `pattern`, and the client's settings with `_` for dots."""
        self._tell("join", name, *(f"{key.replace('_', '.')}={value}" for key, value in settings.items()))

    def leave(self, name: str) -> None:
        """Have a member close its consumer, and wait until it has."""
        self._tell("leave", name)
        eventually(lambda: self.of(name, "left"))

    def of(self, name: str, what: str) -> list[list[str]]:
        """The words behind `assigned`, `revoked`, `lost`, `read`, `failed` or `left` of a member, in order."""
        return [words[2:] for words in list(self.lines) if words[:2] == [what, name]]

    def partitions(self, name: str) -> set[str]:
        """What it holds now, as `topic-partition`; each event names only what was added or taken."""
        held: set[str] = set()
        for words in list(self.lines):
            if words[1:2] == [name]:
                if words[0] == "assigned":
                    held |= set(words[2:])
                elif words[0] in ("revoked", "lost"):
                    held -= set(words[2:])
        return held

    def read(self) -> list[tuple[str, str]]:
        """Partition and value of everything that any member has read."""
        return [(words[2], words[3]) for words in list(self.lines) if words[0] == "read"]

    def until(self, question: Callable[[], object], timeout_s: float = 120.0) -> None:
        """Wait until the question is answered with yes. Raises AssertionError with what the members said."""
        try:
            eventually(lambda: bool(question()) or self._process.poll() is not None, timeout_s=timeout_s)
            assert question()
        except AssertionError:
            raise AssertionError("\n".join(" ".join(words) for words in self.lines[-60:])) from None

    def until_spread(self, names: str, sizes: Sequence[int]) -> None:
        """Wait until the members, whose names are letters, hold so many partitions in any order, no two the same."""

        def is_spread() -> bool:
            held = [self.partitions(name) for name in names]
            return sorted(map(len, held)) == sorted(sizes) and len(set().union(*held)) == sum(sizes)

        self.until(is_spread)

    def _tell(self, *words: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(words) + "\n")
        self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            for line in output:
                self.lines.append(line.split())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
