"""A run of a share group: members in two processes, keyed records, faults of brokers and members, and the verdict."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from typing import Final

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from tests.chaos.cluster_plan import ClusterStrike
from tests.chaos.plan import Fault
from tests.chaos.share_checker import Place, ShareAnomaly, Shared, check_shared, taken_late
from tests.chaos.target import Target
from tests.support.broker_process import BrokerFailedError
from tests.support.eventually import eventually
from tests.support.raw_client import ClosedError, ask
from tests.support.share_groups import await_coordinator, set_group, topic_id
from tests.support.share_workers import Handled, ShareWorkers

TOPIC: Final = "shared"
GROUP: Final = "sharers"
PARTITIONS: Final = 2
KEYS: Final = 12
PLACES: Final = 2
"""Processes with members."""
MEMBERS: Final = 2
AT_ONCE: Final = 5
"""Records of one poll."""
LOCK_MS: Final = 6_000
LOCK_NS: Final = LOCK_MS * 1_000_000
DELIVERY_LIMIT: Final = 10
READY_S: Final = 90.0
FINISHED_FIRST: Final = 20
FINISH_S: Final = 120.0
"""Within which some partition's first records have to be finished, when nothing is broken."""
PAUSE_S: Final = 0.03
"""Between two records: members keep up with that on a busy machine, faults and releases included."""
SETTLED_NS: Final = 6_000_000_000
"""After a fault of one of several brokers, others may still be elected for so long."""

SHARE_PROPERTIES: Final = {
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": str(LOCK_MS),
    "group.share.delivery.count.limit": str(DELIVERY_LIMIT),
    "group.share.min.session.timeout.ms": "6000",
    "group.share.session.timeout.ms": "6000",
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.heartbeat.interval.ms": "500",
    "share.coordinator.state.topic.num.partitions": "3",
    "auto.leader.rebalance.enable": "false",
}
"""Leaders change at faults alone: locks are judged where nothing is broken."""


@dataclass(slots=True)
class ShareVerdict:
    """What came of a run."""

    seed: int
    sent: int
    deliveries: int
    struck: Counter[Enum]
    anomalies: list[ShareAnomaly] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        """Whether nothing at all is to be said against the broker."""
        return not self.anomalies and not self.troubles

    def lines(self) -> list[str]:
        """The verdict for people."""
        struck = ", ".join(f"{number} x {fault.value}" for fault, number in sorted(self.struck.items(), key=str))
        said = [f"seed {self.seed}, share: {self.sent} sent, {self.deliveries} deliveries", f"  faults: {struck}"]
        said += [f"  TROUBLE: {trouble}" for trouble in self.troubles]
        kinds = Counter(anomaly.kind for anomaly in self.anomalies)
        for kind, number in kinds.most_common():
            said.append(f"  {number} x {kind.value.upper()}")
            said += [f"    {anomaly.text}" for anomaly in self.anomalies if anomaly.kind is kind][:5]
        return said if not self.is_sound else [*said, "  nothing is wrong"]


class _Sender(threading.Thread):
    """Sends keyed records; remembers which were acknowledged."""

    def __init__(self, bootstrap: str, seed: int) -> None:
        super().__init__(name="sender")
        self._random = Random(f"{seed}/keys")
        self._stopping = threading.Event()
        self.sent: dict[Place, str] = {}
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 0,
                "message.timeout.ms": 60_000,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )

    def run(self) -> None:
        for number in count():
            if self._stopping.is_set():
                break
            key = f"k{self._random.randrange(KEYS)}"
            partition = int(key[1:]) % PARTITIONS
            self._producer.produce(TOPIC, b"%d" % number, key=key, partition=partition, on_delivery=self._delivered)
            self._producer.poll(PAUSE_S)
        self._producer.flush(60)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        partition, offset, key = message.partition(), message.offset(), message.key()
        if error is None and partition is not None and offset is not None and isinstance(key, bytes):
            self.sent[partition, offset] = key.decode()

    def stop(self) -> None:
        self._stopping.set()
        self.join()


class ShareRun:
    """One run; `__call__` does all of it."""

    def __init__(self, target: Target, *, seed: int, seconds: float, directory: Path, faults: Sequence[Enum]) -> None:
        """As of `Run`."""
        self._target = target
        self._seed = seed
        self._seconds = seconds
        self._directory = directory
        self._faults = faults
        self._struck: Counter[Enum] = Counter()
        self._broken: list[tuple[int, int]] = []
        self._lasts_since: int | None = None
        """When the first of the faults began that still last."""
        self._places: list[ShareWorkers] = []
        self._gone: list[ShareWorkers] = []

    def __call__(self) -> ShareVerdict:
        """Do it. What goes wrong is in the verdict, unless the broker does not even start (BrokerFailedError)."""
        self._directory.mkdir(parents=True, exist_ok=True)
        troubles: list[str] = []
        sent: dict[Place, str] = {}
        starts: dict[int, int] = {}
        with ExitStack() as stack:
            self._target.start()
            self._prepare()
            stack.callback(self._end_members)
            for number in range(PLACES):
                self._places.append(self._worker(number))
            for place in self._places:
                place.until_ready()
            sender = _Sender(self._target.bootstrap, self._seed)
            sender.start()
            stack.callback(sender.stop)
            try:
                self._until_handled()
                self._break_things()
                self._strike_target(self._target.heal, lasts=False)
                sender.stop()
                sent = dict(sender.sent)
                self._until_finished(sent)
                starts = self._start_offsets()
            except BrokerFailedError as failure:
                troubles.append(str(failure))
            sender.stop()
            sent = dict(sender.sent)
        shared = Shared(
            sent,
            self._handled(),
            self._confirmed(),
            starts,
            LOCK_NS,
            DELIVERY_LIMIT,
            self._broken,
            frozenset(late for place in self._all_places() for late in taken_late(place.handled, LOCK_NS, 2 * AT_ONCE)),
        )
        self._write_lines()
        if not sent:
            troubles.append("nothing was ever sent with success")
        troubles += self._target.troubles()
        anomalies = check_shared(shared)
        self._target.anomalies()
        return ShareVerdict(self._seed, len(sent), len(self._handled()), self._struck, anomalies, troubles)

    def _end_members(self) -> None:
        for place in self._places:
            place.kill()

    def _prepare(self) -> None:
        bootstrap = self._target.bootstrap.partition(",")[0]
        admin = AdminClient({"bootstrap.servers": self._target.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, self._target.replicas)])[TOPIC].result(30)
        set_group(bootstrap, GROUP, share_auto_offset_reset="earliest", share_delivery_order="key")
        await_coordinator(bootstrap, GROUP, topic_id(bootstrap, TOPIC))

    def _worker(self, number: int) -> ShareWorkers:
        """The first accepts everything, the others release everything once."""
        outcome = "accept" if number == 0 else "release"
        settings = {"members": MEMBERS, "max_poll_records": AT_ONCE, "fast_ms": 5, "outcome": outcome, "commit": "sync"}
        return ShareWorkers(self._target.bootstrap, GROUP, TOPIC, **settings)

    # -- trouble -----------------------------------------------------------------------------------------------------

    def _until_handled(self) -> None:
        """Before anything breaks, members have to have finished something that can be forgotten."""
        try:
            eventually(lambda: len(self._confirmed()) >= FINISHED_FIRST, timeout_s=READY_S)
        except AssertionError:
            raise BrokerFailedError(f"not {FINISHED_FIRST} records were finished in {READY_S:.0f} s") from None

    def _break_things(self) -> None:
        until = time.monotonic() + self._seconds
        for strike in self._target.strikes(PLACES, self._faults, Random(f"{self._seed}/faults")):
            if self._struck and time.monotonic() + strike.gap_seconds >= until:
                break
            time.sleep(strike.gap_seconds)
            self._replace_those_that_ended()
            if strike.fault is Fault.KILL_WORKER:
                self._broken_while(partial(self._kill, strike.place))
            elif strike.fault is not Fault.FREEZE_WORKER:
                self._strike_target(
                    partial(self._target.strike, strike), lasts=isinstance(strike, ClusterStrike) and strike.runs_on
                )
            self._struck[strike.fault] += 1
        time.sleep(max(0.0, until - time.monotonic()))

    def _broken_while(self, strike: Callable[[], object]) -> None:
        """Note from when to when something was broken: locks are judged outside of it."""
        began = time.monotonic_ns()
        try:
            strike()
        finally:
            self._broken.append((began, time.monotonic_ns()))

    def _strike_target(self, strike: Callable[[], object], *, lasts: bool) -> None:
        """The same for what is done to brokers; `lasts`: until the next such call, at least."""
        self._lasts_since = self._lasts_since or time.monotonic_ns()
        try:
            strike()
        finally:
            settled = time.monotonic_ns() + (SETTLED_NS if self._target.replicas > 1 else 0)
            self._broken.append((self._lasts_since, settled))
            if not lasts:
                self._lasts_since = None

    def _kill(self, number: int) -> None:
        self._places[number].kill()
        self._gone.append(self._places[number])
        self._places[number] = self._worker(number)

    def _replace_those_that_ended(self) -> None:
        """The client gives up with an exception when its calls time out."""
        for number, place in enumerate(self._places):
            if not place.is_alive():
                self._broken_while(partial(self._kill, number))

    def _start_offsets(self) -> dict[int, int]:
        """By partition, as the coordinator of the group says; nothing while none answers."""
        topics = [DescribeShareGroupOffsetsRequestTopic(topic_name=TOPIC, partitions=list(range(PARTITIONS)))]
        groups = [DescribeShareGroupOffsetsRequestGroup(group_id=GROUP, topics=topics)]
        for address in self._target.bootstrap.split(","):
            try:
                (found,) = ask(address, DescribeShareGroupOffsetsRequest(groups=groups), 0).groups
            except (ClosedError, OSError):
                continue
            if not found.error_code:
                parts = [part for topic in found.topics for part in topic.partitions if not part.error_code]
                return {part.partition_index: part.start_offset for part in parts}
        return {}

    def _until_finished(self, sent: dict[Place, str]) -> None:
        """Wait as long as the group gets on. What is missing then is an anomaly, not an error."""
        starts: dict[int, int] = {}
        deadline = time.monotonic() + FINISH_S
        while time.monotonic() < deadline:
            self._replace_those_that_ended()
            known, starts = starts, self._start_offsets() or starts
            if all(offset < starts.get(partition, 0) for partition, offset in sent):
                return
            if starts != known:
                deadline = time.monotonic() + FINISH_S
            time.sleep(0.5)

    # -- what has been seen ------------------------------------------------------------------------------------------

    def _handled(self) -> list[Handled]:
        return [one for place in self._all_places() for one in place.handled]

    def _all_places(self) -> Sequence[ShareWorkers]:
        return *self._gone, *self._places

    def _confirmed(self) -> dict[Place, int]:
        found: dict[Place, int] = {}
        for place in self._all_places():
            for record, at in place.finished_at().items():
                found[record] = min(at, found.get(record, at))
        return found

    def _write_lines(self) -> None:
        for number, place in enumerate(self._all_places()):
            text = "".join(f"{at} {line}\n" for at, line in zip(place.read_ns, place.lines, strict=False))
            (self._directory / f"members-{number}.txt").write_text(text)
