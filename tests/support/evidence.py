"""Every record once, by the logs of all replicas; and what a failed test of many processes leaves behind.

A record may be read twice for three reasons: a broker has appended a batch twice, a client has sent a record again in
a new epoch, or the consumer has read one place twice. The logs tell which: a batch appended twice has the same
producer id, epoch and sequence at two offsets.
"""

import re
import shutil
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from ottla.errors import OttlaError
from ottla.records.batch import BatchHeader, iter_batches
from ottla.records.record import decode_records
from tests.support.broker_process import BrokerProcess
from tests.support.whole_topic import TIMEOUT_S, read_all

KEPT_IN: Final = Path(__file__).resolve().parents[2] / ".cache" / "evidence"
KEPT_FAILURES: Final = 8
REBUILT: Final = shutil.ignore_patterns("*.index", "*.timeindex")
"""Files that genuine Kafka preallocates, and that any start rebuilds from the log."""


class Batch(NamedTuple):
    """One batch of a replica's log."""

    partition: str
    """Its directory's name."""
    header: BatchHeader
    data: bytes

    @property
    def sent(self) -> tuple[str, int, int, int]:
        """What a producer sends once: partition, producer id, epoch, sequence."""
        header = self.header
        return self.partition, header.producer_id, header.producer_epoch, header.base_sequence

    def values(self) -> list[bytes | None]:
        if self.header.is_control:
            return []
        return [record.value for record in decode_records(self.data)]

    def __str__(self) -> str:
        header = self.header
        kinds = f"{' control' if header.is_control else ''}{' transactional' if header.is_transactional else ''}"
        return (
            f"{self.partition} offsets {header.base_offset}..{header.last_offset}: producer {header.producer_id} epoch "
            f"{header.producer_epoch} sequences {header.base_sequence}..{header.last_sequence}, leader epoch "
            f"{header.leader_epoch}, at {header.max_timestamp}{kinds}"
        )


def batches(log_dir: Path, topic: str = "*") -> Iterator[Batch]:
    """The whole batches of a topic's partitions in a log directory, those of each partition in order."""
    for directory in sorted(log_dir.glob(f"{topic}-[0-9]*")):
        for file in sorted(directory.glob("*.log")):
            try:
                data = file.read_bytes()
            except FileNotFoundError:  # of a replica that has moved away
                continue
            try:
                for header in iter_batches(data, allow_partial_end=True):
                    yield Batch(directory.name, header, data[header.position : header.end_position])
            except OttlaError:
                continue  # preallocated, or torn by a kill


def appended_twice(found: Iterable[Batch]) -> list[str]:
    """The batches of one replica that stand at two offsets with the same producer id, epoch and sequence."""
    first: dict[tuple[str, int, int, int], Batch] = {}
    return [
        f"{before}, again at {batch.header.base_offset}, leader epoch {batch.header.leader_epoch}"
        for batch in found
        if batch.header.base_sequence >= 0 and (before := first.setdefault(batch.sent, batch)) is not batch
    ]


def check_exactly_once(
    bootstrap: str,
    topic: str,
    wanted: Collection[bytes],
    log_dirs: Mapping[int, Path],
    *,
    timeout_s: float = TIMEOUT_S,
    in_new_epochs: bool = False,
) -> None:
    """Every wanted value is read, and no value twice; no replica has a batch twice.

    `in_new_epochs`: the client may have sent a value again, in a new epoch of its producer.

    Raises:
        AssertionError: the message shows each batch of a value that is there twice, in every replica.
    """
    found = read_all(bootstrap, topic, len(wanted), timeout_s=timeout_s)
    replicas = {number: list(batches(directory, topic)) for number, directory in log_dirs.items()}
    judge(topic, found, wanted, replicas, in_new_epochs=in_new_epochs)


def judge(
    topic: str,
    found: Sequence[bytes],
    wanted: Collection[bytes],
    replicas: Mapping[int, Sequence[Batch]],
    *,
    in_new_epochs: bool,
) -> None:
    """As `check_exactly_once`, of what was found: by a consumer, and in the logs of the replicas."""
    missing = set(wanted) - set(found)
    assert not missing, f"{topic}: {len(missing)} of {len(wanted)} acknowledged values are missing: {_some(missing)}"
    appended = {number: twice for number, each in replicas.items() if (twice := appended_twice(each))}
    assert not appended, f"{topic}: appended twice, by replica: {appended}"
    times = Counter(found)
    repeated = {value for value, count in times.items() if count > 1}
    copies = [
        (number, batch, held)
        for number, each in replicas.items()
        for batch in each
        if (held := repeated & set(batch.values()))
    ]
    if in_new_epochs:
        epochs = {(value, *batch.sent[1:3]) for _, batch, held in copies for value in held}
        begun = Counter(value for value, _, _ in epochs)
        repeated = {value for value in repeated if begun[value] < times[value]}
    assert not repeated, "\n".join(
        [
            f"{topic}: {len(repeated)} values were read twice: {_some(repeated)}",
            *(f"replica {number}: {batch}: {_some(held)}" for number, batch, held in copies),
        ]
    )


def _some(values: Collection[bytes | None]) -> Sequence[bytes | None]:
    return sorted(values, key=str)[:20]


@contextmanager
def kept_on_failure(
    name: str, nodes: Mapping[int, BrokerProcess], notes: Mapping[str, Callable[[], Iterable[str]]]
) -> Iterator[None]:
    """On a failure, keep in `.cache/evidence` the directories of all nodes as they are, with their output, a list of
    the batches of each, and what the `notes` say; the newest few failures are kept."""
    try:
        yield
    except BaseException as problem:
        name = re.sub(r"[^\w.-]+", "-", name)
        kept = KEPT_IN / f"{time.strftime('%m%d-%H%M%S')}-{name}"
        for number, node in nodes.items():
            shutil.copytree(node.directory, kept / str(number), ignore=REBUILT, dirs_exist_ok=True)
            lines = [str(batch) for batch in batches(kept / str(number) / "data")]
            (kept / f"batches-{number}.txt").write_text("\n".join(lines))
        (kept / "failure.txt").write_text(repr(problem))
        for title, note in notes.items():
            try:
                text = "\n".join(note())
            except Exception as unknown:  # of a cluster that has failed; the test's own failure counts
                text = f"not known: {unknown!r}"
            (kept / f"{title}.txt").write_text(text)
        for old in sorted(KEPT_IN.iterdir())[:-KEPT_FAILURES]:
            shutil.rmtree(old, ignore_errors=True)
        problem.add_note(f"kept in {kept}")
        raise
