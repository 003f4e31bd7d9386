"""The topic in which a mirror keeps what offsets of the other cluster mean here, by MirrorMaker 2's name for it."""

import logging
import time
from typing import TYPE_CHECKING, Any, Final

from ottla.connect.connectors.offset_syncs import OffsetSync, Translation, parsed, slot_of
from ottla.connect.errors import Retriable, of_brokers

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message
    from confluent_kafka.admin import AdminClient

_TIMEOUT_S: Final = 10
_EVERY_S: Final = 1.0
"""How often the pair of a partition is written at most."""

log = logging.getLogger(__name__)

Place = tuple[str, int]


class OffsetTopic:
    """Reads all pairs at the start, and adds some of the new ones. Used by its task's thread alone."""

    def __init__(self, alias: str, client: dict[str, Any]) -> None:
        """alias: that of the other cluster. client: how this one is reached, which has the topic."""
        from confluent_kafka import Producer

        self.name = f"mm2-offset-syncs.{alias}.internal"
        self._client = client
        self._producer = Producer({**client, "enable.idempotence": True})
        self._numbers: dict[Place, int] = {}
        self._written_at: dict[Place, float] = {}
        self._waiting: set[Place] = set()

    def read(self, admin: "AdminClient", replicas: int) -> dict[Place, Translation]:
        """Every pair that is there, after making the topic if it is not. Raises ConnectError, Retriable."""
        from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

        self._make(admin, replicas)
        consumer = Consumer(
            {
                **self._client,
                "group.id": "ottla-mirror-reads-without-a-group",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            }
        )
        try:
            consumer.assign([TopicPartition(self.name, 0, OFFSET_BEGINNING)])
            return self._read_all(consumer)
        except KafkaException as failure:
            raise of_brokers(failure.args[0], f"{self.name} cannot be read: {failure.args[0].str()}") from failure
        finally:
            consumer.close()

    def _read_all(self, consumer: "Consumer") -> dict[Place, Translation]:
        from confluent_kafka import KafkaError

        found: dict[Place, Translation] = {}
        deadline = time.monotonic() + _TIMEOUT_S
        while time.monotonic() < deadline:
            for message in consumer.consume(1_000, 0.1):
                deadline = time.monotonic() + _TIMEOUT_S
                error = message.error()
                if error is None:
                    self._take(message, found)
                elif error.code() == KafkaError._PARTITION_EOF:  # the library's name
                    return found
        raise Retriable(f"{self.name} could not be read to its end within {_TIMEOUT_S} s")

    def _take(self, message: "Message", found: dict[Place, Translation]) -> None:
        key, value = message.key(), message.value()
        if value is None:
            begun_anew = parsed(_bytes(key), OffsetSync("", 0, 0, 0).value)
            if begun_anew is not None:
                found.pop((begun_anew.topic, begun_anew.partition), None)
            return
        sync = parsed(_bytes(key), _bytes(value))
        if sync is None:
            return
        place = (sync.topic, sync.partition)
        found.setdefault(place, Translation()).add(sync.there, sync.here)
        self._numbers[place] = max(self._numbers.get(place, 0) + 1, sync.number or 0)

    def _make(self, admin: "AdminClient", replicas: int) -> None:
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import NewTopic

        wanted = NewTopic(self.name, 1, replicas, config={"cleanup.policy": "compact"})
        try:
            admin.create_topics([wanted], request_timeout=_TIMEOUT_S)[self.name].result(_TIMEOUT_S)
        except KafkaException as failure:
            error = failure.args[0]
            if error.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise of_brokers(error, f"topic {self.name} cannot be made: {error.str()}") from failure
        except TimeoutError as failure:
            raise Retriable(f"topic {self.name} cannot be made: no answer within {_TIMEOUT_S} s") from failure

    def add(self, topic: str, partition: int) -> None:
        """A partition has a new pair."""
        self._waiting.add((topic, partition))

    def forget(self, topic: str, partition: int) -> None:
        """Forget a partition: its offsets belong to a deleted topic of the same name."""
        place = topic, partition
        numbers = range(1, self._numbers.pop(place, 0) + 1)
        slots = {slot_of(number): number for number in numbers}
        for number in slots.values():
            self._produce(OffsetSync(topic, partition, 0, 0, number).key, None)
        if slots:
            self._produce(OffsetSync(topic, partition, 0, 0).key, None)  # MirrorMaker's own

    def write(self, translations: dict[Place, Translation], *, at_once: bool = False) -> None:
        """Write the last pairs of partitions that have new ones, each once in a while."""
        now = time.monotonic()
        due = [p for p in self._waiting if at_once or now - self._written_at.get(p, -_EVERY_S) >= _EVERY_S]
        for place in due:
            self._waiting.discard(place)
            last = translations[place].last if place in translations else None
            if last is None:
                continue
            number = self._numbers[place] = self._numbers.get(place, 0) + 1
            self._written_at[place] = now
            sync = OffsetSync(*place, *last, number)
            self._produce(sync.key, sync.value)
        self._producer.poll(0)

    def _produce(self, key: bytes, value: bytes | None) -> None:
        try:
            self._producer.produce(self.name, key=key, value=value, partition=0, on_delivery=self._delivered)
        except BufferError:  # the brokers are unreachable: the next pair covers this one
            log.info("%s is written later: too much waits for the brokers", self.name)

    def _delivered(self, error: "KafkaError | None", _message: object) -> None:
        if error is not None:
            log.warning("a pair of offsets is not in %s: %s", self.name, error.str())

    def close(self) -> None:
        """Send what waits."""
        self._producer.flush(_TIMEOUT_S)
        del self._producer  # it would look for its brokers until the collector finds what refers to it


def _bytes(value: "str | bytes | None") -> bytes | None:
    return value.encode() if isinstance(value, str) else value
