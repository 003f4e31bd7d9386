"""Topics of another cluster, genuine Kafka included: their records, settings and the offsets of their groups.

Names and topics are those of MirrorMaker 2: `source.orders` is the topic `orders` of the cluster called `source`.
"""

import difflib
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, cast
from urllib.parse import unquote, urlsplit

from ottla.client.properties import is_file
from ottla.connect.api import (
    ConfigError,
    ConnectError,
    Context,
    Header,
    Part,
    Position,
    Progress,
    Retriable,
    Source,
    SourceContext,
    SourceRecord,
    Yielded,
)
from ottla.connect.clients.groups import UNTIL_ANSWERED_S
from ottla.connect.connectors.copy_ids import CopyIds
from ottla.connect.connectors.mirror_requests import (
    TIMEOUT_S,
    answered,
    cluster_id,
    committed_offsets,
    count_partitions,
    known_ids,
    open_admin,
    own_configs,
    wait_for,
)
from ottla.connect.connectors.mirror_settings import OF_SOURCE, MirrorSettings, pattern
from ottla.connect.connectors.offset_syncs import Translation
from ottla.connect.connectors.offset_topic import OffsetTopic

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message
    from confluent_kafka.admin import AdminClient

_WAIT_S: Final = 0.5
_QUIET_S: Final = 1.0
"""After this time without records, a partition's position is committed once more; see `_Look`."""


@dataclass(slots=True)
class _Look:
    """The end of a copy, `here`, when everything up to `position` was copied; None: not known, and nothing copied.

    It is a pair of offsets only if no other worker had begun to copy: one that takes this one for dead does, and its
    records are before the end, too. A later commit, which would fail then, confirms that none had. The end may
    lack the marker of the last transaction, which is written after its commit; the next look has it.

    turn: that of `MirrorSource` at the look. due: when to commit the position once more if nothing else is committed.
    beginning: the first offset of the copy, at the first look.
    """

    position: Position | None
    here: int | None
    turn: int
    due: float
    beginning: int | None = None

    @property
    def there(self) -> int:
        """The offset of the position."""
        return 0 if self.position is None else int(self.position["offset"])


class MirrorSource(Source[MirrorSettings]):
    """Copies topics of another Kafka cluster here: records as they are, by partition, settings, offsets of groups.

    Each record comes once, from committed transactions alone. Offsets differ between clusters: groups are moved to
    where they have read nothing that they had not read there, and maybe a little less.
    """

    aliases: ClassVar[tuple[str, ...]] = ("org.apache.kafka.connect.mirror.MirrorSourceConnector",)
    defaults: ClassVar[Mapping[str, str]] = {
        "key.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
        "value.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
        "header.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
    }

    def __init__(self, settings: MirrorSettings, context: SourceContext) -> None:
        super().__init__(settings, context)
        self._translations: dict[tuple[str, int], Translation] = {}
        self._yielded: dict[tuple[str, int], int] = {}
        """The offset after the last record of a partition that was handed on."""
        self._looks: dict[tuple[str, int], _Look] = {}
        """Ends of copies that are no pairs yet."""
        self._settled: dict[tuple[str, int], int] = {}
        """Offsets there after which no further look is needed."""
        self._turn = 0
        """How often `read` has yielded: commits happen in between."""
        self._syncs: OffsetTopic | None = None
        self._probe: Consumer | None = None
        self._refusals: list[KafkaError] = []
        """Errors that the client of the other cluster has reported."""
        self._ids: dict[str, str] = {}
        """Ids of topics there: one that is deleted and made again has another."""
        self._copies = CopyIds()

    @classmethod
    def local_paths(cls, settings: MirrorSettings) -> dict[str, list[str]]:
        """Stores and tokens of the login at the other cluster."""
        named = {
            "ssl.truststore.location": settings.source_cluster_ssl_truststore_location,
            "ssl.ca.location": settings.source_cluster_ssl_ca_location,
            "ssl.keystore.location": settings.source_cluster_ssl_keystore_location,
        }
        endpoint = settings.source_cluster_sasl_oauthbearer_token_endpoint_url
        if is_file(endpoint):
            named["sasl.oauthbearer.token.endpoint.url"] = unquote(urlsplit(endpoint).path)
        return {f"{OF_SOURCE}{name}": [path] for name, path in named.items() if path}

    @classmethod
    def check(cls, settings: MirrorSettings, context: Context) -> None:
        """That the cluster answers, and has such topics."""
        refusals: list[KafkaError] = []
        names = count_partitions(
            open_admin(settings.client(), refusals), settings.source_cluster_bootstrap_servers, refusals
        )
        found = {each for each in names if settings.mirrored(each)}
        if not found:
            near = difflib.get_close_matches(settings.topics[0] if settings.topics else "", names, 1)
            raise ConfigError(
                f"{settings.source_cluster_bootstrap_servers} has no topic that fits topics"
                + (f": is it {near[0]}?" if near else ""),
                "topics",
            )

    def read(self, position: Position | None) -> Iterator[Yielded]:
        from confluent_kafka import Consumer

        settings = self.settings
        there, here = open_admin(settings.client(), self._refusals), open_admin(dict(self.context.client), [])
        count_partitions(there, settings.source_cluster_bootstrap_servers, self._refusals)
        if settings.name_here("t") == "t" and cluster_id(there) == cluster_id(here):
            raise ConfigError(
                f"{settings.source_cluster_bootstrap_servers} is this cluster, and with IdentityReplicationPolicy its "
                "topics would be copied into themselves without end: choose another policy or another cluster",
                "source.cluster.bootstrap.servers",
            )
        consumer = Consumer(
            settings.client()
            | {
                "group.id": f"mirror-{self.context.connector}",  # never committed: positions are kept here
                "enable.auto.commit": False,
                "auto.offset.reset": "error",  # nothing is passed over in silence
                "isolation.level": "read_committed",
                "enable.partition.eof": False,
            }
        )
        # Not "read_committed": a commit is answered before its markers are written, and until then the last stable
        # offset is where the transaction began. A topic that goes quiet then would keep that pair for good.
        probe = {"group.id": f"mirror-{self.context.connector}", "isolation.level": "read_uncommitted"}
        self._probe = Consumer({**self.context.client, **probe})
        try:
            if settings.sync_group_offsets_enabled:
                self._syncs = OffsetTopic(settings.source_cluster_alias, dict(self.context.client))
                self._translations = self._syncs.read(here, settings.replication_factor)
            assigned: set[tuple[str, int]] = set()
            refresh_at = sync_at = time.monotonic()
            while True:
                now = time.monotonic()
                if now >= refresh_at:
                    refresh_at = now + settings.refresh_topics_interval_seconds
                    self._refresh(there, here, consumer, assigned)
                if settings.sync_group_offsets_enabled and now >= sync_at:
                    sync_at = now + settings.sync_group_offsets_interval_seconds
                    self._sync_groups(there, here)
                if self._syncs is not None:
                    self._syncs.write(self._translations)
                found = self._batch(consumer) or self._quiet()
                self._turn += 1
                yield found or None
        finally:
            if self._syncs is not None:
                self._syncs.write(self._translations, at_once=True)
                self._syncs.close()
            consumer.close()
            self._probe.close()
            self._probe = None

    def committed(self, part: Part, position: Position) -> None:
        """Look at the end of the copy, which is a pair with the position if this worker still is the one that copies.

        This commit confirms the looks before it.
        """
        if not self.settings.sync_group_offsets_enabled or self._probe is None:
            return
        topic, partition = part["topic"], part["partition"]
        confirmed: dict[tuple[str, int], _Look] = {}
        for place, look in list(self._looks.items()):
            if look.turn < self._turn:
                del self._looks[place]
                if look.here is not None:
                    self._pair(*place, look.there, look.here)
                if look.beginning is not None and look.position is not None:
                    self._translations[place].begin(look.beginning)
                confirmed[place] = look
                if look.position is not None and place != (topic, partition) and self._is_last(place, look):
                    self._look_again(*place, look.position, look)
        self._look_again(topic, partition, position, confirmed.get((topic, partition)))

    def _look_again(self, topic: str, partition: int, position: Position, before: _Look | None) -> None:
        """Look at the end of a copy, and once more after the first look at a position has been confirmed.

        Then a marker may have come, which is one offset. Whatever else has come is of another producer.
        """
        from confluent_kafka import KafkaException

        place, there = (topic, partition), position["offset"]
        if self._settled.get(place) == there:
            return
        try:
            _, end = self._ends(topic, partition)
        except KafkaException as error:
            self.context.log.warning("no end of %s-%s, so that groups stay where they are: %s", topic, partition, error)
            self._look(topic, partition, position, None)
            return
        if before is None or before.here is None or before.there != there:
            self._look(topic, partition, position, end)
            return
        self._settled[place] = there
        if end == before.here + 1:
            self._look(topic, partition, position, end)

    def _look(
        self, topic: str, partition: int, position: Position | None, here: int | None, beginning: int | None = None
    ) -> None:
        wait_s = self.settings.sync_group_offsets_interval_seconds if here is None else _QUIET_S
        due = time.monotonic() + wait_s
        self._looks[topic, partition] = _Look(position, here, self._turn, due, beginning)

    def _quiet(self) -> list[Progress]:
        """The positions of partitions with a look that no record has followed: their commit confirms it."""
        now = time.monotonic()
        found = []
        for (topic, partition), look in self._looks.items():
            if look.position is None or now < look.due:
                continue
            if self._is_last((topic, partition), look):
                look.due = now + _QUIET_S
                found.append(Progress(position=look.position, part=self._part(topic, partition)))
        return found

    def _is_last(self, place: tuple[str, int], look: _Look) -> bool:
        """Whether no record has been handed on since."""
        return self._yielded.get(place, look.there) == look.there

    def _ends(self, topic: str, partition: int) -> tuple[int, int]:
        """The first and the next offset of a copy here. Raises KafkaException."""
        from confluent_kafka import TopicPartition

        assert self._probe is not None
        here = TopicPartition(self.settings.name_here(topic), partition)
        return self._probe.get_watermark_offsets(here, timeout=TIMEOUT_S)

    def _pair(self, topic: str, partition: int, there: int, here: int) -> None:
        translation = self._translations.setdefault((topic, partition), Translation())
        if translation.last == (there, here):
            return
        translation.add(there, here)
        if self._syncs is not None:
            self._syncs.add(topic, partition)

    def _seed(self, topic: str, partition: int, position: Position | None) -> None:
        """Pairs of offsets before the first record is copied: what is not copied yet will come after all that is here.

        A group from before the first pair that is known goes to the beginning here: it misses nothing.
        """
        from confluent_kafka import KafkaException

        there = 0 if position is None else position["offset"]
        try:
            beginning, end = self._ends(topic, partition)
        except KafkaException as error:
            raise Retriable(f"no end of {self.settings.name_here(topic)}-{partition} here: {error}") from error
        translation = self._translations.setdefault((topic, partition), Translation())
        if translation.is_beyond(there, end):
            translation = self._translations[topic, partition] = Translation()
            if self._syncs is not None:
                self._syncs.forget(topic, partition)
        self._settled[topic, partition] = there
        if end and translation.last != (there, end):
            self._look(topic, partition, position, end, beginning)
            return
        if position is not None:
            translation.begin(beginning)
        self._pair(topic, partition, there, end)

    def _refresh(
        self, there: "AdminClient", here: "AdminClient", consumer: "Consumer", assigned: set[tuple[str, int]]
    ) -> None:
        """Take on new topics and partitions, which are made here first."""
        from confluent_kafka import OFFSET_BEGINNING, TopicPartition

        all_there = count_partitions(there, self.settings.source_cluster_bootstrap_servers, self._refusals)
        counts = {
            name: count
            for name, count in all_there.items()
            if self.settings.mirrored(name) and not self.settings.has_come_round(name, all_there)
        }
        ids = known_ids(there, list(counts))
        for topic, known in self._ids.items():
            if ids.get(topic, known) != known:
                raise _made_again(topic)
        self._ids.update(ids)
        self._make(there, here, counts)
        if self._syncs is not None:
            self._drop_pairs_of_replaced_copies(here, counts)
        fresh = []
        for topic, count in counts.items():
            for partition in range(count):
                if (topic, partition) not in assigned:
                    assigned.add((topic, partition))
                    position = self.context.position(self._part(topic, partition))
                    if position is not None and position.get("topic_id", ids.get(topic)) != ids.get(topic):
                        raise _made_again(topic)
                    if self._syncs is not None:
                        self._seed(topic, partition, position)
                    fresh.append(TopicPartition(topic, partition, position["offset"] if position else OFFSET_BEGINNING))
        if fresh:
            consumer.incremental_assign(fresh)

    def _drop_pairs_of_replaced_copies(self, here: "AdminClient", topics: Iterable[str]) -> None:
        """Another copy of the same name has other offsets. It may have grown beyond the last pair of the former one, so
        that the offsets alone do not show it. Raises Retriable, ConnectError."""
        for topic in self._copies.replaced(here, {topic: self.settings.name_here(topic) for topic in topics}):
            self.context.log.warning("the copy of topic %s was deleted, and its pairs of offsets with it", topic)
            for place in [place for place in self._translations if place[0] == topic]:
                self._translations[place] = Translation()
                self._looks.pop(place, None)
                self._settled.pop(place, None)
                if self._syncs is not None:
                    self._syncs.forget(*place)

    def _make(self, there: "AdminClient", here: "AdminClient", counts: Mapping[str, int]) -> None:
        from confluent_kafka.admin import NewPartitions, NewTopic

        settings = self.settings
        have = count_partitions(here, "this cluster", [])
        configs = own_configs(there, list(counts)) if settings.sync_topic_configs_enabled else {}
        missing = {name: count for name, count in counts.items() if settings.name_here(name) not in have}
        topics = [
            NewTopic(
                settings.name_here(name),
                num_partitions=count,
                replication_factor=settings.replication_factor,
                config=configs.get(name, {}),
            )
            for name, count in missing.items()
        ]
        if topics:
            wait_for(here.create_topics(topics, request_timeout=TIMEOUT_S), "making topics here")
        wider = [
            NewPartitions(settings.name_here(name), count)
            for name, count in counts.items()
            if name not in missing and have[settings.name_here(name)] < count
        ]
        if wider:
            wait_for(here.create_partitions(wider, request_timeout=TIMEOUT_S), "adding partitions here")
        self._copy_configs(here, {name: each for name, each in configs.items() if name not in missing})

    def _copy_configs(self, here: "AdminClient", configs: Mapping[str, Mapping[str, str]]) -> None:
        """Settings that differ; those that were set here alone stay."""
        from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

        mine = own_configs(here, [self.settings.name_here(name) for name in configs])
        resources = []
        for name, wanted in configs.items():
            name_here = self.settings.name_here(name)
            changed = {key: value for key, value in wanted.items() if mine.get(name_here, {}).get(key) != value}
            if changed:
                entries = [
                    ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
                    for key, value in changed.items()
                ]
                resources.append(ConfigResource(ResourceType.TOPIC, name_here, incremental_configs=entries))
        if resources:
            answers = here.incremental_alter_configs(resources, request_timeout=TIMEOUT_S)
            wait_for(answers, "setting topics' settings here")

    def _batch(self, consumer: "Consumer") -> list[SourceRecord]:
        records = []
        for message in consumer.consume(self.settings.consumer_max_poll_records, timeout=_WAIT_S):
            error = message.error()
            if error is None:
                records.append(self._record(message))
            else:
                self._fail(message, error)
        return records

    def _fail(self, message: "Message", error: "KafkaError") -> None:
        from confluent_kafka import KafkaError

        if error.code() == KafkaError._AUTO_OFFSET_RESET or error.code() == KafkaError.OFFSET_OUT_OF_RANGE:
            raise ConnectError(
                f"{message.topic()}-{message.partition()} of the other cluster no longer has offset "
                f"{message.offset()}: "
                "its records were deleted before they were copied; change the connector's offsets to go on"
            )
        if error.code() not in (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._PARTITION_EOF):
            raise Retriable(f"reading from {self.settings.source_cluster_bootstrap_servers}: {error.str()}")

    def _record(self, message: "Message") -> SourceRecord:
        topic, partition, offset = str(message.topic()), int(message.partition() or 0), int(message.offset() or 0)
        self._yielded[topic, partition] = offset + 1
        kind, timestamp = message.timestamp()
        topic_id = self._ids.get(topic)
        headers = cast("list[tuple[str, bytes | None]]", message.headers() or [])
        return SourceRecord(
            topic=self.settings.name_here(topic),
            partition=partition,
            key=message.key(),
            value=message.value(),
            headers=tuple([Header(name, value) for name, value in headers]),
            timestamp=timestamp if kind else None,
            part=self._part(topic, partition),
            position={"offset": offset + 1, "topic_id": topic_id} if topic_id else {"offset": offset + 1},
        )

    def _part(self, topic: str, partition: int) -> Part:
        return {"cluster": self.settings.source_cluster_alias, "topic": topic, "partition": partition}

    def _sync_groups(self, there: "AdminClient", here: "AdminClient") -> None:
        """Move groups without members here to their offsets in the other cluster; never back."""
        from confluent_kafka import KafkaException

        try:
            listed = there.list_consumer_groups(request_timeout=TIMEOUT_S).result()
        except KafkaException as error:
            self.context.log.info("groups are copied next time: %s", error)
            return
        self._drop_pairs_of_replaced_copies(here, {topic for topic, _ in self._translations})
        for group in (each.group_id for each in listed.valid):
            if not any(pattern(each).fullmatch(group) for each in self.settings.groups):
                continue
            try:
                self._sync_group(there, here, group)
            except KafkaException as error:  # with members here it is where it wants to be; others go on
                self.context.log.info("group %s stays where it is: %s", group, error)

    def _sync_group(self, there: "AdminClient", here: "AdminClient", group: str) -> None:
        from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

        moved = []
        for each in committed_offsets(there, group):
            translation = self._translations.get((each.topic, each.partition))
            offset = translation.here(each.offset) if translation is not None else None
            if offset is not None:
                moved.append(TopicPartition(self.settings.name_here(each.topic), each.partition, offset))
        behind = {(each.topic, each.partition): each.offset for each in committed_offsets(here, group)} if moved else {}
        forward = [each for each in moved if behind.get((each.topic, each.partition), -1) < each.offset]
        if forward:
            request = [ConsumerGroupTopicPartitions(group, forward)]
            answers = here.alter_consumer_group_offsets(request, request_timeout=UNTIL_ANSWERED_S)
            for answer in answers.values():
                answered(answer, f"moving group {group}")


def _made_again(topic: str) -> ConnectError:
    return ConnectError(
        f"topic {topic} of the other cluster was deleted and created anew, so its offsets start over: delete the "
        "connector's offsets of its partitions to copy the new topic from its beginning, and restart the connector"
    )
