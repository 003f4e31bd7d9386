"""Members of a share group in Java, what they report of each record, and a check of the order in which keys went."""

import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

from tests.support.eventually import eventually
from tests.support.java_sources import compiled, java_command

_SOURCE: Final = Path(__file__).resolve().parents[1] / "compat" / "java" / "ShareWorkers.java"


class Handled(NamedTuple):
    """One record in the hands of one member; times are nanoseconds of one clock."""

    member: int
    partition: int
    offset: int
    key: str
    delivery_count: int
    began_ns: int
    ended_ns: int
    outcome: str


def disorder(handled: Iterable[Handled]) -> list[str]:
    """What contradicts key order: two records of a key at one time, or one before an earlier one was finished.

    Nothing is said of records without a key. A record is finished by whatever is not a release.
    """
    by_key: dict[tuple[int, str], list[Handled]] = defaultdict(list)
    for one in handled:
        if one.key != "null":
            by_key[one.partition, one.key].append(one)
    found: list[str] = []
    for (partition, key), ones in by_key.items():
        ones.sort(key=lambda one: one.began_ns)
        offsets = sorted({one.offset for one in ones})
        expected = iter(offsets)
        current = next(expected)
        busy_until, busy_with = 0, -1
        for one in ones:
            if one.began_ns < busy_until:
                found.append(f"key {key} of partition {partition}: {one.offset} began while {busy_with} was in hand")
            if one.offset != current:
                found.append(f"key {key} of partition {partition}: {one.offset} came when it was the turn of {current}")
            if one.ended_ns > busy_until:
                busy_until, busy_with = one.ended_ns, one.offset
            if one.outcome != "release" and one.offset == current:
                current = next(expected, -1)
    return found


def _handled(words: list[str]) -> Handled:
    _, member, partition, offset, key, deliveries, began, ended, outcome = words
    return Handled(
        int(member), int(partition), int(offset), key, int(deliveries), int(began), int(ended), outcome.lower()
    )


class ShareWorkers:
    """The Java program in the background; `settings` are its arguments, with dots as underscores."""

    def __init__(self, bootstrap: str, group: str, topic: str, **settings: object) -> None:
        arguments = [f"{name.replace('_', '.')}={value}" for name, value in settings.items()]
        self._process = subprocess.Popen(
            java_command(compiled(_SOURCE), "ShareWorkers", bootstrap, group, topic, *arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.lines: list[str] = []
        self.read_ns: list[int] = []
        """When each line was read, on the clock of `Handled`."""
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            for line in output:
                self.read_ns.append(time.monotonic_ns())
                self.lines.append(line.strip())

    @property
    def handled(self) -> list[Handled]:
        return [_handled(line.split(" ")) for line in list(self.lines) if line.startswith("done ")]

    def refused(self) -> list[list[str]]:
        """Acknowledgements that a lone broker refused: MEMBER PARTITION EXCEPTION.

        A lone broker leads everything. Java's client itself fails those as NOT_LEADER_OR_FOLLOWER for which it has no
        session when it commits or closes (`ShareConsumeRequestManager` of 4.3.1).
        """
        return [words for words in self.said("refused") if words[-1] != "NotLeaderOrFollowerException"]

    def said(self, what: str) -> list[list[str]]:
        """The words after `confirmed` or `refused`."""
        return [line.split(" ")[1:] for line in list(self.lines) if line.startswith(f"{what} ")]

    def confirmed(self) -> set[tuple[int, int]]:
        """Partition and offset of what the broker has acknowledged."""
        return {(int(words[1]), int(offset)) for words in self.said("confirmed") for offset in words[2:]}

    def finished_at(self) -> dict[tuple[int, int], int]:
        """When it was read that the broker has acknowledged something else than the release of a record."""
        found: dict[tuple[int, int], int] = {}
        released: dict[tuple[str, str, str], bool] = {}
        for at, line in zip(self.read_ns, list(self.lines), strict=False):
            words = line.split(" ")
            if words[0] == "done":
                released[words[1], words[2], words[3]] = words[-1].lower() == "release"
            elif words[0] == "confirmed":
                for offset in words[3:]:
                    if released.get((words[1], words[2], offset)) is False:
                        found.setdefault((int(words[2]), int(offset)), at)
        return found

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def until_ready(self) -> None:
        """Every member has joined the group."""
        eventually(lambda: "ready" in self.lines or self._process.poll() is not None, timeout_s=60)
        assert "ready" in self.lines, "\n".join(self.lines)

    def finish(self, timeout_s: float = 100) -> list[Handled]:
        """Wait until the members have left, and return what they did. Raises AssertionError if they fail."""
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._reader.join()
            raise AssertionError("the workers did not end:\n" + "\n".join(self.lines[-40:])) from None
        self._reader.join()
        assert code == 0, "\n".join(self.lines[-60:])
        return self.handled

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
