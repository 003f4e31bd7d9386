"""Connections to brokers without a client library in between, for what Spark needs of them most.

A client library hands over one Python object per record, and asks about offsets with what it knew of a broker before
that was restarted. Here a fetch response stays one piece of memory (`ottla.spark.wire_fetch`), and every question about
topics is asked anew (`ottla.spark.wire_metadata`), with TLS and SASL too. Settings that only the library has, such as
those of Kerberos, go through it (`client_fetch`, `client_metadata`).
"""

from functools import partial
from typing import Final

from ottla.client.addresses import Address, parse_addresses
from ottla.client.blocking import Connection
from ottla.client.cluster import Cluster
from ottla.client.errors import AuthenticationFailed, BrokerUnavailable, ClientError
from ottla.client.sansio.session import ReusedMemory
from ottla.client.security import Security, UnsupportedSecurity, is_of_security, is_spoken, security_of
from ottla.spark.client_settings import ClientSettings
from ottla.spark.errors import OptionError, SourceError, unreachable

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
    )
)
"""Settings of the client library that mean the same here, or nothing for a read."""


def is_for_wire(client: ClientSettings) -> bool:
    """Whether these settings ask for nothing but what is done here."""
    given = dict(client)
    return all(name in UNDERSTOOD or is_of_security(name) for name in given) and is_spoken(given)


def cluster_of(client: ClientSettings, answer_within_s: float = ANSWER_TIMEOUT_S) -> Cluster:
    """The cluster of these settings. Bytes in its answers are overwritten by the next answer of the same broker.

    Raises SourceError for bootstrap servers that are no addresses, OptionError for keys that cannot be read.
    """
    given = dict(client)
    try:
        bootstrap = parse_addresses(given["bootstrap.servers"], default_port=None)
    except ValueError as error:
        raise SourceError(f"'kafka.bootstrap.servers' is a list of host:port, but {error}") from error
    try:
        security = security_of(given)
    except UnsupportedSecurity as problem:
        raise OptionError(f"the options kafka.*: {problem}") from problem
    return Cluster(bootstrap, partial(_connected, given.get("client.id", CLIENT_ID), answer_within_s, security))


def is_refused(error: ClientError) -> bool:
    """Whether the brokers refuse this client's login: to wait would not help."""
    return isinstance(error, AuthenticationFailed) and not isinstance(error, BrokerUnavailable)


def no_answer(servers: str, subject: str, error: ClientError) -> SourceError:
    """The error for brokers that did not answer about the `subject`."""
    if is_refused(error):
        return SourceError(f"no broker at {servers} was asked about {subject}: {error}; see the options kafka.sasl.*")
    return unreachable(servers, subject, error)


def _connected(client_id: str, answer_within_s: float, security: Security, address: Address) -> Connection:
    memory = ReusedMemory(DEFAULT_FETCH_BYTES)
    return Connection(address, client_id=client_id, timeout_s=answer_within_s, security=security, memory=memory)
