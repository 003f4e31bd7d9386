"""Every version of every API of the transaction coordinator over a socket, and the feature levels behind them."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.eventually import eventually
from tests.support.raw_client import ask

from ottla.errors import ErrorCode
from ottla.protocol.api import ApiKey
from ottla.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.describe_transactions import DescribeTransactionsRequest
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.list_transactions import ListTransactionsRequest
from ottla.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.protocol.schema import Message
from ottla.server.routing import ROUTES
from ottla.testing import Broker

FENCED_WORDS = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)
TRANSACTION = 1


class Client:
    """Asks the broker at `bootstrap`."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def ask(self, request: Message, version: int) -> Any:
        return ask(self.bootstrap, request, version, client_id="tester")

    def init(self, name: str, version: int = 5, **had: int) -> Any:
        return self.ask(
            InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000, **had),  # type: ignore[arg-type]
            version,
        )

    def add(self, name: str, producer: Any, *partitions: int, version: int = 3, topic: str = "t") -> list[int]:
        """The errors, partition by partition."""
        topics = [AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))]
        if version < 4:
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=name,
                v3_and_below_producer_id=producer.producer_id,
                v3_and_below_producer_epoch=producer.producer_epoch,
                v3_and_below_topics=topics,
            )
            (result,) = self.ask(request, version).results_by_topic_v3_and_below
        else:
            result = self.add_several(self.wish(name, producer, topics), version=version)[name]
        return [partition.partition_error_code for partition in result.results_by_partition]

    def wish(
        self, name: str, producer: Any, topics: list[AddPartitionsToTxnTopic], *, verify_only: bool = False
    ) -> AddPartitionsToTxnTransaction:
        return AddPartitionsToTxnTransaction(
            transactional_id=name,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            verify_only=verify_only,
            topics=topics,
        )

    def add_several(self, *wishes: AddPartitionsToTxnTransaction, version: int) -> dict[str, Any]:
        response = self.ask(AddPartitionsToTxnRequest(transactions=list(wishes)), version)
        assert response.error_code == 0
        return {result.transactional_id: result.topic_results[0] for result in response.results_by_transaction}

    def end(self, name: str, producer: Any, *, committed: bool, version: int) -> Any:
        request = EndTxnRequest(
            transactional_id=name,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            committed=committed,
        )
        return self.ask(request, version)

    def describe(self, name: str) -> Any:
        (found,) = self.ask(DescribeTransactionsRequest(transactional_ids=[name]), 0).transaction_states
        return found


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(config={"transaction.state.log.num.partitions": "3", "offsets.topic.num.partitions": "3"}) as broker:
        client = Client(broker.bootstrap)
        topic = CreatableTopic(name="t", num_partitions=3, replication_factor=1, assignments=[], configs=[])
        client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
        for key_type in (0, TRANSACTION):
            client.ask(FindCoordinatorRequest(key_type=key_type, coordinator_keys=["any"]), 4)
        eventually(
            lambda: client.ask(ListTransactionsRequest(state_filters=[], producer_id_filters=[]), 0).error_code == 0
        )
        yield broker


@pytest.fixture
def client(broker: Broker) -> Client:
    return Client(broker.bootstrap)


def versions(api_key: ApiKey) -> range:
    route = ROUTES[api_key]
    return range(route.min_version, route.max_version + 1)


@pytest.mark.parametrize("version", versions(ApiKey.INIT_PRODUCER_ID))
def test_a_producer_starts_and_goes_on(client: Client, version: int) -> None:
    name = f"init-{version}"
    first, second = client.init(name, version), client.init(name, version)
    assert (first.error_code, first.producer_epoch) == (0, 0)
    assert (second.error_code, second.producer_epoch, second.producer_id) == (0, 1, first.producer_id)
    if version >= 3:
        went_on = client.init(name, version, producer_id=second.producer_id, producer_epoch=1)
        assert (went_on.error_code, went_on.producer_epoch) == (0, 2)
        fenced = client.init(name, version, producer_id=second.producer_id, producer_epoch=0)
        assert (fenced.error_code, fenced.producer_id, fenced.producer_epoch) == (FENCED_WORDS[version >= 4], -1, -1)


@pytest.mark.parametrize("version", versions(ApiKey.INIT_PRODUCER_ID))
def test_a_producer_without_an_id_is_a_new_one_each_time(client: Client, version: int) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-1)
    first, second = client.ask(request, version), client.ask(request, version)
    assert (first.error_code, first.producer_epoch) == (second.error_code, second.producer_epoch) == (0, 0)
    assert first.producer_id != second.producer_id


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1), ErrorCode.INVALID_REQUEST),
        (
            InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1, producer_id=7),
            ErrorCode.INVALID_REQUEST,
        ),
        (
            InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1, producer_epoch=7),
            ErrorCode.INVALID_REQUEST,
        ),
        (InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=0), ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (
            InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=900_001),
            ErrorCode.INVALID_TRANSACTION_TIMEOUT,
        ),
    ],
)
def test_starts_that_are_refused(client: Client, request_: InitProducerIdRequest, error: ErrorCode) -> None:
    assert client.ask(request_, 5).error_code == error
    assert client.describe("x").error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


@pytest.mark.parametrize("version", versions(ApiKey.ADD_PARTITIONS_TO_TXN))
def test_partitions_are_added(client: Client, version: int) -> None:
    name = f"add-{version}"
    old, producer = client.init(name), client.init(name)
    assert client.add(name, producer, 0, 2, version=version) == [0, 0]
    found = client.describe(name)
    assert (found.transaction_state, found.topics[0].topic, found.topics[0].partitions) == ("Ongoing", "t", [0, 2])
    assert client.add(name, old, 1, version=version) == [FENCED_WORDS[version >= 2]]
    assert client.add("nobody", producer, 1, version=version) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    assert client.add("", producer, 1, version=version) == [ErrorCode.INVALID_REQUEST]
    nowhere = [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert client.add(name, producer, 1, 7, version=version) == nowhere
    internal = 0 if version >= 4 else ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert client.describe(name).topics[0].partitions == [0, 2]
    assert client.add(name, producer, 1, version=version, topic="__consumer_offsets") == [internal]
    client.end(name, producer, committed=False, version=4)


@pytest.mark.parametrize("version", [4, 5])
def test_brokers_verify_for_several_producers_at_once(client: Client, version: int) -> None:
    producers = {name: client.init(name) for name in (f"verified-{version}", f"other-{version}")}
    name, other_name = producers
    producer = producers[name]
    assert client.add(name, producer, 0) == [0]
    topics = [AddPartitionsToTxnTopic(name="t", partitions=[0, 1])]
    wishes = [client.wish(who, what, topics, verify_only=True) for who, what in producers.items()]
    answers = client.add_several(*wishes, version=version)
    abortable = ErrorCode.TRANSACTION_ABORTABLE
    assert {found.partition_index: found.partition_error_code for found in answers[name].results_by_partition} == {
        0: 0,
        1: abortable,
    }
    assert [found.partition_error_code for found in answers[other_name].results_by_partition] == [abortable] * 2
    assert client.describe(other_name).transaction_state == "Empty"
    client.end(name, producer, committed=False, version=4)


@pytest.mark.parametrize("version", versions(ApiKey.ADD_OFFSETS_TO_TXN))
def test_offsets_are_added(client: Client, version: int) -> None:
    name = f"offsets-{version}"
    old, producer = client.init(name), client.init(name)

    def add(by: Any, to: str = name) -> int:
        request = AddOffsetsToTxnRequest(
            transactional_id=to, producer_id=by.producer_id, producer_epoch=by.producer_epoch, group_id="g"
        )
        error: int = client.ask(request, version).error_code
        return error

    assert add(old) == FENCED_WORDS[version >= 2]
    assert add(producer, "nobody") == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert add(producer, "") == ErrorCode.INVALID_REQUEST
    assert add(producer) == 0
    (topic,) = client.describe(name).topics
    assert (topic.topic, len(topic.partitions)) == ("__consumer_offsets", 1)
    client.end(name, producer, committed=False, version=4)


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("version", versions(ApiKey.END_TXN))
def test_a_transaction_ends(client: Client, version: int, committed: bool) -> None:
    name = f"end-{version}-{committed}"
    old, producer = client.init(name), client.init(name)
    assert client.end(name, producer, committed=True, version=version).error_code == ErrorCode.INVALID_TXN_STATE
    client.add(name, producer, 0)
    assert client.end(name, old, committed=committed, version=version).error_code == FENCED_WORDS[version >= 2]
    ended = client.end(name, producer, committed=committed, version=version)
    granted = (producer.producer_id, producer.producer_epoch + 1) if version >= 5 else (-1, -1)
    assert (ended.error_code, ended.producer_id, ended.producer_epoch) == (0, *granted)
    again = client.end(name, producer, committed=committed, version=version)
    assert (again.error_code, again.producer_id, again.producer_epoch) == (0, *granted)
    label = "CompleteCommit" if committed else "CompleteAbort"
    assert client.describe(name).transaction_state == label
    assert client.end("", producer, committed=True, version=version).error_code == ErrorCode.INVALID_REQUEST
    other_way = client.end(name, producer, committed=not committed, version=version)
    assert other_way.error_code == ErrorCode.INVALID_TXN_STATE


def test_transactions_are_described(client: Client) -> None:
    producer = client.init("described")
    client.add("described", producer, 1, 0)
    asked = DescribeTransactionsRequest(transactional_ids=["described", "", "nobody"])
    found, empty, nobody = client.ask(asked, 0).transaction_states
    assert (found.error_code, found.transaction_state, found.transaction_timeout_ms) == (0, "Ongoing", 60_000)
    assert (found.producer_id, found.producer_epoch) == (producer.producer_id, producer.producer_epoch)
    assert found.transaction_start_time_ms > 0
    assert [(topic.topic, topic.partitions) for topic in found.topics] == [("t", [0, 1])]
    assert (empty.transactional_id, empty.error_code) == ("", ErrorCode.INVALID_REQUEST)
    assert (nobody.transactional_id, nobody.error_code) == ("nobody", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    client.end("described", producer, committed=False, version=5)


@pytest.mark.parametrize("version", versions(ApiKey.LIST_TRANSACTIONS))
def test_transactions_are_listed(client: Client, version: int) -> None:
    name = f"listed-{version}"
    producer = client.init(name)
    client.add(name, producer, 0)

    def listed(**filters: Any) -> set[str]:
        request = ListTransactionsRequest(**{"state_filters": [], "producer_id_filters": [], **filters})
        response = client.ask(request, version)
        assert (response.error_code, response.unknown_state_filters) == (0, [])
        return {state.transactional_id for state in response.transaction_states}

    assert name in listed()
    assert name in listed(state_filters=["Ongoing"])
    assert name not in listed(state_filters=["Empty"])
    assert listed(producer_id_filters=[producer.producer_id]) == {name}
    if version >= 1:
        assert name not in listed(duration_filter=600_000)
    if version >= 2:
        assert listed(transactional_id_pattern=f"l.*-{version}") == {name}
    unknown = ListTransactionsRequest(state_filters=["Nonsense", "Ongoing"], producer_id_filters=[])
    assert client.ask(unknown, version).unknown_state_filters == ["Nonsense"]
    client.end(name, producer, committed=False, version=5)


def test_a_bad_pattern_lists_nothing(client: Client) -> None:
    asked = ListTransactionsRequest(state_filters=[], producer_id_filters=[], transactional_id_pattern="(")
    response = client.ask(asked, 2)
    assert (response.error_code, response.transaction_states) == (ErrorCode.INVALID_REGULAR_EXPRESSION, [])


# --- feature levels ---


def features(client: Client, version: int = 4) -> tuple[dict[str, tuple[int, int]], dict[str, int], int]:
    response = client.ask(ApiVersionsRequest(client_software_name="x", client_software_version="1"), version)
    supported = {key.name: (key.min_version, key.max_version) for key in response.supported_features}
    finalized = {key.name: key.max_version_level for key in response.finalized_features}
    return supported, finalized, response.finalized_features_epoch


@pytest.mark.parametrize(("version", "lowest"), [(3, 1), (4, 0)])
def test_clients_are_told_of_features(client: Client, version: int, lowest: int) -> None:
    supported, finalized, _ = features(client, version)
    assert supported == {
        "group.version": (lowest, 1),
        "metadata.version": (30, 30),
        "share.version": (lowest, 1),
        "streams.version": (lowest, 1),
        "transaction.version": (lowest, 2),
    }
    assert finalized == {
        "group.version": 1,
        "metadata.version": 30,
        "share.version": 1,
        "streams.version": 1,
        "transaction.version": 2,
    }


def change(client: Client, level: int, upgrade_type: int, *, version: int = 2, validate_only: bool = False) -> Any:
    more = {"upgrade_type": upgrade_type} if version else {}
    update = FeatureUpdateKey(feature="transaction.version", max_version_level=level, **more)  # type: ignore[arg-type]
    return client.ask(UpdateFeaturesRequest(feature_updates=[update], validate_only=validate_only), version)


@pytest.mark.parametrize("version", [1, 2])
def test_a_feature_level_is_lowered_and_raised(client: Client, version: int) -> None:
    *_, epoch = features(client)
    refused = change(client, 1, 1, version=version)
    assert (refused.error_code, refused.results) == (ErrorCode.INVALID_UPDATE_VERSION, [])
    assert change(client, 1, 2, version=version, validate_only=True).error_code == 0
    assert features(client)[2] == epoch
    assert change(client, 1, 2, version=version).error_code == 0
    assert features(client)[1]["transaction.version"] == 1
    raised = change(client, 2, 1, version=version)
    assert (raised.error_code, len(raised.results)) == (0, 1 if version == 1 else 0)
    levels, now = features(client)[1:]
    assert (levels["transaction.version"], now) == (2, epoch + 2)


def test_the_first_version_can_only_raise_levels(client: Client) -> None:
    assert change(client, 1, 2, version=0).error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert change(client, 2, 2, version=0).error_code == 0
