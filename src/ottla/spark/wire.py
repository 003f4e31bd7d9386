"""Connections to brokers without a client library in between, for what Spark needs of them most.

A client library hands over one Python object per record, and asks about offsets with what it knew of a broker before
that was restarted. Here a fetch response stays one piece of memory (`ottla.spark.wire_fetch`), and every question about
topics is asked anew (`ottla.spark.wire_metadata`). Plain connections only: settings that ask for TLS or SASL go through
the client library (`client_fetch`, `client_metadata`).
"""

from functools import partial
from typing import Final

from ottla.client.addresses import Address, parse_addresses
from ottla.client.blocking import Connection
from ottla.client.cluster import Cluster
from ottla.client.sansio.session import ReusedMemory
from ottla.spark.client_settings import ClientSettings
from ottla.spark.errors import SourceError

CLIENT_ID: Final = "ottla-spark"
DEFAULT_FETCH_BYTES: Final = 4 << 20
"""Per request and partition: some thousands of records of 1 KB, so that what a task does per response is spread."""
ANSWER_TIMEOUT_S: Final = 30.0

UNDERSTOOD: Final = frozenset(
    (
        "bootstrap.servers",
        "check.crcs",
        "client.id",
        "fetch.max.bytes",
        "fetch.message.max.bytes",
        "fetch.min.bytes",
        "fetch.wait.max.ms",
        "group.id",
        "isolation.level",
        "max.partition.fetch.bytes",
        "security.protocol",
    )
)
"""Settings of the client library that mean the same here, or nothing for a read."""


def is_plain(client: ClientSettings) -> bool:
    """Whether these settings ask for nothing but what is done here."""
    given = dict(client)
    return given.keys() <= UNDERSTOOD and given.get("security.protocol", "plaintext").lower() == "plaintext"


def cluster_of(client: ClientSettings, answer_within_s: float = ANSWER_TIMEOUT_S) -> Cluster:
    """The cluster of these settings. Bytes in its answers are overwritten by the next answer of the same broker.

    Raises SourceError for bootstrap servers that are no addresses.
    """
    given = dict(client)
    try:
        bootstrap = parse_addresses(given["bootstrap.servers"], default_port=None)
    except ValueError as error:
        raise SourceError(f"'kafka.bootstrap.servers' is a list of host:port, but {error}") from error
    return Cluster(bootstrap, partial(_connected, given.get("client.id", CLIENT_ID), answer_within_s))


def _connected(client_id: str, answer_within_s: float, address: Address) -> Connection:
    memory = ReusedMemory(DEFAULT_FETCH_BYTES)
    return Connection(address, client_id=client_id, timeout_s=answer_within_s, memory=memory)
