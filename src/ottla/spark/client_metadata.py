"""What brokers know of topics, asked through the client library: for connections that need any of its settings, such
as Kerberos. `ottla.spark.wire_metadata` asks all others."""

from collections.abc import Collection, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NoAnswerError
from typing import Any, Final, TypeVar
from uuid import UUID

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from ottla.spark.client_settings import ClientSettings, library
from ottla.spark.errors import NotReadyError, OptionError, SourceError, UnreachableError, refusal, unreachable
from ottla.spark.metadata_queries import Described
from ottla.spark.offsets import EARLIEST, LATEST, Partition

T = TypeVar("T")

_DEFAULTS: Final = {"reconnect.backoff.max.ms": "1000"}  # a query goes on soon after its brokers are back
_CONSUMER_ONLY: Final = ("isolation.level", "group.id", "fetch.", "queued.", "max.partition.fetch.bytes", "check.crcs")
_SPECIAL: Final[dict[int, OffsetSpec]] = {
    EARLIEST: OffsetSpec.earliest(),  # type: ignore[no-untyped-call]  # the client's lack
    LATEST: OffsetSpec.latest(),  # type: ignore[no-untyped-call]  # the client's lack
}
_GRACE_S: Final = 5.0
"""librdkafka 2.16 may never answer, whatever its time-out, when its only broker has died or come back."""


class ClientMetadata:
    """`MetadataQueries` for any settings of the client library."""

    def __init__(self, client: ClientSettings, answer_within_s: float) -> None:
        """Raises OptionError for settings that the client library refuses."""
        given = dict(client)
        self._servers = given["bootstrap.servers"]
        committed = given.get("isolation.level") == "read_committed"
        self._isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        self._within_s = answer_within_s
        settings = library((name, value) for name, value in client if not name.startswith(_CONSUMER_ONLY))
        self._settings: dict[str, Any] = {**_DEFAULTS, **settings}
        self._client: AdminClient | None = None
        self._admin()

    def names(self, expected: Collection[str] = ()) -> list[str]:
        try:
            return sorted(self._admin().list_topics(timeout=self._within_s).topics)
        except KafkaException as error:
            raise self._explain(error, "the list of topics") from error

    def describe(self, topics: Collection[str]) -> dict[str, Described]:
        """As `MetadataQueries.describe`."""
        if not topics:
            return {}
        admin = self._admin()
        answers = admin.describe_topics(TopicCollection([*topics]), request_timeout=self._within_s)
        found = {}
        for topic, answer in answers.items():
            described = self._result(answer, f"topic '{topic}'")
            bits = _bits(described.topic_id)
            numbers = sorted(each.id for each in described.partitions)
            found[topic] = Described(numbers, UUID(int=bits) if bits else None)
        return found

    def offsets(self, places: Mapping[Partition, int]) -> dict[Partition, int | SourceError]:
        """As `MetadataQueries.offsets`."""
        if not places:
            return {}
        request = {TopicPartition(*partition): _spec(place) for partition, place in places.items()}
        admin = self._admin()  # which has to outlive its answers
        answers = admin.list_offsets(request, isolation_level=self._isolation, request_timeout=self._within_s)
        found: dict[Partition, int | SourceError] = {}
        for asked, answer in answers.items():
            partition = Partition(asked.topic, asked.partition)
            try:
                found[partition] = self._result(answer, f"partition {partition}").offset
            except UnreachableError:
                raise
            except SourceError as error:
                found[partition] = error
        return found

    def _result(self, answer: "Future[T]", subject: str) -> T:
        try:
            return answer.result(self._within_s + _GRACE_S)
        except NoAnswerError as error:
            self._client = None
            raise unreachable(self._servers, subject, f"not within {self._within_s:.0f} s") from error
        except KafkaException as error:
            raise self._explain(error, subject) from error

    def _explain(self, error: KafkaException, subject: str) -> SourceError:
        cause: KafkaError = error.args[0]
        if cause.code() > 0:
            explained = refusal(cause.code(), subject, self._servers)
            if isinstance(explained, NotReadyError):
                # librdkafka 2.16 asks on and on with the leader epochs that it knew before a broker was started again.
                self._client = None
            return explained
        if cause.code() in (KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT):
            return unreachable(self._servers, subject, cause.str())
        return SourceError(f"{subject} at {self._servers}: {cause.str()} ({cause.name()})")

    def _admin(self) -> AdminClient:
        if self._client is None:
            try:
                self._client = AdminClient(self._settings)
            except KafkaException as error:
                raise OptionError(f"the client refuses its settings: {error.args[0].str()}") from error
        return self._client


def _spec(place: int) -> OffsetSpec:
    return _SPECIAL.get(place) or OffsetSpec.for_timestamp(place)


def _bits(topic_id: Any) -> int:
    """The bits of a `confluent_kafka.Uuid`, whose declaration leaves out its methods; 0 where brokers have no ids."""
    if topic_id is None:
        return 0
    high: int = topic_id.get_most_significant_bits()
    low: int = topic_id.get_least_significant_bits()
    return (high % (1 << 64)) << 64 | low % (1 << 64)
