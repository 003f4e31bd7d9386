"""A schema registry: where the schemas of Avro and Protobuf records are kept, by id and by subject.

A record in the registry's wire format begins with the id of the schema that it was written with:

    |0|id, 4 bytes, big-endian|data ...          Avro
    |0|id, 4 bytes, big-endian|indexes|data ...  Protobuf: which message of the schema's file

An id that the registry does not know is the record's fault: the record is rejected, but not within its first minute,
in which its schema may be on the way from one registry to another. A registry that is unreachable or denies
access is no fault of the record: `RegistryError` fails the task, the query is tried again, and nothing is rejected.

Source: the wire format and REST API of Confluent's Schema Registry, which Karapace and Apicurio serve too.
"""

import atexit
import os
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from ottla.registry.undecodable import Undecodable, UndecodableYet

MAGIC: Final = 0
_HEAD: Final = struct.Struct(">bI")
_NOT_FOUND: Final = 404
_MAY_PASS: Final = frozenset({408, 429, *range(500, 600)})
_SCHEMA_NOT_FOUND: Final = 40403
_NOT_THERE: Final = {40401: "no such subject", 40402: "no such version", _SCHEMA_NOT_FOUND: "no such schema"}
_FORGET_UNKNOWN_AFTER_S: Final = 10.0
"""An id that was unknown is asked for again after that: its schema may be on its way to this registry."""
PROTOBUF: Final = "PROTOBUF"
_MOST_KNOWN: Final = 1_000
_MOST_UNKNOWN: Final = 10_000
"""Ids that are remembered. A writer of records can name any number of them."""


class RegistryError(Exception):
    """The registry gives no schemas, whatever is asked for: it refuses the user, or is no registry."""


class RegistryAwayError(RegistryError):
    """The registry cannot be asked now: it is away, or in trouble. Trying again helps when it is back."""


class SubjectError(ValueError):
    """The registry has no such subject or version, or a schema of another type than was asked for."""


class Framed(NamedTuple):
    """A record in the wire format: the id of its schema, and where in its bytes what follows begins."""

    schema_id: int
    start: int


class Found(NamedTuple):
    """A schema as the registry has it. `references` are (name, text) of its imports, dependencies first."""

    schema_id: int
    type: str
    text: str
    references: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Registry:
    """The address of a registry, and how to reach it. A value: making one sends no request. See `registry`."""

    url: str
    settings: tuple[tuple[str, str], ...] = ()

    def by_id(self, schema_id: int, wanted: str | None) -> Found:
        """The schema of an id, of the type `wanted` (AVRO, PROTOBUF), or of any; remembered by this process.

        Raises UndecodableYet if the registry does not know the id, Undecodable if it has another type, RegistryError.
        """
        found = _client(self, os.getpid()).by_id(schema_id, wanted or PROTOBUF)
        if found is None:
            raise UndecodableYet(f"unknown schema id {schema_id}")
        if found.type != (wanted or found.type):
            raise Undecodable(f"the schema of id {schema_id} is {found.type}, not {wanted}")
        return found

    def check(self) -> None:
        """Make the client of this process. Raises ValueError for an address or setting that it does not take."""
        try:
            _client(self, os.getpid())
        except (ValueError, TypeError, OSError) as problem:
            raise ValueError(f"the registry at {self.url} cannot be asked so: {problem}") from problem

    def by_subject(self, subject: str, wanted: str, version: int | None = None) -> Found:
        """The subject's schema of that version, or its latest. Raises SubjectError, RegistryError."""
        found = _client(self, os.getpid()).by_subject(subject, wanted, version)
        if found.type != wanted:
            raise SubjectError(f"the schema of {subject} in the registry at {self.url} is {found.type}, not {wanted}")
        return found

    def register(self, subject: str, schema: str, kind: str = "AVRO") -> int:
        """Give the subject this schema, if it lacks it; the schema's id. Raises SubjectError, RegistryError."""
        return _client(self, os.getpid()).register(subject, schema, kind)


def registry(url: str, *, user: str | None = None, settings: Mapping[str, str] | None = None) -> Registry:
    """A registry by its address, or several addresses of one, separated by commas.

    `user` is `name:password`; `settings` are others of confluent-kafka's SchemaRegistryClient, such as
    `ssl.ca.location`, `bearer.auth.token` or `max.retries`.
    """
    given = dict(settings or {})
    if user is not None:
        given["basic.auth.user.info"] = user
    return Registry(url, tuple(sorted(given.items())))


def framed(value: bytes) -> Framed:
    """Decode the first five bytes. Raises Undecodable if they are not those of the wire format."""
    if len(value) < _HEAD.size:
        raise Undecodable(f"not the registry's wire format: {len(value)} bytes, its head alone has {_HEAD.size}")
    magic, schema_id = _HEAD.unpack_from(value)
    if magic != MAGIC:
        raise Undecodable(f"not the registry's wire format: begins with byte {value[0]}, not {MAGIC}")
    return Framed(schema_id, _HEAD.size)


def frame(schema_id: int) -> bytes:
    """The head of a record in the wire format."""
    return _HEAD.pack(MAGIC, schema_id)


class _Client:
    """The client of one registry in one process."""

    def __init__(self, registry: Registry) -> None:
        from confluent_kafka.schema_registry import SchemaRegistryClient

        self._url = registry.url
        self._client = SchemaRegistryClient({"url": registry.url, **_as_client_wants(registry.settings)})
        self._known: dict[int, Found] = {}
        self._unknown: dict[int, float] = {}

    def close(self) -> None:
        self._client.close()

    def by_id(self, schema_id: int, wanted: str) -> Found | None:
        known = self._known.get(schema_id)
        if known is not None:
            return known
        if time.monotonic() < self._unknown.get(schema_id, 0.0):
            return None
        try:
            schema = self._ask(lambda: self._client.get_schema(schema_id, fmt=_format(wanted)))
        except SubjectError:
            _keep(self._unknown, schema_id, time.monotonic() + _FORGET_UNKNOWN_AFTER_S, _MOST_UNKNOWN)
            return None
        found = self._found(schema_id, schema, wanted)
        _keep(self._known, schema_id, found, _MOST_KNOWN)
        return found

    def by_subject(self, subject: str, wanted: str, version: int | None) -> Found:
        form = _format(wanted)

        def ask() -> Any:
            if version is None:
                return self._client.get_latest_version(subject, fmt=form)
            return self._client.get_version(subject, version, fmt=form)

        registered = self._ask(ask, f"subject {subject}" + ("" if version is None else f", version {version}"))
        return self._found(registered.schema_id, registered.schema, wanted)

    def register(self, subject: str, schema: str, kind: str) -> int:
        from confluent_kafka.schema_registry import Schema

        schema_id: int = self._ask(
            lambda: self._client.register_schema(subject, Schema(schema, schema_type=kind)), f"subject {subject}"
        )
        return schema_id

    def _found(self, schema_id: int, schema: Any, wanted: str) -> Found:
        references: dict[str, str] = {}
        self._collect(schema, wanted, references)
        return Found(schema_id, schema.schema_type or "AVRO", schema.schema_str, tuple(references.items()))

    def _collect(self, schema: Any, wanted: str, into: dict[str, str]) -> None:
        for reference in schema.references or ():
            if reference.name in into:
                continue
            registered = self._ask(
                lambda asked=reference: self._client.get_version(
                    asked.subject, asked.version, deleted=True, fmt=_format(wanted)
                ),
                f"subject {reference.subject}, version {reference.version}",
            )
            self._collect(registered.schema, wanted, into)
            into[reference.name] = registered.schema.schema_str

    def _ask(self, question: Any, what: str = "") -> Any:
        """Raises SubjectError for missing or invalid schemas and subjects, RegistryError for all other failures."""
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        try:
            return question()
        except SchemaRegistryError as error:
            if error.http_status_code == _NOT_FOUND and error.error_code in _NOT_THERE:
                said = _NOT_THERE[error.error_code]
                raise SubjectError(f"the registry at {self._url} answered for {what or 'an id'}: {said}") from error
            if error.http_status_code in (409, 422):
                raise SubjectError(
                    f"the registry at {self._url} refuses the schema of {what}: {error.error_message}"
                ) from error
            kind = RegistryAwayError if error.http_status_code in _MAY_PASS else RegistryError
            raise kind(f"the registry at {self._url} answers: {error}") from error
        except Exception as error:  # of its HTTP library, whose names depend on its version: no way there, TLS, a token
            raise RegistryAwayError(f"the registry at {self._url} cannot be reached: {error}") from error


_clients: dict[tuple[Registry, int], _Client] = {}


def _client(registry: Registry, process_id: int) -> _Client:
    """Kept for the tasks that follow in this process; a forked one makes its own."""
    known = _clients.get((registry, process_id))
    if known is None:
        known = _clients[registry, process_id] = _Client(registry)
    return known


@atexit.register
def _close_clients() -> None:
    """Close this process's connections as it ends; those of the process that it was forked from are not its own."""
    for (_, process_id), client in _clients.items():
        if process_id == os.getpid():
            client.close()


def _keep(known: dict[int, Any], schema_id: int, what: Any, most: int) -> None:
    if len(known) >= most:
        known.clear()
    known[schema_id] = what


def _format(kind: str) -> str | None:
    """Protobuf's schemas are asked for as descriptors: nothing in Python reads their text. Schemas of other types are
    answered as they are if they are asked for so."""
    return "serialized" if kind == PROTOBUF else None


def _as_client_wants(settings: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    """Numbers as numbers: the client does not take them as text."""
    return {name: int(value) if value.isascii() and value.isdigit() else value for name, value in settings}
