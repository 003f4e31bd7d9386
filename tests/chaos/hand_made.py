"""Histories written by hand: `story.txn("one", send("a-0", 17, 0), poll("b-0", (3, 9)))`."""

from typing import Any

from tests.chaos.history import Line, Operation, operations

Step = list[Any]


def send(key: str, value: int, offset: int | None = None) -> Step:
    """One record, acknowledged if it has an offset."""
    return ["send", key, value] if offset is None else ["send", key, value, offset]


def poll(key: str, *records: tuple[int, int]) -> Step:
    """What one poll gave: (offset, value) pairs of one key."""
    return ["poll", {key: [list(record) for record in records]}]


class Story:
    """A history, told operation by operation."""

    def __init__(self) -> None:
        self.lines: list[Line] = []

    @property
    def operations(self) -> list[Operation]:
        """What it comes to."""
        return operations(self.lines)

    def begin(self, who: str, what: str, *steps: Step, **more: Any) -> None:
        """An invocation; sends lose their offsets, polls what they gave."""
        asked = [step[:3] if step[0] == "send" else ["poll"] for step in steps]
        self.lines.append({"who": who, "state": "invoke", "what": what, "steps": asked, **more})

    def end(self, who: str, what: str, *steps: Step, state: str = "ok", **more: Any) -> None:
        """A completion."""
        self.lines.append({"who": who, "state": state, "what": what, "steps": list(steps), **more})

    def tell(self, who: str, what: str, *steps: Step, state: str = "ok", moved: bool = False) -> None:
        """A whole operation, with nothing else meanwhile."""
        self.begin(who, what, *steps)
        self.end(who, what, *steps, state=state, moved=moved)

    def send(self, who: str, *steps: Step, state: str = "ok") -> None:
        """Sends outside transactions."""
        self.tell(who, "send", *steps, state=state)

    def txn(self, who: str, *steps: Step, state: str = "ok") -> None:
        """A transaction."""
        self.tell(who, "txn", *steps, state=state)

    def poll(self, who: str, *steps: Step, state: str = "ok", moved: bool = False) -> None:
        """Polls outside transactions."""
        self.tell(who, "poll", *steps, state=state, moved=moved)

    def assign(self, who: str, *keys: str, from_start: bool = False) -> None:
        """Partitions of its own choice."""
        self.begin(who, "assign", keys=list(keys), from_start=from_start)
        self.end(who, "assign")

    def audit(self, **logs: list[tuple[int, int]]) -> None:
        """All of each partition (`a_0` for the key `a-0`), read to its end."""
        found = {key.replace("_", "-"): [list(record) for record in records] for key, records in logs.items()}
        self.begin("audit", "audit", keys=list(found))
        self.end("audit", "audit", ["poll", found])
