"""PURE: what was asked of the workers, and what they answered; one JSON object a line, for people and for the checker.

    {"at": 1.204, "who": "python-0.1", "state": "invoke", "what": "txn", "steps": [["send", "a-0", 17], ["poll"]]}
    {"at": 1.391, "who": "python-0.1", "state": "ok", "what": "txn",
     "steps": [["send", "a-0", 17, 5], ["poll", {"b-1": [[3, 9], [4, 12]]}]]}

`who` is a worker's place, and which of the processes there. A key is a partition (`topic-number`), a value an integer
that is sent once in a run. A worker does one thing at a time; `invoke` is followed by `ok` (it happened), `fail` (it
did not, and never will) or `info` (nobody knows: a timeout, or the process was killed). Lines with the state `note`
tell of faults.
The form, and the three outcomes, are those of the Kafka workload of Jepsen.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeAlias


class What(Enum):
    """What a worker was asked for."""

    SEND = "send"
    """By an idempotent producer, outside transactions: each step stands for itself."""
    POLL = "poll"
    TXN = "txn"
    """Sends and polls in one transaction, and, if the worker subscribes, its offsets."""
    RELAY = "relay"
    """A transaction that sends what it polls, from the topic `in` to the topic `out`, and its offsets."""
    ASSIGN = "assign"
    SUBSCRIBE = "subscribe"
    AUDIT = "audit"
    """A poll from the start of every partition to its end, when all faults are over."""


class Outcome(Enum):
    """How it ended."""

    OK = "ok"
    FAIL = "fail"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Send:
    """One record; `offset` is None unless it was acknowledged."""

    key: str
    value: int
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class Poll:
    """One call of poll: for each key the records, as (offset, value), in the order they came."""

    records: Mapping[str, tuple[tuple[int, int], ...]]


Step: TypeAlias = Send | Poll


@dataclass(frozen=True, slots=True)
class Operation:
    """One thing a worker did."""

    who: str
    what: What
    outcome: Outcome
    began: int
    """Line of the invocation, counted from 1: orders operations in real time."""
    ended: int | None
    """Line of the completion; None if there is none."""
    steps: tuple[Step, ...] = ()
    keys: frozenset[str] = frozenset()
    """ASSIGN: the partitions; SUBSCRIBE: the topics; AUDIT: the partitions read to their ends."""
    from_start: bool = False
    """ASSIGN: all keys are read from the start, not only new ones."""
    moved: bool = False
    """Partitions were given or taken by a rebalance since the worker's last completion."""
    error: str | None = None

    @property
    def sends(self) -> Iterator[Send]:
        """What it sent, in order."""
        return (step for step in self.steps if isinstance(step, Send))

    @property
    def reads(self) -> Iterator[tuple[str, int, int]]:
        """What it read, in order: key, offset, value."""
        for step in self.steps:
            if isinstance(step, Poll):
                for key, records in step.records.items():
                    for offset, value in records:
                        yield key, offset, value

    @property
    def is_transaction(self) -> bool:
        """Whether all its sends have to appear together or not at all."""
        return self.what in (What.TXN, What.RELAY)

    @property
    def lines(self) -> str:
        """Where it is in the history."""
        return f"lines {self.began}-{self.ended}" if self.ended else f"line {self.began}"


Line: TypeAlias = Mapping[str, Any]
"""One decoded line of a history."""

_COMPLETIONS: Final = frozenset(outcome.value for outcome in Outcome)


class BrokenHistoryError(ValueError):
    """Lines that no run can have written; the message has the first one's number."""


def operations(lines: Iterable[Line]) -> list[Operation]:
    """Invocations with their completions, in the order of the invocations; notes are left out.

    An invocation without a completion is an operation with the outcome INFO.

    Raises:
        BrokenHistoryError: a worker was asked for two things at once, or answered what it was not asked for.
    """
    under_way: dict[str, tuple[int, Line]] = {}
    done: list[Operation] = []
    for number, line in enumerate(lines, 1):
        who, state = line["who"], line["state"]
        if state == "invoke":
            if who in under_way:
                raise BrokenHistoryError(f"line {number}: {who} has not finished line {under_way[who][0]}")
            under_way[who] = number, line
        elif state in _COMPLETIONS:
            if who not in under_way:
                raise BrokenHistoryError(f"line {number}: {who} was not asked for anything")
            began, asked = under_way.pop(who)
            done.append(_operation(began, asked, number, line))
    done += [_operation(began, asked, None, asked) for began, asked in under_way.values()]
    return sorted(done, key=lambda operation: operation.began)


def _operation(began: int, asked: Line, ended: int | None, answer: Line) -> Operation:
    steps = answer.get("steps")
    if steps is None:  # a worker that was killed can tell of no step; what it was told to send it may have sent
        steps = asked.get("steps", ())
    return Operation(
        who=asked["who"],
        what=What(asked["what"]),
        outcome=Outcome.INFO if ended is None else Outcome(answer["state"]),
        began=began,
        ended=ended,
        steps=tuple(_steps(steps)),
        keys=frozenset(asked.get("keys", ())),
        from_start=bool(asked.get("from_start", False)),
        moved=bool(answer.get("moved", False)),
        error=answer.get("error"),
    )


def _steps(steps: Iterable[list[Any]]) -> Iterator[Step]:
    for name, *rest in steps:
        if name == "send":
            yield Send(*rest)
        elif name == "poll" and rest:
            yield Poll({key: tuple((offset, value) for offset, value in records) for key, records in rest[0].items()})


def encode(line: Line) -> str:
    """One line of a history file, without the newline."""
    return json.dumps(line, ensure_ascii=False)


def decode(text: str) -> list[Line]:
    """The lines of a history file. Raises BrokenHistoryError for what is not JSON; a torn last line is left out."""
    lines: list[Line] = []
    rows = text.split("\n")
    for number, row in enumerate(rows, 1):
        if not row:
            continue
        try:
            lines.append(json.loads(row))
        except json.JSONDecodeError as error:
            if number == len(rows):
                break
            raise BrokenHistoryError(f"line {number} is not JSON: {error}") from error
    return lines
