"""Requests about quotas that genuine Kafka and Ottla answer alike, changes and filters, valid and not."""

import os
from collections.abc import Callable, Mapping
from typing import Any, Final

from ottla.protocol.messages import alter_client_quotas as aq
from ottla.protocol.messages import create_topics as ct
from ottla.protocol.messages import describe_client_quotas as dq
from ottla.protocol.messages import fetch as f
from ottla.protocol.messages import metadata as md
from tests.support.eventually import eventually
from tests.support.raw_client import RawConnection, ask
from tests.support.stories import batch, produce

Entity = tuple[tuple[str, str | None], ...]
Ops = tuple[tuple[str, float | None], ...]
USER, CLIENT, IP = "user", "client-id", "ip"


def alteration(*entries: tuple[Entity, Ops], validate_only: bool = False) -> aq.AlterClientQuotasRequest:
    """A change of quotas; None as a value removes."""
    return aq.AlterClientQuotasRequest(
        entries=[
            aq.EntryData(
                entity=[aq.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                ops=[aq.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in ops],
            )
            for entity, ops in entries
        ],
        validate_only=validate_only,
    )


def question(*components: tuple[str, int, str | None], strict: bool = False) -> dq.DescribeClientQuotasRequest:
    """A filter of quotas."""
    return dq.DescribeClientQuotasRequest(
        components=[
            dq.ComponentData(entity_type=kind, match_type=match, match=name) for kind, match, name in components
        ],
        strict=strict,
    )


SET: Final = (
    (((USER, "alice"),), (("producer_byte_rate", 1e6), ("request_percentage", 12.5))),
    (((USER, None),), (("consumer_byte_rate", 2e6),)),
    (((CLIENT, "app"),), (("producer_byte_rate", 3.0), ("controller_mutation_rate", 0.25))),
    (((CLIENT, None),), (("request_percentage", 1e9),)),
    (((USER, "alice"), (CLIENT, "app")), (("consumer_byte_rate", 2.0**53),)),
    (((CLIENT, "x y/z*~."), (USER, "CN=a b,O=c~")), (("consumer_byte_rate", 5.0),)),
    (((USER, None), (CLIENT, None)), (("producer_byte_rate", 7.0),)),
    (((USER, "."), (CLIENT, "<default>")), (("producer_byte_rate", 8.0),)),
    (((IP, "127.0.0.7"),), (("connection_creation_rate", 9.0),)),
    (((IP, None),), (("connection_creation_rate", 2147483647.0),)),
)
REFUSED: Final = (
    ((), (("producer_byte_rate", 1.0),)),
    (((USER, ""),), (("producer_byte_rate", 1.0),)),
    (((CLIENT, ""),), (("producer_byte_rate", 1.0),)),
    ((("group", "g"),), (("producer_byte_rate", 1.0),)),
    (((USER, "u"), (IP, "127.0.0.1")), (("producer_byte_rate", 1.0),)),
    (((USER, "u"), (CLIENT, "c"), (IP, "127.0.0.1")), (("connection_creation_rate", 1.0),)),
    (((IP, "nowhere.invalid"),), (("connection_creation_rate", 1.0),)),
    (((IP, "127.0.0.1"),), (("producer_byte_rate", 1.0),)),
    (((IP, "127.0.0.1"),), (("connection_creation_rate", 1.5),)),
    (((IP, "127.0.0.1"),), (("connection_creation_rate", 2147483648.0),)),
    (((USER, "u"),), (("connection_creation_rate", 1.0),)),
    (((USER, "u"),), (("no_such_quota", 1.0),)),
    (((USER, "u"),), (("no_such_quota", None),)),
    (((USER, "u"),), (("SCRAM-SHA-256", 1.0),)),
    (((USER, "u"),), (("SCRAM-SHA-256", None),)),
    (((USER, "u"), (CLIENT, "c")), (("SCRAM-SHA-256", None),)),
    (((USER, "u"),), (("producer_byte_rate", 0.0),)),
    (((USER, "u"),), (("producer_byte_rate", -1.0),)),
    (((USER, "u"),), (("producer_byte_rate", 1.5),)),
    (((USER, "u"),), (("producer_byte_rate", 0.9999999),)),
    (((USER, "u"),), (("producer_byte_rate", 1e30),)),
    (((USER, "u"),), (("producer_byte_rate", float("inf")),)),
    (((USER, "u"),), (("request_percentage", float("inf")),)),
    (((USER, "u"),), (("request_percentage", -0.5),)),
    (((USER, "u"),), (("request_percentage", 1e-300),)),
    (((USER, "u"),), (("producer_byte_rate", 5.0), ("no_such_quota", 1.0))),
    (((USER, "v"),), (("producer_byte_rate", None),)),
    (((USER, "v"),), ()),
    (((USER, "twice"), (USER, "again")), (("producer_byte_rate", 4.0),)),
    (((USER, "keys"),), (("producer_byte_rate", 4.0), ("producer_byte_rate", 5.0))),
)
FILTERS: Final = (
    (),
    ((USER, 0, "alice"),),
    ((USER, 1, None),),
    ((USER, 2, None),),
    ((CLIENT, 2, None),),
    ((USER, 2, None), (CLIENT, 2, None)),
    ((USER, 0, "alice"), (CLIENT, 1, None)),
    ((USER, 0, "CN=a b,O=c~"), (CLIENT, 0, "x y/z*~.")),
    ((IP, 0, "127.0.0.7"),),
    ((IP, 1, None),),
    ((IP, 2, None),),
    ((USER, 0, "nobody"),),
    ((USER, 0, None),),
    ((USER, 1, "x"),),
    ((USER, 2, "x"),),
    ((USER, 3, "x"),),
    ((USER, -1, None),),
    (("", 0, "x"),),
    (("group", 0, "x"),),
    ((USER, 0, "x"), (USER, 1, None)),
    ((USER, 0, "x"), (IP, 1, None)),
    ((IP, 2, None), (CLIENT, 2, None)),
)
REMOVED: Final = (
    (((USER, "alice"),), (("producer_byte_rate", None), ("consumer_byte_rate", None))),
    (((CLIENT, "app"),), (("producer_byte_rate", None), ("controller_mutation_rate", 2.0))),
    (((IP, None),), (("connection_creation_rate", None),)),
)


# -- requests that use quotas ----------------------------------------------------------------------------------------


def produced(connection: RawConnection, topic: str, records: bytes, *, acks: int = -1) -> Any:
    """Produce records to partition 0; the answer, None for acks=0."""
    request = produce([(topic, 0, records)], acks=acks)
    if acks == 0:
        connection.send(request, 9)
        return None
    answer = connection.ask(request, 9)
    assert answer.responses[0].partition_responses[0].error_code == 0
    return answer


def consumed(connection: RawConnection, topic: str, offset: int, most: int) -> tuple[Any, int]:
    """Fetch from partition 0; the answer, and how many bytes of records it has."""
    partition = f.FetchPartition(
        partition=0,
        fetch_offset=offset,
        partition_max_bytes=most,
        log_start_offset=-1,
        current_leader_epoch=-1,
        last_fetched_epoch=-1,
    )
    request = f.FetchRequest(
        replica_id=-1,
        max_wait_ms=100,
        min_bytes=1,
        max_bytes=most,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[f.FetchTopic(topic=topic, partitions=[partition])],
        forgotten_topics_data=[],
        rack_id="",
    )
    answer = connection.ask(request, 12)
    return answer, sum(len(data.records or b"") for part in answer.responses for data in part.partitions)


def create(bootstrap: str, client_id: str, topics: Mapping[str, int], *, version: int = 7) -> Any:
    """Create topics of so many partitions, which take records without keys whatever the broker's default is."""
    configs = [ct.CreatableTopicConfig(name="cleanup.policy", value="delete")]
    wanted = [
        ct.CreatableTopic(name=name, num_partitions=count, replication_factor=1, assignments=[], configs=configs)
        for name, count in topics.items()
    ]
    return ask(bootstrap, ct.CreateTopicsRequest(topics=wanted), version, client_id=client_id)


def first_throttle_times(bootstrap: str) -> dict[str, tuple[int, int]]:
    """Use up one quota of each kind: how many requests were not throttled, and the throttle time of the next."""
    quotas = {
        "producer_byte_rate": 100_000.0,
        "consumer_byte_rate": 100_000.0,
        "request_percentage": 0.001,
        "controller_mutation_rate": 1.0,
    }
    for kind, value in quotas.items():
        entity: Entity = ((USER, "ANONYMOUS"), (CLIENT, kind))
        (answer,) = ask(bootstrap, alteration((entity, ((kind, value),))), 1).entries
        assert answer.error_code == 0
    (made,) = create(bootstrap, "setup", {"throttled": 1}).topics
    assert made.error_code == 0, made
    eventually(lambda: _is_led(bootstrap, "throttled"))
    data = batch(os.urandom(190_000))
    steps: dict[str, Callable[[RawConnection, int], int]] = {
        "producer_byte_rate": lambda producer, _: int(produced(producer, "throttled", data).throttle_time_ms),
        "consumer_byte_rate": lambda consumer, at: int(
            consumed(consumer, "throttled", at + 1, len(data))[0].throttle_time_ms
        ),
        "request_percentage": lambda client, _: int(client.ask(md.MetadataRequest(topics=None), 12).throttle_time_ms),
        "controller_mutation_rate": lambda _, at: int(
            create(bootstrap, "controller_mutation_rate", {f"{at}a": 6, f"{at}b": 6, f"{at}c": 6}).throttle_time_ms
        ),
    }
    found = {}
    for kind, step in steps.items():
        with RawConnection(bootstrap, client_id=kind) as connection:
            allowed = 0
            while (throttle_ms := step(connection, allowed)) == 0:
                allowed += 1
        found[kind] = allowed, throttle_ms
    return found


def _is_led(bootstrap: str, topic: str) -> bool:
    asked = md.MetadataRequest(topics=[md.MetadataRequestTopic(name=topic)])
    (found,) = ask(bootstrap, asked, 12).topics
    if found.error_code or found.partitions[0].leader_id < 0:
        return False
    with RawConnection(bootstrap) as connection:
        request = produce([(topic, 0, batch(b"first"))])
        return bool(connection.ask(request, 9).responses[0].partition_responses[0].error_code == 0)
