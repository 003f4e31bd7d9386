"""Drives a coordinator's machine in a test: replays what it appends, keeps its timers, collects its replies."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from ottla.coordination.newest import NewestRecords
from ottla.coordination.state_machine import (
    Append,
    CancelTimer,
    Effect,
    Notify,
    Reply,
    ReplyT,
    Request,
    SetTimer,
    TimerFired,
    TimerKey,
)
from ottla.records.record import Record, encode_batch


@dataclass
class Driver:
    """Time stands still until `pass_time`."""

    machine: Any
    now_ms: int = 1_000_000
    log: list[Any] = field(default_factory=list)
    replies: dict[Any, list[Any]] = field(default_factory=dict)
    timers: dict[TimerKey, int] = field(default_factory=dict)
    told: list[Any] = field(default_factory=list)
    requests: dict[Any, Request[Any]] = field(default_factory=dict)
    """By label."""
    labels: dict[Request[Any], Any] = field(default_factory=dict)

    def ask(self, request: Request[ReplyT]) -> ReplyT:
        """The reply, which has to come at once."""
        self.send(request)
        reply: ReplyT = self.reply(request)
        return reply

    def send(self, event: Any, label: Any = None) -> list[Effect]:
        """The effects, already carried out. The reply to a request is found under its label, or the request itself."""
        if label is not None:
            self.labels[event] = label
            self.requests[label] = event
        effects: list[Effect] = self.machine.handle(event, self.now_ms)
        self.carry_out(effects)
        return effects

    def carry_out(self, effects: Iterable[Effect | None]) -> None:
        for effect in effects:
            match effect:
                case Append(records, producer):
                    assert records, "an empty append"
                    for record in records:
                        self.machine.replay(record, len(self.log), -1 if producer is None else producer.producer_id)
                        self.log.append(record)
                case Reply(request, value):
                    self.replies.setdefault(self.labels.get(request, request), []).append(value)
                case Notify(message):
                    self.told.append(message)
                case SetTimer(key, after_ms):
                    assert after_ms >= 0
                    self.timers[key] = self.now_ms + after_ms
                case CancelTimer(key):
                    self.timers.pop(key, None)

    def pass_time(self, ms: int, until: Callable[[], bool] = lambda: False) -> list[Effect]:
        """Fire all timers that come due on the way, in order; stop early when `until` says so."""
        end_ms = self.now_ms + ms
        effects: list[Effect] = []
        while not until():
            due = min(((at, key) for key, at in self.timers.items() if at <= end_ms), default=None)
            if due is None:
                self.now_ms = end_ms
                break
            self.now_ms = max(self.now_ms, due[0])
            del self.timers[due[1]]
            effects += self.send(TimerFired(due[1]))
        return effects

    def reply(self, asked: Any) -> Any:
        """The one reply to a request, or to that of this label."""
        (value,) = self.replies[asked]
        return value

    def waits(self, asked: Any) -> bool:
        return asked not in self.replies


def replay_newest(machine: Any, log: list[Any]) -> None:
    """Replay a log of records outside of transactions as a coordinator does that takes the partition over."""
    newest = NewestRecords()
    for position, record in enumerate(log):
        key, value = machine.records.encode(record)
        newest.take(bytes(encode_batch([Record(position, 0, key, value)], base_offset=position)), 0, 1)
    for offset, producer_id, key, value in newest.records():
        machine.replay(machine.records.decode(key, value), offset, producer_id)
