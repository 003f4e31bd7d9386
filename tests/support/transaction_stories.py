"""Stories of transactions told to a broker, request by request, and what it answered and kept, line by line.

Producer ids are numbered in the order in which the broker gives them away; those that a story makes up stay as they
are. Errors that only ask for patience are waited out: brokers differ in how long they take, not in what they say then.
"""

import difflib
import time
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from ottla.protocol.messages import add_offsets_to_txn as ao
from ottla.protocol.messages import add_partitions_to_txn as ap
from ottla.protocol.messages import describe_producers as dp
from ottla.protocol.messages import describe_transactions as dt
from ottla.protocol.messages import end_txn as et
from ottla.protocol.messages import find_coordinator as fc
from ottla.protocol.messages import init_producer_id as ip
from ottla.protocol.messages import list_transactions as lt
from ottla.protocol.messages import offset_fetch as of
from ottla.protocol.messages import txn_offset_commit as tc
from ottla.protocol.messages import write_txn_markers as wm
from ottla.protocol.schema import Message
from ottla.records.batch import BatchHeader, iter_batches
from ottla.records.record import decode_records
from tests.support import stories
from tests.support.eventually import eventually
from tests.support.raw_client import ClosedError, ask, errors_in

UNKNOWN_PRODUCER: Final = 987_654
"""A producer id that no broker has given away."""

_TIMEOUT_S: Final = 10.0
_NOT_YET: Final = frozenset({14, 15, 16, 51})
"""COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, CONCURRENT_TRANSACTIONS"""

_TIMES: Final = frozenset({"transaction_start_time_ms", "last_timestamp"})
_HIDDEN: Final = frozenset({"error_message", "log_start_offset", "log_append_time_ms"})


class Pair(NamedTuple):
    """Bootstrap servers of two brokers that get the same requests."""

    genuine: str
    ottla: str


class Producer:
    """A transactional id with the producer id and epoch that its owner believes in."""

    def __init__(self, name: str | None, producer_id: int = -1, epoch: int = -1) -> None:
        self.name = name
        self.id = producer_id
        self.epoch = epoch

    def older(self, by: int = 1) -> "Producer":
        """The same with an epoch of the past; or, with a negative number, of the future."""
        return Producer(self.name, self.id, self.epoch - by)

    def stranger(self) -> "Producer":
        """The same name, claimed by a producer id that is not its own."""
        return Producer(self.name, UNKNOWN_PRODUCER, self.epoch)


class Teller(stories.Teller):
    """Asks one broker about transactions and keeps what it said."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self._producers: dict[int, str] = {-1: "none"}

    def ask(self, what: str, request: Message, version: int, *, hide: Iterable[str] = ()) -> Any:
        """As of the other stories, asked again while the answer is to ask again."""
        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            try:
                answer = ask(self.bootstrap, request, version)
            except ClosedError:
                self.note(f"{what} v{version}: closed")
                return None
            if not errors_in(answer) & _NOT_YET or time.monotonic() > deadline:
                break
            time.sleep(0.02)
        _sort_partitions(answer)
        for path, value in self._flat(answer, frozenset(hide) | stories.IGNORED | _HIDDEN):
            self.note(f"{what} v{version} {path}: {self._shown(path, value)}")
        return answer

    def _shown(self, path: str, value: str) -> str:
        name = path.rpartition(".")[2]
        if name == "producer_id":
            return self.producer_name(int(value))
        return ("some time" if int(value) > 0 else value) if name in _TIMES else value

    def producer_name(self, producer_id: int) -> str:
        """The number of a producer id that was given away; of one that the story made up, the id itself."""
        return self._producers.get(producer_id, str(producer_id))

    # -- what producers say -----------------------------------------------------------------------------------------

    def init(self, what: str, producer: Producer, version: int = 5, *, timeout_ms: int = 60_000) -> Producer:
        """InitProducerId, with the id and epoch that `producer` has; the successor."""
        request = ip.InitProducerIdRequest(
            transactional_id=producer.name,
            transaction_timeout_ms=timeout_ms,
            producer_id=producer.id if version >= 3 else -1,
            producer_epoch=producer.epoch if version >= 3 else -1,
        )
        answer = self.ask(what, request, version, hide=["producer_id"])
        if not answer.error_code:
            self._producers.setdefault(answer.producer_id, f"producer {len(self._producers)}")
        self.note(f"{what} v{version} producer: {self.producer_name(answer.producer_id)}")
        return Producer(producer.name, answer.producer_id, answer.producer_epoch)

    def new(self, name: str | None, **more: Any) -> Producer:
        """A producer that begins."""
        return self.init(f"new {name}", Producer(name), **more)

    def add(self, what: str, producer: Producer, places: Iterable[tuple[str, int]], version: int = 3) -> None:
        """AddPartitionsToTxn; from version 4 on as brokers send it."""
        topics = [ap.AddPartitionsToTxnTopic(name=name, partitions=held) for name, held in _by_topic(places)]
        self.ask(what, _added(producer, topics, version, verify_only=False), version)

    def verify(self, what: str, producer: Producer, places: Iterable[tuple[str, int]], version: int = 5) -> None:
        """AddPartitionsToTxn that asks only whether the partitions are in the transaction."""
        topics = [ap.AddPartitionsToTxnTopic(name=name, partitions=held) for name, held in _by_topic(places)]
        self.ask(what, _added(producer, topics, version, verify_only=True), version)

    def add_group(self, what: str, producer: Producer, group: str, version: int = 3) -> None:
        """AddOffsetsToTxn."""
        request = ao.AddOffsetsToTxnRequest(
            transactional_id=producer.name or "",
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            group_id=group,
        )
        self.ask(what, request, version)

    def end(self, what: str, producer: Producer, *, commit: bool, version: int = 3) -> Producer:
        """EndTxn; the producer with the epoch that the second generation goes on with."""
        request = et.EndTxnRequest(
            transactional_id=producer.name or "",
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            committed=commit,
        )
        answer = self.ask(what, request, version)
        if version < 5 or answer is None or answer.error_code:
            return producer
        return Producer(producer.name, answer.producer_id, answer.producer_epoch)

    def send(
        self,
        what: str,
        producer: Producer,
        place: tuple[Any, int],
        sequence: int,
        *values: bytes,
        version: int = 11,
        transactional: bool = True,
        named: bool = True,
    ) -> None:
        """Produce one batch; `named` is whether the request says the transactional id."""
        records = stories.batch(
            *(values or (b"v",)),
            timestamp_ms=int(time.time() * 1000),  # of now: partitions forget producers by it
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            base_sequence=sequence,
            transactional=transactional,
        )
        request = stories.produce([(*place, records)], transactional_id=producer.name if named else None)
        self.ask(what, request, version, hide=["record_errors"])

    def commit_offsets(
        self,
        what: str,
        producer: Producer,
        group: str,
        offsets: Iterable[tuple[str, int, int]],
        version: int = 3,
        *,
        metadata: str | None = "",
        **member: Any,
    ) -> None:
        """TxnOffsetCommit; `member` is generation_id, member_id and group_instance_id."""
        wanted = list(offsets)
        topics = [
            tc.TxnOffsetCommitRequestTopic(
                name=name,
                partitions=[
                    tc.TxnOffsetCommitRequestPartition(
                        partition_index=partition, committed_offset=offset, committed_metadata=metadata
                    )
                    for topic, partition, offset in wanted
                    if topic == name
                ],
            )
            for name in dict.fromkeys(topic for topic, _, _ in wanted)
        ]
        request = tc.TxnOffsetCommitRequest(
            transactional_id=producer.name or "",
            group_id=group,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            topics=topics,
            **member,
        )
        self.ask(what, request, version)

    def mark(
        self,
        what: str,
        producer: Producer,
        places: Iterable[tuple[str, int]],
        *,
        commit: bool,
        coordinator: int = 0,
        any_refusal: bool = False,
    ) -> None:
        """WriteTxnMarkers, as the transaction coordinator of epoch `coordinator` sends it.

        `any_refusal` is for what genuine Kafka stumbles over (UNKNOWN_SERVER_ERROR): it must be refused, somehow.
        """
        topics = [wm.WritableTxnMarkerTopic(name=name, partition_indexes=held) for name, held in _by_topic(places)]
        marker = wm.WritableTxnMarker(
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            transaction_result=commit,
            topics=topics,
            coordinator_epoch=coordinator,
        )
        hidden = ["error_code"] if any_refusal else []
        answer = self.ask(what, wm.WriteTxnMarkersRequest(markers=[marker]), 1, hide=hidden)
        self.note(f"{what}: {'refused' if errors_in(answer) else 'done'}")

    def ready(self) -> None:
        """Have the topics made in which the coordinators of transactions and of groups keep their state."""
        for key_type in (0, 1):
            request = fc.FindCoordinatorRequest(key_type=key_type, coordinator_keys=["ready"])
            eventually(lambda wanted=request: not ask(self.bootstrap, wanted, 4).coordinators[0].error_code)

    # -- what the broker keeps --------------------------------------------------------------------------------------

    def transaction(self, name: str, *, until: Callable[[str], bool] = lambda state: True) -> None:
        """DescribeTransactions, once the state is one that `until` accepts."""
        request = dt.DescribeTransactionsRequest(transactional_ids=[name])
        deadline = time.monotonic() + _TIMEOUT_S
        while time.monotonic() < deadline:
            (found,) = ask(self.bootstrap, request, 0).transaction_states
            settled = found.error_code not in _NOT_YET and not found.transaction_state.startswith("Prepare")
            if settled and until(found.transaction_state):
                break
            time.sleep(0.02)
        self.ask(f"transaction {name}", request, 0)

    def list_transactions(self, what: str, prefix: str, version: int = 2, **filters: Any) -> None:
        """ListTransactions; of the listed those whose ids begin with `prefix`."""
        request = lt.ListTransactionsRequest(**{"state_filters": [], "producer_id_filters": [], **filters})
        answer = ask(self.bootstrap, request, version)
        self.note(f"{what} v{version}: error {answer.error_code}, unknown states {answer.unknown_state_filters}")
        for listed in sorted(answer.transaction_states, key=lambda one: one.transactional_id):
            if listed.transactional_id.startswith(prefix):
                who = self.producer_name(listed.producer_id)
                self.note(f"{what} v{version}: {listed.transactional_id} of {who} is {listed.transaction_state}")

    def producers(self, topic: str, *partitions: int) -> None:
        """DescribeProducers."""
        wanted = dp.TopicRequest(name=topic, partition_indexes=list(partitions or (0,)))
        self.ask(f"producers of {topic}", dp.DescribeProducersRequest(topics=[wanted]), 0)

    def log(self, topic: str, partition: int = 0) -> None:
        """Every batch of a partition, its last stable offset, and the aborted transactions that consumers skip."""
        (answer,) = ask(self.bootstrap, stories.fetch([(topic, partition, 0)]), 12).responses[0].partitions
        data = bytes(answer.records or b"")
        for header in iter_batches(data, allow_partial_end=True):
            self.note(f"{topic}-{partition} {self._batch(header, data)}")
        stable = stories.fetch([(topic, partition, 0)], isolation_level=1)
        (answer,) = ask(self.bootstrap, stable, 12).responses[0].partitions
        ends = f"high watermark {answer.high_watermark}, last stable offset {answer.last_stable_offset}"
        skipped = [
            f"{self.producer_name(one.producer_id)} from {one.first_offset}"
            for one in answer.aborted_transactions or []
        ]
        self.note(f"{topic}-{partition} error {answer.error_code}, {ends}, aborted: {sorted(skipped)}")

    def _batch(self, header: BatchHeader, data: bytes) -> str:
        kind = "control" if header.is_control else "transactional" if header.is_transactional else "plain"
        contents = [(record.key, record.value) for record in decode_records(data, header)]
        who = f"{self.producer_name(header.producer_id)} epoch {header.producer_epoch} from {header.base_sequence}"
        return f"{header.base_offset}-{header.last_offset} {kind} of {who}: {contents}"

    def offsets(self, group: str, topic: str, *, stable: bool = False) -> None:
        """OffsetFetch of the first two partitions."""
        wanted = of.OffsetFetchRequestTopics(name=topic, partition_indexes=[0, 1])
        request = of.OffsetFetchRequest(
            groups=[of.OffsetFetchRequestGroup(group_id=group, topics=[wanted])], require_stable=stable
        )
        self.ask(f"offsets of {group}", request, 9)


def _sort_partitions(answer: Any) -> None:
    """DescribeTransactions gives partitions in no particular order."""
    for state in getattr(answer, "transaction_states", []):
        for topic in state.topics:
            topic.partitions.sort()


def _by_topic(places: Iterable[tuple[str, int]]) -> list[tuple[str, list[int]]]:
    held: dict[str, list[int]] = {}
    for topic, partition in places:
        held.setdefault(topic, []).append(partition)
    return list(held.items())


def _added(
    producer: Producer, topics: list[ap.AddPartitionsToTxnTopic], version: int, *, verify_only: bool
) -> ap.AddPartitionsToTxnRequest:
    name = producer.name or ""
    if version <= 3:
        return ap.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=producer.id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=topics,
        )
    transaction = ap.AddPartitionsToTxnTransaction(
        transactional_id=name,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        verify_only=verify_only,
        topics=topics,
    )
    return ap.AddPartitionsToTxnRequest(transactions=[transaction])


def compare(pair: Pair, story: Callable[[Teller], None]) -> None:
    """Tell both the story: the same answers, and the same kept.

    Raises:
        AssertionError: they differ.
    """
    genuine, ottla = (Teller(bootstrap) for bootstrap in pair)
    story(genuine)
    story(ottla)
    differences = difflib.unified_diff(genuine.lines, ottla.lines, "genuine", "ottla", n=1, lineterm="")
    assert ottla.lines == genuine.lines, "\n".join(differences)
