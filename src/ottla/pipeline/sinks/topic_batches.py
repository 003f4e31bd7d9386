"""Which micro-batch of a query a topic has last: asked of the marks that its tasks left (`ottla.spark.exactly_once`).

    group ottla-spark-<query id>-0    offset 8 of the topic's first partition: task 0 wrote micro-batch 7 last
    group ottla-spark-<query id>-1    offset 6: task 1 wrote micro-batch 5 last, and nothing since

The last one is the largest of all tasks'. Brokers forget marks after `offsets.retention.minutes`: no mark means little
where something was written longer ago than that.
"""

import logging
import time
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource

from ottla.pipeline.context import Outputs
from ottla.pipeline.sinks.base import SinkError, UncertainBatchError
from ottla.spark.client_settings import client_settings, library
from ottla.spark.errors import SourceError, UnknownTopicError
from ottla.spark.exactly_once import NAME_PREFIX
from ottla.spark.metadata import metadata_queries
from ottla.spark.offsets import Partition
from ottla.waiting import tries

_WITHIN_S: Final = 30.0
_SETTLED_WITHIN_S: Final = 5.0
_LOOK_AGAIN_S: Final = 0.25
_CLOCKS_DIFFER_BY_MS: Final = 60_000
_RETENTION: Final = "offsets.retention.minutes"
_GROUP: Final = "kafka.group.id"
_GUARANTEE: Final = "deliveryguarantee"
_WITHOUT_MARKS: Final = "at-least-once"

log = logging.getLogger(__name__)


def last_batch(topic: str, options: Mapping[str, str], query_id: str, outputs: Outputs) -> int | None:
    """The number of the last micro-batch of the query in the topic; None if it has written none since `since_ms`.

    `options` are the sink's own. Raises UncertainBatchError if marks may have been forgotten, or were never made;
    SinkError if the brokers do not answer.
    """
    given = {name.lower(): value for name, value in {**outputs.connection(), **options}.items()}
    client = client_settings({name: value for name, value in given.items() if name.startswith("kafka.")})
    settings = {name: value for name, value in client if f"kafka.{name}" != _GROUP}
    try:
        configuration: dict[str, Any] = {**library(settings.items()), "logger": log}
        admin = AdminClient(configuration)
        found = _marks(admin, topic, query_id)
        if found:
            return max(found)
        since_ms = outputs.since_ms - _CLOCKS_DIFFER_BY_MS
        if not _has_records_since(tuple(sorted(settings.items())), topic, since_ms):
            return None
        kept_ms = _kept_ms(admin)
    except (KafkaException, SourceError, TimeoutError) as error:
        reason = error.args[0].str() if isinstance(error, KafkaException) else str(error)
        raise SinkError(f"topic {topic!r} cannot be asked what it has of this query: {reason}") from error
    if given.get(_GUARANTEE, "").lower() == _WITHOUT_MARKS:
        raise UncertainBatchError(
            f"topic {topic!r} has records of the time since, and with deliveryGuarantee {_WITHOUT_MARKS} nothing shows "
            "whether they are of this query"
        )
    if kept_ms is not None and time.time() * 1000 - since_ms < kept_ms:
        return None  # a mark would still be there: others have written these records
    raise UncertainBatchError(
        f"topic {topic!r} has records of the time since, and the marks of its tasks, which would tell whether they are "
        f"of this query, may have been forgotten ({_RETENTION})"
    )


def _marks(admin: AdminClient, topic: str, query_id: str) -> list[int]:
    """The last micro-batch of each task that has written to the topic. Raises KafkaException."""
    listed = admin.list_consumer_groups(request_timeout=_WITHIN_S).result(_WITHIN_S)
    if listed.errors:
        raise KafkaException(listed.errors[0])  # the error by itself is no exception: nothing would catch it
    prefix = f"{NAME_PREFIX}-{query_id}-"
    groups = [each.group_id for each in listed.valid if each.group_id.startswith(prefix)]
    return [offset - 1 for offset in _committed(admin, topic, groups).values() if offset > 0]


def _committed(admin: AdminClient, topic: str, groups: list[str]) -> dict[str, int]:
    """The offset of each group, below 0 for none; those of transactions that are about to end are waited for.

    Raises KafkaException, or SinkError for a transaction that stays open: its mark may still be committed.
    """
    found: dict[str, int] = {}
    for _ in tries(_SETTLED_WITHIN_S, every_s=_LOOK_AGAIN_S):
        asked = {
            group: admin.list_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0)])],
                require_stable=True,
                request_timeout=_WITHIN_S,
            )[group]
            for group in groups
            if group not in found
        }
        for group, answer in asked.items():
            (offset,) = answer.result(_WITHIN_S).topic_partitions
            if offset.error is None:
                found[group] = offset.offset
            elif offset.error.code() != KafkaError.UNSTABLE_OFFSET_COMMIT:
                raise KafkaException(offset.error)
        if len(found) == len(groups):
            return found
    unsettled = next(group for group in groups if group not in found)
    raise SinkError(
        f"topic {topic!r} cannot be asked what it has of this query: a transaction of its tasks is still open, as "
        f"after a kill. Wait until it has ended (15 minutes at most), or end it: ottla txn abort {unsettled}"
    )


def _has_records_since(client: tuple[tuple[str, str], ...], topic: str, since_ms: int) -> bool:
    """Whether the topic has a record of that time or later; False if there is no such topic. Raises SourceError."""
    queries = metadata_queries(client, _WITHIN_S)
    try:
        partitions = queries.describe([topic])[topic].partitions
    except UnknownTopicError:
        return False
    found = queries.offsets({Partition(topic, number): max(0, since_ms) for number in partitions})
    for offset in found.values():
        if isinstance(offset, SourceError):
            raise offset
    return any(isinstance(offset, int) and offset >= 0 for offset in found.values())


def _kept_ms(admin: AdminClient) -> int | None:
    """How long brokers keep offsets; None if they do not say. Raises KafkaException."""
    brokers = admin.list_topics(timeout=_WITHIN_S).brokers
    resources = [ConfigResource(ConfigResource.Type.BROKER, str(number)) for number in brokers]
    kept = []
    for answer in admin.describe_configs(resources, request_timeout=_WITHIN_S).values():
        entry = answer.result(_WITHIN_S).get(_RETENTION)
        if entry is None or entry.value is None:
            return None
        kept.append(int(entry.value) * 60_000)
    return min(kept, default=None)
