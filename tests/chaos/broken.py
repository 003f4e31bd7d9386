"""Brokers that are broken on purpose, to see the checker find it: `python -m tests.chaos.broken BREAKAGE serve ...`.

Each is `ottla serve` with one thing changed before it starts. They show that a run that finds nothing means something.
"""

import asyncio
import sys
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, Final

from tests.chaos.checker import Kind
from tests.chaos.plan import Fault
from tests.chaos.share_checker import ShareKind
from tests.support.ottla_process import OttlaProcess

ACKNOWLEDGED_EARLY_S: Final = 0.15
LOCK_SHORTENED_S: Final = 5.95
"""Nearly all of `share_run.LOCK_MS`."""
_REPOSITORY: Final = Path(__file__).resolve().parents[2]


class Breakage(Enum):
    """What is done to it."""

    NONE = "none"
    """Nothing, but its page cache is lost with the process: a sound broker stands that."""
    NO_SYNC = "no-sync"
    """Acknowledges without fdatasync; its page cache is lost with the process."""
    EARLY_ACKNOWLEDGEMENT = "early-acknowledgement"
    """Acknowledges a moment before it appends."""
    NO_DEDUPLICATION = "no-deduplication"
    """Appends what a producer sends a second time because it has not heard of the first."""
    READS_UNCOMMITTED = "reads-uncommitted"
    """Gives consumers that read committed records whatever there is."""
    TORN_MARKERS = "torn-markers"
    """Commits in partitions with even numbers what it aborts in odd ones, and the other way round."""
    FORGOTTEN_OFFSETS = "forgotten-offsets"
    """Acknowledges offsets in transactions, and forgets them."""
    FORGOTTEN_ACKNOWLEDGEMENTS = "forgotten-acknowledgements"
    """Confirms to members of share groups what they say of records, and writes none of it down."""
    SHORT_LOCKS = "short-locks"
    """Gives a record to another member of a share group a moment after the first one got it."""
    MIXED_KEYS = "mixed-keys"
    """Gives out records of share groups whatever becomes of earlier ones with the same key."""


@dataclass(frozen=True, slots=True)
class Case:
    """A run in which a breakage shows."""

    seed: int
    seconds: float
    workload: str
    faults: tuple[Fault, ...]
    finds: frozenset[Kind]
    """What the checker finds, among other things."""


@dataclass(frozen=True, slots=True)
class ShareCase:
    """A run of a share group in which a breakage shows."""

    seed: int
    seconds: float
    faults: tuple[Fault, ...]
    finds: ShareKind


CASES: Final[Mapping[Breakage, Case]] = {
    Breakage.NONE: Case(1, 5.0, "mixed", (Fault.KILL_BROKER,), frozenset()),
    Breakage.NO_SYNC: Case(1, 5.0, "mixed", (Fault.KILL_BROKER,), frozenset({Kind.VANISHED})),
    Breakage.EARLY_ACKNOWLEDGEMENT: Case(2, 5.0, "plain", (Fault.KILL_BROKER,), frozenset({Kind.LOST_WRITE})),
    Breakage.NO_DEDUPLICATION: Case(11, 5.0, "mixed", (Fault.PAUSE_BROKER,), frozenset({Kind.DUPLICATE})),
    Breakage.READS_UNCOMMITTED: Case(4, 5.0, "mixed", (Fault.KILL_WORKER,), frozenset({Kind.PRECOMMITTED_READ})),
    Breakage.TORN_MARKERS: Case(5, 5.0, "mixed", (Fault.KILL_WORKER,), frozenset({Kind.TORN_TRANSACTION})),
    Breakage.FORGOTTEN_OFFSETS: Case(6, 5.0, "relay", (Fault.KILL_WORKER,), frozenset({Kind.RELAYED_TWICE})),
}
"""For each breakage a seed that shows it, without Java workers."""


SHARE_CASES: Final[Mapping[Breakage, ShareCase]] = {
    Breakage.FORGOTTEN_ACKNOWLEDGEMENTS: ShareCase(1, 6.0, (Fault.KILL_BROKER,), ShareKind.GIVEN_AGAIN),
    Breakage.SHORT_LOCKS: ShareCase(1, 4.0, (Fault.KILL_WORKER,), ShareKind.TWO_HANDS),
    Breakage.MIXED_KEYS: ShareCase(1, 4.0, (Fault.KILL_WORKER,), ShareKind.KEY_ORDER),
}
"""The same for runs of a share group."""


class BrokenOttla(OttlaProcess):
    """Ottla with a breakage; see `BrokerProcess` for what can be done with it."""

    def __init__(
        self, breakage: Breakage, directory: Path | None = None, *, properties: Mapping[str, str] | None = None
    ) -> None:
        """`directory` and `properties` as of `BrokerProcess`."""
        super().__init__(directory, properties=properties, environment={"PYTHONPATH": str(_REPOSITORY)})
        self.name = f"ottla with {breakage.value}"
        self._breakage = breakage

    def command(self) -> list[str]:
        """This module, in the place of the `ottla` command."""
        command = super().command()
        serve = command[command.index("serve") :]
        return [sys.executable, "-m", "tests.chaos.broken", self._breakage.value, *serve]


def lose_cache() -> None:
    """Have SIGKILL take with it what was not synced."""
    from ottla import broker
    from ottla.platform import Platform
    from tests.chaos.lost_cache import LostCacheFileSystem

    assert vars(broker)["Platform"] is Platform  # or what is put in its place would be used by nobody
    vars(broker)["Platform"] = partial(Platform, fs=LostCacheFileSystem())


def _no_sync() -> None:
    from ottla.log.flush import FlushTicket

    lose_cache()
    FlushTicket.sync = lambda self: None  # type: ignore[method-assign]


def _early_acknowledgement() -> None:
    from ottla.errors import OttlaError
    from ottla.ids import Offset
    from ottla.records.batch import iter_batches
    from ottla.server.handlers import produce

    sound = produce._append
    promised: dict[object, int] = {}

    def append(
        parts: Any,
        topic: str,
        place: Any,
        data: Any,
        request: Any,
        context: Any,
        answer: Any,
        verification: Any,
        checked: Any,
    ) -> Any:
        partition = parts.replicas.for_produce(topic, data.index, request.acks, context.client_id)
        records = bytes(data.records)
        data.records = bytearray(records)  # the request's own buffer is used again
        first = max(promised.get(partition, 0), partition.log.log_end_offset)
        promised[partition] = first + sum(header.last_offset_delta + 1 for header in iter_batches(records))
        answer.base_offset, answer.log_append_time_ms, answer.log_start_offset = first, -1, 0

        def later() -> None:
            with suppress(OttlaError):  # nobody is there to be told
                sound(parts, topic, place, data, request, context, copy(answer), verification, checked)

        asyncio.get_running_loop().call_later(ACKNOWLEDGED_EARLY_S, later)
        return partition, Offset(0)

    produce._append = append


def _no_deduplication() -> None:
    from ottla.log.producer_state import ProducerState

    def check(self: Any, header: Any, *rest: Any, **more: Any) -> None:
        entry = self.producers.get(header.producer_id)
        if entry is not None:
            self._check_epoch(entry, header.producer_epoch, header.base_offset)

    ProducerState.find_duplicate = lambda self, header: None  # type: ignore[method-assign]
    ProducerState.check = check  # type: ignore[method-assign]


def _reads_uncommitted() -> None:
    from ottla.log.partition_log import PartitionLog

    changed: Any = PartitionLog
    changed.last_stable_offset = property(lambda self: self.high_watermark)
    changed.aborted_transactions = lambda *anything: []


def _torn_markers() -> None:
    from ottla.coordinators.markers import LocalMarkers

    sound = LocalMarkers.send

    async def send(self: Any, marker: Any, partitions: Collection[Any]) -> Mapping[Any, Any]:
        odd = {partition for partition in partitions if partition[1] % 2}
        outcomes = dict(await sound(self, marker, [one for one in partitions if one not in odd]))
        return {**outcomes, **await sound(self, marker._replace(committed=not marker.committed), odd)}

    LocalMarkers.send = send  # type: ignore[method-assign]


def _forgotten_offsets() -> None:
    from ottla.errors import ErrorCode
    from ottla.groups.events import OffsetsCommitted
    from ottla.server.handlers import txn_offset_commit

    async def commit(parts: Any, request: Any, producer: Any, context: Any, to_commit: Any) -> OffsetsCommitted:
        return OffsetsCommitted((ErrorCode.NONE,) * len(to_commit))

    txn_offset_commit._commit = commit


def _forgotten_acknowledgements() -> None:
    from ottla.errors import ErrorCode
    from ottla.share_partitions.led_partition import LedSharePartition

    async def write_once(self: Any, write: Any) -> ErrorCode:
        return ErrorCode.NONE

    LedSharePartition._write_once = write_once  # type: ignore[method-assign]


def _short_locks() -> None:
    from ottla.share.partition import SharePartition

    for name in ("acquire", "acquire_ready"):
        sound = getattr(SharePartition, name)

        def acquire(self: Any, *what: Any, until: float, sound: Any = sound, **more: Any) -> Any:
            return sound(self, *what, until=until - LOCK_SHORTENED_S, **more)

        setattr(SharePartition, name, acquire)


def _mixed_keys() -> None:
    from ottla.share.keys import KeyOrder

    sound = KeyOrder.add
    KeyOrder.add = lambda self, offset, key: sound(self, offset, None)  # type: ignore[method-assign]


_BREAK: Final[Mapping[Breakage, Callable[[], None]]] = {
    Breakage.NONE: lose_cache,
    Breakage.NO_SYNC: _no_sync,
    Breakage.EARLY_ACKNOWLEDGEMENT: _early_acknowledgement,
    Breakage.NO_DEDUPLICATION: _no_deduplication,
    Breakage.READS_UNCOMMITTED: _reads_uncommitted,
    Breakage.TORN_MARKERS: _torn_markers,
    Breakage.FORGOTTEN_OFFSETS: _forgotten_offsets,
    Breakage.FORGOTTEN_ACKNOWLEDGEMENTS: _forgotten_acknowledgements,
    Breakage.SHORT_LOCKS: _short_locks,
    Breakage.MIXED_KEYS: _mixed_keys,
}


def main() -> int:
    """Break, then serve; the exit code is the broker's."""
    from ottla.cli.main import main as ottla

    _BREAK[Breakage(sys.argv.pop(1))]()
    return ottla()


if __name__ == "__main__":
    sys.exit(main())
