"""Guards: every API has one, failing ones let nothing through, refusals are logged, floods of them counted."""

import asyncio
import logging
from importlib import import_module
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from ottla.protocol.api import ApiKey
from ottla.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from ottla.security.acls import AccessRule, PermissionType, ResourcePattern, StandardAuthorizer
from ottla.security.authorization import Operation, ResourceType
from ottla.server.access.access import MANY, guarded
from ottla.server.access.guards import GUARDS
from ottla.server.access.refusals import LINES_A_SECOND, RefusalLog
from ottla.server.context import Deferred
from ottla.server.routing import CLUSTER_ROUTES, OWN_ROUTES, QUORUM_ROUTES, ROUTES, Handlers

GROUPS = ["a", "b", "c"]
BOB: Any = SimpleNamespace(principal="User:bob", host="10.0.0.1", listener="OUTSIDE", api_key=ApiKey.FETCH)


def context(api_key: ApiKey = ApiKey.LIST_GROUPS, *, is_large: bool = False) -> Any:
    held: list[str] = []

    def hold() -> Any:
        held.append("held")
        return lambda: held.append("released")

    return SimpleNamespace(
        api_key=api_key,
        api_version=5,
        principal="User:alice",
        client_host="10.0.0.1",
        listener="OUTSIDE",
        is_large=is_large,
        hold_connection=hold,
        held=held,
    )


def metadata(topics: int = 0) -> Any:
    return SimpleNamespace(image=SimpleNamespace(topics=range(topics), topics_by_id={}))


def listing() -> ListGroupsResponse:
    return ListGroupsResponse(groups=[ListedGroup(group_id=name, protocol_type="consumer") for name in GROUPS])


def only_b() -> StandardAuthorizer:
    authorizer = StandardAuthorizer()
    rule = AccessRule("User:alice", "*", Operation.DESCRIBE, PermissionType.ALLOW)
    authorizer.set_rules(ResourcePattern(ResourceType.GROUP, "b"), [rule])
    return authorizer


def behind(handler: Any, guard: Any = GUARDS[ApiKey.LIST_GROUPS], topics: int = 0) -> Any:
    return guarded(handler, guard, only_b(), metadata(topics), RefusalLog(lambda: 0.0))


def names(answer: Any) -> list[str]:
    return [group.group_id for group in answer.groups]


def test_every_api_has_a_guard() -> None:
    assert GUARDS.keys() == {**ROUTES, **CLUSTER_ROUTES, **QUORUM_ROUTES, **OWN_ROUTES}.keys()


def test_answers_of_every_kind_are_completed() -> None:
    request = ListGroupsRequest()
    assert names(behind(lambda *_: listing())(request, context())) == ["b"]

    async def later(*_: Any) -> ListGroupsResponse:
        return listing()

    assert names(asyncio.run(behind(later)(request, context()))) == ["b"]

    deferred: Deferred[Any] = Deferred()
    answers: list[Any] = []
    behind(lambda *_: deferred)(request, context()).deliver_to(answers.append)
    deferred.complete(listing())
    assert names(answers[0]) == ["b"]


@pytest.mark.parametrize("is_large", [False, True])
def test_many_decisions_are_made_in_a_thread_and_nothing_overtakes_them(is_large: bool) -> None:
    async def scenario() -> None:
        asked = context(is_large=is_large)
        answer = behind(lambda *_: listing(), topics=0 if is_large else MANY + 1)(ListGroupsRequest(), asked)
        assert names(await answer) == ["b"]
        assert asked.held == ["held", "released"]

    asyncio.run(scenario())


@pytest.mark.parametrize("api_key", [ApiKey.SHARE_FETCH, ApiKey.FETCH, ApiKey.JOIN_GROUP])
def test_a_large_request_with_one_decision_is_handled_at_once(api_key: ApiKey) -> None:
    asked = context(api_key, is_large=True)
    deferred: Deferred[Any] = Deferred()
    assert behind(lambda *_: deferred, lambda *_: None)(SimpleNamespace(), asked) is deferred
    assert asked.held == []


def test_a_guard_that_fails_lets_nothing_through() -> None:
    def failing(*_: Any) -> None:
        raise RuntimeError("a defect")

    called: list[Any] = []
    handle = behind(called.append, failing)
    with pytest.raises(RuntimeError):
        handle(ListGroupsRequest(), context())

    async def scenario() -> None:
        asked = context(is_large=True)
        with pytest.raises(RuntimeError):
            await handle(ListGroupsRequest(), asked)
        assert asked.held == ["held", "released"]

    asyncio.run(scenario())
    assert called == []


def test_a_failing_completion_is_an_error_and_no_answer() -> None:
    def incomplete(*_: Any) -> Any:
        def complete(_: Any) -> None:
            raise RuntimeError("a defect")

        return complete

    deferred: Deferred[Any] = Deferred()
    answers: list[Any] = []
    behind(lambda *_: deferred, incomplete)(ListGroupsRequest(), context()).deliver_to(answers.append)
    deferred.complete(listing())
    assert isinstance(answers[0], RuntimeError)


def test_floods_of_refusals_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    refusals = RefusalLog(lambda: now[0])
    with caplog.at_level(logging.INFO, "ottla.authorizer"):
        for number in range(LINES_A_SECOND + 30):
            refusals.note(BOB, Operation.READ, ResourceType.GROUP, f"x\n{number}" + "y" * 1000)
        assert len(caplog.messages) == LINES_A_SECOND
        assert caplog.messages[0].startswith("'User:bob' from 10.0.0.1 was refused READ on GROUP 'x\\n0yyy")
        assert len(caplog.messages[0]) < 400
        now[0] = 1.0
        refusals.note(BOB, Operation.READ, ResourceType.GROUP, "x")
        assert caplog.messages[-2] == "30 more refusals, of which no line was written"


def test_without_authorizer_and_audit_log_handlers_are_bound_as_they_are() -> None:
    """What is switched off costs nothing: neither a guard nor a note stands before a handler."""
    services: Any = MagicMock(acls=None, audit=None, cluster=None)
    for route in (*ROUTES.values(), *CLUSTER_ROUTES.values(), *OWN_ROUTES.values()):
        module = import_module(route.handler_module)
        found = Handlers(services)[route.api_key]
        assert getattr(found, "func", found) is module.handle
