"""Kafka's VerifiableConsumer in the background."""

import json
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from tests.support.genuine import kafka_tool_command


class VerifiableMember:
    """A VerifiableConsumer in the background, which tells in JSON what happens to it."""

    def __init__(self, bootstrap: str, topic: str, group: str, *arguments: str) -> None:
        common = ("--bootstrap-server", bootstrap, "--topic", topic, "--group-id", group)
        policy = (
            "--reset-policy",
            "earliest",
            *(() if "--group-protocol" in arguments else ("--session-timeout", "6000")),
        )
        self._process = subprocess.Popen(
            kafka_tool_command("VerifiableConsumer", *common, *policy, *arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.events: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    @property
    def partitions(self) -> set[int]:
        """What it holds according to its events, each of which names only what was added or taken."""
        held: set[int] = set()
        for event in self.events:
            named = {entry["partition"] for entry in event.get("partitions", []) if isinstance(entry, dict)}
            if event["name"] == "partitions_assigned":
                held |= named
            elif event["name"] in ("partitions_revoked", "partitions_lost"):
                held -= named
        return held

    def consumed(self) -> int:
        return sum(event["count"] for event in self.events if event["name"] == "records_consumed")

    def signal(self, number: signal.Signals) -> None:
        """Send the process a signal."""
        self._process.send_signal(number)

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            for line in output:
                if line.startswith("{"):
                    self.events.append(json.loads(line))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait(30)
        self._reader.join(30)


def wait(question: Callable[[], bool], *members: VerifiableMember, timeout_s: float = 120.0) -> None:
    """Wait until `question` is answered with yes.

    Raises:
        AssertionError: not within `timeout_s`; the message has what the members saw.
    """
    deadline = time.monotonic() + timeout_s
    while not question():
        assert time.monotonic() < deadline, [member.events for member in members]
        time.sleep(0.05)
