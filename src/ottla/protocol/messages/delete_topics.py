"""DeleteTopics: by name, since version 6 also by id.

3  TOPIC_DELETION_DISABLED
4  flexible
5  error messages; THROTTLING_QUOTA_EXCEEDED (KIP-599)
6  topics are structures with a name or an id
"""

from __future__ import annotations

from uuid import UUID

from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import NULL_UUID, Int16, Int32
from ottla.protocol.schema import Message, Struct, message, since, struct


@message(ApiKey.DELETE_TOPICS, versions=(1, 6), flexible=4)
class DeleteTopicsRequest(Message):
    topics: list[DeleteTopicState] = since(6, default_factory=list)
    topic_names: list[str] = since(until=5, default_factory=list, ignorable=True)
    timeout_ms: Int32


@struct
class DeleteTopicState(Struct):
    name: str | None = None
    topic_id: UUID


@message(ApiKey.DELETE_TOPICS, versions=(1, 6), flexible=4)
class DeleteTopicsResponse(Message):
    throttle_time_ms: Int32 = 0
    responses: list[DeletableTopicResult]


@struct
class DeletableTopicResult(Struct):
    name: str | None = since(nullable_since=6)
    topic_id: UUID = since(6, default=NULL_UUID, ignorable=True)
    error_code: Int16 = 0
    error_message: str | None = since(5, default=None, ignorable=True)
