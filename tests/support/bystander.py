"""A client that asks something trivial every 20 ms while another one attacks the broker.

Run in a process of its own, so that the attack's own work does not count: its worst answer and the broker's peak memory
are what an attack comes to. What a busy machine adds is taken off again: the time for which a thread of the broker (its
loop, or one that holds the interpreter's lock) or this process was ready to run and had to wait for a processor
(`/proc/PID/task/TID/schedstat`).
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ottla.protocol.messages.api_versions import ApiVersionsRequest
from tests.support.broker_process import BrokerProcess
from tests.support.raw_client import RawConnection

EVERY_S: Final = 0.02
PAGE_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class Suffered:
    """What a bystander saw."""

    worst_s: float
    """The longest answer, without the waits for a processor."""
    answers: int
    memory_before_bytes: int
    """Resident memory of the broker when the attack began."""
    memory_peak_bytes: int

    @property
    def grown_bytes(self) -> int:
        return self.memory_peak_bytes - self.memory_before_bytes

    def __str__(self) -> str:
        mib = 1 << 20
        return (
            f"worst answer {self.worst_s * 1000:.0f} ms of {self.answers}, "
            f"memory {self.memory_before_bytes / mib:.0f} -> {self.memory_peak_bytes / mib:.0f} MiB"
        )


@dataclass(frozen=True, slots=True)
class Attack:
    """Something a client may do. To add one, write a function of a broker and list it with its name."""

    name: str
    run: Callable[[BrokerProcess], None]
    """What is measured; returns when the harm, if any, is done."""
    prepare: Callable[[BrokerProcess], None] = lambda broker: None
    """What has to be there before; not measured."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Settings of the broker."""
    most_s: float = 0.05
    """The longest answer that another client may get for it."""
    grows_by_bytes: int = 256 << 20
    """The most memory that the broker may take for it."""

    def __str__(self) -> str:
        return self.name


class Bystander:
    """The other client, for as long as the context lasts; then `suffered` says what it saw."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process
        self._suffered: Suffered | None = None

    @property
    def suffered(self) -> Suffered:
        assert self._suffered is not None, "known when the context has ended"
        return self._suffered

    def lap(self) -> Suffered:
        """What was seen since the beginning, or the last lap."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"lap\n")
        self._process.stdin.flush()
        return Suffered(**json.loads(self._process.stdout.readline()))

    def ended(self, said: bytes) -> None:
        self._suffered = Suffered(**json.loads(said))


@contextmanager
def bystander(broker: BrokerProcess, every_s: float = EVERY_S) -> Iterator[Bystander]:
    """Ask all the time while the body runs."""
    command = [sys.executable, "-m", "tests.support.bystander", broker.bootstrap, str(broker.pid), str(every_s)]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=root) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        seen = Bystander(process)
        try:
            assert process.stdout.readline() == b"ready\n"
            yield seen
        finally:
            process.stdin.close()
            said = process.stdout.readline()
        seen.ended(said)


def resident_bytes(pid: int) -> int:
    """What of the process is in memory now."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES


def _waits_s(pid: int | str) -> dict[str, float]:
    """For how long each thread has been ready and waiting for a processor."""
    waits: dict[str, float] = {}
    for thread in os.listdir(f"/proc/{pid}/task"):
        with suppress(OSError):  # it has ended
            waits[thread] = int(Path(f"/proc/{pid}/task/{thread}/schedstat").read_text().split()[1]) / 1e9
    return waits


def _longest_s(before: Mapping[str, float], after: Mapping[str, float]) -> float:
    """The longest of the waits in between."""
    return max(waited_s - before.get(thread, 0.0) for thread, waited_s in after.items())


def main(bootstrap: str, pid: int, every_s: float) -> None:
    """Ask until stdin ends, then print what was seen; so do for every line before."""
    import select

    request = ApiVersionsRequest(client_software_name="bystander", client_software_version="1")
    with RawConnection(bootstrap, timeout_s=120) as connection:
        connection.ask(request, 4)
        print("ready", flush=True)
        goes_on = True
        while goes_on:
            worst_s, answers = 0.0, 0
            before = peak = resident_bytes(pid)
            is_asked = False
            while not is_asked:
                is_asked = bool(select.select([sys.stdin], [], [], every_s)[0])
                brokers, own = _waits_s(pid), _waits_s("self")
                began = time.perf_counter()
                connection.ask(request, 4)
                took_s = time.perf_counter() - began
                waited_s = _longest_s(brokers, _waits_s(pid)) + _longest_s(own, _waits_s("self"))
                worst_s = max(worst_s, took_s - waited_s)
                answers += 1
                peak = max(peak, resident_bytes(pid))
            goes_on = bool(os.read(sys.stdin.fileno(), 100))
            found = {"worst_s": worst_s, "answers": answers, "memory_before_bytes": before, "memory_peak_bytes": peak}
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
