"""The schemas of a registry, for values that begin with the id of theirs. Each is asked for once, in a search's thread.

A registry that is away, slow or refuses access is a sentence beside the bytes: it is asked again after a while only.
Ids come from the writers of records, so how many are asked for, and how many are kept, is bounded.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, Final

from ottla.connect.rest.redaction import redacted
from ottla.connect.runtime.threads import in_thread
from ottla.console.values import LARGEST_JSON_BYTES, Decoded, read_json
from ottla.registry.client import Found, Registry, RegistryError, framed, registry
from ottla.registry.undecodable import Undecodable, UndecodableYet

MOST_KEPT: Final = 200
LONGEST_TEXT: Final = 1 << 20
LARGEST_BYTES: Final = LARGEST_JSON_BYTES
QUIET_S: Final = 10.0
"""After a failure, the registry is left alone for so long; and so long an id stays unknown."""
MOST_ASKED: Final = 100
"""Schemas that are asked for in `QUIET_S`."""
ANSWER_S: Final = 5.0
"""All searches wait for one answer."""
LONGEST_PROBLEM: Final = 300
SETTINGS: Final = {"max.retries": "0", "timeout": "3", "cache.capacity": "1"}
"""One request, which a page can wait for; schemas are kept here and not twice."""

Read = Callable[[bytes, int], Any]


def schemas_at(url: str, settings: Mapping[str, str]) -> "Schemas":
    """Schemas of the registry at an address; `settings` are those of confluent-kafka's client.

    Raises ValueError for an address or setting that this client does not take.
    """
    given = registry(url, settings={**SETTINGS, **settings})
    given.check()
    return Schemas(given)


class Schemas:
    """Decodes values by the schemas of one registry. Threads may share it."""

    def __init__(self, asked: Registry, clock: Callable[[], float] = time.monotonic) -> None:
        self._registry = asked
        self._clock = clock
        self._lock = threading.Lock()
        self._readers: OrderedDict[int, tuple[str, Read]] = OrderedDict()
        self._refused: OrderedDict[int, tuple[float, str]] = OrderedDict()
        self._quiet_until = 0.0
        self._quiet = ""
        self._window = (0.0, 0)
        self._asked: Future[Found] | None = None

    def decode(self, data: bytes) -> Decoded:
        """The value by its schema, or why it cannot be read. Raises nothing; may wait for the registry."""
        schema_id, start = framed(data)
        if len(data) > LARGEST_BYTES:
            return Decoded("", None, f"Schema {schema_id}; it is too large to be decoded here.")
        known = self._readers.get(schema_id)
        if known is None:
            with self._lock:
                known = self._readers.get(schema_id)
                if known is None:
                    found = self._ask(schema_id)
                    if isinstance(found, str):
                        return Decoded("", None, f"Not decoded: {found}.")
                    known = found
        kind, read = known
        try:
            return Decoded(kind, read(data, start), f"Schema {schema_id}")
        except Undecodable as problem:
            return Decoded("", None, f"Not decoded by schema {schema_id}: {problem}.")

    def _ask(self, schema_id: int) -> tuple[str, Read] | str:
        now = self._clock()
        if now < self._quiet_until:
            return self._quiet
        until, why = self._refused.get(schema_id, (0.0, ""))
        if now < until:
            return why
        began, asked = self._window
        if now - began >= QUIET_S:
            began, asked = now, 0
        if asked >= MOST_ASKED:
            return f"more than {MOST_ASKED} schemas were needed within {QUIET_S:.0f} s"
        self._window = began, asked + 1
        try:
            made = _reader(self._answer(schema_id))
        except RegistryError as problem:
            # of an address that has a password in it, and of answers
            said = str(redacted(str(problem)[:LONGEST_PROBLEM], lambda _: (), lambda text: text))
            self._quiet_until, self._quiet = self._clock() + QUIET_S, said
            return self._quiet
        except UndecodableYet:
            return self._refuse(schema_id, f"the registry has no schema {schema_id}")
        except (ValueError, RecursionError) as problem:
            return self._refuse(schema_id, f"schema {schema_id} cannot be used: {str(problem)[:300]}")
        _keep(self._readers, schema_id, made)
        return made

    def _answer(self, schema_id: int) -> Found:
        """Raises as the registry does, and RegistryError for an answer that takes too long: one byte a second, say."""
        if self._asked is not None and not self._asked.done():
            raise RegistryError("the registry has not answered yet")
        self._asked = in_thread(f"schema {schema_id}", lambda: self._registry.by_id(schema_id, None))
        try:
            return self._asked.result(ANSWER_S)
        except FutureTimeoutError:
            raise RegistryError(f"the registry does not answer within {ANSWER_S:.0f} s") from None

    def _refuse(self, schema_id: int, why: str) -> str:
        _keep(self._refused, schema_id, (self._clock() + QUIET_S, why))
        return why


def _keep(known: OrderedDict[int, Any], schema_id: int, what: Any) -> None:
    known[schema_id] = what
    while len(known) > MOST_KEPT:
        known.popitem(last=False)


def _reader(found: Found) -> tuple[str, Read]:
    """The kind of a schema's values, and what reads them. Raises ValueError."""
    if len(found.text) + sum(len(text) for _, text in found.references) > LONGEST_TEXT:
        raise ValueError(f"it has more than {LONGEST_TEXT:,} characters")
    if found.type == "AVRO":
        from ottla.registry.avro import reader as avro

        return "avro", avro(found)
    if found.type == "PROTOBUF":
        from ottla.registry.messages import reader as protobuf

        return "protobuf", protobuf(found)
    if found.type == "JSON":
        return "json", _read_json
    raise ValueError(f"its type is {found.type}")


def _read_json(data: bytes, start: int) -> Any:
    found = read_json(data[start:])
    if found is None:
        raise Undecodable("what follows is no object or list of JSON")
    return found


def unconfigured(data: bytes) -> Decoded:
    """Such a value where no registry is configured: JSON is read all the same."""
    schema_id, start = framed(data)
    if data[start : start + 1] in (b"{", b"[") and (found := read_json(data[start:])) is not None:
        return Decoded("json", found, f"Schema {schema_id}, of a registry that this console does not know")
    return Decoded(
        "", None, f"This may have schema {schema_id} of a registry: `ottla console --registry URL` decodes it."
    )
