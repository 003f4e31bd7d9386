"""The rights of the client that has sent a request, and how a handler is kept behind a guard.

A guard looks at a request before its handler does. It takes out of the request what the client has no right to, and
puts the refusals into the answer afterwards; or it refuses the request as a whole. A handler never learns of what was
taken out. Without an authorizer there are no guards, and they cost nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, MutableSequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from uuid import UUID

from ottla.ids import TopicId
from ottla.protocol.api import ApiKey
from ottla.protocol.primitives import NULL_UUID
from ottla.protocol.schema import Message
from ottla.security.acls import CLUSTER_NAME
from ottla.security.authorization import Operation, ResourceType
from ottla.server.access.refusals import RefusalLog
from ottla.server.context import Deferred

if TYPE_CHECKING:
    from ottla.metadata.view import MetadataView
    from ottla.security.acls import StandardAuthorizer
    from ottla.server.context import RequestContext
    from ottla.server.routing import Answer, Handler

ItemT = TypeVar("ItemT")

Complete = Callable[[Any], None]
"""Puts refusals into the answer of a handler."""
Verdict = Message | Complete | None
"""The answer of a request that is refused as a whole; what completes the handler's answer; or nothing to add."""


class Access(NamedTuple):
    """What a client may do, by the rules of this moment. Refusals are logged, unless they are looked for quietly."""

    authorizer: "StandardAuthorizer"
    metadata: "MetadataView"
    refusals: RefusalLog
    principal: str
    host: str
    listener: str
    api_key: ApiKey

    def may(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Whether the client may do this with a resource."""
        if self.authorizer.allows(self.principal, self.host, operation, kind, name):
            return True
        self.refusals.note(self, operation, kind, name)
        return False

    def sees(self, kind: ResourceType, name: str) -> bool:
        """Whether the client may describe a resource, which is left out of an answer otherwise; quietly."""
        return self.authorizer.allows(self.principal, self.host, Operation.DESCRIBE, kind, name)

    def has_cluster(self, operation: Operation) -> bool:
        """As `may_cluster`, quietly: another right is enough, too."""
        return self.authorizer.allows(self.principal, self.host, operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def may_cluster(self, operation: Operation) -> bool:
        """Whether the client may do this with the cluster."""
        return self.may(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def may_topic(self, operation: Operation, name: str) -> bool:
        """Whether the client may do this with a topic."""
        return self.may(operation, ResourceType.TOPIC, name)

    def may_create(self, name: str) -> bool:
        """Whether the client may create a topic."""
        return self.has_cluster(Operation.CREATE) or self.may_topic(Operation.CREATE, name)

    def may_group(self, operation: Operation, name: str) -> bool:
        """Whether the client may do this with a group."""
        return self.may(operation, ResourceType.GROUP, name)

    def may_any_topic(self, operation: Operation) -> bool:
        """Whether there can be a topic with which the client may do this."""
        return self.authorizer.allows_any(self.principal, self.host, operation, ResourceType.TOPIC)

    def operations(self, kind: ResourceType, name: str) -> int:
        """All that the client may do with a resource, as the bits of `authorizedOperations`."""
        return self.authorizer.allowed_operations(self.principal, self.host, kind, name)

    def name_of(self, name: str | None, topic_id: UUID) -> str | None:
        """The topic that a request gives the id of, or else names; None for an unknown id, which handlers refuse.

        The id goes first, as in handlers: a request with both must not get one topic by the right to another.
        """
        if topic_id == NULL_UUID:
            return name
        topic = self.metadata.image.topics_by_id.get(TopicId(topic_id))
        return None if topic is None else topic.name


MANY = 500
"""Topics, whose guard would hold the loop up for longer than a slice."""
FEW = 4
"""Topics, whose guard asks a slow authorizer in a thread."""
ASK_FOR_ALL = frozenset(
    {ApiKey.METADATA, ApiKey.DESCRIBE_TOPIC_PARTITIONS, ApiKey.LIST_GROUPS, ApiKey.LIST_TRANSACTIONS}
)
"""APIs whose answers may be about everything, however small their requests are."""

FEW_DECISIONS = frozenset(
    {
        ApiKey.FETCH,
        ApiKey.SHARE_FETCH,
        ApiKey.SHARE_ACKNOWLEDGE,
        ApiKey.JOIN_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.LEAVE_GROUP,
        ApiKey.WRITE_SHARE_GROUP_STATE,
    }
)
"""APIs whose guards decide once, however large a request is; fetches decide partition by partition, in slices."""

Guard = Callable[[Access, Any, "RequestContext"], Verdict]


def take_out(items: MutableSequence[ItemT], may: Callable[[ItemT], bool]) -> list[ItemT]:
    """Leave the items that the client may have; returns the others."""
    allowed: list[ItemT] = []
    refused: list[ItemT] = []
    for item in items:
        (allowed if may(item) else refused).append(item)
    if refused:
        items[:] = allowed
    return refused


def names(items: Iterable[Any]) -> set[str]:
    """The names of such items."""
    return {item.name for item in items}


def guarded(
    handler: "Handler",
    guard: Guard,
    authorizer: "StandardAuthorizer",
    metadata: "MetadataView",
    refusals: RefusalLog,
) -> "Handler":
    """The handler behind its guard."""

    def handle(request: Any, context: "RequestContext") -> "Answer":
        principal, host, listener = context.principal, context.client_host, context.listener
        access = Access(authorizer, metadata, refusals, principal, host, listener, context.api_key)
        if _is_dear(access, request, context):
            return _handle_slowly(handler, guard, access, request, context)
        verdict = guard(access, request, context)
        if verdict is None:
            return handler(request, context)
        if isinstance(verdict, Message):
            return verdict
        return completed(handler(request, context), verdict)

    return handle


def _is_dear(access: Access, request: Any, context: "RequestContext") -> bool:
    """Whether the guard may have thousands of decisions to make, which would hold the loop up."""
    if context.api_key is ApiKey.PRODUCE:
        return len(request.topic_data) > (FEW if access.authorizer.answers_slowly else MANY)
    if context.api_key in FEW_DECISIONS:
        return False
    if access.authorizer.answers_slowly:
        return True
    return context.is_large or (context.api_key in ASK_FOR_ALL and len(access.metadata.image.topics) > MANY)


async def _handle_slowly(
    handler: "Handler", guard: Guard, access: Access, request: Any, context: "RequestContext"
) -> "Message | Deferred[Any] | None":
    """Decide in a thread; no later request of the connection overtakes this one."""
    loop = asyncio.get_running_loop()
    release = context.hold_connection()
    try:
        verdict = await loop.run_in_executor(None, guard, access, request, context)
        if isinstance(verdict, Message):
            return verdict
        answer = handler(request, context)
    finally:
        release()
    found = await answer if isinstance(answer, Awaitable) else answer
    if isinstance(found, Deferred):
        found = await found.future()
    if verdict is not None and found is not None:
        await loop.run_in_executor(None, verdict, found)
    return found


def completed(answer: "Answer", complete: Complete) -> "Answer":
    """The answer, with which `complete` is called as soon as it is known."""
    if answer is None:
        return None
    if isinstance(answer, Message):
        complete(answer)
        return answer
    if isinstance(answer, Deferred):
        return _completed_later(answer, complete)
    return _completed_once_known(answer, complete)


async def _completed_once_known(
    answer: "Awaitable[Message | Deferred[Any] | None]", complete: Complete
) -> "Message | Deferred[Any] | None":
    found = await answer
    if isinstance(found, Deferred):
        return _completed_later(found, complete)
    if found is not None:
        complete(found)
    return found


def _completed_later(answer: Deferred[Any], complete: Complete) -> Deferred[Any]:
    later: Deferred[Any] = Deferred(keeps_request=answer.keeps_request)
    later.on_abandoned = answer.on_abandoned

    def deliver(response: Any) -> None:
        try:
            if isinstance(response, Message):
                complete(response)
        except Exception as error:  # its caller has others to answer
            response = error
        later.complete(response)

    answer.deliver_to(deliver)
    return later
