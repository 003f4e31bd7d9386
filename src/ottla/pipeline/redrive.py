"""Dead letters go back to the topics they came from, each once.

    dead-letter topic ──▶ wanted? sent before? ──▶ one transaction: the records, and the commit of what has been sent

The commit (`redriven`) is the only memory: a redrive that was killed goes on where its last transaction ended, and what
a filter left out stays for another redrive. Two at a time fence one another by their transactional id. Records get back
their key, value, headers and, in the topic they came from, partition; one header is added: how many times they have
been redriven, by which poison is known when it comes back. Their time is that of the redrive, unless they are to keep
theirs: retention deletes a record that is older than it allows, at once.

Source: KIP-98 (transactions), KIP-447 (a group's offsets in them).
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.late_again import FlowWatermark, LateAgain, late_again
from ottla.pipeline.mending import Letter, Mend, MendError, mended
from ottla.pipeline.redriven import MAX_METADATA_BYTES, Redriven
from ottla.pipeline.rows.dead_letters import DeadLetter, Header, original_headers
from ottla.producers import abandon

REDRIVES: Final = "ottla.redrives"
"""The header that counts; none of the dead letter's own, so that a record keeps it when it is rejected again."""
DEFAULT_MAX_REDRIVES: Final = 3

_BATCH_LETTERS: Final = 500
_BATCH_S: Final = 1.0
"""A transaction is committed after so many letters, or after this long."""
_SAMPLES: Final = 5
_MOST_REASONS: Final = 1_000
_OTHER_REASONS: Final = "(other reasons)"
_ANSWER_TIMEOUT_S: Final = 60.0
_COMMIT_TIMEOUT_S: Final = 120.0
_POLL_S: Final = 0.2
_SILENCE_S: Final = 30.0
_PURGED: Final = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)
"""Letters that are dropped since another one cannot be sent."""
_FENCED: Final = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)


class RedriveError(PipelineError):
    """Letters cannot be sent back; the message names them, the reason, and the remedy. Earlier commits stay."""


class Fate(Enum):
    """What becomes of one letter."""

    SENT = "sent"
    SENT_BEFORE = "sent before"
    LEFT = "left by the filters"
    POISON = "left: redriven too often"
    LATE = "left: it would be late again"
    UNMENDED = "left: not mended"
    HOMELESS = "left: no topic to send it to"
    FOREIGN = "left: no dead letter"


@dataclass(frozen=True, slots=True)
class Wanted:
    """The selection of letters. `reason` is a part of theirs, in any case; times are those of the letters' records."""

    reason: str | None = None
    flow: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None

    def matches(self, letter: DeadLetter, timestamp_ms: int) -> bool:
        """Whether the letter, written at `timestamp_ms`, is one of them."""
        return (
            (self.reason is None or self.reason.casefold() in letter.reason.casefold())
            and (self.flow is None or self.flow == letter.view)
            and (self.since_ms is None or timestamp_ms >= self.since_ms)
            and (self.until_ms is None or timestamp_ms < self.until_ms)
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """One redrive. `to` replaces the topics that the letters came from; `rate` is letters per second; with `keep_time`
    records have the timestamp that they had before they were rejected. `mend` changes the records that are sent, or
    leaves their letters. `flows` are those whose watermarks are known; with `leave_late` letters stay that would be
    late in one of them."""

    letters: str
    wanted: Wanted = Wanted()
    to: str | None = None
    max_redrives: int = DEFAULT_MAX_REDRIVES
    rate: float | None = None
    keep_time: bool = False
    dry_run: bool = False
    mend: Mend | None = None
    flows: tuple[FlowWatermark, ...] = ()
    leave_late: bool = False

    @property
    def group(self) -> str:
        """The group whose commits say what has been sent, and the transactional id."""
        return f"ottla-redrive-{self.letters}"


@dataclass(frozen=True, slots=True)
class Sample:
    """A letter that would be sent, at `place` (`TOPIC-PARTITION at offset OFFSET`), before and after it was mended."""

    place: str
    before: "Record"
    after: "Record"


@dataclass(slots=True)
class Account:
    """How far a redrive is. `fates` counts letters by (fate, reason, topic they go to or came from); `samples` are some
    of a dry run with a function that mends. `late` counts, of the letters that go back, those that are late again by
    flow, and `late_letters` each once."""

    fates: Counter[tuple[Fate, str, str | None]] = field(default_factory=Counter)
    late: Counter[LateAgain] = field(default_factory=Counter)
    late_letters: int = 0
    samples: list[Sample] = field(default_factory=list)

    def add(self, fate: Fate, reason: str, topic: str | None, letters: int = 1) -> None:
        """Count letters. Reasons that name a value of the letter may be as many as there are letters: those beyond the
        first thousand are counted as one."""
        key = fate, reason, topic
        if key not in self.fates and len(self.fates) >= _MOST_REASONS:
            key = fate, _OTHER_REASONS, topic
        self.fates[key] += letters

    def count(self, fate: Fate) -> int:
        """Letters of this fate. Those `SENT` are committed, or would be sent if it is a dry run."""
        return sum(number for (each, _, _), number in self.fates.items() if each is fate)


@dataclass(frozen=True, slots=True)
class Record:
    """A record as it is written or read; without a timestamp it gets the current time."""

    key: bytes | None
    value: bytes | None
    headers: list[Header]
    timestamp_ms: int | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of one letter, and of which reason and topic it is. `back` is what goes there, if its fate is SENT;
    without a partition it goes where its key belongs. `late` are the flows in which that is late again."""

    fate: Fate
    reason: str = ""
    topic: str | None = None
    partition: int | None = None
    back: Record | None = None
    late: tuple[LateAgain, ...] = ()


def judge(plan: Plan, letter: Record, partitions: Mapping[str, int]) -> Verdict:
    """Decide about a letter that was not sent before. `partitions`: the partition count of each existing topic."""
    try:
        said = DeadLetter.read(letter.headers)
    except ValueError:
        said = None
    if said is None:
        return Verdict(Fate.FOREIGN)
    if not plan.wanted.matches(said, letter.timestamp_ms or 0):
        return Verdict(Fate.LEFT, said.reason, said.topic)
    topic = plan.to or said.topic
    if topic is None or topic not in partitions:
        return Verdict(Fate.HOMELESS, said.reason, topic)
    before = _redrives(letter.headers)
    if before >= plan.max_redrives:
        return Verdict(Fate.POISON, said.reason, topic)
    kept = tuple((name, value) for name, value in original_headers(letter.headers) if name != REDRIVES)
    source = (said.topic, said.partition, said.offset, said.timestamp_ms)
    as_it_was = Letter(letter.key, letter.value, kept, said.reason, said.view, *source)
    try:
        whole = as_it_was if plan.mend is None else mended(plan.mend, as_it_was)
    except MendError as problem:
        return Verdict(Fate.UNMENDED, str(problem), topic)
    if whole is None:
        return Verdict(Fate.UNMENDED, said.reason, topic)
    late = tuple(late_again(said, topic, plan.flows, mended=plan.mend is not None))
    if late and plan.leave_late:
        return Verdict(Fate.LATE, said.reason, topic, late=late)
    at_home = topic == said.topic and said.partition is not None and said.partition < partitions[topic]
    keeps_place = at_home and whole.key == letter.key
    back = Record(
        whole.key,
        whole.value,
        [*whole.headers, (REDRIVES, str(before + 1).encode())],
        said.timestamp_ms if plan.keep_time else None,
    )
    return Verdict(Fate.SENT, said.reason, topic, said.partition if keeps_place else None, back, late)


def redrive(
    client: Mapping[str, Any], plan: Plan, on_progress: Callable[[Account], None] = lambda _account: None
) -> Account:
    """Send back every wanted letter that is in the topic now; reports its progress a few times a second.

    `client`: settings of the client library that both clients get. Raises RedriveError, or KafkaException.
    """
    return _Redrive(client, plan, on_progress).run()


def foreseen(client: Mapping[str, Any], plan: Plan) -> Account:
    """What a redrive would do now, without mending and without sending. Raises as `redrive`."""
    return _Redrive(client, replace(plan, dry_run=True, mend=None), lambda _account: None).run()


class _Redrive:
    """One run of `redrive`."""

    def __init__(self, client: Mapping[str, Any], plan: Plan, on_progress: Callable[[Account], None]) -> None:
        self._plan = plan
        self._on_progress = on_progress
        self._account = Account()
        self._consumer = Consumer(
            {
                **client,
                "group.id": plan.group,
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",  # should retention delete letters while they are read
                "fetch.queue.backoff.ms": 20,
                "check.crcs": True,
            }
        )
        self._producer = None if plan.dry_run else _producer(client, plan.group)
        self._redriven: dict[int, Redriven] = {}
        self._partitions: dict[str, int] = {}
        # of the open transaction
        self._pending: Counter[tuple[Fate, str, str | None]] = Counter()
        self._sent = 0
        self._first_sent_s = 0.0
        self._began_s = 0.0
        self._refusal: str | None = None

    def run(self) -> Account:
        try:
            if self._producer is not None:
                # fences every other redrive of these letters before their progress is read
                self._producer.init_transactions(_ANSWER_TIMEOUT_S)
            ends = self._assign()
            try:
                for messages in self._until(ends):
                    for message in messages:
                        self._take(message)
                        self._commit_if_due()
                    self._commit_if_due()
                    self._on_progress(self._account)
                self._commit()
            except BaseException as error:
                fatal = self._abort()
                if isinstance(error, KafkaException):
                    raise self._explained(fatal or error) from error
                raise
        finally:
            self._consumer.close()
            if self._producer is not None:
                abandon(self._producer)
        return self._account

    def _assign(self) -> dict[int, int]:
        """Begin to read where it has to go on. Returns the ends of the log as they are now, by partition."""
        topics = self._consumer.list_topics(timeout=_ANSWER_TIMEOUT_S).topics
        self._partitions = {name: len(each.partitions) for name, each in topics.items() if each.error is None}
        if self._plan.letters not in self._partitions:
            raise RedriveError(f"there is no topic {self._plan.letters!r}")
        places = [TopicPartition(self._plan.letters, number) for number in range(self._partitions[self._plan.letters])]
        ends: dict[int, int] = {}
        starts: list[TopicPartition] = []
        for committed in self._consumer.committed(places, _ANSWER_TIMEOUT_S):
            if committed.error is not None:
                raise KafkaException(committed.error)
            number = committed.partition
            first, end = self._consumer.get_watermark_offsets(committed, timeout=_ANSWER_TIMEOUT_S)
            try:
                redriven = Redriven(committed.offset, committed.metadata or "", first=first)
            except ValueError as problem:
                raise RedriveError(
                    f"the group {self._plan.group} was not written by a redrive: {problem}; delete it, if every letter "
                    "may be sent again"
                ) from None
            self._redriven[number] = redriven
            if redriven.start < end:
                ends[number] = end
                starts.append(TopicPartition(self._plan.letters, number, redriven.start))
        self._consumer.assign(starts)
        return ends

    def _until(self, ends: dict[int, int]) -> Iterator[list[Message]]:
        """The letters before the ends, in order within each partition; an empty list while there are none."""
        remaining = set(ends)
        heard_s = time.monotonic()
        while remaining:
            messages = self._consumer.consume(_BATCH_LETTERS, _POLL_S)
            if messages:
                heard_s = time.monotonic()
            elif time.monotonic() - heard_s > _SILENCE_S:
                raise RedriveError(f"{self._plan.letters}: nothing came for {_SILENCE_S:.0f} s; the broker is silent")
            letters: list[Message] = []
            for message in messages:
                number, offset, error = message.partition() or 0, message.offset() or 0, message.error()
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                if error is not None or offset >= ends[number] - 1:
                    remaining.discard(number)
                if error is None and offset < ends[number]:
                    letters.append(message)
            yield letters

    def _take(self, message: Message) -> None:
        offset = message.offset() or 0
        redriven = self._redriven[message.partition() or 0]
        if redriven.includes(offset):
            redriven.pass_over(offset, sent=True)
            self._account.fates[Fate.SENT_BEFORE, "", None] += 1
            return
        verdict = judge(self._plan, _record(message), self._partitions)
        if verdict.fate is Fate.SENT and self._producer is not None:
            self._wait_for_turn()
            self._send(self._producer, verdict, message)
            self._pending[verdict.fate, verdict.reason, verdict.topic] += 1
        else:
            self._account.add(verdict.fate, verdict.reason, verdict.topic)
            if verdict.back is not None and self._plan.mend is not None and len(self._account.samples) < _SAMPLES:
                place = f"{message.topic()}-{message.partition()} at offset {offset}"
                self._account.samples.append(Sample(place, _record(message), verdict.back))
        if verdict.fate is Fate.SENT:
            self._account.late.update(verdict.late)
            self._account.late_letters += bool(verdict.late)
        redriven.pass_over(offset, sent=verdict.fate is Fate.SENT)

    def _send(self, producer: Producer, verdict: Verdict, message: Message) -> None:
        topic, record = verdict.topic, verdict.back
        assert topic is not None  # both belong to a letter that is sent
        assert record is not None
        if not self._pending:
            producer.begin_transaction()
            self._began_s = time.monotonic()

        def refused(error: KafkaError) -> None:
            if self._refusal is None:
                place = f"{message.topic()}-{message.partition()} at offset {message.offset()}"
                self._refusal = f"the letter in {place} cannot be sent to {topic}: {error.str()}"

        def delivered(error: KafkaError | None, _message: Message) -> None:
            if error is not None and error.code() not in _PURGED:
                refused(error)

        more: dict[str, Any] = {"headers": record.headers}
        if record.timestamp_ms is not None:
            more["timestamp"] = record.timestamp_ms
        if verdict.partition is not None:
            more["partition"] = verdict.partition
        while True:
            try:
                producer.produce(topic, record.value, record.key, on_delivery=delivered, **more)
            except BufferError:  # the client's queue is full
                producer.poll(0.05)
            except KafkaException as failure:  # it is too large, for example
                refused(failure.args[0])
                raise
            else:
                self._sent += 1
                return

    def _wait_for_turn(self) -> None:
        """Keep to the rate, counted from the first letter; transactions do not stay open over a long wait."""
        if self._plan.rate is None:
            return
        if self._sent == 0:
            self._first_sent_s = time.monotonic()
        due_s = self._first_sent_s + self._sent / self._plan.rate
        if due_s - time.monotonic() > _BATCH_S:
            self._commit()
        time.sleep(max(0.0, due_s - time.monotonic()))

    def _commit_if_due(self) -> None:
        open_letters = self._pending.total()
        if open_letters >= _BATCH_LETTERS or (open_letters and time.monotonic() - self._began_s >= _BATCH_S):
            self._commit()

    def _commit(self) -> None:
        """End the transaction: what was sent, and that it was."""
        if self._producer is not None and self._pending:
            offsets = []
            for number, redriven in self._redriven.items():
                offset, metadata = redriven.commit()
                if len(metadata) > MAX_METADATA_BYTES:
                    raise RedriveError(
                        f"{self._plan.letters}-{number}: the letters left out lie too scattered to be remembered; "
                        "redrive older ones first (--until), or with wider filters"
                    )
                if offset != redriven.start or metadata:
                    offsets.append(TopicPartition(self._plan.letters, number, offset, metadata=metadata))
            producer = self._producer
            producer.send_offsets_to_transaction(offsets, self._consumer.consumer_group_metadata(), _ANSWER_TIMEOUT_S)
            _finish(producer)
            for key, letters in self._pending.items():
                self._account.add(*key, letters)
            self._pending.clear()

    def _abort(self) -> KafkaException | None:
        """Abort the transaction. Returns the client's error if the producer cannot be used any longer: other calls
        only report that."""
        if self._producer is not None and self._pending:
            try:
                self._producer.purge()
                self._producer.abort_transaction(_ANSWER_TIMEOUT_S)
            except KafkaException as error:
                return error if error.args[0].fatal() else None
        return None

    def _explained(self, error: KafkaException) -> Exception:
        """A client's error with what is known of its cause."""
        if error.args[0].code() in _FENCED:
            return RedriveError(
                f"another redrive of {self._plan.letters} has taken over; it goes on where this one was"
            )
        return error if self._refusal is None else RedriveError(self._refusal)


def _producer(client: Mapping[str, Any], name: str) -> Producer:
    return Producer(
        {
            **client,
            "transactional.id": name,
            "partitioner": "murmur2_random",  # as Java's clients place keys, and the sinks do
            "linger.ms": 5,
        }
    )


def _finish(producer: Producer) -> None:
    while True:
        try:
            producer.commit_transaction(_COMMIT_TIMEOUT_S)
            return
        except KafkaException as error:
            if not error.args[0].retriable():
                raise


def _record(message: Message) -> Record:
    headers = message.headers() or []
    pairs = headers.items() if isinstance(headers, dict) else headers
    return Record(
        _bytes(message.key()),
        _bytes(message.value()),
        [(name, _bytes(value)) for name, value in pairs],
        message.timestamp()[1],
    )


def _redrives(headers: list[Header]) -> int:
    counts = [value for name, value in headers if name == REDRIVES]
    return int(counts[-1]) if counts and counts[-1] and counts[-1].isdigit() else 0


def _bytes(part: str | bytes | None) -> bytes | None:
    return part.encode() if isinstance(part, str) else part
