"""A handler whose changes go into the audit log. It stands before the guard, whose refusals it sees in the answer."""

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from ottla.errors import ErrorCode, OttlaError
from ottla.protocol.schema import Message
from ottla.server.access.access import completed
from ottla.server.audit.audit_log import AuditLog, Change
from ottla.server.audit.changes import OfAnswer, Watch

if TYPE_CHECKING:
    from ottla.metadata.view import MetadataView
    from ottla.server.context import Deferred, RequestContext
    from ottla.server.routing import Answer, Handler


def audited(handler: "Handler", watch: Watch, audit: AuditLog, metadata: "MetadataView") -> "Handler":
    """The handler, with an event for each resource that an answer reports as changed, or as not to be changed."""

    def handle(request: Any, context: "RequestContext") -> "Answer":
        of_answer = watch(request, metadata)  # before a guard takes out what it refuses
        if of_answer is None:
            return handler(request, context)
        try:
            answer = handler(request, context)
        except Exception as problem:
            _note_failure(audit, context, problem)
            raise
        if isinstance(answer, Awaitable):
            return _noted_later(answer, of_answer, audit, context)
        return completed(answer, lambda response: audit.changed(context, of_answer(response)))

    return handle


async def _noted_later(
    answer: "Awaitable[Message | Deferred[Any] | None]",
    of_answer: OfAnswer,
    audit: AuditLog,
    context: "RequestContext",
) -> "Message | Deferred[Any] | None":
    try:
        found = await answer
    except Exception as problem:
        _note_failure(audit, context, problem)
        raise
    taken = completed(found, lambda response: audit.changed(context, of_answer(response)))
    assert not isinstance(taken, Awaitable)
    return taken


def _note_failure(audit: AuditLog, context: "RequestContext", problem: Exception) -> None:
    code = problem.code if isinstance(problem, OttlaError) else ErrorCode.UNKNOWN_SERVER_ERROR
    if not code.name.endswith("AUTHORIZATION_FAILED"):
        audit.changed(context, iter([Change("CLUSTER", "", code.name)]))
