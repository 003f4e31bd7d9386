"""Operations without brokers: each command is answered from a script."""

from collections.abc import Callable, Generator
from typing import Any, TypeVar

import pytest

from ottla.admin import NotFound, OpenTransaction, Partition, RequestRefused
from ottla.admin.errors import error_name, refusal
from ottla.admin.operations import features, groups, reassignments, transactions
from ottla.admin.operations.core import Ask, Pause, Version
from ottla.client.addresses import Address
from ottla.client.errors import BrokerUnavailable, ClientError
from ottla.errors import ErrorCode
from ottla.protocol.messages.api_versions import ApiVersionsResponse, FinalizedFeatureKey, SupportedFeatureKey
from ottla.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from ottla.protocol.messages.describe_transactions import DescribeTransactionsResponse, TopicData, TransactionState
from ottla.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from ottla.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsResponse
from ottla.protocol.messages.list_transactions import ListTransactionsResponse
from ottla.protocol.messages.list_transactions import TransactionState as Listed
from ottla.protocol.messages.metadata import MetadataResponse, MetadataResponseBroker
from ottla.protocol.messages.update_features import UpdateFeaturesResponse

T = TypeVar("T")
BROKERS = [MetadataResponseBroker(node_id=number, host=f"b{number}", port=9) for number in (1, 2)]
METADATA = MetadataResponse(brokers=BROKERS, topics=[], controller_id=2)
NO_TIME_LEFT = 3
"""Pauses, after which there is no time for another try."""


def run(operation: Generator[Any, Any, T], answer: Callable[[str, Ask], Any], version: int = 6) -> tuple[T, list[str]]:
    """The result, and the requests that were sent, each with its broker."""
    sent: list[str] = []
    pauses = 0
    result: Any = None
    problem: Exception | None = None
    while True:
        try:
            command = operation.send(result) if problem is None else operation.throw(problem)
        except StopIteration as finished:
            return finished.value, sent
        result, problem = None, None
        if isinstance(command, Pause):
            pauses += 1
            result = pauses < NO_TIME_LEFT
        elif isinstance(command, Version):
            result = version
        else:
            name = type(command.request).__name__.removesuffix("Request")
            sent.append(name if command.to is None else f"{name} {command.to.host}")
            try:
                result = answer(name, command)
            except ClientError as error:
                problem = error


def coordinator(host: str, error: int = 0) -> FindCoordinatorResponse:
    found = Coordinator(key="g", node_id=1, host=host, port=9, error_code=error, error_message=None)
    return FindCoordinatorResponse(coordinators=[found])


def deleted(code: int) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(results=[DeletableGroupResult(group_id="g", error_code=code)])


def test_a_coordinator_that_moves_is_looked_for_again() -> None:
    answers: dict[str, list[Any]] = {
        "FindCoordinator": [coordinator("a"), coordinator("", ErrorCode.COORDINATOR_NOT_AVAILABLE), coordinator("b")],
        "DeleteGroups": [deleted(ErrorCode.NOT_COORDINATOR), deleted(0)],
    }
    refused, sent = run(groups.delete_groups(["g"]), lambda name, _: answers[name].pop(0))
    assert refused == {}
    assert sent == ["FindCoordinator", "DeleteGroups a", "FindCoordinator", "FindCoordinator", "DeleteGroups b"]


def test_a_coordinator_is_not_looked_for_without_end() -> None:
    lost = coordinator("", ErrorCode.COORDINATOR_NOT_AVAILABLE)
    with pytest.raises(
        RequestRefused, match="the coordinator of 'g' cannot be found: its coordinator is not"
    ) as raised:
        run(groups.delete_groups(["g"]), lambda *_: lost)
    assert raised.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_what_cannot_be_deleted_is_returned_with_the_reason() -> None:
    def answer(name: str, _: Ask) -> Any:
        return coordinator("a") if name == "FindCoordinator" else deleted(ErrorCode.GROUP_ID_NOT_FOUND)

    refused, _ = run(groups.delete_groups(["g"]), answer)
    assert isinstance(refused["g"], NotFound)
    assert str(refused["g"]) == "the group does not exist"


def test_the_controller_is_asked_wherever_it_is() -> None:
    controllers = iter((None, 1, 2))

    def answer(name: str, command: Ask) -> Any:
        if name == "Metadata":
            now = next(controllers)
            if now is None:
                raise BrokerUnavailable("b1 has hung up")
            return MetadataResponse(brokers=BROKERS, topics=[], controller_id=now)
        is_controller = command.to == Address("b2", 9)
        code = ErrorCode.NONE if is_controller else ErrorCode.NOT_CONTROLLER
        return ListPartitionReassignmentsResponse(error_code=code, error_message=None, topics=[])

    found, sent = run(reassignments.list_reassignments(), answer)
    assert found == {}
    assert sent[-2:] == ["Metadata", "ListPartitionReassignments b2"]


def test_a_cluster_without_a_controller_is_reported() -> None:
    def answer(*_: Any) -> Any:
        raise BrokerUnavailable("b1 has hung up")

    with pytest.raises(RequestRefused, match="the controller of the cluster does not answer: b1 has hung up"):
        run(reassignments.list_reassignments(), answer)


def test_a_transaction_that_a_coordinator_knows_is_not_aborted_in_one_partition() -> None:
    state = TransactionState(
        transactional_id="app",
        transaction_state="Ongoing",
        transaction_timeout_ms=1,
        transaction_start_time_ms=1,
        producer_id=7,
        producer_epoch=0,
        topics=[TopicData(topic="t", partitions=[0])],
    )

    def answer(name: str, command: Ask) -> Any:
        if name == "Metadata":
            return METADATA
        if name == "ListTransactions":
            ids = [Listed(transactional_id="app", producer_id=7, transaction_state="Ongoing")]
            return ListTransactionsResponse(
                unknown_state_filters=[], transaction_states=ids if command.to == Address("b1", 9) else []
            )
        return DescribeTransactionsResponse(transaction_states=[state])

    known = OpenTransaction(Partition("t", 0), 7, 0, 0, 5, 1)
    with pytest.raises(RequestRefused, match=r"is not hanging, its coordinator knows it: .* 'app'"):
        run(transactions.abort_hanging_transaction(known), answer)
    elsewhere = OpenTransaction(Partition("t", 1), 7, 0, 0, 5, 1)
    owner, sent = run(transactions.find_owner(elsewhere), answer)
    assert owner is None
    assert sent == ["Metadata", "ListTransactions b1", "DescribeTransactions b1", "ListTransactions b2"]


def test_a_lower_feature_level_is_a_downgrade_and_an_unknown_feature_changes_nothing() -> None:
    asked: list[Any] = []

    def answer(name: str, command: Ask) -> Any:
        if name == "Metadata":
            return METADATA
        if name == "ApiVersions":
            return ApiVersionsResponse(
                api_keys=[],
                supported_features=[SupportedFeatureKey(name=name, min_version=0, max_version=2) for name in "ab"],
                finalized_features=[FinalizedFeatureKey(name="a", max_version_level=2, min_version_level=0)],
            )
        asked.extend((each.feature, each.upgrade_type) for each in command.request.feature_updates)  # type: ignore[attr-defined]
        return UpdateFeaturesResponse(error_code=0, error_message=None, results=[])

    run(features.update_features({"a": 1, "b": 1}), answer)
    assert asked == [("a", 2), ("b", 1)]
    with pytest.raises(NotFound, match="there is no feature 'c'"):
        run(features.update_features({"c": 1}), answer)
    assert len(asked) == 2


def test_codes_become_sentences() -> None:
    assert refusal(ErrorCode.GROUP_ID_NOT_FOUND) == "the group does not exist"
    assert refusal(ErrorCode.GROUP_ID_NOT_FOUND, "Group readers not found.") == "Group readers not found"
    assert refusal(ErrorCode.INVALID_PARTITIONS) == "invalid partitions"
    assert (error_name(69), error_name(12345)) == ("GROUP_ID_NOT_FOUND", "error 12345")
    assert RequestRefused("no", 12345).code == ErrorCode.UNKNOWN_SERVER_ERROR
