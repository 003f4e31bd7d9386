"""The progress of a query, where Kafka's tools look for it: as the committed offsets of a group.

Spark keeps its offsets in the checkpoint and nowhere else, so that `kafka-consumer-groups`, lag exporters and consoles
know nothing of a query. With `kafka.group.id` set, the group's offsets follow the checkpoint; they are never read, and
no member joins the group.
"""

import logging
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from ottla.spark.client_settings import ClientSettings, library
from ottla.spark.offsets import FlatOffsets

log = logging.getLogger(__name__)

DEFAULTS: Final = {"enable.auto.commit": False, "enable.auto.offset.store": False}


class GroupProgress:
    """Commits what is done. A commit that fails is logged and made up for by the next: it holds up no query."""

    def __init__(self, client: ClientSettings) -> None:
        """`client` names the group."""
        self._client = client
        self._consumer: Consumer | None = None
        self._told: FlatOffsets = {}

    def __reduce__(self) -> tuple[type["GroupProgress"], tuple[ClientSettings]]:
        """Tasks get a copy of the reader, and have no use for its connection."""
        return GroupProgress, (self._client,)

    def report(self, done: FlatOffsets) -> None:
        """All records before these offsets have been processed, and the checkpoint holds that."""
        news = {partition: offset for partition, offset in done.items() if self._told.get(partition) != offset}
        if not news:
            return
        try:
            if self._consumer is None:
                settings: dict[str, Any] = {**DEFAULTS, **library(self._client), "logger": log}
                self._consumer = Consumer(settings)
            offsets = [TopicPartition(each.topic, each.number, offset) for each, offset in news.items()]
            for outcome in self._consumer.commit(offsets=offsets, asynchronous=False) or ():
                if outcome.error is not None:
                    raise KafkaException(outcome.error)
        except KafkaException as error:
            group = dict(self._client).get("group.id")
            log.warning("the offsets of group %s could not be committed: %s", group, error.args[0].str())
            return
        self._told |= news

    def close(self) -> None:
        """End the connection."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None
