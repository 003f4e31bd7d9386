"""What all operations are made of: commands to the driver, and how to find the right broker. PURE.

An operation is a generator. It yields commands (`Ask`, `Version`, `Pause`), is sent their results, and returns its own
result; a `ClientError` is thrown into it where a command fails. The drivers are `ottla.admin.blocking` and
`ottla.admin.asynchronous`.
"""

from collections.abc import Callable, Generator, Iterable
from typing import Any, Final, NamedTuple, TypeVar

from ottla.admin.errors import NotFound, RequestRefused, refusal
from ottla.client.addresses import Address
from ottla.client.errors import ClientError, UnsupportedRequest
from ottla.client.partition import Partition
from ottla.errors import ErrorCode
from ottla.protocol.api import ApiKey
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.protocol.schema import Message

GROUP: Final = 0
TRANSACTION: Final = 1
"""What a coordinator is looked for by; the numbers are FindCoordinator's key types."""
PAUSE_S: Final = 0.1
_ONE_KEY_UNTIL: Final = 3
_COORDINATOR_MOVES: Final = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)
"""Pass by themselves, within seconds."""


class Ask(NamedTuple):
    """Send a request to a broker, None for any one; the result is its answer.

    It is sent in the newest version that both ends know, not above `newest`.
    """

    request: Message
    to: Address | None = None
    newest: int | None = None


class Version(NamedTuple):
    """The result is the newest version of an API that a broker and this program know."""

    api_key: ApiKey
    to: Address | None = None


class Pause(NamedTuple):
    """Wait; the result is whether there is time left for another try."""

    seconds: float = PAUSE_S


T = TypeVar("T")
Operation = Generator[Ask | Version | Pause, Any, T]


def brokers() -> Operation[dict[int, Address]]:
    """The brokers that are alive, by id."""
    answer: MetadataResponse = yield Ask(MetadataRequest(topics=[]))
    return addresses(answer)


def addresses(answer: MetadataResponse) -> dict[int, Address]:
    """The brokers that an answer names, by id."""
    return {broker.node_id: Address(broker.host, broker.port) for broker in answer.brokers}


def by_topic(partitions: Iterable[Partition]) -> dict[str, list[int]]:
    """Sorted numbers of partitions, by topic."""
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        topics.setdefault(topic, []).append(number)
    return topics


def leaders(partitions: Iterable[Partition]) -> Operation[dict[Partition, Address]]:
    """The leader of each of these partitions; one without a leader, or that does not exist, is left out."""
    wanted = set(partitions)
    if not wanted:
        return {}
    topics = [MetadataRequestTopic(name=name) for name in by_topic(wanted)]
    answer: MetadataResponse = yield Ask(MetadataRequest(topics=topics, allow_auto_topic_creation=False))
    alive = addresses(answer)
    return {
        partition: alive[found.leader_id]
        for topic in answer.topics
        for found in topic.partitions
        if (partition := Partition(str(topic.name), found.partition_index)) in wanted and found.leader_id in alive
    }


def coordinator(key: str, kind: int) -> Operation[Address]:
    """The broker that coordinates a group or a transactional id. Raises `RequestRefused`."""
    version: int = yield Version(ApiKey.FIND_COORDINATOR)
    while True:
        if version > _ONE_KEY_UNTIL:
            answer = yield Ask(FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]))
            found = answer.coordinators[0]
        else:
            found = yield Ask(FindCoordinatorRequest(key=key, key_type=kind))
        if not found.error_code:
            return Address(found.host, found.port)
        if found.error_code not in _COORDINATOR_MOVES or not (yield Pause()):
            reason = refusal(found.error_code, found.error_message)
            raise RequestRefused(f"the coordinator of {key!r} cannot be found: {reason}", found.error_code)


def ask_coordinator(
    key: str, kind: int, request: Message, code: Callable[[Any], int], newest: int | None = None
) -> Operation[Any]:
    """The coordinator's answer; asked again while it moves or loads. `code` finds the error code in an answer."""
    while True:
        answer = yield Ask(request, (yield from coordinator(key, kind)), newest)
        if code(answer) not in _COORDINATOR_MOVES or not (yield Pause()):
            return answer


def ask_about_group(name: str, request: Message, failure: str, newest: int | None = None) -> Operation[Any]:
    """The coordinator's answer about one group. `failure` begins the sentence of a refusal.

    Raises `NotFound`, `RequestRefused`, `ClientError`.
    """
    answer = yield from ask_coordinator(name, GROUP, request, lambda answer: int(answer.groups[0].error_code), newest)
    (group,) = answer.groups
    if group.error_code:
        kind = NotFound if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND else RequestRefused
        why = refusal(group.error_code, getattr(group, "error_message", None))
        raise kind(f"{failure}: {why}", group.error_code)
    return group


def ask_controller(request: Message) -> Operation[Any]:
    """The controller's answer; another one may become it meanwhile. Raises `ClientError` if none answers in time."""
    while True:
        problem: ClientError | str = "it is being elected"
        try:
            answer: MetadataResponse = yield Ask(MetadataRequest(topics=[]))
            address = addresses(answer).get(answer.controller_id)
            if address is not None:
                response = yield Ask(request, address)
                if response.error_code != ErrorCode.NOT_CONTROLLER:
                    return response
        except UnsupportedRequest:
            raise
        except ClientError as error:
            problem = error
        if not (yield Pause()):
            raise RequestRefused(f"the controller of the cluster does not answer: {problem}", ErrorCode.NOT_CONTROLLER)
