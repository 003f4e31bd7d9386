"""The dearest request of each API that its bounds allow delays no other client by more than 50 ms.

The requests are made of the declarations of their classes (`tests.support.dear_requests`), so an API that is added to
the routing table is tried, too: in one way, and with the marker `soak` in all. What is measured is how long a bystander
waits for an answer, without the time for which the broker had to wait for a processor. With `-s` the test prints what
each request did.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final
from uuid import UUID

import pytest
from tests.support.bystander import Bystander, bystander
from tests.support.dear_requests import DearRequest, Maker, Value
from tests.support.ottla_process import OttlaProcess
from tests.support.raw_client import ClosedError, RawConnection, ask
from tests.support.stories import Teller, batch

from ottla.protocol.api import ApiKey
from ottla.protocol.messages import create_topics as ct
from ottla.protocol.messages import init_producer_id as ipi
from ottla.protocol.messages import metadata as md
from ottla.protocol.primitives import NULL_UUID
from ottla.server.routing import OWN_ROUTES, ROUTES, Route

MOST_S: Final = 0.05
EVERY_S: Final = 0.004
TRIES: Final = 6
TOPICS: Final = 300
PARTITIONS: Final = 1000
GROUP: Final = "group"
LAST: Final = (
    ApiKey.DELETE_GROUPS,
    ApiKey.OFFSET_DELETE,
    ApiKey.DELETE_SHARE_GROUP_STATE,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
)
"""They take away what others ask about, in this order."""


def routes() -> Iterator[Route]:
    """Every API, those in `LAST` at the end."""
    served = ROUTES | OWN_ROUTES
    yield from (route for key, route in served.items() if key not in LAST)
    yield from (served[key] for key in LAST)


def fixed(value: Any) -> Value:
    return lambda at, known: value


def topic(at: int, known: bool) -> str:
    return f"t{at % TOPICS}" if known else f"unknown-{at}"


def partition(at: int, known: bool) -> int:
    return at % PARTITIONS if known else at + PARTITIONS


def group(at: int, known: bool) -> str:
    return GROUP if at == 0 else f"{GROUP}-{at}"


VALUES: Final[dict[str | tuple[ApiKey, str], Value]] = {
    **dict.fromkeys(("topic", "topic_name", "name", "source_topics", "subscribed_topic_names", "resource_name"), topic),
    **dict.fromkeys(("partition", "partitions", "partition_index", "partition_indexes", "index"), partition),
    **dict.fromkeys(("group_id", "groups", "group_ids", "groups_names", "coordinator_keys"), group),
    **dict.fromkeys(("first_offset", "last_offset", "member_id"), lambda at, known: at),
    **dict.fromkeys(("offset", "start_offset", "member_epoch", "share_session_epoch"), fixed(0)),
    **dict.fromkeys(("generation_id_or_member_epoch", "generation_id", "replica_id", "session_epoch"), fixed(-1)),
    **dict.fromkeys(("num_partitions", "replication_factor", "controller_epoch", "acks"), fixed(-1)),
    **dict.fromkeys(("session_timeout_ms", "rebalance_timeout_ms"), fixed(10_000)),
    **dict.fromkeys(("max_records", "batch_size"), fixed(500)),
    **dict.fromkeys(("broker_ids", "replicas", "timestamp", "acknowledge_types"), fixed(1)),
    **dict.fromkeys(("include_synonyms", "include_documentation", "include_authorized_operations"), fixed(True)),
    **dict.fromkeys(("resource_type", "resource_types"), fixed(2)),
    "member_id": fixed("member"),
    "transactional_id": fixed("tx"),
    "transactional_ids": lambda at, known: f"tx-{at}",
    "timeout_ms": fixed(2000),
    "max_bytes": fixed(1 << 20),
    "partition_max_bytes": fixed(1 << 10),
    "validate_only": fixed(True),
    "allow_auto_topic_creation": fixed(False),
    "response_partition_limit": fixed(2000),
    "protocol_type": fixed("consumer"),
    "count": fixed(PARTITIONS + 100),
    "path": fixed("/nowhere"),
    "broker_id": fixed(99),
    "records": fixed(batch(b"v")),
    "feature": lambda at, known: f"feature-{at}",
    (ApiKey.METADATA, "topic_id"): fixed(NULL_UUID),
    (ApiKey.DELETE_TOPICS, "topic_id"): fixed(NULL_UUID),
    (ApiKey.FIND_COORDINATOR, "key_type"): fixed(0),
    (ApiKey.OFFSET_FETCH, "member_epoch"): fixed(-1),
    (ApiKey.OFFSET_FETCH, "member_id"): fixed(None),
    (ApiKey.OFFSET_COMMIT, "member_id"): fixed(""),
    (ApiKey.TXN_OFFSET_COMMIT, "member_id"): fixed(""),
    (ApiKey.JOIN_GROUP, "group_id"): fixed("joined"),
    (ApiKey.JOIN_GROUP, "member_id"): fixed(""),
    (ApiKey.SYNC_GROUP, "group_id"): fixed("joined"),
    (ApiKey.CONSUMER_GROUP_HEARTBEAT, "group_id"): fixed("consumers"),
    (ApiKey.STREAMS_GROUP_HEARTBEAT, "group_id"): fixed("streams"),
    (ApiKey.SHARE_GROUP_HEARTBEAT, "group_id"): fixed("sharing"),
    (ApiKey.SHARE_FETCH, "group_id"): fixed("sharing"),
    (ApiKey.SHARE_FETCH, "member_id"): fixed(str(UUID(int=5))),
    (ApiKey.SHARE_ACKNOWLEDGE, "group_id"): fixed("sharing"),
    (ApiKey.SHARE_ACKNOWLEDGE, "member_id"): fixed(str(UUID(int=5))),
}
"""What is sent in each field, where zero, nothing or the default would end a request at once."""


def prepared(broker: OttlaProcess) -> Maker:
    """Topics, a producer with a transactional id, and requests that name them."""
    Teller(broker.bootstrap).create("t0", PARTITIONS)
    wanted = [
        ct.CreatableTopic(name=f"t{number}", num_partitions=1, replication_factor=1, assignments=[], configs=[])
        for number in range(1, TOPICS)
    ]
    made = ask(broker.bootstrap, ct.CreateTopicsRequest(topics=wanted, timeout_ms=30_000), 7)
    assert not any(created.error_code for created in made.topics)
    request = md.MetadataRequest(topics=None, allow_auto_topic_creation=False)
    ids = {known.name: known.topic_id for known in ask(broker.bootstrap, request, 13).topics}
    transactional = ipi.InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000)
    producer = ask(broker.bootstrap, transactional, 4)
    values: dict[str | tuple[ApiKey, str], Value] = {
        "topic_id": lambda at, known: ids[f"t{at % TOPICS}"] if known else UUID(int=at + 1),
        "producer_id": fixed(producer.producer_id),
        "producer_epoch": fixed(producer.producer_epoch),
    }
    return Maker(values | VALUES)


def delay_s(broker: OttlaProcess, dear: DearRequest, seen: Bystander) -> float:
    """The bystander's longest wait while the request is answered."""
    seen.lap()
    with suppress(ClosedError, TimeoutError), RawConnection(broker.bootstrap) as connection:
        connection.send(dear.message, dear.version)
        connection.receive_frame()
    return seen.lap().worst_s


@pytest.mark.timeout(900)
@pytest.mark.parametrize("in_all_ways", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_the_dearest_request_of_each_api_delays_nobody(in_all_ways: bool) -> None:
    late: list[str] = []
    with OttlaProcess() as broker:
        maker = prepared(broker)
        with bystander(broker, EVERY_S) as seen:
            for route in routes():
                ways = maker.requests(route.api_key, route.max_version)
                for make in ways if in_all_ways else ways[-1:]:
                    dear = make()
                    delays_s: list[float] = []
                    while len(delays_s) < TRIES and (not delays_s or delays_s[-1] > MOST_S):
                        delays_s.append(delay_s(broker, dear, seen))
                    print(f"{min(delays_s) * 1000:6.1f} ms: {dear.what}", flush=True)
                    if min(delays_s) > MOST_S:
                        late.append(f"{dear.what}: {min(delays_s) * 1000:.0f} ms")
    assert not late
