"""Stories told to two brokers, request by request, and what each answered, line by line, to be compared."""

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from uuid import UUID

from ottla.protocol.messages import create_topics as ct
from ottla.protocol.messages import delete_topics as dt
from ottla.protocol.messages import fetch as f
from ottla.protocol.messages import list_offsets as lo
from ottla.protocol.messages import metadata as md
from ottla.protocol.messages import produce as p
from ottla.protocol.primitives import NULL_UUID
from ottla.protocol.schema import Message, Struct, fields_of
from ottla.records.batch import iter_batches
from ottla.records.record import Record, encode_batch
from tests.support.eventually import eventually
from tests.support.raw_client import ClosedError, ask

_Side = TypeVar("_Side")
_Found = TypeVar("_Found")

IGNORED = frozenset({"throttle_time_ms", "port", "host"})
NOW_MS = int(time.time() * 1000)
UNKNOWN_ID = UUID(int=0xABCDEF)


def at_once(story: Callable[[_Side], _Found], sides: Iterable[_Side]) -> list[_Found]:
    """What a story finds on each side, told in a thread for each: it mostly waits for timers of the broker."""
    with ThreadPoolExecutor() as threads:
        return list(threads.map(story, sides))


class Teller:
    """Asks one broker and keeps what it said.

    Topic and session ids are shown by name: they differ by nature. Topics and partitions are sorted, and of records
    the whole batches are shown: Kafka may add the beginning of another one, for clients to throw away.
    """

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.lines: list[str] = []
        self._ids: dict[UUID, str] = {NULL_UUID: "no topic", UNKNOWN_ID: "unknown topic"}
        self._sessions: dict[int, str] = {0: "no session"}

    def note(self, line: str) -> None:
        """A remark of the story's own, compared like the answers."""
        self.lines.append(line)

    def ask(self, what: str, request: Message, version: int, *, hide: Iterable[str] = ()) -> Any:
        """Ask, keep the answer but for the fields in `hide`, and return it; None if the connection was closed."""
        try:
            response = ask(self.bootstrap, request, version)
        except ClosedError:
            self.note(f"{what} v{version}: closed")
            return None
        session_id = getattr(response, "session_id", 0)
        self._sessions.setdefault(session_id, f"session {len(self._sessions)}")
        for path, value in self._flat(response, frozenset(hide) | IGNORED):
            self.note(f"{what} v{version} {path}: {value}")
        return response

    def _flat(self, value: Any, hidden: frozenset[str], path: str = "") -> Iterable[tuple[str, str]]:
        if isinstance(value, (Message, Struct)):
            for field in fields_of(type(value)):
                if field.name == "session_id":
                    yield f"{path}.session_id", self._sessions[getattr(value, field.name)]
                elif field.name not in hidden:
                    yield from self._flat(getattr(value, field.name), hidden, f"{path}.{field.name}")
        elif isinstance(value, list):
            if not value:
                yield path, "empty"
            for number, item in enumerate(sorted(value, key=self._place) if len(value) > 1 else value):
                yield from self._flat(item, hidden, f"{path}[{number}]")
        elif isinstance(value, UUID):
            yield path, self._ids.get(value, str(value))
        elif isinstance(value, (bytes, bytearray, memoryview)):
            whole = list(iter_batches(value, allow_partial_end=True))
            yield path, bytes(value[: whole[-1].end_position]).hex() if whole else "nothing"
        else:
            yield path, repr(value)

    def _place(self, item: Any) -> tuple[Any, ...]:
        """Order among those of a list, which brokers need not keep: by topic, then partition."""
        topic = getattr(item, "topic", "") or getattr(item, "name", "")
        return (
            topic,
            self._ids.get(getattr(item, "topic_id", NULL_UUID), ""),
            getattr(item, "partition_index", getattr(item, "index", 0)),
        )

    # -- the background of a story ----------------------------------------------------------------------------------

    def create(self, name: str, partitions: int = 1, **configs: str) -> UUID:
        """Create a topic and return its id once the broker serves it; `_` stands for a dot in the names of settings."""
        settings = [ct.CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
        topic = ct.CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=settings
        )
        (made,) = ask(self.bootstrap, ct.CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7).topics
        assert made.error_code == 0, made
        self._ids[made.topic_id] = f"id of {name}"

        def served() -> bool:
            wanted = [(name, number, -1) for number in range(partitions)]
            (answer,) = ask(self.bootstrap, list_offsets(wanted), 7).topics
            return all(partition.error_code == 0 for partition in answer.partitions)

        eventually(served)
        return made.topic_id

    def delete(self, name: str) -> None:
        """Delete a topic and return once the broker has forgotten it."""
        topic = dt.DeleteTopicState(name=name, topic_id=NULL_UUID)
        (gone,) = ask(self.bootstrap, dt.DeleteTopicsRequest(topics=[topic], timeout_ms=10_000), 6).responses
        assert gone.error_code == 0, gone

        def unknown() -> bool:
            request = md.MetadataRequest(
                topics=[md.MetadataRequestTopic(name=name, topic_id=NULL_UUID)], allow_auto_topic_creation=False
            )
            (topic,) = ask(self.bootstrap, request, 12).topics
            return bool(topic.error_code)

        eventually(unknown)

    def fill(self, name: str, *batches: bytes, partition: int = 0) -> None:
        """Produce batches, one request each, acknowledged by all."""
        for records in batches:
            (topic,) = ask(self.bootstrap, produce([(name, partition, records)]), 9).responses
            (answer,) = topic.partition_responses
            assert answer.error_code == 0, answer


def batch(*values: bytes, timestamp_ms: int = NOW_MS, **options: Any) -> bytes:
    """One batch with a record a millisecond."""
    return bytes(
        encode_batch([Record(at, timestamp_ms + at, None, value) for at, value in enumerate(values)], **options)
    )


def produce(
    wanted: Iterable[tuple[str | UUID, int, bytes | None]], *, acks: int = -1, transactional_id: str | None = None
) -> p.ProduceRequest:
    """One entry for each topic of `wanted`, in its order: topic, partition, records."""
    return p.ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=5_000,
        topic_data=[
            p.TopicProduceData(
                name=topic if isinstance(topic, str) else "",
                topic_id=topic if isinstance(topic, UUID) else NULL_UUID,
                partition_data=[p.PartitionProduceData(index=partition, records=records)],
            )
            for topic, partition, records in wanted
        ],
    )


def fetch(
    wanted: Iterable[tuple[str | UUID, int, int]],
    *,
    forgotten: Iterable[tuple[str | UUID, list[int]]] = (),
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    partition_max_bytes: int = 1 << 20,
    leader_epoch: int = -1,
    isolation_level: int = 0,
    session: tuple[int, int] = (0, -1),
) -> f.FetchRequest:
    """Topic, partition and offset of each; those of one topic side by side share an entry."""
    topics: list[f.FetchTopic] = []
    last: str | UUID | None = None
    for topic, partition, offset in wanted:
        if topic != last:
            topics.append(
                f.FetchTopic(
                    topic=topic if isinstance(topic, str) else "",
                    topic_id=topic if isinstance(topic, UUID) else NULL_UUID,
                    partitions=[],
                )
            )
            last = topic
        topics[-1].partitions.append(
            f.FetchPartition(
                partition=partition,
                fetch_offset=offset,
                partition_max_bytes=partition_max_bytes,
                current_leader_epoch=leader_epoch,
            )
        )
    return f.FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=session[0],
        session_epoch=session[1],
        topics=topics,
        forgotten_topics_data=[
            f.ForgottenTopic(
                topic=topic if isinstance(topic, str) else "",
                topic_id=topic if isinstance(topic, UUID) else NULL_UUID,
                partitions=partitions,
            )
            for topic, partitions in forgotten
        ],
    )


def list_offsets(
    wanted: Iterable[tuple[str, int, int]], *, leader_epoch: int = -1, isolation_level: int = 0
) -> lo.ListOffsetsRequest:
    """Topic, partition and timestamp of each, in one entry for each topic."""
    topics: dict[str, lo.ListOffsetsTopic] = {}
    for topic, partition, timestamp in wanted:
        topics.setdefault(topic, lo.ListOffsetsTopic(name=topic, partitions=[])).partitions.append(
            lo.ListOffsetsPartition(partition_index=partition, current_leader_epoch=leader_epoch, timestamp=timestamp)
        )
    return lo.ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=list(topics.values()))
