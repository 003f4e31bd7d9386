"""One run: a broker or several, workers, faults, and then peace, audits by both clients, and the verdict."""

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from pathlib import Path
from random import Random
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from tests.chaos.checker import RELAY_INPUT, RELAY_OUTPUT, RELAYED, Anomaly, check
from tests.chaos.history import Line, Operation, Outcome, operations
from tests.chaos.plan import Fault, Place, Role, Strike, tasks
from tests.chaos.target import Target
from tests.chaos.workers import Post, Recorder, WorkerProcess, java_classes
from tests.support.broker_process import BrokerFailedError
from tests.support.eventually import eventually

TRANSACTION_TIMEOUTS_MS: Final = (4_000, 10_000)
"""After which the coordinator gives up a transaction, for places with even and with odd numbers: shorter and longer
than a pause of the broker can be."""
AUDIT_S: Final = 40.0
RELAY_S: Final = 60.0
FIRST_SUCCESS_S: Final = 60.0
"""Within which topics have to be there, and each worker to have done something, before anything breaks."""

BROKER_PROPERTIES: Final = {
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
    "log.flush.offset.checkpoint.interval.ms": "2000",
    "log.initial.task.delay.ms": "500",
}


@dataclass(frozen=True, slots=True)
class Workload:
    """Who works on what."""

    name: str
    places: tuple[Place, ...]
    keys: tuple[str, ...]
    output: tuple[str, ...] = ()
    """Partitions that only relays write to."""

    @property
    def clients(self) -> list[str]:
        """All that take part."""
        return sorted({place.client for place in self.places})

    def of(self, *clients: str) -> "Workload":
        """The same without the workers of other clients."""
        return replace(self, places=tuple(place for place in self.places if place.client in clients))


MIXED: Final = Workload(
    "mixed",
    (
        Place("python-0", "python", Role.ASSIGN),
        Place("python-1", "python", Role.SUBSCRIBE),
        Place("python-2", "python", Role.PLAIN),
        Place("java-0", "java", Role.ASSIGN),
        Place("java-1", "java", Role.SUBSCRIBE),
    ),
    ("a-0", "a-1", "b-0", "b-1"),
)
"""Sends, polls and transactions of both clients, under assign and subscribe."""

PLAIN: Final = Workload(
    "plain",
    (
        Place("python-0", "python", Role.PLAIN),
        Place("python-1", "python", Role.PLAIN_SUBSCRIBE),
        Place("java-0", "java", Role.PLAIN),
        Place("java-1", "java", Role.PLAIN_SUBSCRIBE),
    ),
    MIXED.keys,
)
"""The same without transactions."""

RELAYS: Final = Workload(
    "relay",
    (
        Place("feeder", "python", Role.FEED),
        Place("python-0", "python", Role.RELAY),
        Place("python-1", "python", Role.RELAY),
        Place("java-0", "java", Role.RELAY),
    ),
    tuple(f"{RELAY_INPUT}-{number}" for number in range(3)),
    tuple(f"{RELAY_OUTPUT}-{number}" for number in range(3)),
)
"""Read, process, write: every input has to come out exactly once."""

WORKLOADS: Final = {workload.name: workload for workload in (MIXED, PLAIN, RELAYS)}


@dataclass(slots=True)
class Verdict:
    """What came of a run."""

    seed: int
    workload: Workload
    history: Path
    operations: list[Operation]
    struck: Counter[Enum]
    anomalies: list[Anomaly] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)
    """What kept the run from its end: a broker that died by itself, records that stay unreadable."""

    @property
    def is_sound(self) -> bool:
        """Whether nothing at all is to be said against the broker."""
        return not self.anomalies and not self.troubles

    def outcomes(self) -> dict[tuple[str, str], int]:
        """How many operations there were, by what they were and how they ended."""
        return Counter((operation.what.value, operation.outcome.value) for operation in self.operations)


class Run:
    """One run; `__call__` does all of it and ends every process that it started, except those of the target."""

    def __init__(
        self,
        target: Target,
        workload: Workload,
        *,
        seed: int,
        seconds: float,
        directory: Path,
        faults: Sequence[Enum] = tuple(Fault),
        group_protocol: str = "classic",
        least_strikes: int = 0,
    ) -> None:
        """Describe it; nothing is started.

        Args:
            target: what is under test; is started here, and ended when all is over.
            workload: who works on what.
            seed: decides tasks and faults.
            seconds: for how long there is trouble; what comes after it takes its own time.
            directory: of the history and the workers' complaints.
            faults: what may break.
            group_protocol: of the members of groups: `classic` or `consumer` (KIP-848).
            least_strikes: go on until there were so many, however slow the machine is.
        """
        self._target = target
        self._workload = workload
        self._seed = seed
        self._seconds = seconds
        self._directory = directory
        self._faults = faults
        self._group_protocol = group_protocol
        self._least_strikes = least_strikes
        self._pace = 1.0
        self._struck: Counter[Enum] = Counter()
        self._troubles: list[str] = []

    def __call__(self) -> Verdict:
        """Do it. What goes wrong is in the verdict, unless the broker does not even start (BrokerFailedError)."""
        self._directory.mkdir(parents=True, exist_ok=True)
        if "java" in self._workload.clients:
            java_classes()
        path = self._directory / "history.jsonl"
        with path.open("w", encoding="utf-8") as file:
            recorder = Recorder(file)
            recorder.note("run", seed=self._seed, workload=self._workload.name, target=self._target.name)
            self._pace = max(1.0, self._target.start() / 3.0)
            try:
                self._create_topics()
                self._work(self._posts(recorder), recorder)
                audits = [self._audit(client, recorder) for client in self._workload.clients]
            except BrokerFailedError as failure:
                self._troubles.append(str(failure))
                audits = []
            done = operations(recorder.lines)
            self._look_for_trouble(done)
            verdict = Verdict(self._seed, self._workload, path, done, self._struck, troubles=self._troubles)
            all_read = bool(audits) and all(audit.outcome is Outcome.OK for audit in audits)
            verdict.anomalies = check(done, relays=bool(self._workload.output) and all_read) + self._target.anomalies()
        return verdict

    def _work(self, posts: list[Post], recorder: Recorder) -> None:
        """All that happens before the audits. Raises BrokerFailedError."""
        for post in posts:
            post.start()
        try:
            self._break_things(posts, recorder)
            self._target.heal()
            recorder.note("faults", over="all")
            for post in posts:
                post.bury()
                if post.place.role is not Role.RELAY:
                    post.stop()
            if self._workload.output:
                self._until_relayed(posts, recorder)
        except BaseException:  # of the one at the terminal, too: nobody waits for what is under way
            for post in posts:
                post.give_up()
            raise
        finally:
            for post in posts:
                post.stop()
            for post in posts:
                post.join()
                self._troubles += post.failures

    def _create_topics(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._target.bootstrap})
        partitions = Counter(key.rpartition("-")[0] for key in (*self._workload.keys, *self._workload.output))
        wanted = [
            NewTopic(name, count, self._target.replicas, config={"segment.ms": "4000"})
            for name, count in partitions.items()
        ]
        try:
            for made in admin.create_topics(wanted).values():
                made.result(30)
        except KafkaException as refused:
            raise BrokerFailedError(f"the topics could not be created: {refused}") from refused

        def all_led() -> bool:
            topics = admin.list_topics(timeout=10).topics
            return all(
                name in topics
                and [len(p.isrs) for p in topics[name].partitions.values() if p.leader >= 0]
                == [self._target.replicas] * count
                for name, count in partitions.items()
            )

        try:
            eventually(all_led, timeout_s=FIRST_SUCCESS_S)
        except (AssertionError, KafkaException):
            raise BrokerFailedError(f"the topics were not led in {FIRST_SUCCESS_S:.0f} s") from None

    def _posts(self, recorder: Recorder) -> list[Post]:
        return [
            Post(
                place,
                list(self._workload.keys),
                tasks(place, number, self._workload.keys, Random(f"{self._seed}/{place.name}")),
                self._settings(place.name, TRANSACTION_TIMEOUTS_MS[number % 2]),
                recorder,
                self._directory,
            )
            for number, place in enumerate(self._workload.places)
        ]

    def _settings(self, name: str, transaction_timeout_ms: int = 0) -> dict[str, Any]:
        group = {"group.id": "chaos", "group.protocol": self._group_protocol, "max.poll.interval.ms": "20000"}
        if self._group_protocol == "classic":
            group |= {
                "session.timeout.ms": "6000",
                "heartbeat.interval.ms": "500",
                "partition.assignment.strategy": "org.apache.kafka.clients.consumer.RangeAssignor"
                if name.startswith("java")
                else "range",
            }
        return {
            "bootstrap": self._target.bootstrap,
            "transactional_id": f"chaos-{name}",
            "transaction_timeout_ms": transaction_timeout_ms,
            "group": group,
            "in_flight": self._target.in_flight,
        }

    # -- trouble -----------------------------------------------------------------------------------------------------

    def _break_things(self, posts: list[Post], recorder: Recorder) -> None:
        try:
            eventually(lambda: all(post.has_succeeded for post in posts), timeout_s=FIRST_SUCCESS_S)
        except AssertionError:
            idle = ", ".join(post.place.name for post in posts if not post.has_succeeded)
            raise BrokerFailedError(f"nothing was done for {idle} in {FIRST_SUCCESS_S:.0f} s") from None
        until = time.monotonic() + self._seconds
        plan = self._target.strikes(len(posts), self._faults, Random(f"{self._seed}/faults"))
        for count, strike in enumerate(plan):
            gap = strike.gap_seconds * self._pace
            if count >= self._least_strikes and time.monotonic() + gap >= until:
                break
            time.sleep(gap)
            self._strike(strike, posts, recorder)
            self._struck[strike.fault] += 1
        time.sleep(max(0.0, until - time.monotonic()))

    def _strike(self, strike: Strike, posts: list[Post], recorder: Recorder) -> None:
        post, struck = posts[strike.place], posts[strike.place].place.name
        recorder.note("faults", **_described(strike, post.place))
        if strike.fault is Fault.KILL_WORKER:
            post.strike("kill", strike.delay_seconds)
        elif strike.fault is Fault.FREEZE_WORKER:
            post.strike("freeze", strike.delay_seconds)
            for delay, then in ((1.0, post.thaw), (4.0, post.bury)):
                timer = threading.Timer(strike.seconds + delay, then)
                timer.daemon = True
                timer.start()
        else:
            struck = self._target.strike(strike)
        recorder.note("faults", over=strike.fault.value, struck=struck)

    def _look_for_trouble(self, done: list[Operation]) -> None:
        if not any(operation.outcome is Outcome.OK and any(operation.sends) for operation in done):
            self._troubles.append("nothing was ever sent with success")
        self._troubles += self._target.troubles()

    # -- peace -------------------------------------------------------------------------------------------------------

    def _until_relayed(self, posts: list[Post], recorder: Recorder) -> None:
        """Let the relays finish: as many out as in."""
        feeders = [post for post in posts if post.place.role is Role.FEED]
        for post in feeders:
            post.join()
        deadline = time.monotonic() + RELAY_S
        while True:
            values = [value for _, _, value in self._audit("python", recorder).reads]
            there = len({value for value in values if value > RELAYED})
            if there == len({value for value in values if value < RELAYED}):
                return
            if time.monotonic() > deadline:
                self._troubles.append(f"the relays did not finish within {RELAY_S:.0f} s: {there} came out")
                return
            time.sleep(1.0)

    def _audit(self, client: str, recorder: Recorder) -> Operation:
        """Have everything read to its end by a fresh client."""
        keys = [*self._workload.keys, *self._workload.output]
        task = {"what": "audit", "keys": keys, "seconds": AUDIT_S}
        who = f"audit-{client}"
        auditor = WorkerProcess(client, self._settings(who), self._directory / f"{who}.stderr")
        asked = {"who": who, "state": "invoke", **task}
        recorder.write(asked)
        try:
            found = auditor.ask(task, AUDIT_S + 40.0)
        finally:
            auditor.end()
        answer: Line = {"who": who, **(found or {"state": "info", "what": "audit", "error": "silent"})}
        recorder.write(answer)
        (operation,) = operations([asked, answer])
        if operation.outcome is not Outcome.OK:
            self._troubles.append(f"the audit by the {client} client was in vain: {operation.error}")
        return operation


def _described(strike: Strike, place: Place) -> dict[str, object]:
    """What a fault is going to be, for the history."""
    told = {key: value.value if isinstance(value, Enum) else value for key, value in asdict(strike).items()}
    return {**told, "place": place.name}


Reporter = Callable[[str], None]


def tell(verdict: Verdict, report: Reporter = lambda text: print(text, file=sys.stderr)) -> None:
    """The verdict for people: what was done, what broke, what is wrong, and where in the history to look."""
    counts = ", ".join(f"{count} {what} {outcome}" for (what, outcome), count in sorted(verdict.outcomes().items()))
    struck = ", ".join(f"{count} x {fault.value}" for fault, count in sorted(verdict.struck.items(), key=str)) or "none"
    report(f"seed {verdict.seed}, {verdict.workload.name}: {counts}\n  faults: {struck}\n  history: {verdict.history}")
    for trouble in verdict.troubles:
        report(f"  TROUBLE: {trouble}")
    kinds = Counter(anomaly.kind for anomaly in verdict.anomalies)
    for kind, count in kinds.most_common():
        report(f"  {count} x {kind.value.upper()}")
        for anomaly in [anomaly for anomaly in verdict.anomalies if anomaly.kind is kind][:5]:
            where = "; ".join(f"{operation.who} {operation.lines}" for operation in anomaly.operations[:6])
            report(f"    {anomaly.text} ({where})")
    if verdict.is_sound:
        report("  nothing is wrong")
