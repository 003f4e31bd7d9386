"""Guards of requests that are allowed or refused as a whole."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.errors import ApiError, ErrorCode
from ottla.protocol.schema import Message
from ottla.security.authorization import Operation, ResourceType
from ottla.server.access.access import Access, Guard, Verdict
from ottla.server.failures import failure_response

if TYPE_CHECKING:
    from ottla.server.context import RequestContext

REFUSED = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
"""What a client is answered without a right to a resource."""
MESSAGES = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Transactional Id authorization failed.",
}
"""The sentences that Kafka sends along."""


def refusal(context: "RequestContext", code: ErrorCode, message: str | None = None) -> Message:
    """The answer of a request that is refused. Raises `ApiError` for an API whose answer has no room for an error."""
    text = MESSAGES.get(code, code.name) if message is None else message
    answer = failure_response(context.api_key, context.api_version, code, text)
    if answer is None:
        raise ApiError(code, text)
    return answer


def cluster(*operations: Operation, answer: Callable[[Any], Message] | None = None) -> Guard:
    """Requires one of these operations with the cluster. `answer` makes the refusal where the API has its own."""

    def guard(access: Access, request: Any, context: "RequestContext") -> Verdict:
        if any(access.may_cluster(operation) for operation in operations):
            return None
        if answer is not None:
            return answer(request)
        return refusal(context, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    return guard


def group(operation: Operation) -> Guard:
    """Requires an operation with the group that the request names."""

    def guard(access: Access, request: Any, context: "RequestContext") -> Verdict:
        if access.may_group(operation, request.group_id):
            return None
        return refusal(context, ErrorCode.GROUP_AUTHORIZATION_FAILED)

    return guard


def everybody(access: Access, request: Any, context: "RequestContext") -> Verdict:
    """Require nothing."""
    return None
