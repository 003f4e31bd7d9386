"""A sound broker in a few lines, and workers that interleave at random: histories in which nothing may be found."""

from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from tests.chaos.hand_made import Step, Story

KEYS: Final = ("a-0", "a-1", "b-0")


@dataclass(slots=True)
class _Transaction:
    """Also what a record outside transactions is in: one that was committed at once."""

    ended: bool = False
    committed: bool = False


@dataclass(slots=True)
class _Worker:
    name: str
    positions: dict[str, int] = field(default_factory=dict)
    before: dict[str, int] = field(default_factory=dict)
    what: str = ""
    todo: list[Step] = field(default_factory=list)
    done: list[Step] = field(default_factory=list)
    transaction: _Transaction = field(default_factory=_Transaction)


class SoundLog:
    """Partitions with a last stable offset; `story` is what `moves` random moves of four workers came to."""

    def __init__(self, seed: int, moves: int = 400) -> None:
        self.story = Story()
        self._random = Random(seed)
        self._logs: dict[str, list[tuple[int, _Transaction] | None]] = {key: [] for key in KEYS}
        self._value = 0
        workers = [_Worker(f"worker-{number}") for number in range(4)]
        for worker in workers:
            worker.positions = dict.fromkeys(KEYS, 0)
            self.story.assign(worker.name, *KEYS, from_start=True)
        for _ in range(moves):
            self._move(self._random.choice(workers))
        for worker in workers:
            while worker.what:
                self._move(worker)
        self.story.audit(**{key.replace("-", "_"): self._read(key, 0)[0] for key in KEYS})

    def _move(self, worker: _Worker) -> None:
        if not worker.what:
            self._begin(worker)
        elif worker.todo:
            self._step(worker, worker.todo.pop(0))
        else:
            self._end(worker)

    def _begin(self, worker: _Worker) -> None:
        random = self._random
        worker.what = random.choice(("txn", "txn", "send", "poll"))
        worker.before, worker.done, worker.transaction = dict(worker.positions), [], _Transaction()
        for _ in range(random.randint(1, 4)):
            if worker.what == "poll" or (worker.what == "txn" and random.random() < 0.4):
                worker.todo.append(["poll"])
            else:
                self._value += 1
                worker.todo.append(["send", random.choice(KEYS), self._value])
        self.story.begin(worker.name, worker.what, *worker.todo)

    def _step(self, worker: _Worker, step: Step) -> None:
        if step[0] == "poll":
            found: dict[str, Any] = {}
            for key in KEYS:
                records, end = self._read(key, worker.positions[key])
                if records and self._random.random() < 0.7:
                    found[key] = [list(record) for record in records]
                    worker.positions[key] = end
            worker.done.append(["poll", found])
            return
        _, key, value = step
        within = worker.transaction if worker.what == "txn" else _Transaction(ended=True, committed=True)
        self._logs[key].append((value, within))
        worker.done.append(["send", key, value, len(self._logs[key]) - 1])

    def _end(self, worker: _Worker) -> None:
        random, what, worker.what = self._random, worker.what, ""
        state = random.choices(("ok", "fail", "info"), (8, 1, 1))[0] if what == "txn" else "ok"
        worker.transaction.ended = True
        worker.transaction.committed = state == "ok" or (state == "info" and random.random() < 0.5)
        if what == "txn":
            for key in {step[1] for step in worker.done if step[0] == "send"}:
                self._logs[key].append(None)  # its marker
        if state == "ok":
            self.story.end(worker.name, what, *worker.done)
            return
        worker.positions = worker.before
        told = worker.done if state == "fail" or random.random() < 0.5 else None
        self.story.lines.append(
            {"who": worker.name, "state": state, "what": what, **({"steps": told} if told is not None else {})}
        )

    def _read(self, key: str, position: int) -> tuple[list[tuple[int, int]], int]:
        """Committed records from `position` to the last stable offset, and where a consumer stands then."""
        records: list[tuple[int, int]] = []
        log = self._logs[key]
        for offset in range(len(log)):
            entry = log[offset]
            if entry is not None and not entry[1].ended:
                return records, max(position, offset)
            if entry is not None and entry[1].committed and offset >= position:
                records.append((offset, entry[0]))
        return records, max(position, len(log))
