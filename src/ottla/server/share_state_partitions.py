"""What the requests to the share coordinator have in common: partitions by topic id, each answered on its own."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol, TypeVar
from uuid import UUID

from ottla.errors import ApiError, ErrorCode, OttlaError
from ottla.ids import GroupId, PartitionId, TopicId
from ottla.server.context import RequestContext
from ottla.share.state import SharePartitionKey
from ottla.slices import Slices


class Asked(Protocol):
    """One partition of a request."""

    @property
    def partition(self) -> int: ...


AskedT = TypeVar("AskedT", bound=Asked)
ResultT = TypeVar("ResultT")


class AskedTopic(Protocol[AskedT]):
    """One topic of a request."""

    @property
    def topic_id(self) -> UUID: ...

    @property
    def partitions(self) -> list[AskedT]: ...


async def answer_each(
    slices: Slices,
    context: RequestContext,
    group_id: str,
    topics: Iterable[AskedTopic[AskedT]],
    ask: Callable[[SharePartitionKey, AskedT], Awaitable[ResultT]],
    refuse: Callable[[AskedT, OttlaError], ResultT],
) -> list[tuple[UUID, list[ResultT]]]:
    """The results of `ask` for every partition, or of `refuse` where no coordinator answered, or the requester is no
    broker; in the request's order.

    A request that names no group, no topics or a topic without partitions is answered with nothing, as Kafka does.
    """
    asked = [(topic.topic_id, partition) for topic in topics for partition in topic.partitions]
    if not group_id or not all(topic.partitions for topic in topics):
        return []

    async def one(asked: tuple[UUID, AskedT]) -> ResultT:
        topic_id, partition = asked
        key = SharePartitionKey(GroupId(group_id), TopicId(topic_id), PartitionId(partition.partition))
        try:
            if not context.from_broker:
                raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "only registered brokers may send this")
            return await ask(key, partition)
        except OttlaError as error:
            return refuse(partition, error)

    results = await slices.together(one, asked)
    answers: dict[UUID, list[ResultT]] = {}
    for (topic_id, _), result in zip(asked, results, strict=True):
        answers.setdefault(topic_id, []).append(result)
    return list(answers.items())
