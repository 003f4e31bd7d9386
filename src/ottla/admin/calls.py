"""The calls of `Admin` and `AsyncAdmin`: one list, which each driver runs in its own way."""

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from typing import Any, Final, Generic, ParamSpec, Self, TypeVar, overload

from ottla.admin.operations import (
    acls,
    cluster,
    delegation_tokens,
    features,
    groups,
    machines,
    quorum,
    quotas,
    reassignments,
    share_groups,
    streams_groups,
    telemetry,
    transactions,
)
from ottla.admin.operations.core import Ask, Operation, Pause, Version
from ottla.client.errors import ClientError

CLIENT_ID: Final = "ottla-admin"
TIMEOUT_S: Final = 10.0
LARGEST_ANSWER_BYTES: Final = 256 << 20

P = ParamSpec("P")
T = TypeVar("T")


class Running(Generic[T]):
    """An operation that is being run: the command to carry out next and, when there is none left, the result."""

    def __init__(self, operation: Operation[T]) -> None:
        self._operation = operation
        self.result: T
        self.command = self._resumed(None)

    def resume(self, outcome: Any) -> None:
        """Hand in the outcome of `command`: its result, or the `ClientError` that it failed with.

        Raises what the operation raises.
        """
        self.command = self._resumed(outcome)

    def _resumed(self, outcome: Any) -> Ask | Version | Pause | None:
        try:
            if isinstance(outcome, ClientError):
                return self._operation.throw(outcome)
            return self._operation.send(outcome)
        except StopIteration as finished:
            self.result = finished.value
            return None


class BlockingDriver(ABC):
    """Runs operations in the thread that calls."""

    @abstractmethod
    def run(self, operation: Operation[T]) -> T:
        """Run one operation to its end; returns its result."""


class AsyncDriver(ABC):
    """Runs operations on an event loop."""

    @abstractmethod
    async def run(self, operation: Operation[T]) -> T:
        """Run one operation to its end; returns its result."""


class Call(Generic[P, T]):
    """An operation as a method of a driver: it returns the result, or a coroutine of it."""

    def __init__(self, operation: Callable[P, Operation[T]]) -> None:
        self._operation = operation
        self.__doc__ = operation.__doc__

    def __call__(
        self, driver: BlockingDriver | AsyncDriver, /, *args: P.args, **kwargs: P.kwargs
    ) -> T | Coroutine[Any, Any, T]:
        """Run the operation by a driver."""
        return driver.run(self._operation(*args, **kwargs))

    @overload
    def __get__(self, driver: None, owner: type) -> Self: ...
    @overload
    def __get__(self, driver: BlockingDriver, owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, driver: AsyncDriver, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...

    def __get__(
        self, driver: BlockingDriver | AsyncDriver | None, owner: type
    ) -> Self | Callable[P, T | Coroutine[Any, Any, T]]:
        if driver is None:
            return self
        return functools.wraps(self._operation)(functools.partial(self, driver))


class Calls:
    """Every call, as a method of the drivers that inherit it."""

    describe_cluster = Call(cluster.describe_cluster)
    describe_fenced_brokers = Call(machines.describe_fenced_brokers)
    describe_controllers = Call(machines.describe_controllers)
    list_log_ends = Call(cluster.list_log_ends)
    list_leader_ends = Call(cluster.list_leader_ends)
    describe_replicas = Call(cluster.describe_replicas)
    describe_log_directories = Call(cluster.describe_log_directories)
    describe_quorum = Call(quorum.describe_quorum)
    add_voter = Call(quorum.add_voter)
    remove_voter = Call(quorum.remove_voter)

    list_transactions = Call(transactions.list_transactions)
    describe_transaction = Call(transactions.describe_transaction)
    abort_transaction = Call(transactions.abort_transaction)
    list_open_transactions = Call(transactions.list_open_transactions)
    list_held_back = Call(transactions.list_held_back)
    find_hanging_transactions = Call(transactions.find_hanging_transactions)
    find_owner = Call(transactions.find_owner)
    abort_hanging_transaction = Call(transactions.abort_hanging_transaction)

    list_reassignments = Call(reassignments.list_reassignments)
    alter_reassignments = Call(reassignments.alter_reassignments)
    place_replicas = Call(reassignments.place_replicas)

    list_groups = Call(groups.list_groups)
    list_share_groups = Call(groups.list_share_groups)
    describe_share_group = Call(share_groups.describe_share_group)
    list_share_group_offsets = Call(share_groups.list_share_group_offsets)
    list_share_deliveries = Call(share_groups.list_share_deliveries)
    alter_share_group_offsets = Call(share_groups.alter_share_group_offsets)
    list_streams_groups = Call(groups.list_streams_groups)
    describe_streams_group = Call(streams_groups.describe_streams_group)
    list_group_offsets = Call(groups.list_group_offsets)
    list_offsets_of_groups = Call(groups.list_offsets_of_groups)
    delete_group_offsets = Call(groups.delete_group_offsets)
    remove_group_member = Call(groups.remove_group_member)
    describe_group_history = Call(groups.describe_group_history)
    delete_groups = Call(groups.delete_groups)

    list_acls = Call(acls.list_acls)
    create_acls = Call(acls.create_acls)
    delete_acls = Call(acls.delete_acls)

    create_delegation_token = Call(delegation_tokens.create_delegation_token)
    renew_delegation_token = Call(delegation_tokens.renew_delegation_token)
    expire_delegation_token = Call(delegation_tokens.expire_delegation_token)

    describe_features = Call(features.describe_features)
    update_features = Call(features.update_features)

    list_quotas = Call(quotas.list_quotas)
    alter_quotas = Call(quotas.alter_quotas)
    list_quota_use = Call(quotas.list_quota_use)

    list_subscriptions = Call(telemetry.list_subscriptions)
    alter_subscription = Call(telemetry.alter_subscription)
    delete_subscription = Call(telemetry.delete_subscription)
    list_telemetry_clients = Call(telemetry.list_telemetry_clients)
