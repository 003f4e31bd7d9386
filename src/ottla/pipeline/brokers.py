"""What a run asks of the brokers: are its inputs there, and where do they end? Outputs that are not there are made."""

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource, NewTopic

from ottla.pipeline import names
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.lag import Offsets
from ottla.spark.client_settings import as_settings, library
from ottla.spark.errors import NotReadyError, SourceError, UnreachableError
from ottla.spark.metadata import metadata_queries
from ottla.spark.metadata_queries import Described
from ottla.spark.offsets import EARLIEST, LATEST, Partition
from ottla.waiting import tries

T = TypeVar("T")

_ANSWER_WITHIN_S: Final = 10.0
_REST_S: Final = 0.5
_BROKER_DEFAULT: Final = -1
_OF_PLACES: Final = ".replication.throttled.replicas"
"""The end of settings that name the replicas of a topic."""

log = logging.getLogger(__name__)


class _Shape(NamedTuple):
    """What a topic is made with."""

    partitions: int
    replicas: int
    settings: Mapping[str, str]


_DEFAULTS: Final = _Shape(_BROKER_DEFAULT, _BROKER_DEFAULT, {})
_POLICY: Final = "cleanup.policy"
_COMPACT: Final = "compact"
_COMPACTED: Final = _Shape(_BROKER_DEFAULT, _BROKER_DEFAULT, {_POLICY: _COMPACT})


class Brokers:
    """Asks for a run. Raises PipelineError where no broker answers."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        """`settings` are the client library's, `bootstrap.servers` among them."""
        self._settings = settings
        self._servers = settings["bootstrap.servers"]
        try:
            self._queries = metadata_queries(as_settings(settings), _ANSWER_WITHIN_S)
        except SourceError as error:
            raise PipelineError(str(error)) from None
        self._watched: set[Partition] = set()
        self._thread: threading.Thread | None = None
        self._answers: Offsets = {}
        self._problem: str | None = None
        self.trouble: str | None = None
        """Why the last `poll` had no answer for any partition; None when it had."""

    def check_inputs(self, topics: Collection[str]) -> None:
        """Raises PipelineError, with the nearest name, for a topic that is not there."""
        there = self._topics(topics)
        for topic in sorted(topics):
            if topic not in there:
                hint = names.did_you_mean(topic, there, otherwise=f"; create it first: ottla topic create {topic}")
                raise PipelineError(f"the job reads topic {topic!r}, which does not exist on {self._servers}{hint}")

    def make(self, topics: Collection[str], originals: Mapping[str, str], compacted: Collection[str] = ()) -> list[str]:
        """Make those topics that are not there; gives those.

        One that stands for another in a replay, its original, gets the partitions, replicas and settings of that;
        others have the brokers' defaults, but those in `compacted` keep the newest record of each key for ever. Raises
        PipelineError for one that cannot be made.
        """
        there = self._topics(topics) if topics else []
        missing = [topic for topic in sorted(topics) if topic not in there]
        if not missing:
            return []
        configuration: dict[str, Any] = library(self._settings.items(), logger=log)
        try:
            admin = AdminClient(configuration)
            like = self._described(admin, {originals.get(topic, topic) for topic in missing}.intersection(there))
            wanted = [
                NewTopic(topic, each.partitions, each.replicas, config=dict(each.settings))
                for topic in missing
                for each in [like.get(originals.get(topic, topic), _COMPACTED if topic in compacted else _DEFAULTS)]
            ]
            return self._create(admin, wanted)
        except KafkaException as error:
            raise PipelineError(f"the client refuses its settings: {error.args[0].str()}") from None

    def _described(self, admin: AdminClient, topics: set[str]) -> dict[str, _Shape]:
        """These topics, without settings where this client may not read them."""
        if not topics:
            return {}
        known = admin.list_topics(timeout=_ANSWER_WITHIN_S).topics
        found = {}
        for topic, entries in _settings(admin, topics & known.keys(), "its copy has the defaults"):
            settings = {
                name: entry.value
                for name, entry in entries.items()
                if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
                and entry.value is not None
                and not entry.is_read_only
                and not name.endswith(_OF_PLACES)
            }
            partitions = known[topic].partitions
            replicas = min((len(each.replicas) for each in partitions.values()), default=_BROKER_DEFAULT)
            found[topic] = _Shape(len(partitions), replicas, settings)
        return found

    def deleting(self, topics: Collection[str]) -> dict[str, str]:
        """Those of these topics that delete records by their age or size, with their `cleanup.policy`; topics whose
        settings this client may not read are left out."""
        return {topic: policy for topic, policy in self.not_compacted(topics).items() if policy is not None}

    def not_compacted(self, topics: Collection[str]) -> dict[str, str | None]:
        """Those of these topics that are not known to keep the newest record of each key for ever, with their
        `cleanup.policy`; None where this client may not read it."""
        if not topics:
            return {}
        configuration: dict[str, Any] = library(self._settings.items(), logger=log)
        known = _settings(AdminClient(configuration), topics, "whether it is compacted is not known")
        policies = {topic: entries[_POLICY].value if _POLICY in entries else None for topic, entries in known}
        return {topic: policy for topic, policy in policies.items() if policy != _COMPACT}

    def extents(
        self, partitions: Collection[Partition]
    ) -> tuple[dict[str, Described], dict[Partition, tuple[int, int]]]:
        """The topics of these partitions that are there, and the first offset and the one after the last of each
        partition that is there."""
        wanted = {partition.topic for partition in partitions}
        there = self._topics(wanted) if wanted else []
        described = self._with_retries(lambda: self._queries.describe([topic for topic in wanted if topic in there]))
        known = [
            each for each in partitions if each.topic in described and each.number in described[each.topic].partitions
        ]
        starts, ends = (self._with_retries(partial(self._offsets, known, place)) for place in (EARLIEST, LATEST))
        return described, {each: (starts[each], ends[each]) for each in known}

    def at_time(self, partitions: Collection[Partition], time_ms: int) -> dict[Partition, int]:
        """The offset of the first record that is not older than that, in each partition; -1 where all are older."""
        return self._with_retries(partial(self._offsets, partitions, time_ms))

    def _offsets(self, partitions: Collection[Partition], place: int) -> dict[Partition, int]:
        found = {}
        for partition, offset in self._queries.offsets(dict.fromkeys(partitions, place)).items():
            if isinstance(offset, SourceError):
                raise offset
            found[partition] = offset
        return found

    def watch(self, topics: Collection[str]) -> None:
        """`ask` from now on for the ends of these topics."""
        there = self._topics(topics)
        found = self._with_retries(lambda: self._queries.describe([topic for topic in topics if topic in there]))
        self._watched.update(
            Partition(topic, number) for topic, described in found.items() for number in described.partitions
        )

    def ask(self, others: Iterable[tuple[str, int]]) -> None:
        """Ask for the ends of all partitions that are watched, and of others from now on. `poll` has the answer."""
        self._watched.update(Partition(*each) for each in others)
        if self._watched and self._thread is None:
            self._thread = threading.Thread(target=self._ask, args=(frozenset(self._watched),), daemon=True)
            self._thread.start()

    def poll(self) -> Offsets:
        """The answers, once they are all there; partitions that could not be asked are left out."""
        if self._thread is None or self._thread.is_alive():
            return {}
        self._thread = None
        self.trouble = self._problem
        return self._answers

    def _ask(self, partitions: Collection[Partition]) -> None:
        """In a thread of its own, as a broker may be long in answering; nothing else is asked meanwhile."""
        self._answers, self._problem = {}, None
        try:
            for partition, offset in self._queries.offsets(dict.fromkeys(partitions, LATEST)).items():
                if isinstance(offset, SourceError):
                    self._problem = str(offset)
                else:
                    self._answers[partition] = offset
        except SourceError as error:
            self._problem = self._explain(error)
        if self._answers:
            self._problem = None

    def _topics(self, expected: Collection[str]) -> list[str]:
        return self._with_retries(lambda: self._queries.names(expected))

    def _with_retries(self, ask: Callable[[], T]) -> T:
        """Brokers that are just being started are waited for."""
        problem: SourceError | None = None
        for _ in tries(_ANSWER_WITHIN_S, every_s=_REST_S):
            try:
                return ask()
            except SourceError as error:
                problem = error
            if not isinstance(problem, NotReadyError | UnreachableError):
                break
        assert problem is not None
        raise PipelineError(self._explain(problem)) from None

    def _explain(self, error: SourceError) -> str:
        if isinstance(error, UnreachableError):
            return f"no broker answers at {self._servers} ({error.reason})"
        return str(error)

    @staticmethod
    def _create(admin: AdminClient, wanted: list[NewTopic]) -> list[str]:
        """The topics that had to be created."""
        created = []
        for topic, answer in admin.create_topics(wanted).items():
            try:
                answer.result(_ANSWER_WITHIN_S)
                created.append(topic)
            except KafkaException as error:
                cause: KafkaError = error.args[0]
                if cause.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise PipelineError(
                        f"topic {topic!r}, which the job writes, cannot be made: {cause.str()}"
                    ) from None
        return created


def _settings(admin: AdminClient, topics: Collection[str], otherwise: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The settings of each topic; none where this client may not read them, for which the log has `otherwise`."""
    resources = [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in topics]
    for resource, answer in admin.describe_configs(resources, request_timeout=_ANSWER_WITHIN_S).items():
        try:
            yield resource.name, answer.result(_ANSWER_WITHIN_S + _REST_S)
        except (KafkaException, TimeoutError) as error:
            log.warning("the settings of %s cannot be read, and %s: %s", resource.name, otherwise, error)
            yield resource.name, {}
