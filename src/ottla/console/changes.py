"""What the console changes in a cluster, each by one request of Kafka's protocol, as the view's own user.

Every method raises KafkaException, ClientError or TimeoutError.
"""

from collections.abc import Mapping
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic, ResourceType

from ottla.client.partition import Partition
from ottla.console.cluster import TIMEOUT_S, ClusterView


class Changes:
    """Changes of a cluster. On one event loop."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view

    async def _all(self, futures: Mapping[Any, Any]) -> None:
        for future in futures.values():
            await self._view.wait(future)

    async def create_topic(
        self, name: str, partitions: int, replicas: int, settings: Mapping[str, str], *, dry_run: bool = False
    ) -> None:
        """Create a topic; -1 partitions or replicas are the broker's default. `dry_run`: have it checked alone."""
        topic = NewTopic(name, partitions, replicas, config=dict(settings))
        await self._all(
            self._view.library.create_topics(
                [topic], validate_only=dry_run, request_timeout=TIMEOUT_S, operation_timeout=TIMEOUT_S
            )
        )

    async def add_partitions(self, name: str, count: int) -> None:
        """Have a topic that many partitions in all."""
        await self._all(
            self._view.library.create_partitions(
                [NewPartitions(name, count)], request_timeout=TIMEOUT_S, operation_timeout=TIMEOUT_S
            )
        )

    async def set_topic_setting(self, topic: str, name: str, value: str | None) -> None:
        """Give a setting of a topic another value; None: the default again."""
        operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
        entry = ConfigEntry(name, value or "", incremental_operation=operation)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        await self._all(self._view.library.incremental_alter_configs([resource], request_timeout=TIMEOUT_S))

    async def trim(self, offsets: Mapping[Partition, int]) -> None:
        """Delete the records before these offsets."""
        wanted = [TopicPartition(*partition, offset) for partition, offset in offsets.items()]
        await self._all(
            self._view.library.delete_records(wanted, request_timeout=TIMEOUT_S, operation_timeout=TIMEOUT_S)
        )

    async def delete_topic(self, name: str) -> None:
        """Delete a topic with its records."""
        await self._all(
            self._view.library.delete_topics([name], request_timeout=TIMEOUT_S, operation_timeout=TIMEOUT_S)
        )

    async def seek(self, group: str, kind: str, offsets: Mapping[Partition, int]) -> None:
        """Move the positions of a group without members."""
        if kind == "share":
            async with self._view.admin() as admin:
                await admin.alter_share_group_offsets(group, offsets)
            return
        wanted = [TopicPartition(*partition, offset) for partition, offset in offsets.items()]
        request = [ConsumerGroupTopicPartitions(group, wanted)]
        (future,) = self._view.library.alter_consumer_group_offsets(request, request_timeout=TIMEOUT_S).values()
        for each in (await self._view.wait(future)).topic_partitions or ():
            if each.error is not None:
                raise KafkaException(each.error)

    async def delete_group(self, name: str) -> None:
        """Delete a group without members, with its positions."""
        async with self._view.admin() as admin:
            refused = await admin.delete_groups([name])
        for refusal in refused.values():
            raise refusal

    async def remove_member(self, group: str, kind: str, member: str) -> None:
        """Have a member leave its group."""
        async with self._view.admin() as admin:
            await admin.remove_group_member(group, member, group_type=kind)
