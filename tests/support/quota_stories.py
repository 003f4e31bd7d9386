"""Requests about quotas that genuine Kafka and Ottla answer alike, changes and filters, valid and not."""

from typing import Final

from ottla.protocol.messages import alter_client_quotas as aq
from ottla.protocol.messages import describe_client_quotas as dq

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
